"""A listing of many groups: some of each shard at a time, each group once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest

from groupkeeper.coordinator.core import listing as core_listing
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.requests.admin import (
    DeleteGroup,
    ListedGroup,
    ListGroups,
    ListGroupsResult,
)
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.runtime import listing
from groupkeeper.coordinator.runtime.listing import Collected, Listing, Listings
from groupkeeper.coordinator.runtime.tickets import Ticket
from tests.helpers.runtime.coordinator import RecordingTicket, a_coordinator
from tests.helpers.runtime.virtual_loop import (
    VirtualClock,
    VirtualLoop,
    turns,
    virtual_time,
    virtual_timer,
)

GROUPS = 60


class Receiver:
    """Receives groups, and ends the listing once it has ``most``."""

    def __init__(self, most: int = 10_000) -> None:
        self.parts: list[list[str]] = []
        self.most = most
        self.ends: list[ListGroupsResult] = []

    def receive(self, groups: Sequence[ListedGroup]) -> bool:
        self.parts.append([group.group_id for group in groups])
        return len(self.names) < self.most

    def resolve(self, result: ListGroupsResult) -> None:
        self.ends.append(result)

    @property
    def names(self) -> list[str]:
        return [name for part in self.parts for name in part]


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 3 groups count as many."""
    monkeypatch.setattr(core_listing, "MAX_LISTED", 3)
    monkeypatch.setattr(listing, "ASKED_AGAIN", 3)


@pytest.fixture
def one_question_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "SLICE_S", 0.0)


@pytest.mark.usefixtures("one_question_a_turn")
@virtual_time
async def test_many_groups_are_listed_some_at_a_time_and_each_once() -> None:
    async with a_coordinator() as world:
        names = [f"g{i}" for i in range(GROUPS)]
        await world.until(*[world.commit(name) for name in names])
        ticket = Receiver()
        world.coordinator.submit_listing(ListGroups(), ticket)
        assert ticket.ends == [], "all in one turn"
        await turns(GROUPS)
        assert sorted(ticket.names) == sorted(names)
        assert max(map(len, ticket.parts)) == 3
        assert [end.error for end in ticket.ends] == [ErrorCode.NONE]
        listed = await world.coordinator.ask(ListGroups())
        assert sorted(group.group_id for group in listed.groups) == sorted(names)


@pytest.mark.usefixtures("one_question_a_turn")
@virtual_time
async def test_what_was_there_all_the_time_is_listed_beside_what_comes_and_goes() -> None:
    async with a_coordinator() as world:
        names = [f"g{i}" for i in range(GROUPS)]
        await world.until(*[world.commit(name) for name in names])
        ticket = Receiver()
        world.coordinator.submit_listing(ListGroups(), ticket)
        for i in range(0, GROUPS, 2):
            world.send(DeleteGroup(f"g{i}", Client("app", "/10.0.0.1")))
            world.commit(f"new{i}")
            await turns(1)
        await turns(20 * GROUPS)
        assert len(ticket.ends) == 1
        assert {f"g{i}" for i in range(1, GROUPS, 2)} <= set(ticket.names)
        assert len(set(ticket.names)) == len(ticket.names), "listed twice"


@virtual_time
async def test_who_has_enough_gets_no_more_and_no_end() -> None:
    async with a_coordinator() as world:
        await world.until(*[world.commit(f"g{i}") for i in range(GROUPS)])
        ticket = Receiver(most=10)
        world.coordinator.submit_listing(ListGroups(), ticket)
        await turns(GROUPS)
        assert 10 <= len(ticket.names) <= 12
        assert ticket.ends == []


@pytest.mark.usefixtures("one_question_a_turn")
@virtual_time
async def test_listings_wait_for_their_turn_and_one_that_was_cancelled_is_passed_over() -> None:
    async with a_coordinator() as world:
        await world.until(*[world.commit(f"g{i}") for i in range(GROUPS)])
        tickets = [Receiver() for _ in range(listing.MAX_LISTINGS + 2)]
        cancels = [world.coordinator.submit_listing(ListGroups(), ticket) for ticket in tickets]
        assert [len(ticket.parts) > 0 for ticket in tickets[-2:]] == [False, False]
        cancels[0]()
        cancels[-2]()
        await turns(5 * GROUPS)
        ended = [len(ticket.ends) for ticket in tickets]
        assert ended == [0, *[1] * (len(tickets) - 3), 0, 1]


@virtual_time
async def test_a_listing_goes_on_behind_each_append_that_it_meets() -> None:
    async with a_coordinator() as world:
        await world.until(*[world.commit(f"g{i}") for i in range(GROUPS)])
        gate = world.storage.hold_next_append()
        world.commit("g1")
        await turns(2)
        ticket = Receiver()
        world.coordinator.submit_listing(ListGroups(), ticket)
        await turns(3 * GROUPS)
        assert ticket.ends == []
        gate.open()
        await turns(3 * GROUPS)
        assert len(ticket.names) == GROUPS
        assert len(ticket.ends) == 1


class SlowPlace:
    """A shard that takes a whole slice to list its groups."""

    def __init__(self) -> None:
        self.asked = 0

    def submit(self, request: Request, ticket: Ticket, now: Now) -> None:
        self.asked += 1
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.advance(listing.SLICE_S)
        ticket.resolve(ListGroupsResult(ErrorCode.NONE, ()))


@virtual_time
async def test_a_listing_lets_the_loop_turn_whenever_its_slice_is_used_up() -> None:
    places = [SlowPlace() for _ in range(4)]
    ticket = RecordingTicket(ListGroups())
    Listings(VirtualClock(), virtual_timer).begin(ListGroups(), Collected(ticket), places)
    asked = []
    for _ in range(5):
        asked.append(sum(place.asked for place in places))
        await turns()
    assert asked == [1, 2, 3, 4, 4]
    assert ticket.error is ErrorCode.NONE


class WaitingPlace:
    """A shard that answers when the test says so."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []

    def submit(self, request: Request, ticket: Ticket, now: Now) -> None:
        self.tickets.append(ticket)


def waiting_listing(count: int) -> tuple[Receiver, list[WaitingPlace]]:
    ticket, places = Receiver(), [WaitingPlace() for _ in range(count)]
    Listings(VirtualClock(), virtual_timer).begin(ListGroups(), ticket, places)
    return ticket, places


def a_part(name: str) -> ListGroupsResult:
    group = ListedGroup(name, "consumer", GroupState.EMPTY, "classic")
    return ListGroupsResult(ErrorCode.NONE, (group,))


@virtual_time
async def test_only_so_many_shards_may_answer_at_once() -> None:
    """One append may answer all who wait for it, at up to 2,000 groups each."""
    ticket, places = waiting_listing(listing.MAX_ASKED + 5)
    await turns(10)
    assert sum(len(place.tickets) for place in places) == listing.MAX_ASKED
    for number, place in enumerate(places):
        await turns(2)
        place.tickets.pop().resolve(a_part(f"g{number}"))
    assert (len(ticket.names), len(ticket.ends)) == (len(places), 1)


@virtual_time
async def test_an_error_of_one_shard_is_the_answer() -> None:
    ticket, places = waiting_listing(3)
    await turns(2)
    for place, result in zip(
        places,
        (a_part("g"), ListGroupsResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), a_part("h")),
        strict=True,
    ):
        place.tickets.pop().resolve(result)
    assert [end.error for end in ticket.ends] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert ticket.names == ["g"]


@virtual_time
async def test_a_shard_that_was_dropped_is_left_out_and_told() -> None:
    ticket, places = waiting_listing(2)
    await turns(2)
    places[0].tickets.pop().resolve(ListGroupsResult(ErrorCode.NOT_COORDINATOR))
    places[1].tickets.pop().resolve(a_part("g"))
    (end,) = ticket.ends
    assert (end.error, end.is_whole) == (ErrorCode.NONE, False)
    assert ticket.names == ["g"]


@virtual_time
async def test_a_listing_that_is_answered_is_let_go_without_the_garbage_collector() -> None:
    """It holds the answers of all shards, and the garbage collector may come minutes later."""
    ticket = RecordingTicket(ListGroups())
    before = alive()  # of other tests
    gc.disable()
    try:
        places = [SlowPlace(), SlowPlace()]
        Listings(VirtualClock(), virtual_timer).begin(ListGroups(), Collected(ticket), places)
        await turns(3)
        left = [each for each in alive() if each not in before]
    finally:
        gc.enable()
    assert ticket.error is ErrorCode.NONE
    assert left == []


def alive() -> list[Listing | Collected]:
    return [each for each in gc.get_objects() if isinstance(each, Listing | Collected)]
