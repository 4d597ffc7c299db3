"""Both sides are killed in the middle of a reconciliation, and go on alike (docs/spec/edge-cases.md
#edge-104).
"""

from __future__ import annotations

import pytest

from tests.conformance.kafka import servers
from tests.conformance.kafka.case import LEVELS, Case
from tests.conformance.kafka.consumer_groups import Member, classic_group, look, settled
from tests.conformance.kafka.conversions import EVERYTHING
from tests.conformance.kafka.pair import Pair
from tests.conformance.kafka.runner import Bench

pytestmark = pytest.mark.differential


def test_a_reconciliation_goes_on_after_a_restart() -> None:
    started = servers.start(small=False, storage_url="")
    try:
        bench = Bench.of(started)
        lives: list[tuple[Pair, list[Member]]] = []
        for level in (LEVELS[0], LEVELS[-1]):
            moving, mixed = bench.pair(f"moving-{level}"), bench.pair(f"mixed-{level}")
            lives.append((moving, _begin_to_move(Case(moving, level))))
            lives.append((mixed, _begin_to_convert(Case(mixed, level))))
        for pair, _ in lives:
            pair.close()
        started.restart()
        Bench.of(started)  # waits until both know the topic again
        for pair, group in lives:
            _go_on(pair, *group)
        for pair, _ in lives:
            assert pair.comparison.differences == [], "\n".join(pair.steps)
            pair.close()
    finally:
        started.stop()


def _begin_to_move(case: Case) -> list[Member]:
    """The first member is told to give up one half, and the second one waits for it."""
    a, b = Member(case, "a"), Member(case, "b")
    a.join()
    b.join()
    a.heartbeat()
    look(case)
    return [a, b]


def _begin_to_convert(case: Case) -> list[Member]:
    """A classic member has to give up one half to a newcomer of the consumer protocol."""
    (classic,) = classic_group(case, EVERYTHING)
    newcomer = Member(case, "new")
    newcomer.join()
    case.heartbeat(classic)
    look(case)
    return [newcomer]


def _go_on(pair: Pair, first: Member, *others: Member) -> None:
    look(first.case)
    first.heartbeat()
    for each in others:
        each.heartbeat()
    if others:
        settled(first.case, first, *others)
    else:
        classic = pair.person("classic-0")
        first.case.heartbeat(classic)
        first.case.join(classic)
        first.case.sync(classic)
        first.heartbeat()
    look(first.case)
