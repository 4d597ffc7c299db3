"""Reads of single groups that end when their shard, or the coordinator, is not what it was."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.records import SavedGroup, SavedOffset, TopicRecord
from groupkeeper.storage.base import StorageError
from tests.helpers.runtime.coordinator import World, a_world
from tests.helpers.runtime.virtual_loop import turns, virtual_time
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
    assert failed.error is ErrorCode.NOT_COORDINATOR


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


@virtual_time
async def test_nothing_is_learned_from_a_group_that_cannot_be_applied() -> None:
    """A record that belongs to no group drops the shard: what came before it goes with that."""
    storage = NamedGroups()
    topics = Topics([ConfiguredTopic("orders", 12)])
    async with a_world(storage, topics) as world:
        topic_id = topics.image.by_name["orders"].topic_id
        offsets = {"orders": {0: SavedOffset(99, -1, "", 1, -1, topic_id)}}
        storage.found["g"] = [SavedGroup("g", None, offsets), TopicRecord("odd", "id", 1)]
        held = world.fetch()
        await world.until(held)
        assert held.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert topics.end_offset(topic_id, 0) == 0
        del storage.found["g"]
        await world.until_ready()
        again = world.fetch()
        await world.until(again)
        assert again.offsets() == {}
