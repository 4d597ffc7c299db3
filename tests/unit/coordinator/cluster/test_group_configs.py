"""Configs of groups on their way: durable first, then known to their shard, then answered."""

from __future__ import annotations

import asyncio

from groupkeeper.coordinator.cluster.group_configs import GroupConfigStore
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.records import GroupConfigs
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.requests.topics import AlterGroupConfigs, GroupConfigChange
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from tests.helpers.runtime.coordinator import CLIENT, RecordingTicket, World, a_coordinator
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.storage.faulty_storage import FaultyStorage, fail

MONOTONIC = {"commit.monotonic": "true"}


def alter(world: World, **groups: dict[str, str | None]) -> RecordingTicket:
    changes = [GroupConfigChange(g, tuple(pairs.items())) for g, pairs in groups.items()]
    return world.send(AlterGroupConfigs(CLIENT, tuple(changes)))


def is_monotonic(world: World, group_id: str) -> bool:
    """What the shard of the group was told."""
    shards = world.coordinator._shards()
    told = [s.overrides[group_id] for s in shards if group_id in s.overrides]
    return any(settings.commit_monotonic for settings in told)


@virtual_time
async def test_a_config_is_in_force_when_its_change_is_answered_and_not_before() -> None:
    async with a_coordinator() as world:
        gate = world.storage.hold_next_append()
        change = alter(world, g=dict(MONOTONIC))
        await turns(5)
        assert change.is_waiting
        assert not is_monotonic(world, "g")
        assert world.coordinator.group_configs.of("g") == {}
        gate.open()
        await world.until(change)
        assert change.result.groups == (("g", ErrorCode.NONE, None),)
        assert is_monotonic(world, "g")
        assert world.coordinator.group_configs.of("g") == MONOTONIC
        (event,) = world.events("admin_action")[-1:]
        assert (event["action"], event["group"], event["detail"]) == (
            "alter_group_configs",
            "g",
            "commit.monotonic=true",
        )


@virtual_time
async def test_a_members_rewind_is_refused_where_its_group_says_so() -> None:
    async with a_coordinator() as world:
        await world.until(alter(world, g=dict(MONOTONIC)))
        members = {g: (await world.a_stable_group(g, members=1))[0] for g in ("g", "other")}

        def commit(group: str, offset: int) -> RecordingTicket:
            return world.commit(group, offset, generation_id=1, member_id=members[group])

        for group in members:
            await world.until(commit(group, 10))
        refused, accepted = commit("g", 9), commit("other", 9)
        await world.until(refused, accepted)
        assert accepted.error is ErrorCode.NONE
        ((_, _, parts),) = refused.result.topics
        assert parts == [(0, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)]


@virtual_time
async def test_a_join_phase_that_is_shortened_ends_then_though_nobody_asks_anything() -> None:
    async with a_coordinator() as world:
        await world.a_stable_group("g")
        newcomer = world.join("g")
        await asyncio.sleep(0.5)
        change = alter(world, g={"rebalance.max.join.ms": "2000"})
        await world.until(change)
        await asyncio.sleep(1.4)
        assert newcomer.is_waiting
        await asyncio.sleep(0.2)
        assert newcomer.error is ErrorCode.NONE


@virtual_time
async def test_configs_are_there_after_a_restart() -> None:
    storage = FaultyStorage()
    groups = [f"g{n}" for n in range(20)]
    async with a_coordinator(storage) as world:
        await world.until(alter(world, **{g: dict(MONOTONIC) for g in groups}))
        await world.until(alter(world, g3={"commit.monotonic": None}))
    async with a_coordinator(storage) as world:
        assert [g for g in groups if not is_monotonic(world, g)] == ["g3"]
        assert sorted(world.coordinator.group_configs.groups()) == sorted({*groups} - {"g3"})


@virtual_time
async def test_shards_that_are_loaded_again_have_their_configs_at_once() -> None:
    async with a_coordinator() as world:
        await world.until(alter(world, g=dict(MONOTONIC)))
        world.storage.script("append", fail())
        await world.until(world.commit("x", 1))
        await world.until_ready()
        assert is_monotonic(world, "g")


@virtual_time
async def test_a_change_that_may_not_have_been_written_is_to_be_asked_for_again() -> None:
    async with a_coordinator() as world:
        world.storage.script("append", fail())
        lost = alter(world, g=dict(MONOTONIC))
        await world.until(lost)
        assert lost.error is ErrorCode.NOT_CONTROLLER
        await world.until_ready()
        assert is_monotonic(world, "g") is bool(world.coordinator.group_configs.of("g"))


@virtual_time
async def test_configs_outlive_their_group_as_in_kafka() -> None:
    async with a_coordinator() as world:
        await world.until(alter(world, g=dict(MONOTONIC)))
        await world.until(world.commit("g", 5))
        deleted = world.send(DeleteGroup("g", CLIENT))
        await world.until(deleted)
        assert deleted.error is ErrorCode.NONE
        assert is_monotonic(world, "g")


@virtual_time
async def test_a_host_without_topics_has_no_configs_and_works() -> None:
    async with a_coordinator(without_topics=True) as world:
        change = alter(world, g=dict(MONOTONIC))
        assert change.error is ErrorCode.NOT_CONTROLLER
        commit = world.commit("g", 5)
        await world.until(commit)
        assert commit.error is ErrorCode.NONE


def test_only_shards_whose_groups_changed_are_told() -> None:
    store = GroupConfigStore(4, CoordinatorConfig())
    first = store.apply([GroupConfigs("a", MONOTONIC), GroupConfigs("b", MONOTONIC)])
    told = {g: shard for g in "ab" for shard in first if g in store.overrides(shard)}
    assert set(told.values()) == first
    before = store.overrides(told["a"])
    assert store.apply([GroupConfigs("a", MONOTONIC)]) == set()
    assert store.apply([GroupConfigs("a", {})]) == {told["a"]}
    assert "a" in before, "a value that was given out does not change"
    assert "a" not in store.overrides(told["a"])
    assert store.replace({"b": MONOTONIC}) == set()
    assert store.replace({}) == {told["b"]}
    assert store.groups() == []


@virtual_time
async def test_offsets_are_kept_as_long_as_their_group_says() -> None:
    minute_s = 60
    async with a_coordinator(retention_check_interval_ms=1_000) as world:
        await world.until(alter(world, g={"offsets.retention.minutes": "5"}))
        await world.until(world.commit("g", 7), world.commit("other", 7))
        await asyncio.sleep(4 * minute_s)
        before = world.fetch("g")
        await asyncio.sleep(2 * minute_s)
        after, other = world.fetch("g"), world.fetch("other")
        await world.until(before, after, other)
        assert before.offsets() == other.offsets() == {("orders", 0): 7}
        assert after.offsets() == {}
        (event,) = world.events("offset_expired")
        assert event["group"] == "g"
