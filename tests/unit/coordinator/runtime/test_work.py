"""Work that a step asks for: from the slot to the workers, and its outcome back to the shard."""

from __future__ import annotations

import asyncio

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.work import Work, WorkFailed, WorkFailure
from tests.helpers.runtime.pipeline import a_pipeline
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.storage.faulty_storage import fail

WORK = Work(group_id="work", epoch=1)
OUTCOMES = [[[1, 2], [3]], WorkFailed(WorkFailure.DIED, "the process ended with 1")]


class FakeWorkers:
    """Keeps what it was asked for."""

    def __init__(self, pipeline):
        self.begun = []
        pipeline.owner.recovery.workers = self

    def begin(self, work, done):
        self.begun.append((work, done))


@pytest.mark.parametrize("outcome", OUTCOMES)
@virtual_time
async def test_the_shard_gets_the_outcome_of_its_work(outcome):
    async with a_pipeline() as pipeline:
        workers = FakeWorkers(pipeline)
        pipeline.commit(group_id="work", shard_id=1)
        ((work, done),) = workers.begun
        assert work == WORK
        done(outcome)
        assert pipeline.shard(1).done == [(WORK, outcome)]
        assert pipeline.shard(0).done == []


@virtual_time
async def test_a_shard_that_was_loaded_since_does_not_get_the_outcome():
    """Its epochs may be counted again, for other members."""
    async with a_pipeline() as pipeline:
        workers = FakeWorkers(pipeline)
        pipeline.storage.script("append", fail())
        commit = pipeline.commit(group_id="work")
        asked = pipeline.shard()
        await asyncio.sleep(1)
        assert commit.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert pipeline.shard() is not asked
        ((_, done),) = workers.begun
        done([[1]])
        assert (asked.done, pipeline.shard().done) == ([], [])


@virtual_time
async def test_a_loading_shard_does_not_get_the_outcome():
    async with a_pipeline() as pipeline:
        workers = FakeWorkers(pipeline)
        pipeline.commit(group_id="work")
        pipeline.owner.recovery.drop([pipeline.owner.slots[0]])
        ((_, done),) = workers.begun
        done([[1]])


@virtual_time
async def test_a_suspended_shard_gets_the_outcome_when_it_resumes():
    async with a_pipeline() as pipeline:
        workers = FakeWorkers(pipeline)
        pipeline.commit(group_id="work")
        shard, slot = pipeline.shard(), pipeline.owner.slots[0]
        slot.suspend()
        ((work, done),) = workers.begun
        done([[1]])
        assert shard.done == []
        slot.resume(lambda shard: [])
        assert shard.done == [(work, [[1]])]
        slot.suspend()
        slot.resume(lambda shard: [])
        assert shard.done == [(work, [[1]])], "once"


@virtual_time
async def test_an_outcome_that_the_core_cannot_use_is_a_bug_of_the_core_and_no_exception_here(
    monkeypatch,
):
    async with a_pipeline() as pipeline:
        workers = FakeWorkers(pipeline)
        pipeline.commit(group_id="work")
        shard = pipeline.shard()
        monkeypatch.setattr(shard, "work_done", lambda *_: 1 / 0)
        ((_, done),) = workers.begun
        done([[1]])
        assert pipeline.owner.slots[0].shard is None, "it is loaded again"
