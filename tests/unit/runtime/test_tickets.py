"""Tickets of those who ask several things at once."""

from __future__ import annotations

import asyncio
import gc

from coordinator.core.errors import ErrorCode
from coordinator.core.requests import ListGroups, ListGroupsResult, Now, Request
from coordinator.runtime.slot import Ticket
from coordinator.runtime.tickets import LISTING_SLICE_S, Listing, Many
from tests.helpers.coordinator import RecordingTicket
from tests.helpers.virtual_loop import VirtualClock, VirtualLoop, turns, virtual_time, virtual_timer


def alive() -> list[Listing | Many]:
    return [each for each in gc.get_objects() if isinstance(each, Listing | Many)]


class SlowPlace:
    """A shard that takes a whole slice to list its groups."""

    def __init__(self) -> None:
        self.asked = 0

    def submit(self, request: Request, ticket: Ticket, now: Now) -> None:
        self.asked += 1
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.advance(LISTING_SLICE_S)
        ticket.resolve(ListGroupsResult(ErrorCode.NONE, ()))


@virtual_time
async def test_a_listing_lets_the_loop_turn_whenever_its_slice_is_used_up() -> None:
    places = [SlowPlace() for _ in range(4)]
    ticket = RecordingTicket(ListGroups())
    Listing(ListGroups(), ticket, places, VirtualClock(), virtual_timer).advance()
    asked = []
    for _ in range(5):
        asked.append(sum(place.asked for place in places))
        await turns()
    assert asked == [1, 2, 3, 4, 4]
    assert ticket.error is ErrorCode.NONE


@virtual_time
async def test_a_listing_that_is_answered_is_let_go_without_the_garbage_collector() -> None:
    """It holds the answers of all shards, and the collector may come minutes later."""
    ticket = RecordingTicket(ListGroups())
    before = alive()  # of other tests
    gc.disable()
    try:
        Listing(
            ListGroups(), ticket, [SlowPlace(), SlowPlace()], VirtualClock(), virtual_timer
        ).advance()
        await turns(3)
        left = [each for each in alive() if each not in before]
    finally:
        gc.enable()
    assert ticket.error is ErrorCode.NONE
    assert left == []
