"""Assignments and patterns that take too long for a step: asked for, waited for, used or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from groupkeeper.coordinator.core.consumer.assignment_work import AssignmentWork, compute
from groupkeeper.coordinator.core.consumer.follow_work import FollowWork
from groupkeeper.coordinator.core.consumer.pattern_work import PatternMatches, PatternWork
from groupkeeper.coordinator.core.consumer_records import ConsumerTarget, ResolvedPattern
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import AssignmentFailed
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.work import WorkFailed, WorkFailure
from tests.helpers.core.consumer_members import ConsumerStub, describe_consumer, settle
from tests.helpers.core.shard_driver import ORDERS, PAYMENTS, TopicInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from groupkeeper.coordinator.core.work import Work, WorkOutcome
    from tests.helpers.core.shard_driver import ShardDriver

NONE = ErrorCode.NONE
LARGE = TopicInfo("orders", ORDERS.topic_id, 40_000)
FAILED = WorkFailed(WorkFailure.TIMED_OUT, "killed")


def work(driver: ShardDriver) -> list[Work]:
    asked = [work for step in driver.steps for work in step.work]
    return [each for each in asked if not isinstance(each, FollowWork)]


def finish(driver: ShardDriver, work: Work, outcome: WorkOutcome) -> None:
    """Give the shard the outcome, and let the member follow that waits for it."""
    step = driver._take(driver.shard.work_done(work, outcome, driver.now))
    for rest in step.work:
        if isinstance(rest, FollowWork):
            driver._take(driver.shard.work_done(rest, None, driver.now))


def result_of(asked: Work) -> WorkOutcome:
    assert isinstance(asked, AssignmentWork)
    return compute(asked.assignor, asked.spec)


# --- assignments ---


def test_a_heartbeat_that_needs_a_large_assignment_waits_for_it(driver) -> None:
    driver.change_topics(LARGE)
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    call = a.join()
    assert call.parked
    (asked,) = work(driver)
    assert (asked.group_id, asked.epoch) == ("g", 2)
    assert b.join().result.assignment == ()  # it sees the old target
    assert len(work(driver)) == 1
    finish(driver, asked, result_of(asked))
    a.take(call)
    assert (a.epoch, len(a.partitions())) == (2, 40_000)
    driver.advance(1_000)
    assert b.beat().parked
    assert describe_consumer(driver).assignment_epoch == 2
    finish(driver, work(driver)[1], result_of(work(driver)[1]))
    assert describe_consumer(driver).assignment_epoch == 3


def test_the_result_for_an_older_epoch_is_used_without_those_who_left(driver) -> None:
    driver.change_topics(LARGE)
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    b.topics = ()
    b.join()
    driver.advance(1_000)
    call = a.join()
    (asked,) = work(driver)
    b.leave()
    finish(driver, asked, result_of(asked))
    assert call.error is NONE
    group = describe_consumer(driver)
    assert (group.group_epoch, group.assignment_epoch, group.state) == (3, 2, "Assigning")


def test_the_place_of_a_static_member_is_kept_for_its_next_id(driver) -> None:
    driver.change_topics(LARGE)
    a, b = ConsumerStub(driver, "a", instance_id="i"), ConsumerStub(driver, "b")
    a.join()
    finish(driver, work(driver)[0], result_of(work(driver)[0]))
    a.acknowledge()
    driver.advance(1_000)
    b.join()
    asked = work(driver)[1]
    a.leave(-2)
    again = ConsumerStub(driver, "a2", instance_id="i")
    again.join()
    finish(driver, asked, result_of(asked))
    (member,) = [each for each in describe_consumer(driver).members if each.member_id == "a2"]
    assert len(member.target_assignment[0][2]) == 20_000


def test_a_failure_keeps_the_old_target_and_is_tried_again_after_a_while(driver) -> None:
    driver.change_topics(LARGE)
    a = ConsumerStub(driver, "a")
    call = a.join()
    finish(driver, work(driver)[0], FAILED)
    a.take(call)
    assert (call.error, a.epoch, a.partitions()) == (NONE, 1, set())
    driver.advance(999)
    a.beat()
    assert len(work(driver)) == 1
    driver.advance(1)
    assert a.beat().parked
    finish(driver, work(driver)[1], result_of(work(driver)[1]))
    assert describe_consumer(driver).state == "Stable"


def test_without_an_assignment_interval_a_failure_waits_for_a_second(make_driver) -> None:
    driver = make_driver(consumer_assignment_interval_ms=0)
    driver.change_topics(LARGE)
    a = ConsumerStub(driver, "a")
    a.join()
    finish(driver, work(driver)[0], FAILED)
    a.epoch = 1
    assert not a.beat().parked
    driver.advance(1_000)
    assert a.beat().parked


def test_a_result_that_gives_a_partition_to_two_is_not_used(driver) -> None:
    driver.change_topics(LARGE)
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    b.topics = ()
    b.join()
    driver.advance(1_000)
    call = a.join()
    finish(driver, work(driver)[0], [[0, 1], [1]])
    assert call.error is NONE
    assert driver.records_of(ConsumerTarget) == []
    (event,) = driver.events_of(AssignmentFailed)
    assert (event.reason, event.detail) == ("invalid", "two members have the same partition")


def test_a_failure_is_in_the_event_log_with_its_reason(driver) -> None:
    driver.change_topics(LARGE)
    ConsumerStub(driver, "a").join()
    finish(driver, work(driver)[0], WorkFailed(WorkFailure.RAISED, "x" * 300))
    assert driver.events_of(AssignmentFailed) == [
        AssignmentFailed(
            group_id="g",
            group_type=GroupType.CONSUMER,
            generation_id=2,
            assignor="uniform",
            reason="raised",
            detail="x" * 255,
            members=1,
        )
    ]


def test_a_target_that_could_not_be_stored_is_in_the_event_log_too(make_driver) -> None:
    driver = make_driver(limits=CoreLimits(max_step_bytes=4_000))
    driver.change_topics(TopicInfo("orders", ORDERS.topic_id, 1_000))
    a = ConsumerStub(driver, "a")
    a.join()
    (event,) = driver.events_of(AssignmentFailed)
    assert (event.reason, event.assignor, a.partitions()) == ("too_large", "uniform", set())


def test_an_assignor_of_others_always_is_work(make_driver: Callable[..., ShardDriver]) -> None:
    driver = make_driver(consumer_assignors=("uniform", "theirs"))
    a = ConsumerStub(driver, "a")
    assert a.join(server_assignor="theirs").parked
    (asked,) = work(driver)
    assert isinstance(asked, AssignmentWork)
    assert asked.names is not None
    assert asked.names.members == [("a", None)]
    assert asked.names.topics == ["orders"]


def test_whoever_waits_is_answered_when_it_is_removed_or_asks_again(driver) -> None:
    driver.change_topics(LARGE)
    a = ConsumerStub(driver, "a")
    first = a.join()
    second = a.join()
    assert first.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert second.error is NONE  # the computation is under way, and it sees the old target
    (asked,) = work(driver)
    b = ConsumerStub(driver, "b")
    b.join()
    a.leave()
    finish(driver, asked, result_of(asked))
    assert driver.everything_answered()


def test_whoever_waits_longer_than_its_session_stays(driver) -> None:
    driver.change_topics(LARGE)
    a = ConsumerStub(driver, "a")
    call = a.join()
    driver.advance(100_000)
    finish(driver, work(driver)[0], FAILED)
    assert call.error is NONE
    driver.advance(44_999)
    assert describe_consumer(driver).members


# --- patterns ---


def resolve(driver: ShardDriver, **topics: tuple[str, ...]) -> None:
    asked = work(driver)[-1]
    assert isinstance(asked, PatternWork)
    assert set(asked.patterns) == set(topics)
    finish(driver, asked, PatternMatches(driver.image.version, topics))


def test_the_first_member_with_a_pattern_gets_its_topics_later(driver) -> None:
    """docs/spec/edge-cases.md#edge-86; testConsumerGroupMemberJoinsWithNewRegex."""
    a = ConsumerStub(driver, "a", topics=None)
    call = a.join(subscribed_topic_regex="o")
    assert (call.error, a.epoch, a.partitions()) == (NONE, 1, set())
    resolve(driver, o=("orders",))
    driver.advance(1_000)
    a.beat()
    assert (a.epoch, len(a.partitions())) == (2, 12)
    a.beat()
    assert len(work(driver)) == 1


def test_a_pattern_that_is_resolved_counts_at_once(driver) -> None:
    a, b = ConsumerStub(driver, "a", topics=None), ConsumerStub(driver, "b", topics=None)
    a.join(subscribed_topic_regex="o")
    resolve(driver, o=("orders",))
    driver.advance(1_000)
    a.beat()
    driver.advance(1_000)
    b.join(subscribed_topic_regex="o")
    assert b.epoch == 3
    assert len(work(driver)) == 1


def test_a_new_pattern_within_ten_seconds_waits(driver) -> None:
    """docs/spec/edge-cases.md#edge-112."""
    a, b = ConsumerStub(driver, "a", topics=None), ConsumerStub(driver, "b", topics=None)
    a.join(subscribed_topic_regex="o")
    resolve(driver, o=("orders",))
    driver.advance(1_000)
    a.beat()
    b.join(subscribed_topic_regex="p")
    assert (b.epoch, b.partitions()) == (2, set())
    driver.advance(9_000)
    b.beat()
    assert len(work(driver)) == 1
    driver.advance(1)
    b.beat()
    resolve(driver, o=("orders",), p=("payments",))
    driver.advance(1_000)
    settle(driver, [a, b], rounds=4)
    assert b.held == {PAYMENTS.topic_id: [0, 1, 2, 3]}


def test_a_new_topic_lets_patterns_be_resolved_again(driver) -> None:
    a = ConsumerStub(driver, "a", topics=None)
    a.join(subscribed_topic_regex="o")
    resolve(driver, o=("orders",))
    driver.advance(1_000)
    a.beat()
    driver.advance(20_000)
    a.beat()
    assert len(work(driver)) == 1
    driver.image = driver.image.followed_by([ORDERS, PAYMENTS, TopicInfo("o2", "O" * 22, 1)])
    driver._take(driver.shard.topics_changed(driver.image, driver.now))
    a.beat()
    resolve(driver, o=("o2", "orders"))
    driver.advance(1_000)
    a.beat()
    assert a.held.keys() == {ORDERS.topic_id, "O" * 22}


def test_a_pattern_that_nobody_has_any_more_is_forgotten(driver) -> None:
    a = ConsumerStub(driver, "a", topics=None)
    a.join(subscribed_topic_regex="o")
    resolve(driver, o=("orders",))
    driver.advance(1_000)
    a.beat()
    epoch = a.epoch
    a.beat(subscribed_topic_regex="")
    assert driver.records_of(ResolvedPattern)[-1].resolved is None
    driver.advance(1_000)
    a.acknowledge()
    assert (a.epoch, a.partitions()) == (epoch + 1, set())


def test_a_pattern_without_topics_begins_no_epoch(driver) -> None:
    a = ConsumerStub(driver, "a", topics=None)
    a.join(subscribed_topic_regex="nothing")
    resolve(driver, nothing=())
    driver.advance(1_000)
    assert a.beat().result.assignment is None
    assert a.epoch == 1


@pytest.mark.parametrize(("wait_ms", "resolutions"), [(10_000, 1), (10_001, 2)])
def test_the_only_member_changes_its_pattern(driver, wait_ms: int, resolutions: int) -> None:
    """As in Kafka: within ten seconds, the heartbeat after it begins the resolution."""
    a = ConsumerStub(driver, "a", topics=None)
    a.join(subscribed_topic_regex="o")
    resolve(driver, o=("orders",))
    driver.advance(wait_ms)
    a.beat(subscribed_topic_regex="p")
    assert len(work(driver)) == resolutions
    a.beat()
    assert len(work(driver)) == 2


def test_a_wrong_pattern_is_refused_unless_the_group_has_it(driver) -> None:
    a = ConsumerStub(driver, "a", topics=None)
    wrong = a.join(subscribed_topic_regex="(", pattern_error="missing )")
    assert wrong.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "missing )" in wrong.result.message
    assert driver.records == []
    a.join(subscribed_topic_regex="o")
    b = ConsumerStub(driver, "b", topics=None)
    assert b.join(subscribed_topic_regex="o", pattern_error="anything").error is NONE


def test_a_group_has_so_many_patterns_at_most(make_driver) -> None:
    driver = make_driver(max_group_patterns=1)
    a, b = ConsumerStub(driver, "a", topics=None), ConsumerStub(driver, "b", topics=None)
    assert a.join(subscribed_topic_regex="o").error is NONE
    refused = b.join(subscribed_topic_regex="p")
    assert refused.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert b.join(subscribed_topic_regex="o").error is NONE


def test_patterns_survive_a_restart_and_are_looked_at_again(driver) -> None:
    a = ConsumerStub(driver, "a", topics=None)
    a.join(subscribed_topic_regex="o")
    resolve(driver, o=("orders",))
    driver.advance(1_000)
    a.beat()
    driver.reload()
    a.beat()
    resolve(driver, o=("orders",))
    driver.advance(1_000)
    assert a.beat().result.assignment is None
    assert (a.epoch, len(a.partitions())) == (2, 12)
