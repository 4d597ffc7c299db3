"""Reads of single groups that end after their shard was dropped or the coordinator was stopped."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.offsets import sweep
from groupkeeper.coordinator.core.records import Record, SavedGroup, SavedOffset, TopicRecord
from groupkeeper.storage.base import StorageError
from tests.helpers.runtime.coordinator import World, a_world
from tests.helpers.runtime.virtual_loop import run_virtual, turns, virtual_time
from tests.helpers.storage.faulty_storage import Gate
from tests.helpers.storage.named_groups import NamedGroups


async def with_an_offset(storage: NamedGroups, offset: int = 7) -> None:
    async with a_world(storage) as world:
        await world.until(world.commit("g", offset))


@virtual_time
async def test_a_stop_ends_the_reads_that_are_under_way() -> None:
    storage = NamedGroups()
    await with_an_offset(storage)
    storage.gates.append(Gate())
    async with a_world(storage) as world:
        before = asyncio.all_tasks()
        held = world.fetch()
        await turns(5)
        assert asyncio.all_tasks() - before, "the read is under way"
        await world.coordinator.stop()
        assert held.error is ErrorCode.NOT_COORDINATOR
        await turns(3)
        assert not asyncio.all_tasks() - before


async def _lose_the_store(world: World, storage: NamedGroups) -> None:
    """Let an append fail: every shard is dropped."""
    storage.append_errors.append(StorageError("for once"))
    failed = world.commit("another", 1)
    await world.until(failed)
    assert failed.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@virtual_time
async def test_a_read_that_ends_while_its_shard_loads_is_tried_again_without_a_word() -> None:
    storage = NamedGroups()
    await with_an_offset(storage)
    async with a_world(storage) as world:
        await world.until(world.fetch("another"))
        storage.gates.append(read := Gate())
        storage.load_gates.append(load := Gate())
        held = world.fetch()
        await read.reached.wait()
        await _lose_the_store(world, storage)
        await load.reached.wait()
        with capture_logs() as logs:
            read.open()
            await world.until(held)
        assert held.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert [line["event"] for line in logs] == []
        load.open()
        await world.until_ready()
        again = world.fetch()
        await world.until(again)
        assert again.offsets() == {("orders", 0): 7}


@virtual_time
async def test_a_read_that_ends_after_a_load_brought_its_group_changes_nothing() -> None:
    storage = NamedGroups()
    await with_an_offset(storage)
    async with a_world(storage) as world:
        await world.until(world.fetch("another"))
        storage.gates.append(read := Gate())
        held = world.fetch()
        await read.reached.wait()
        storage.known.add("g")
        await _lose_the_store(world, storage)
        await world.until_ready()
        read.open()
        await world.until(held)
        assert held.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        again = world.fetch()
        await world.until(again)
        assert again.offsets() == {("orders", 0): 7}
        assert world.coordinator.stats.bugs == 0


@pytest.mark.parametrize(
    ("unusable", "reason"),
    [
        (TopicRecord("odd", "id", 1), "a stored record cannot be used"),
        (SavedGroup("g", None, {"orders": {0: None}}), "a stored record cannot be used"),  # type: ignore[dict-item]
        (SavedGroup("h", None, {}), "records of another group, 'h'"),
    ],
)
def test_a_group_that_cannot_be_used_leaves_its_shard_alone(unusable: Record, reason: str) -> None:
    async def scenario() -> None:
        storage = NamedGroups()
        topics = Topics([ConfiguredTopic("orders", 12)])
        async with a_world(storage, topics, shards=1) as world:
            (member,) = await world.a_stable_group("others", 1)
            topic_id = topics.image.by_name["orders"].topic_id
            offsets = {"orders": {0: SavedOffset(99, -1, "", 1, -1, topic_id)}}
            storage.found["g"] = [SavedGroup("g", None, offsets), unusable]
            with capture_logs() as logs:
                await world.until(held := world.fetch())
            assert held.error is ErrorCode.UNKNOWN_SERVER_ERROR
            ((event, error),) = [(line["event"], line["error"]) for line in logs]
            assert event == "group_load_refused"
            assert reason in error
            assert topics.end_offset(topic_id, 0) == 0
            assert world.coordinator.is_ready
            assert world.heartbeat("others", member, 1).error is ErrorCode.NONE
            assert [*next(world.coordinator.live_groups())] == ["others"]
            del storage.found["g"]
            await world.until(again := world.fetch())
            assert again.offsets() == {}

    run_virtual(scenario())


@virtual_time
async def test_nothing_is_learned_from_a_group_whose_load_met_a_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = NamedGroups()
    topics = Topics([ConfiguredTopic("orders", 12)])
    async with a_world(storage, topics) as world:
        topic_id = topics.image.by_name["orders"].topic_id
        offsets = {"orders": {0: SavedOffset(99, -1, "", 1, -1, topic_id)}}
        storage.found["g"] = [SavedGroup("g", None, offsets)]
        with monkeypatch.context() as broken:
            broken.setattr(sweep, "_is_gone", None)
            await world.until(held := world.fetch())
        assert held.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert world.coordinator.stats.bugs == 1
        assert topics.end_offset(topic_id, 0) == 0
        await world.until_ready()
        await world.until(again := world.fetch())
        assert again.offsets() == {("orders", 0): 99}
