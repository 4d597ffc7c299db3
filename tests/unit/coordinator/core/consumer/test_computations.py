"""Assignments that are computed elsewhere: the heartbeat that asked waits, the others do not."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.consumer import assignment_work
from groupkeeper.coordinator.core.consumer.assignment_work import AssignmentWork, compute
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.work import WorkFailed, WorkFailure
from tests.helpers.core.consumer_members import ConsumerStub
from tests.helpers.core.shard_driver import ShardDriver

INTERVAL_MS = 1_000
ALL = set(range(12))
FAILED = WorkFailed(WorkFailure.DIED, "the process ended with 1")


@pytest.fixture(autouse=True)
def every_group_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment_work, "LARGE_US", -1)


def computed(driver: ShardDriver):
    """The result of what the shard asked for first."""
    work = driver.work[0]
    assert isinstance(work, AssignmentWork)
    return compute(work.assignor, work.spec)


def finish(driver: ShardDriver, *members: ConsumerStub) -> None:
    """Compute, and let the members take the answers that they waited for."""
    waiting = [call for call in driver.calls if call.parked]
    driver.finish_work(computed(driver))
    for call in waiting:
        if not call.parked:
            (member,) = [m for m in members if m.member_id == call.request.member_id]
            member.take(call)


def a_member(driver: ShardDriver, member_id: str = "a") -> ConsumerStub:
    """The first member of a group, with every partition."""
    member = ConsumerStub(driver, member_id)
    member.join()
    finish(driver, member)
    assert member.partitions() == ALL
    return member


def test_the_heartbeat_that_asked_waits_for_the_assignment(driver):
    a = ConsumerStub(driver, "a")
    call = a.join()
    assert call.parked
    assert [(work.group_id, work.epoch) for work in driver.work] == [("g", 2)]
    finish(driver, a)
    assert (a.epoch, a.partitions()) == (2, ALL)


def test_other_members_see_the_old_target_meanwhile(driver):
    a = a_member(driver)
    driver.advance(INTERVAL_MS)
    b = ConsumerStub(driver, "b")
    assert b.join().parked
    assert a.beat().result.assignment is None
    assert (a.epoch, a.partitions()) == (2, ALL)
    finish(driver, b)
    assert (b.epoch, b.partitions()) == (3, set())
    a.beat()
    assert len(a.partitions()) == 6


def test_what_a_waiting_heartbeat_has_acknowledged_counts(driver):
    """Its client says so once."""
    a = a_member(driver)
    driver.advance(INTERVAL_MS)
    b = ConsumerStub(driver, "b")
    b.join()
    finish(driver, b)
    a.beat()  # told to give up one half
    c = ConsumerStub(driver, "c")
    assert not c.join().parked, "the last assignment was computed just now"
    driver.advance(INTERVAL_MS)
    assert a.acknowledge().parked, "its heartbeat has asked for the next one"
    b.beat()
    assert len(b.partitions()) == 6, "what the first has acknowledged is free"
    finish(driver, a)
    assert driver.everything_answered()


def test_a_failure_keeps_the_old_target_and_is_tried_again_after_the_interval(driver):
    a = a_member(driver)
    driver.advance(INTERVAL_MS)
    b = ConsumerStub(driver, "b")
    call = b.join()
    driver.finish_work(FAILED)
    b.take(call)
    assert call.error is ErrorCode.NONE, "an error would end the client"
    assert (b.epoch, b.partitions()) == (2, set())
    assert not b.beat().parked
    assert driver.work == []
    driver.advance(INTERVAL_MS)
    assert a.beat().parked
    finish(driver, a)
    assert a.epoch == 2
    assert len(a.partitions()) == 6


def test_a_result_is_installed_without_members_that_left_since(driver):
    a = a_member(driver)
    driver.advance(INTERVAL_MS)
    b = ConsumerStub(driver, "b")
    call = b.join()
    b.epoch = 3
    assert b.leave().error is ErrorCode.NONE
    assert call.error is ErrorCode.UNKNOWN_MEMBER_ID, "it is no member any more"
    driver.finish_work(computed(driver))
    driver.advance(INTERVAL_MS)
    a.beat()
    finish(driver, a)
    driver.advance(INTERVAL_MS)
    a.acknowledge()
    assert a.partitions() == ALL


def test_one_computation_of_a_group_is_under_way_at_a_time(driver):
    a = a_member(driver)
    driver.advance(INTERVAL_MS)
    members = [ConsumerStub(driver, name) for name in ("b", "c", "d")]
    parked = [member.join().parked for member in members]
    assert parked == [True, False, False]
    driver.advance(INTERVAL_MS)
    a.beat()
    assert len(driver.work) == 1
