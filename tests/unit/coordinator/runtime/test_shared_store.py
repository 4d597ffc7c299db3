"""A store that several processes share: its shards are loaded and dropped one by one, while the
others answer and write.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.records import Record
from groupkeeper.storage.base import CLUSTER_SHARD, ShardId, StoreRefused
from tests.helpers.runtime.pipeline import a_pipeline
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.storage.faulty_storage import FaultyStorage, Gate, fence, slow

LOST, KEPT = 0, 1
"""Two shards of one lane."""


class WithUnreadableShards(FaultyStorage):
    """A store with values that nobody can read."""

    def __init__(self, *shards: ShardId) -> None:
        super().__init__()
        self.unreadable = {*shards}
        self.loads: list[list[ShardId]] = []

    async def load(
        self, shards: Collection[ShardId]
    ) -> AsyncIterator[tuple[ShardId, Sequence[Record]]]:
        self.loads.append([*shards])
        async for part in super().load(shards):
            yield part
        if damaged := self.unreadable.intersection(shards):
            raise StoreRefused(f"a value of shard {min(damaged)} cannot be read")


@virtual_time
async def test_others_write_while_a_shard_is_loaded() -> None:
    async with a_pipeline(shared=True) as pipeline:
        gate = Gate()
        pipeline.storage.script("append", fence(LOST))
        pipeline.storage.script("load", slow(gate))
        lost = pipeline.commit(1, LOST)
        await gate.reached.wait()
        for offset in range(2, 5):
            commit = pipeline.commit(offset, KEPT)
            await asyncio.sleep(10)
            assert commit.error is ErrorCode.NONE
        assert lost.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert pipeline.owner.loading_count() == 1
        gate.open()
        await turns(8)
        assert pipeline.owner.loading_count() == 0


@pytest.mark.parametrize("shared", [True, False])
@virtual_time
async def test_only_the_shards_that_are_named_are_dropped(shared: bool) -> None:
    """Also if the store names every shard of an append."""
    async with a_pipeline(shared=shared) as pipeline:
        shard, parked = pipeline.shard(KEPT), pipeline.join(KEPT)
        await asyncio.sleep(1)
        pipeline.storage.script("append", fence(LOST))
        pipeline.commit(1, LOST)
        await asyncio.sleep(1)
        assert parked.is_waiting is shared
        assert (pipeline.shard(KEPT) is shard) is shared
        assert pipeline.storage.calls.count("load") == 2


@virtual_time
async def test_a_shard_is_not_loaded_before_its_append_has_ended() -> None:
    """Otherwise a load would miss what this append stores under the same lease."""
    async with a_pipeline(shared=True) as pipeline:
        gate = pipeline.storage.hold_next_append()
        pipeline.commit(7, LOST)
        await turns(4)
        pipeline.commit(1, LOST, group_id="bug")
        await asyncio.sleep(4)
        assert pipeline.storage.calls.count("load") == 1
        gate.open()
        await turns(8)
        assert pipeline.storage.calls.count("load") == 2
        (saved,) = pipeline.shard(LOST).applied
        assert "offset=7" in repr(saved)


@virtual_time
async def test_a_load_waits_for_no_append_that_began_after_the_shard_was_dropped() -> None:
    async with a_pipeline(shared=True) as pipeline:
        first = pipeline.storage.hold_next_append()
        second = pipeline.storage.hold_next_append()
        pipeline.commit(1, KEPT)
        await turns(4)
        pipeline.commit(1, LOST, group_id="bug")
        pipeline.commit(2, KEPT)
        await asyncio.sleep(1)
        first.open()
        await second.reached.wait()
        await asyncio.sleep(1)
        assert pipeline.owner.loading_count() == 0
        second.open()
        await turns(4)


@virtual_time
async def test_lanes_start_together() -> None:
    storage = FaultyStorage()
    gates = [Gate(), Gate()]
    storage.script("load", None, *[slow(gate) for gate in gates])

    async def open_when_both_are_reached() -> None:
        for gate in gates:
            await gate.reached.wait()
        for gate in gates:
            gate.open()

    opening = asyncio.ensure_future(open_when_both_are_reached())
    async with a_pipeline(storage, (-1, 0, 1), one_lane=False, shared=True) as pipeline:
        assert pipeline.owner.loading_count() == 0
    await opening


# --- values that cannot be read -------------------------------------------------------------------


@virtual_time
async def test_a_value_that_cannot_be_read_stops_only_its_shard() -> None:
    storage = WithUnreadableShards()
    async with a_pipeline(storage, (-1, 0, 1, 2), shared=True) as pipeline:
        storage.unreadable.add(0)
        storage.script("append", fence(0, 1, 2))
        for shard_id in range(3):
            pipeline.commit(1, shard_id)
        await asyncio.sleep(20)
        assert storage.loads[1:6] == [[0, 1, 2], [0], [1], [2], [0]]
        commits = [pipeline.commit(2, shard_id) for shard_id in range(3)]
        await turns(8)
        answers = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE, ErrorCode.NONE]
        assert [commit.error for commit in commits] == answers
        assert pipeline.owner.recovery.refusal == "a value of shard 0 cannot be read"
        storage.unreadable.clear()
        await asyncio.sleep(10)
        assert (pipeline.owner.loading_count(), pipeline.owner.recovery.refusal) == (0, "")


@pytest.mark.parametrize("one_lane", [True, False])
@virtual_time
async def test_a_start_serves_what_can_be_read(one_lane: bool) -> None:
    storage = WithUnreadableShards(0)
    async with a_pipeline(storage, (-1, 0, 1), one_lane=one_lane, shared=True) as pipeline:
        commit = pipeline.commit(1, 1)
        await turns(4)
        assert commit.error is ErrorCode.NONE
        assert pipeline.owner.recovery.refusal == "a value of shard 0 cannot be read"
        storage.unreadable.clear()
        await asyncio.sleep(10)
        assert (pipeline.owner.loading_count(), pipeline.owner.recovery.refusal) == (0, "")


@pytest.mark.parametrize("unreadable", [(CLUSTER_SHARD,), (CLUSTER_SHARD, 0, 1)])
@pytest.mark.parametrize("one_lane", [True, False])
@virtual_time
async def test_a_start_without_its_topics_is_refused(
    unreadable: tuple[ShardId, ...], one_lane: bool
) -> None:
    """Without them, the other shards would delete offsets."""
    storage = WithUnreadableShards(*unreadable)
    with pytest.raises(StoreRefused, match="shard -1 cannot be read"):
        async with a_pipeline(storage, (-1, 0, 1), one_lane=one_lane, shared=True):
            raise AssertionError("it started")
    assert [0] not in storage.loads


@virtual_time
async def test_a_store_that_is_not_shared_is_refused_as_a_whole() -> None:
    with pytest.raises(StoreRefused, match="shard 0 cannot be read"):
        async with a_pipeline(WithUnreadableShards(0), (-1, 0, 1)):
            raise AssertionError("it started")
