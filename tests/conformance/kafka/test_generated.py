"""Random lives of groups: Apache Kafka and the daemon answer alike; what does not is shrunk.

CASES=2000 for more of them (100 otherwise); SEED=N repeats a run, or begins another.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as hypothesis_settings
from hypothesis.errors import FlakyFailure

from tests.conformance.kafka.generated import Life, Liver, lives
from tests.conformance.kafka.pair import Pair
from tests.conformance.kafka.runner import RUNS, Bench, Figures, Outcome, run

pytestmark = pytest.mark.differential

CASES = int(os.environ.get("CASES", "100"))
SEED = int(os.environ.get("SEED", "1"))
EXPLORERS = 20 if CASES <= 100 else 60
"""Searches at once, each with a seed of its own. They mostly wait."""

Told = Callable[[int], str]


@pytest.fixture(scope="module")
def told_by(benches: dict[bool, Bench], figures: Figures) -> Iterator[Told]:
    """What an explorer found, shrunk; all run side by side."""
    stopping = threading.Event()
    with ThreadPoolExecutor(EXPLORERS) as pool:
        work = partial(explore, benches[False], figures, stopping)
        jobs = [pool.submit(work, SEED + n) for n in range(EXPLORERS)]
        yield lambda explorer: jobs[explorer].result()
        stopping.set()


def explore(bench: Bench, figures: Figures, stopping: threading.Event, number: int) -> str:
    """Draw lives until one differs; returns the shortest that does, or nothing."""
    last: list[Outcome] = []

    @hypothesis_settings(
        max_examples=-(-CASES // EXPLORERS) + 1,  # the first is always the simplest life
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @seed(number)
    @given(lives())
    def alike(life: Life) -> None:
        if stopping.is_set():
            return
        runs = 1 if last else RUNS  # one that is shrunk has shown that it is no chance
        outcome = run(bench, f"life-{number}", partial(led, life), figures, runs)
        if outcome.differences or outcome.trouble:
            last[:] = [outcome]
            raise AssertionError("both sides do not do the same")

    try:
        alike()
    except AssertionError:
        return f"SEED={number}: {last[0].told()}"
    except FlakyFailure:
        figures.differed_once(f"SEED={number}", last[0].told())  # shrunk to nothing: chance
    return ""


def led(life: Life, pair: Pair) -> None:
    """Lead a life on both sides."""
    Liver(pair, life).lead()


@pytest.mark.parametrize("explorer", range(EXPLORERS))
def test_random_lives_are_alike(explorer: int, told_by: Told) -> None:
    told = told_by(explorer)
    assert not told, told
