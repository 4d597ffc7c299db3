"""GroupCoordinator: routing, requests over many shards, embedding, the way out."""

from __future__ import annotations

import asyncio

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
from groupkeeper.coordinator.core.requests.admin import DescribeGroup, ListGroups
from groupkeeper.coordinator.core.requests.offsets import OffsetFetch
from groupkeeper.coordinator.core.requests.topics import ChangeTopics
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.coordinator.embed import router
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.base import StorageLimits
from tests.helpers.core.shard_driver import a_join
from tests.helpers.runtime.coordinator import (
    CLIENT,
    RecordingTicket,
    a_commit,
    a_config,
    a_coordinator,
)
from tests.helpers.runtime.virtual_loop import VirtualClock, turns, virtual_time
from tests.helpers.storage.faulty_storage import FaultyStorage, Gate, fail, slow


def group_in(shard: int, shards: int = 4) -> str:
    return next(g for g in (f"group-{n}" for n in range(1_000)) if shard_of(g, shards) == shard)


@virtual_time
async def test_a_group_goes_to_the_shard_that_kafka_would_choose() -> None:
    async with a_coordinator() as world:
        await world.until(*[world.commit(group_in(shard)) for shard in range(4)])
        stored = {e["group"]: e["shard"] for e in world.events("commit")}
        assert stored == {group_in(shard): shard for shard in range(4)}


@virtual_time
async def test_what_is_remembered_about_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "MAX_ROUTED_GROUPS", 10)
    async with a_coordinator() as world:
        for number in range(35):
            world.fetch(f"g{number}")
        assert len(world.coordinator.router._routed) <= 10


def test_the_remembered_ids_need_at_most_64_mib() -> None:
    assert router.MAX_ROUTED_GROUPS * router.MAX_ROUTED_CHARS * 4 <= 64 * 1024 * 1024


@virtual_time
async def test_a_long_id_is_served_and_not_remembered() -> None:
    short, long = "g" * router.MAX_ROUTED_CHARS, "g" * (router.MAX_ROUTED_CHARS + 1)
    async with a_coordinator() as world:
        for group_id in (short, long):
            await world.until(world.commit(group_id))
        assert list(world.coordinator.router._routed) == [short]
        assert {group.group_id for group in await world.coordinator.list_groups()} == {short, long}


@virtual_time
async def test_listing_covers_all_shards_and_filters() -> None:
    async with a_coordinator() as world:
        groups = [group_in(shard) for shard in range(4)]
        await world.until(*[world.commit(g) for g in groups])
        await world.a_stable_group("live")
        everything = await world.coordinator.ask(ListGroups())
        stable = await world.coordinator.ask(ListGroups(frozenset({"stable"})))
        assert {g.group_id for g in everything.groups} == {*groups, "live"}
        assert {g.group_id for g in stable.groups} == {"live"}


@virtual_time
async def test_a_listing_is_of_all_groups_beside_a_group_without_a_name():
    async with a_coordinator() as world:
        await world.until(*[world.commit(group_id) for group_id in ("", "a", "b", "c", "d")])
        listed = await world.coordinator.ask(ListGroups())
        assert {group.group_id for group in listed.groups} == {"", "a", "b", "c", "d"}


@virtual_time
async def test_listing_waits_for_what_is_under_way() -> None:
    async with a_coordinator() as world:
        gate = world.storage.hold_next_append()
        world.commit("g")
        listing = world.send(ListGroups())
        await asyncio.sleep(1)
        assert listing.is_waiting
        gate.open()
        await turns(5)
        assert [g.group_id for g in listing.result.groups] == ["g"]


@virtual_time
async def test_listing_is_refused_while_any_shard_loads() -> None:
    async with a_coordinator() as world:
        gate = Gate()
        world.storage.script("append", fail())
        world.storage.script("load", slow(gate))
        await world.until(world.commit("g"))
        assert world.send(ListGroups()).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        gate.open()
        await world.until_ready()


@virtual_time
async def test_a_shard_that_is_dropped_while_it_is_listed_is_skipped() -> None:
    async with a_coordinator() as world:
        await world.until(world.commit("kept"))
        world.storage.script("append", fail())
        world.commit("lost")
        listing = world.send(ListGroups())
        await world.until(listing)
        assert listing.error is ErrorCode.NONE
        assert "lost" not in {g.group_id for g in listing.result.groups}


@virtual_time
async def test_a_host_is_told_where_a_listing_is_not_whole() -> None:
    async with a_coordinator() as world:
        await world.until(world.commit("kept"))
        world.storage.script("append", fail())
        world.commit("lost")
        with pytest.raises(GroupError) as raised:
            await world.coordinator.list_groups()
        assert raised.value.code is ErrorCode.NOT_COORDINATOR
        await world.until_ready()
        assert [g.group_id for g in await world.coordinator.list_groups()] == ["kept"]


@virtual_time
async def test_many_requests_are_answered_together_in_their_order() -> None:
    async with a_coordinator() as world:
        await world.until(*[world.commit(f"g{n}", n) for n in range(5)])
        fetches = [OffsetFetch(f"g{n}", None, False, False) for n in (3, 1, 3)]
        many = RecordingTicket()
        world.coordinator.submit_all(fetches, many)
        assert [r.topics[0][2][0][1] for r in many.answers[0]] == [3, 1, 3]
        none = RecordingTicket()
        world.coordinator.submit_all([], none)
        assert none.answers == [[]]


@virtual_time
async def test_a_request_of_the_core_can_be_awaited() -> None:
    async with a_coordinator() as world:
        coordinator = world.coordinator
        join = await coordinator.ask(a_join("g", requires_known_member_id=False))
        assert join.error is ErrorCode.NONE
        changed = await coordinator.ask(ChangeTopics(CLIENT, grow=(("orders", 13),)))
        assert changed.grown[0].error is ErrorCode.NONE


@virtual_time
async def test_an_awaiting_host_may_give_up() -> None:
    async with a_coordinator() as world:
        gate = world.storage.hold_next_append()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await world.coordinator.ask(a_commit())
        gate.open()
        await turns(5)
        assert world.fetch("g").offsets() == {("orders", 0): 5}


@virtual_time
async def test_counts_for_metrics() -> None:
    async with a_coordinator() as world:
        await world.a_stable_group("g", 2)
        await world.until(world.commit("h", 5), world.commit("h", 6, partition=1))
        coordinator = world.coordinator
        assert {s.value: n for s, n in coordinator.groups_by_state().items() if n} == {
            "Stable": 1,
            "Empty": 1,
        }
        by_type = coordinator.groups_by_type()
        assert {key: n for key, n in by_type.items() if n} == {
            ("classic", "Stable"): 1,
            ("classic", "Empty"): 1,
        }
        assert {state for group_type, state in by_type if group_type == "consumer"} == {
            *("Empty", "Assigning", "Reconciling", "Stable", "Dead")
        }
        assert coordinator.offset_count() == 2
        assert coordinator.member_count() == 2
        assert coordinator.stats.commits_accepted == 2


@virtual_time
async def test_not_ready_says_why() -> None:
    storage = FaultyStorage()
    coordinator = GroupCoordinator(storage, a_config(), clock=VirtualClock())
    assert coordinator.not_ready == "the coordinator is not running"
    async with a_coordinator(storage) as world:
        assert world.coordinator.not_ready is None
        gate = Gate()
        storage.script("append", fail())
        storage.script("load", slow(gate))
        await world.until(world.commit("g"))
        assert (
            world.coordinator.not_ready
            == "the store failed, and its shards are loaded again: disk full"
        )
        gate.open()
        await world.until_ready()


@virtual_time
async def test_after_stop_clients_are_sent_elsewhere_and_the_store_is_free() -> None:
    storage = FaultyStorage()
    async with a_coordinator(storage) as world:
        await world.a_stable_group("g")
        parked = world.join("g")
        await turns(2)
        await world.coordinator.stop()
        assert parked.error is ErrorCode.NOT_COORDINATOR
        assert world.commit("g").error is ErrorCode.NOT_COORDINATOR
        assert world.heartbeat("g").error is ErrorCode.NOT_COORDINATOR
        assert world.send(DescribeGroup("g")).error is ErrorCode.NOT_COORDINATOR
        assert world.send(ListGroups()).error is ErrorCode.NOT_COORDINATOR
        assert world.send(ChangeTopics(CLIENT)).error is ErrorCode.NOT_CONTROLLER
        await world.coordinator.stop()
    async with a_coordinator(storage) as world:
        assert world.coordinator.is_ready


@virtual_time
async def test_stop_gives_syncs_the_assignment_that_is_on_its_way_to_the_disk() -> None:
    async with a_coordinator() as world:
        await world.a_stable_group("another group")
        lead = world.join("g")
        await world.until(lead)
        joining = world.join("g")  # waits for the leader to come back
        leader = lead.result.member_id
        lead = world.join("g", leader)
        await world.until(lead, joining)
        follower, generation_id = joining.result.member_id, joining.result.generation_id
        parts = ((leader, b"part 0"), (follower, b"part 1"))
        gate = world.storage.hold_next_append()
        syncs = [
            world.sync("g", follower, generation_id),
            world.sync("g", leader, generation_id, parts),
        ]
        await gate.reached.wait()
        parked = world.join("another group")  # whose members have not come back yet
        stopping = asyncio.ensure_future(world.coordinator.stop())
        await turns(4)
        assert parked.error is ErrorCode.NOT_COORDINATOR
        assert [sync.is_waiting for sync in syncs] == [True, True]
        gate.open()
        await stopping
        assert [sync.error for sync in syncs] == [ErrorCode.NONE, ErrorCode.NONE]
        assert [sync.result.assignment for sync in syncs] == [b"part 1", b"part 0"]
        assert world.coordinator.stats.tickets_failed == 0


@virtual_time
async def test_stop_while_the_store_is_down_ends_in_time_and_answers_everyone() -> None:
    async with a_coordinator() as world:
        world.storage.script("append", fail())
        world.storage.script("acquire", *[fail("down")] * 50)
        lost = world.commit("g")
        await world.until(lost)
        await asyncio.sleep(3)
        started = asyncio.get_running_loop().time()
        await world.coordinator.stop(2_000)
        assert asyncio.get_running_loop().time() - started <= 2.1


@pytest.mark.parametrize("calls", [("release",), ("close",), ("append", "release", "close")])
@virtual_time
async def test_stop_ends_in_time_whatever_call_the_store_never_answers(calls: list[str]) -> None:
    async with a_coordinator() as world:
        for call in calls:
            world.storage.script(call, slow(Gate()))
        waiting = world.commit("g")
        await turns(2)
        started = asyncio.get_running_loop().time()
        await world.coordinator.stop(2_000)
        assert asyncio.get_running_loop().time() - started <= 2.1
        assert waiting.error is (ErrorCode.NOT_COORDINATOR if "append" in calls else ErrorCode.NONE)


def test_an_append_may_not_outlast_a_session() -> None:
    with pytest.raises(ValueError, match="outlast a session"):
        CoordinatorConfig(append_timeout_ms=6_000)


@virtual_time
async def test_a_parked_join_is_answered_when_the_rebalance_is_over() -> None:
    async with a_coordinator() as world:
        leader, follower = await world.a_stable_group("g")
        newcomer = world.join("g")
        await asyncio.sleep(1)
        assert newcomer.is_waiting
        back = [world.join("g", m) for m in (leader, follower)]
        await world.until(newcomer, *back)
        generations = {j.result.generation_id for j in (newcomer, *back)}
        assert generations == {2}


@virtual_time
async def test_a_commit_that_is_too_large_for_the_storage_is_refused_before_it_is_written() -> None:
    storage = FaultyStorage()
    storage.limits = StorageLimits(max_step_bytes=10_000, one_lane=True)
    rows = [(partition, 5, -1, "x" * 1_000) for partition in range(12)]
    async with a_coordinator(storage) as world:
        appends = len(storage.appends)
        large = world.commit("g", topics=[("orders", "", rows)])
        await world.until(large)
        assert large.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert len(storage.appends) == appends
        small = world.commit("g", topics=[("orders", "", rows[:1])])
        await world.until(small)
        assert small.error is ErrorCode.NONE


@virtual_time
async def test_after_a_clock_was_moved_what_was_due_has_happened_and_is_durable() -> None:
    async with a_coordinator() as world:
        leader, _ = await world.a_stable_group("g")
        due = world.coordinator.next_deadline()
        assert due is not None
        before = asyncio.get_running_loop().time()
        world.clock.monotonic_offset_ms += 3_600_000
        await world.coordinator.clock_moved()
        assert asyncio.get_running_loop().time() == before
        evicted = world.events("member_evicted")
        assert len(evicted) == 2
        assert leader in {event["member_id"] for event in evicted}
        later = world.coordinator.next_deadline()
        assert later is None or later > world.clock.now().monotonic_ms


@virtual_time
async def test_a_clock_that_was_moved_is_waited_for_until_all_that_is_due_is_done() -> None:
    async with a_coordinator() as world:
        handed_out = [world.join("g", requires_known_member_id=True) for _ in range(1_100)]
        await world.until(*handed_out)
        world.clock.monotonic_offset_ms += 3_600_000
        await world.coordinator.clock_moved()
        later = world.coordinator.next_deadline()
        assert later is None or later > world.clock.now().monotonic_ms
