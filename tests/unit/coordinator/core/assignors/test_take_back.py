"""Moves that are taken back without touching the balance, within an effort."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.assignors.flow import Flow
from groupkeeper.coordinator.core.assignors.take_back import take_back_moves


@pytest.fixture
def swapped() -> Flow:
    """Two members that each hold what the other one had, for nothing."""
    flow = Flow(2, members=[(0, 1), (0, 1)], owned=[{0: 1}, {1: 1}])
    for pool, (owner, other) in enumerate(((0, 1), (1, 0))):
        flow.take(pool, owner)
        flow.give(pool, other)
    return flow


def test_two_members_that_were_swapped_are_swapped_back(swapped: Flow) -> None:
    take_back_moves(swapped, effort=1_000)
    assert swapped.held == [{0: 1, 1: 0}, {0: 0, 1: 1}]
    assert swapped.load == [1, 1]


@pytest.mark.parametrize("effort", [1, 4])
def test_search_ends_when_its_effort_is_used_up(swapped: Flow, effort: int) -> None:
    """The cycle is closed in the second round; the first one looks at four exchanges."""
    take_back_moves(swapped, effort)
    assert swapped.held == [{0: 0, 1: 1}, {0: 1, 1: 0}]


def test_search_goes_on_while_any_effort_is_left(swapped: Flow) -> None:
    take_back_moves(swapped, effort=5)
    assert swapped.held == [{0: 1, 1: 0}, {0: 0, 1: 1}]
