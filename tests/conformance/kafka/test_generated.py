"""Random lives of groups: Apache Kafka and the daemon answer alike; what does not is shrunk.

CASES=2000 for more of them (100 otherwise); SEED=N repeats a run, or begins another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.conformance.kafka.asked import ASKED
from tests.conformance.kafka.explorer import Lived, explore, search
from tests.conformance.kafka.generated import Life, Liver
from tests.conformance.kafka.mixed_lives import MixedLife, MixedLiver, mixed_lives
from tests.conformance.kafka.pair import Pair
from tests.conformance.kafka.runner import Bench, Figures, Outcome, run_once

pytestmark = pytest.mark.differential

EXPLORERS = 20 if ASKED.cases <= 100 else 60
"""Searches at once, each with a seed of its own. They mostly wait."""

MIXED_SHARE = 0.3
"""Lives of groups with both protocols, for each life of a classic group."""

Told = Callable[[int], str]


@pytest.fixture(scope="module")
def told_by(benches: dict[bool, Bench], figures: Figures) -> Iterator[Told]:
    """What an explorer found, shrunk; all run side by side."""
    stopping = threading.Event()
    with ThreadPoolExecutor(EXPLORERS) as pool:
        each = -(-ASKED.cases // EXPLORERS) + 1  # the first is always the simplest life
        jobs = [
            pool.submit(explore, number, each, lived_on(benches[False], number), figures, stopping)
            for number in range(ASKED.seed, ASKED.seed + EXPLORERS)
        ]
        yield lambda explorer: jobs[explorer].result()
        stopping.set()


@pytest.fixture(scope="module")
def mixed_told_by(benches: dict[bool, Bench], figures: Figures) -> Iterator[Told]:
    """The same for lives of groups with both protocols."""
    stopping = threading.Event()
    with ThreadPoolExecutor(EXPLORERS) as pool:
        each = -(-int(ASKED.cases * MIXED_SHARE) // EXPLORERS) + 1
        jobs = [
            pool.submit(
                search,
                mixed_lives(),
                *(number, each, mixed_lived_on(benches[False], number), figures, stopping),
            )
            for number in range(ASKED.seed, ASKED.seed + EXPLORERS)
        ]
        yield lambda explorer: jobs[explorer].result()
        stopping.set()


def mixed_lived_on(bench: Bench, number: int) -> Lived[MixedLife]:
    """How a life of a group with both protocols is led on both sides."""

    def lived(life: MixedLife, patience: int) -> Outcome:
        def led_mixed(pair: Pair) -> None:
            MixedLiver(pair, life).lead()

        return run_once(bench, f"mixed-{number}", led_mixed, patience)

    return lived


def lived_on(bench: Bench, number: int) -> Lived[Life]:
    """How a life is led on both sides."""

    def lived(life: Life, patience: int) -> Outcome:
        return run_once(bench, f"life-{number}", partial(led, life), patience)

    return lived


def led(life: Life, pair: Pair) -> None:
    """Lead a life on both sides."""
    Liver(pair, life).lead()


@pytest.mark.parametrize("explorer", range(EXPLORERS))
def test_random_lives_are_alike(explorer: int, told_by: Told) -> None:
    told = told_by(explorer)
    assert not told, told


@pytest.mark.parametrize("explorer", range(EXPLORERS))
def test_random_lives_with_both_protocols_are_alike(explorer: int, mixed_told_by: Told) -> None:
    told = mixed_told_by(explorer)
    assert not told, told
