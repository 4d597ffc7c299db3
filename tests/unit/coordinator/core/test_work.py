"""Computations that the core asks for: what a shard does with their outcomes."""

from __future__ import annotations

from groupkeeper.coordinator.core.step import Step
from groupkeeper.coordinator.core.work import Work, WorkFailed, WorkFailure
from tests.helpers.core.shard_driver import ShardDriver

FAILED = WorkFailed(WorkFailure.TIMED_OUT, "it took too long")


def test_the_outcome_for_a_deleted_group_is_dropped():
    shard = ShardDriver().shard
    work = Work(group_id="gone", epoch=3)
    assert shard.work_done(work, FAILED, shard.now) == Step()
    assert shard.groups == {}


def test_a_step_may_ask_for_more_than_one_computation():
    shard = ShardDriver().shard
    shard.step = Step()
    works = [Work(group_id="g", epoch=epoch) for epoch in (1, 2)]
    for work in works:
        shard.begin_work(work)
    assert shard.step.work == works
    assert Step().work == (), "the steps of others ask for nothing"
