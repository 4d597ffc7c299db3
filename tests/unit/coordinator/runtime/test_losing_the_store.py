"""Whatever a storage does to an append, each waiting request gets exactly one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.offsets import OffsetFetch
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.storage.base import ShardAppend, ShardId, StoreRefused
from tests.helpers.runtime.coordinator import RecordingTicket, World, a_coordinator
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.storage.faulty_storage import (
    Fault,
    FaultyStorage,
    Gate,
    fail,
    fence,
    late,
    lie,
    slow,
    slow_reply,
)

LOST: dict[str, Callable[[], Fault]] = {
    "fails": fail,
    "stores and reports failure": lie,
    "is fenced": lambda: fence(-1, 0, 1, 2, 3),
    "never returns": lambda: slow(Gate()),
    "stores and never returns": lambda: slow_reply(Gate()),
    "would store after it was given up": lambda: late(Gate()),
}

Situation = Callable[[World], Awaitable[RecordingTicket]]


async def commit_waiting(world: World) -> RecordingTicket:
    return world.commit("g", 7)


async def fetch_waiting(world: World) -> RecordingTicket:
    world.commit("g", 7)
    return world.fetch("g")


async def describe_waiting(world: World) -> RecordingTicket:
    world.commit("g", 7)
    return world.send(OffsetFetch("g", None, False, True))


async def first_join_waiting(world: World) -> RecordingTicket:
    return world.join("fresh")


async def parked_join(world: World) -> RecordingTicket:
    await world.a_stable_group("g")
    join = world.join("g")  # the others have not come back yet
    await turns(3)
    assert join.is_waiting
    world.commit("another group", 7)
    return join


async def parked_sync(world: World) -> RecordingTicket:
    joins = [world.join("h") for _ in range(2)]
    await world.until(joins[0])
    joins = [world.join("h", j.result.member_id) if j.answers else j for j in joins]
    await world.until(*joins)
    followers = [j for j in joins if j.result.member_id != j.result.leader]
    sync = world.sync("h", followers[0].result.member_id, followers[0].result.generation_id)
    await turns(3)
    assert sync.is_waiting
    world.commit("another group", 7)
    return sync


async def leave_waiting(world: World) -> RecordingTicket:
    (member_id,) = await world.a_stable_group("g", 1)
    return world.leave("g", member_id)


SITUATIONS = [
    commit_waiting,
    fetch_waiting,
    describe_waiting,
    first_join_waiting,
    parked_join,
    parked_sync,
    leave_waiting,
]


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.__name__)
@pytest.mark.parametrize("fault", LOST.values(), ids=LOST.keys())
@virtual_time
async def test_what_waits_is_answered_once_with_a_code_that_clients_retry(
    fault: Callable[[], Fault], situation: Situation
) -> None:
    async with a_coordinator() as world:
        ticket = await _with_fault(world, fault, situation)
        await world.until(ticket)
        is_commit = situation is commit_waiting
        loading, away = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR
        assert ticket.error is (loading if is_commit else away)
        await world.until_ready()
        assert world.coordinator.stats.appends_failed == 1
        again = world.commit("another group", 8)
        await world.until(again)
        assert again.error is ErrorCode.NONE


async def _with_fault(
    world: World, fault: Callable[[], Fault], situation: Situation
) -> RecordingTicket:
    """Bring about the situation so that the append in flight at the return is the one
    that is lost.
    """
    ticket = await situation(world)
    # The append of the situation starts at the end of this turn: script it now.
    world.storage.script("append", fault())
    return ticket


@pytest.mark.parametrize("fault", LOST.values(), ids=LOST.keys())
@virtual_time
async def test_nothing_acknowledged_is_lost_and_nothing_refused_is_hidden(
    fault: Callable[[], Fault],
) -> None:
    async with a_coordinator() as world:
        acknowledged = world.commit("g", 5)
        await world.until(acknowledged)
        world.storage.script("append", fault())
        unknown = world.commit("g", 6)
        await world.until(unknown)
        await world.until_ready()
        fetch = world.fetch("g")
        await world.until(fetch)
        stored = fetch.offsets()[("orders", 0)]
        assert acknowledged.error is ErrorCode.NONE
        assert unknown.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert stored in (5, 6)
        world.commit("g", stored + 1)
        await asyncio.sleep(0.1)
        assert world.events("commit")[-1]["topics"][0]["partitions"][0]["previous_offset"] == stored


@virtual_time
async def test_a_late_append_of_the_old_epoch_is_refused() -> None:
    async with a_coordinator() as world:
        gate = Gate()
        world.storage.script("append", late(gate))
        lost = world.commit("g", 6)
        await world.until(lost)
        await world.until_ready()
        gate.open()
        await world.storage.late_calls_ended()
        fetch = world.fetch("g")
        await world.until(fetch)
        assert fetch.result.topics == []


class Stubborn(FaultyStorage):
    """Its first append of a commit ignores a cancellation and returns later."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck: Gate | None = None

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        gate, self.stuck = self.stuck, None
        if gate is None:
            return await super().append(items)
        with suppress(asyncio.CancelledError):
            await gate.wait()
        await gate.wait()
        return []


@virtual_time
async def test_an_append_that_returns_after_it_was_given_up_disturbs_nobody() -> None:
    storage = Stubborn()
    async with a_coordinator(storage) as world:
        stuck = storage.stuck = Gate()
        lost = world.commit("g", 6)
        await world.until(lost)
        await world.until_ready()
        await asyncio.sleep(1)
        gate = storage.hold_next_append()
        in_flight = world.commit("g", 7)
        await turns(4)
        gathering = world.commit("g", 8)
        stuck.open()
        await turns(8)
        assert storage.in_flight == 1
        gate.open()
        await world.until(in_flight, gathering)
        assert [t.error for t in (lost, in_flight, gathering)] == [
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NONE,
            ErrorCode.NONE,
        ]
        assert storage.most_in_flight == 1


@virtual_time
async def test_a_slow_append_delays_its_answers_and_loses_nothing() -> None:
    async with a_coordinator() as world:
        gate = world.storage.hold_next_append()
        commit = world.commit("g", 5)
        fetch = world.fetch("g")
        await asyncio.sleep(4.9)
        assert commit.is_waiting
        assert fetch.is_waiting
        gate.open()
        await turns(5)
        assert commit.error is ErrorCode.NONE
        assert fetch.offsets() == {("orders", 0): 5}
        assert world.coordinator.stats.appends_failed == 0


@virtual_time
async def test_an_append_is_given_up_after_its_time_on_our_clock_which_may_stand_still() -> None:
    """After a stop of the process an append has what is left of its time
    (docs/design.md#clocks).
    """
    async with a_coordinator() as world:
        world.storage.script("append", slow(Gate()))
        commit = world.commit("g", 5)
        await asyncio.sleep(1)
        world.clock.monotonic_offset_ms -= 3_000
        await asyncio.sleep(6.9)
        assert commit.is_waiting
        await asyncio.sleep(0.2)
        assert commit.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@virtual_time
async def test_only_the_fenced_shards_are_dropped_where_the_store_names_them() -> None:
    async with a_coordinator() as world:
        groups = _one_group_a_shard(world)
        world.storage.script("append", fence(0))
        commits = [world.commit(group_id, 5) for group_id in groups]
        await world.until(*commits)
        assert [c.error for c in commits] == [
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.NONE,
        ]
        await world.until_ready()
        again = [world.commit(group_id, 6) for group_id in groups]
        await world.until(*again)
        assert {c.error for c in again} == {ErrorCode.NONE}


@virtual_time
async def test_the_groups_of_a_shard_that_another_process_has_do_not_count_here() -> None:
    async with a_coordinator() as world:
        commits = [world.commit(group_id, 5) for group_id in _one_group_a_shard(world)]
        await world.until(*commits)
        census = world.coordinator._census
        assert census.groups == 4
        theft = world.storage.inner.take_over([0], "another process")
        world.commit(_one_group_a_shard(world)[0], 6)
        await asyncio.sleep(1)
        assert census.groups == 3
        world.storage.inner.give_back(theft.values())
        await world.until_ready()
        assert census.groups == 4


def _one_group_a_shard(world: World) -> list[str]:
    shards = world.coordinator.config.shards
    found: dict[int, str] = {}
    number = 0
    while len(found) < shards:
        found.setdefault(shard_of(f"group-{number}", shards), f"group-{number}")
        number += 1
    return [found[shard] for shard in range(shards)]


@virtual_time
async def test_an_outage_of_any_length_evicts_nobody() -> None:
    async with a_coordinator() as world:
        ids = await world.a_stable_group("g")
        world.storage.script("append", fail())
        world.storage.script("acquire", *[fail("down")] * 12)
        world.commit("g", 5)
        for _ in range(20):  # twice the session timeout
            await asyncio.sleep(1)
            assert world.heartbeat("g", ids[0], 1).error is ErrorCode.NONE
        await world.until_ready()
        beats = [world.heartbeat("g", member_id, 1) for member_id in ids]
        await world.until(*beats)
        assert {beat.error for beat in beats} == {ErrorCode.NONE}
        assert world.coordinator.stats.members_evicted == {}


@virtual_time
async def test_seq_has_no_gaps_after_failures() -> None:
    async with a_coordinator() as world:
        for number, fault in enumerate(LOST.values()):
            world.storage.script("append", fault())
            lost = world.commit("g", number)
            await world.until(lost)
            await world.until_ready()
            kept = world.commit("g", 100 + number)
            await world.until(kept)
        seqs = [event["seq"] for event in world.storage.inner.events()]
        assert seqs == list(range(1, len(seqs) + 1))


@virtual_time
async def test_loading_retries_with_growing_pauses_for_as_long_as_it_takes() -> None:
    async with a_coordinator(retry_min_ms=100, retry_max_ms=1_000) as world:
        world.storage.script("append", fail())
        world.storage.script("load", *[fail("down")] * 8)
        world.commit("g", 5)
        started = asyncio.get_running_loop().time()
        await asyncio.sleep(0.01)
        await world.until_ready()
        assert world.coordinator.stats.loads_failed == 8
        # 0, then 200 since the failed append is the first failure, 400, 800, and 1,000 five times.
        assert 6.4 <= asyncio.get_running_loop().time() - started < 6.42
        assert world.storage.calls.count("load") == 10


@virtual_time
async def test_the_pause_before_a_load_doubles_with_every_append_that_fails_up_to_its_limit() -> (
    None
):
    """A store that loads but does not append. The first failure is loaded after at once."""
    async with a_coordinator(retry_min_ms=100, retry_max_ms=1_000) as world:
        pauses_ms = []
        for _ in range(6):
            world.storage.script("append", fail())
            await world.until(world.commit("g", 5))
            began_s = asyncio.get_running_loop().time()
            await world.until_ready()
            pauses_ms.append(round((asyncio.get_running_loop().time() - began_s) * 1000, 1))
        assert pauses_ms == [0, 400, 800, 1_000, 1_000, 1_000]


@virtual_time
async def test_an_append_that_succeeds_ends_the_row_of_failures() -> None:
    """Otherwise a store that failed now and then would be loaded later and later."""
    async with a_coordinator(retry_min_ms=100, retry_max_ms=1_000) as world:
        for _ in range(4):
            world.storage.script("append", fail())
            await world.until(world.commit("g", 5))
            began_s = asyncio.get_running_loop().time()
            await world.until_ready()
            assert asyncio.get_running_loop().time() == began_s
            await world.until(world.commit("g", 6))


@virtual_time
async def test_a_failed_load_leaves_nothing_half_read() -> None:
    async with a_coordinator() as world:
        commits = [world.commit(f"g{n}", n) for n in range(20)]
        await world.until(*commits)
        world.storage.script("append", fail())
        world.storage.script("load", fail("connection lost"))
        world.commit("x", 1)
        await asyncio.sleep(0.01)
        await world.until_ready()
        listed = await world.coordinator.list_groups()
        assert {g.group_id for g in listed} == {f"g{n}" for n in range(20)}


@virtual_time
async def test_a_load_that_the_store_refuses_is_tried_again_by_who_has_served_before() -> None:
    async with a_coordinator() as world:
        world.storage.script("append", fail())
        world.storage.script("load", Fault(stores=False, error=StoreRefused("a newer version")))
        lost = world.commit("g", 7)
        await world.until(lost)
        await world.until_ready()
        again = world.commit("g", 8)
        await world.until(again)
        assert again.error is ErrorCode.NONE
