"""Assignments that are computed elsewhere: the heartbeat that asked waits, the others do not."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.consumer import assignment_work, follow_work, rebalance
from groupkeeper.coordinator.core.consumer.assignment_work import AssignmentWork, compute
from groupkeeper.coordinator.core.consumer.follow_work import FollowWork
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.step import Step
from groupkeeper.coordinator.core.work import WorkFailed, WorkFailure
from tests.helpers.core.consumer_members import ConsumerStub, settle
from tests.helpers.core.shard_driver import CLIENT, ORDERS, ShardDriver

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


def test_the_result_for_a_deleted_group_is_not_taken_for_the_next_one_of_its_name(driver):
    gone = ConsumerStub(driver, "gone")
    gone.join()
    gone.leave()
    driver.send(DeleteGroup("g", CLIENT))
    members = [ConsumerStub(driver, name) for name in ("a", "b")]
    for member in members:
        member.join()
    first, second = driver.work
    assert first.epoch == second.epoch
    call = next(call for call in driver.calls if call.parked)
    driver.finish_work(computed(driver))
    assert call.parked, "its own computation is still under way"
    finish(driver, *members)
    assert members[0].partitions() == ALL


def test_the_target_of_a_static_member_is_for_whoever_has_its_place_now(driver):
    """Its old id may come back without a place of its own."""
    first = ConsumerStub(driver, "first", instance_id="i")
    first.join()
    finish(driver, first)
    driver.advance(INTERVAL_MS)
    b = ConsumerStub(driver, "b")
    b.join()
    first.leave(-2)
    next_one = ConsumerStub(driver, "next", instance_id="i")
    next_one.join()
    again = ConsumerStub(driver, "first")
    again.join()
    finish(driver, b, next_one, again)
    targets = {name: member.target for name, member in driver.shard.groups["g"].members.items()}
    assert targets["first"] == {}
    assert [len(numbers) for numbers in targets["next"].values()] == [6]


def two_static_members(driver: ShardDriver) -> tuple[ConsumerStub, ConsumerStub]:
    """The first has all partitions. A target that gives half of them to the other is computed."""
    first = ConsumerStub(driver, "first", instance_id="i")
    first.join()
    finish(driver, first)
    driver.advance(INTERVAL_MS)
    second = ConsumerStub(driver, "second", instance_id="j")
    second.join()
    assert driver.work
    return first, second


def targets_of(driver: ShardDriver) -> dict[str, int]:
    members = driver.shard.groups["g"].members.values()
    return {each.member_id: each.target_partitions for each in members}


def test_a_member_that_changes_its_instance_id_keeps_its_target(driver):
    """Another one may have its old instance id before the target is computed."""
    first, second = two_static_members(driver)
    first.instance_id = "k"
    first.join()
    newcomer = ConsumerStub(driver, "new", instance_id="i")
    newcomer.join()
    finish(driver, second)
    assert targets_of(driver) == {"first": 6, "second": 6, "new": 0}


def test_members_that_exchange_their_instance_ids_keep_their_targets(driver):
    first, second = two_static_members(driver)
    first.instance_id = "k"
    first.join()
    second.instance_id = "i"
    second.join()
    first.instance_id = "j"
    first.join()
    finish(driver, first, second)
    assert targets_of(driver) == {"first": 6, "second": 6}


def test_the_target_of_a_member_that_left_does_not_go_to_one_that_has_its_own(driver):
    first, second = two_static_members(driver)
    first.leave()
    second.instance_id = "i"
    second.join()
    finish(driver, second)
    assert targets_of(driver) == {"second": 6}


def test_a_member_that_replaced_another_one_and_changed_its_instance_id_gets_nothing(driver):
    """Others may have the partitions of the target that it took over."""
    first, second = two_static_members(driver)
    first.leave(-2)
    next_one = ConsumerStub(driver, "next", instance_id="i")
    next_one.join()
    next_one.instance_id = "k"
    next_one.join()
    finish(driver, second)
    assert targets_of(driver) == {"second": 6, "next": 0}


def test_a_member_that_replaced_another_one_gets_its_own_target(driver):
    """It has the target of the other one, which joins again under another instance id. Both targets
    stay as they were when the computation began.
    """
    first, second = two_static_members(driver)
    finish(driver, second)
    settle(driver, [first, second])
    target = driver.shard.groups["g"].members["second"].target
    other = ConsumerStub(driver, "other", topics=("absent",))
    assert other.join().parked
    first.leave(-2)
    second.instance_id = "i"
    second.join()
    first.instance_id = "k"
    first.join()
    finish(driver, first, second, other)
    assert targets_of(driver) == {"first": 6, "second": 6, "other": 0}
    assert driver.shard.groups["g"].members["second"].target == target


def test_the_target_of_a_member_loses_a_topic_that_was_deleted(driver):
    """Its other partitions stay the same."""
    a = ConsumerStub(driver, "a", topics=("orders", "payments"))
    a.join()
    finish(driver, a)
    driver.change_topics(ORDERS)
    driver.advance(INTERVAL_MS)
    a.beat()
    finish(driver, a)
    assert [*driver.shard.groups["g"].members["a"].target] == [ORDERS.topic_id]


@pytest.fixture
def many_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance, "MANY_NAMES", 0)


def test_with_many_names_a_computation_begins_in_the_next_step(driver, many_names):
    a = ConsumerStub(driver, "a")
    assert a.join().parked
    assert [type(work) for work in driver.work] == [FollowWork]
    step = driver.finish_work(None)
    assert [type(work) for work in step.work] == [AssignmentWork]
    assert step.replies == []
    finish(driver, a)
    assert (a.epoch, a.partitions()) == (2, ALL)


def test_a_group_whose_computation_has_yet_to_begin_begins_no_other(driver, many_names):
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join()
    assert not b.join().parked
    assert [type(work) for work in driver.work] == [FollowWork]
    driver.finish_work(None)
    assert [work.epoch for work in driver.work] == [3], "it is for the present group"
    finish(driver, a, b)
    a.acknowledge()
    b.beat()
    assert [len(member.partitions()) for member in (a, b)] == [6, 6]
    driver.advance(INTERVAL_MS)
    assert ConsumerStub(driver, "c").join().parked, "and later it begins the next one"


def test_a_small_target_for_many_names_is_computed_in_the_next_step(
    driver, many_names, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(assignment_work, "LARGE_US", 5_000)
    a = ConsumerStub(driver, "a")
    call = a.join()
    step = driver.finish_work(None)
    assert [reply.ticket for reply in step.replies] == [call]
    a.take(call)
    assert (a.epoch, a.partitions()) == (2, ALL)
    assert driver.work == []


def test_a_group_may_be_empty_when_its_computation_begins(driver, many_names):
    a = ConsumerStub(driver, "a")
    call = a.join()
    a.epoch = 1
    assert a.leave().error is ErrorCode.NONE
    assert call.error is ErrorCode.UNKNOWN_MEMBER_ID
    driver.finish_work(None)
    finish(driver)
    driver.advance(INTERVAL_MS)
    b = ConsumerStub(driver, "b")
    b.join()
    driver.finish_work(None)
    finish(driver, b)
    assert b.partitions() == ALL


@pytest.fixture
def waiting(driver, monkeypatch: pytest.MonkeyPatch) -> ConsumerStub:
    """The first member of a group, whose heartbeat waits although its target was installed: it is
    too large to follow it in the same step.
    """
    monkeypatch.setattr(follow_work, "LARGE_BYTES", 0)
    member = ConsumerStub(driver, "a")
    call = member.join()
    driver.finish_work(computed(driver))
    assert call.parked
    assert driver.shard.groups["g"].members["a"].target != {}
    assert not driver.shard.groups["g"].members["a"].current.assigned
    return member


def test_a_member_follows_a_large_target_in_the_next_step(driver, waiting):
    (call,) = [call for call in driver.calls if call.parked]
    step = driver.finish_work(None)
    assert [reply.ticket for reply in step.replies] == [call]
    waiting.take(call)
    assert (waiting.epoch, waiting.partitions()) == (2, ALL)
    assert driver.work == []


def test_a_target_is_large_above_256_kib():
    at_most = Step(record_bytes=256 * 1024)
    more = Step(record_bytes=256 * 1024 + 1)
    assert [follow_work.is_large(step) for step in (at_most, more)] == [False, True]


def test_a_heartbeat_between_the_two_steps_follows_at_once(driver, waiting):
    (call,) = [call for call in driver.calls if call.parked]
    waiting.join()
    assert call.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert waiting.partitions() == ALL
    assert driver.finish_work(None).replies == []


def test_a_member_that_leaves_between_the_two_steps_is_answered_once(driver, waiting):
    (call,) = [call for call in driver.calls if call.parked]
    waiting.epoch = 1
    waiting.leave()
    assert call.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.finish_work(None).replies == []


def test_a_newer_computation_answers_whoever_waits_for_the_one_before(driver, waiting):
    """Also if the group was deleted, and another one has its name."""
    waiting.leave()
    driver.send(DeleteGroup("g", CLIENT))
    call = waiting.join()
    driver.finish_work(None)
    assert call.parked
    driver.finish_work(computed(driver))
    driver.finish_work(None)
    waiting.take(call)
    assert waiting.partitions() == ALL


def test_a_load_between_the_two_steps_keeps_the_target(driver, waiting):
    driver.work.clear()
    driver.reload()
    waiting.join()
    assert (waiting.epoch, waiting.partitions()) == (2, ALL)


@pytest.mark.parametrize(
    "limits", [{"max_group_bytes": 6_000}, {"max_step_bytes": 6_000}], ids=["group", "step"]
)
def test_a_target_that_could_not_be_stored_is_not_installed(limits):
    """What members have when they have followed counts too."""
    driver = ShardDriver(limits=CoreLimits(**limits))
    driver.change_topics(ORDERS._replace(partitions=40))
    members = [ConsumerStub(driver, name) for name in "abc"]
    held = 0
    for count in range(40, 400, 20):
        driver.change_topics(ORDERS._replace(partitions=count))
        for _ in range(3):
            for member in members:
                member.beat() if member.epoch else member.join()
                while driver.work:
                    finish(driver, *members)
                driver.advance(INTERVAL_MS)
                group = driver.shard.groups["g"]
                assert group.saved_bytes() <= driver.limits.max_group_bytes
                assert driver.steps[-1].record_bytes <= driver.limits.max_step_bytes
        settle(driver, members, rounds=1)
        now = sum(len(member.partitions()) for member in members)
        assert now >= held, "the old target stays"
        held = now
    assert 0 < held < 380
    driver.check_replay()
