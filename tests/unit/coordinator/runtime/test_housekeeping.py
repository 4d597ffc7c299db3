"""What runs without a request: folds, renewals, merged events."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberFenced
from groupkeeper.coordinator.runtime.gathering import CHARS_AN_EVENT
from groupkeeper.storage.base import ShardAppend, ShardId
from tests.helpers.runtime.pipeline import Pipeline, a_pipeline
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.storage.faulty_storage import FaultyStorage, Gate, fail, slow


class FoldingStorage(FaultyStorage):
    """Counts commits as unfolded. An append that only folds folds some of them."""

    def __init__(self, a_fold_takes: int = 2) -> None:
        super().__init__()
        self.left = 0
        self.folds = 0
        self.a_fold_takes = a_fold_takes
        self.offered: list[int] = []

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        fenced = await super().append(items)
        batches = [batch for item in items for batch in item.batches]
        self.offered.append(len(items))
        if batches:
            self.left += sum(len(batch.records) for batch in batches)
        else:
            self.folds += 1
            self.left = max(0, self.left - self.a_fold_takes)
        return fenced

    def unfolded(self) -> int:
        return self.left


async def some_commits(pipeline: Pipeline, count: int) -> None:
    for number in range(count):
        pipeline.commit(number)
    await turns(4)


@virtual_time
async def test_an_idle_log_is_folded_by_appends_of_its_own() -> None:
    storage = FoldingStorage()
    async with a_pipeline(storage) as pipeline:
        await some_commits(pipeline, 5)
        assert storage.folds == 0
        await asyncio.sleep(3)
        assert storage.left == 0
        assert storage.folds == 3


@virtual_time
async def test_a_busy_log_is_left_alone() -> None:
    storage = FoldingStorage()
    async with a_pipeline(storage) as pipeline:
        for _ in range(40):
            await some_commits(pipeline, 1)
            await asyncio.sleep(0.3)
        assert storage.folds == 0


@virtual_time
async def test_every_shard_is_offered_to_the_fold_once_something_is_unfolded() -> None:
    storage = FoldingStorage()
    async with a_pipeline(storage, shards=range(5)) as pipeline:
        await some_commits(pipeline, 1)
        await some_commits(pipeline, 1)
        assert storage.offered == [1, 5]


@virtual_time
async def test_no_shard_is_offered_to_a_fold_that_is_not_due() -> None:
    storage = FoldingStorage()
    async with a_pipeline(storage, shards=range(5)) as pipeline:
        storage.limits = msgspec.structs.replace(storage.limits, fold_after_requests=3)
        for _ in range(4):
            await some_commits(pipeline, 1)
        assert storage.offered == [1, 1, 1, 5]


@virtual_time
async def test_a_clean_stop_folds_what_is_left() -> None:
    storage = FoldingStorage()
    async with a_pipeline(storage) as pipeline:
        await some_commits(pipeline, 5)
    assert storage.left == 0


@virtual_time
async def test_a_fold_that_gets_nowhere_is_given_up_until_something_is_written() -> None:
    storage = FoldingStorage(a_fold_takes=0)
    async with a_pipeline(storage) as pipeline:
        await some_commits(pipeline, 5)
        await asyncio.sleep(5)
        tried = storage.folds
        assert tried == 5_001, "one row may name so many groups before the last of them frees it"
        await asyncio.sleep(60)
        assert storage.folds == tried
        await some_commits(pipeline, 1)
        await asyncio.sleep(5)
        assert storage.folds > tried


@virtual_time
async def test_a_commit_during_a_fold_waits_for_one_portion_alone() -> None:
    storage = FoldingStorage()
    async with a_pipeline(storage) as pipeline:
        await some_commits(pipeline, 100)
        gate = storage.hold_next_append()
        await gate.reached.wait()
        commit = pipeline.commit(1)
        gate.open()
        await turns(6)
        assert commit.error is ErrorCode.NONE
        assert pipeline.offsets_in_append(1) == []
        assert pipeline.offsets_in_append(2) == [1]


@virtual_time
async def test_a_lease_that_was_lost_drops_its_shard() -> None:
    async with a_pipeline() as pipeline:
        parked = pipeline.join(1)
        pipeline.storage.fence(1)
        await asyncio.sleep(4)
        assert parked.error is ErrorCode.NOT_COORDINATOR
        assert pipeline.owner.loading_count() == 0
        commit = pipeline.commit(5, shard_id=1)
        await turns(4)
        assert commit.error is ErrorCode.NONE


@virtual_time
async def test_a_renewal_finds_a_lost_lease_though_nobody_writes() -> None:
    async with a_pipeline() as pipeline:
        lost, kept = (pipeline.owner.slots[shard_id].lease for shard_id in (1, 0))
        storage, gate = pipeline.storage, Gate()
        storage.script("acquire", slow(gate))
        storage.fence(1)
        await asyncio.sleep(4)
        assert storage.appends == []  # so no append was refused
        assert pipeline.owner.loading_count() == 1
        refused = pipeline.commit(5, shard_id=1)
        assert refused.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert pipeline.heartbeat(0).error is ErrorCode.NONE
        gate.open()
        await asyncio.sleep(1)
        assert pipeline.owner.loading_count() == 0
        assert pipeline.owner.slots[1].lease != lost
        assert pipeline.owner.slots[0].lease == kept


@virtual_time
async def test_a_renewal_finds_the_lost_lease_of_a_shard_that_is_being_loaded() -> None:
    """It does not answer under the lost lease. It acquires another one and loads again."""
    async with a_pipeline() as pipeline:
        gate = Gate()
        pipeline.storage.script("load", slow(gate))
        pipeline.storage.script("append", fail())
        failed = pipeline.commit(5, shard_id=1)
        await asyncio.sleep(0.5)
        assert failed.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        lost = pipeline.owner.slots[1].lease
        pipeline.storage.fence(1)
        await asyncio.sleep(4)
        gate.open()
        await asyncio.sleep(1)
        assert pipeline.owner.loading_count() == 0
        assert pipeline.owner.slots[1].lease != lost
        commit = pipeline.commit(5, shard_id=1)
        await turns(4)
        assert commit.error is ErrorCode.NONE


@virtual_time
async def test_a_renewal_that_takes_its_time_loses_no_lease_that_is_newer() -> None:
    async with a_pipeline() as pipeline:
        gate = Gate()
        pipeline.storage.script("renew", slow(gate))
        await gate.reached.wait()
        pipeline.storage.script("append", fail())
        pipeline.commit(5, shard_id=1)
        await asyncio.sleep(1)
        shard = pipeline.shard(1)
        gate.open()
        await turns(8)
        assert pipeline.owner.slots[1].shard is shard


@virtual_time
async def test_leases_are_renewed_and_a_failing_renewal_harms_nobody() -> None:
    async with a_pipeline() as pipeline:
        pipeline.storage.script("renew", fail("slow network"))
        parked = pipeline.join()
        await asyncio.sleep(13)
        assert pipeline.storage.calls.count("renew") in (3, 4)
        assert parked.is_waiting


@virtual_time
async def test_merged_refusals_of_a_loading_shard_are_counted_as_dropped() -> None:
    async with a_pipeline(retry_min_ms=5_000) as pipeline:
        for _ in range(3):
            pipeline.heartbeat(member_id="fenced")
        await asyncio.sleep(8)
        pipeline.commit(1, group_id="bug")  # loads again after five seconds
        await asyncio.sleep(4)
        assert pipeline.owner.stats.events_dropped == 1


@virtual_time
async def test_an_event_with_long_names_takes_the_room_of_several() -> None:
    """Names come from clients. 20,000 waiting refusals with 100 kB of them would need two
    gigabytes.
    """
    async with a_pipeline(max_riding_events=10) as pipeline:
        gate = pipeline.storage.hold_next_append()
        pipeline.commit()
        await turns(4)
        long = "m" * (8 * CHARS_AN_EVENT)
        slot = pipeline.owner.slots[0]
        slot.lane.add_events(slot, [MemberFenced(group_id="g", member_id=long, error="x")])
        assert pipeline.owner.stats.events_dropped == 0
        slot.lane.add_events(slot, [MemberFenced(group_id="g", member_id=long, error="x")])
        assert pipeline.owner.stats.events_dropped == 1
        slot.lane.add_events(slot, [MemberFenced(group_id="g", member_id="m", error="x")])
        assert pipeline.owner.stats.events_dropped == 1
        gate.open()
