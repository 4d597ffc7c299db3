"""Members that subscribe to patterns (docs/spec/consumer-groups.md#regex). What matches is found
outside the core.
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.consumer import subscriptions
from groupkeeper.coordinator.core.consumer.pattern_work import PatternMatches, PatternWork
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import PatternRefused, of_client
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.work import WorkFailed, WorkFailure
from tests.helpers.core.consumer_members import ConsumerStub, settle
from tests.helpers.core.shard_driver import CLIENT, ORDERS, PAYMENTS, ShardDriver, TopicInfo

MIN_INTERVAL_MS = 10_000
REFRESH_MS = 600_000


def join(driver: ShardDriver, member_id: str, pattern: str, **changes) -> ConsumerStub:
    member = ConsumerStub(driver, member_id, topics=None)
    member.join(subscribed_topic_names=(), subscribed_topic_regex=pattern, **changes)
    return member


def live_until_refresh(driver: ShardDriver, member: ConsumerStub) -> None:
    """Let a member live until the topics of its pattern are searched again."""
    for _ in range(20):
        driver.advance(REFRESH_MS // 20)
        member.beat()


def test_a_member_has_nothing_until_its_pattern_is_resolved(driver):
    a = join(driver, "a", "o.*")
    assert (a.epoch, a.held) == (1, {})
    (work,) = driver.work
    assert work == PatternWork(group_id="g", epoch=1, patterns=("o.*",))
    driver.finish_work(PatternMatches(0, {"o.*": ("orders",)}))
    a.beat()
    assert (a.epoch, set(a.held)) == (2, {ORDERS.topic_id})


def test_all_patterns_of_a_group_are_resolved_together(driver):
    join(driver, "a", "o.*")
    driver.finish_work(PatternMatches(0, {"o.*": ("orders",)}))
    b = join(driver, "b", "p.*")
    assert driver.work == [], "the last resolution began just now"
    driver.advance(MIN_INTERVAL_MS + 1)
    b.beat()
    (work,) = driver.work
    assert work.patterns == ("o.*", "p.*")


def test_topics_that_match_since_begin_a_new_epoch(driver):
    a = join(driver, "a", ".*")
    driver.finish_work(PatternMatches(0, {".*": ("orders",)}))
    a.beat()
    live_until_refresh(driver, a)
    driver.finish_work(PatternMatches(0, {".*": ("orders", "payments")}))
    a.beat()
    assert (a.epoch, set(a.held)) == (3, {ORDERS.topic_id, PAYMENTS.topic_id})


def test_a_change_to_a_pattern_that_matches_nothing_gives_the_partitions_to_others(driver):
    a = join(driver, "a", "orders|payments")
    driver.finish_work(PatternMatches(0, {"orders|payments": ("orders", "payments")}))
    b = ConsumerStub(driver, "b", topics=("orders",))
    b.join()
    settle(driver, [a, b])
    assert a.held.keys() == {ORDERS.topic_id, PAYMENTS.topic_id}
    epoch = a.epoch
    a.beat(subscribed_topic_regex="nothing")
    driver.finish_work(PatternMatches(0, {"nothing": ()}))
    settle(driver, [a, b])
    assert (a.epoch, b.epoch) == (epoch + 1, epoch + 1)
    assert (a.held, b.held) == ({}, {ORDERS.topic_id: list(range(ORDERS.partitions))})


def test_an_epoch_begins_when_a_group_has_fewer_topics_that_nobody_was_assigned(driver):
    a = join(driver, "a", "orders|payments")
    driver.finish_work(PatternMatches(0, {"orders|payments": ("orders", "payments")}))
    a.beat(subscribed_topic_regex="nothing")
    epoch = a.epoch
    driver.advance(MIN_INTERVAL_MS + 1)
    a.beat()
    driver.finish_work(PatternMatches(0, {"nothing": ()}))
    a.beat()
    assert (a.epoch, a.held) == (epoch + 1, {})


def test_partitions_of_an_old_pattern_go_to_members_that_subscribe_to_the_same_topic(driver):
    """The topics of the group do not change. Nobody read the partitions, as in Kafka."""
    a = join(driver, "a", "orders")
    driver.finish_work(PatternMatches(0, {"orders": ("orders",)}))
    b = ConsumerStub(driver, "b", topics=("orders",))
    b.join()
    settle(driver, [a, b])
    assert len(a.held[ORDERS.topic_id]) == ORDERS.partitions // 2
    a.beat(subscribed_topic_regex="nothing")
    driver.advance(MIN_INTERVAL_MS + 1)
    a.beat()
    driver.finish_work(PatternMatches(0, {"nothing": ()}))
    settle(driver, [a, b])
    assert (a.held, b.held) == ({}, {ORDERS.topic_id: list(range(ORDERS.partitions))})


TOO_MANY = PatternMatches(1, {"other": tuple(f"topic-{number:05}" for number in range(50_001))})


@pytest.mark.parametrize(
    "outcome",
    [PatternMatches(1, {}), TOO_MANY, WorkFailed(WorkFailure.DIED, "the process ended with 1")],
    ids=["unusable", "too large", "failed"],
)
def test_partitions_of_an_old_pattern_go_to_others_if_the_new_one_has_no_topics(driver, outcome):
    a = join(driver, "a", "orders")
    driver.finish_work(PatternMatches(0, {"orders": ("orders",)}))
    b = ConsumerStub(driver, "b", topics=("orders",))
    b.join()
    settle(driver, [a, b])
    epoch = a.epoch
    a.beat(subscribed_topic_regex="other")
    for _ in range(3):
        driver.advance(MIN_INTERVAL_MS + 1)
        a.beat()
        driver.finish_work(outcome)
        settle(driver, [a, b])
    assert (a.held, b.held) == ({}, {ORDERS.topic_id: list(range(ORDERS.partitions))})
    assert b.epoch == epoch + 1


def test_a_pattern_without_topics_begins_no_further_epoch_before_the_target_is_computed(driver):
    a = join(driver, "a", "orders")
    driver.finish_work(PatternMatches(0, {"orders": ("orders",)}))
    b = ConsumerStub(driver, "b", topics=("orders",))
    b.join()
    settle(driver, [a, b])
    group = driver.shard.groups["g"]
    epoch = group.epochs.group
    group.retry_at_ms = driver.now.monotonic_ms + 5 * MIN_INTERVAL_MS
    a.beat(subscribed_topic_regex="other")
    for _ in range(3):
        driver.advance(MIN_INTERVAL_MS + 1)
        a.beat()
        driver.finish_work(PatternMatches(1, {}))
    assert group.epochs.group == epoch + 1
    assert a.epoch == epoch


def test_a_member_whose_new_pattern_has_the_topics_of_its_target_begins_no_epoch(driver):
    a = ConsumerStub(driver, "a", topics=("orders",))
    a.join()
    epoch = a.epoch
    a.beat(subscribed_topic_regex="nothing")
    driver.finish_work(PatternMatches(0, {"nothing": ()}))
    a.beat()
    assert a.epoch == epoch


def test_a_resolution_that_changes_nothing_begins_no_epoch(driver):
    a = join(driver, "a", "o.*")
    driver.finish_work(PatternMatches(0, {"o.*": ("orders",)}))
    a.beat()
    live_until_refresh(driver, a)
    driver.finish_work(PatternMatches(0, {"o.*": ("orders",)}))
    a.beat()
    assert a.epoch == 2


def test_a_pattern_that_nobody_has_any_more_gets_no_topics(driver):
    a = join(driver, "a", "o.*")
    a.beat(subscribed_topic_regex="")
    step = driver.finish_work(PatternMatches(0, {"o.*": ("orders",)}))
    assert not step.records


def test_a_deleted_topic_begins_no_resolution(driver):
    a = join(driver, "a", "o.*")
    driver.finish_work(PatternMatches(0, {"o.*": ("orders",)}))
    driver.advance(MIN_INTERVAL_MS + 1)
    driver.image = driver.image.followed_by([ORDERS])
    driver.shard.topics_changed(driver.image, driver.now)
    a.beat()
    assert driver.work == []


def with_refunds(driver: ShardDriver) -> None:
    """Create one more topic."""
    topics = [*driver.image.by_name.values(), TopicInfo("o-refunds", f"{9:022}", 3)]
    driver.image = driver.image.followed_by(topics)
    driver.shard.topics_changed(driver.image, driver.now)


def test_a_created_topic_is_found_with_the_next_heartbeat_after_the_least_interval(driver):
    a = join(driver, "a", "o.*")
    driver.finish_work(PatternMatches(driver.image.version, {"o.*": ("orders",)}))
    driver.advance(MIN_INTERVAL_MS)
    a.beat()
    with_refunds(driver)
    a.beat()
    assert driver.work == [], "the last resolution began just now"
    driver.advance(1)
    a.beat()
    topics = ("o-refunds", "orders")
    driver.finish_work(PatternMatches(driver.image.version, {"o.*": topics}))
    driver.advance(1_000)
    a.beat()
    assert len(a.held) == 2


def test_a_topic_that_is_created_during_a_resolution_is_found_by_the_next_one(driver):
    a = join(driver, "a", "o.*")
    before = driver.image.version
    with_refunds(driver)
    driver.finish_work(PatternMatches(before, {"o.*": ("orders",)}))
    driver.advance(MIN_INTERVAL_MS + 1)
    a.beat()
    assert len(driver.work) == 1


def test_a_member_may_have_names_and_a_pattern(driver):
    a = ConsumerStub(driver, "a", topics=("orders",))
    a.join(subscribed_topic_regex="p.*")
    driver.finish_work(PatternMatches(driver.image.version, {"p.*": ("payments",)}))
    settle(driver, [a])
    assert set(a.held) == {ORDERS.topic_id, PAYMENTS.topic_id}


def test_a_failed_resolution_keeps_what_was_resolved_and_is_tried_again(driver):
    a = join(driver, "a", "o.*")
    driver.finish_work(WorkFailed(WorkFailure.REFUSED, "too many wait"))
    a.beat()
    assert driver.work == []
    driver.advance(MIN_INTERVAL_MS + 1)
    a.beat()
    assert len(driver.work) == 1


def test_a_pattern_that_does_not_compile_is_refused_with_the_reason(driver):
    a = ConsumerStub(driver, "a", topics=None)
    call = a.join(subscribed_topic_names=(), subscribed_topic_regex="(", pattern_error="missing )")
    assert call.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert call.result.message == (
        "SubscribedTopicRegex `(` is not a valid regular expression: missing )."
    )


def test_a_refused_pattern_is_in_the_event_log_even_if_there_is_no_group_yet(driver):
    a = ConsumerStub(driver, "a", topics=None, instance_id="i")
    wrong = "(" * 300
    a.join(subscribed_topic_names=(), subscribed_topic_regex=wrong, pattern_error="missing )")
    (event,) = driver.events
    assert event == PatternRefused(
        group_id="g",
        group_type=GroupType.CONSUMER,
        generation_id=0,
        member_id="a",
        group_instance_id="i",
        **of_client(CLIENT),
        api="ConsumerGroupHeartbeat",
        pattern="(" * 255,
        detail="missing )",
    )
    join(driver, "b", "o.*")
    since = len(driver.events)
    a.join(subscribed_topic_names=(), subscribed_topic_regex=wrong, pattern_error="missing )")
    assert [type(event) for event in driver.events[since:]] == [PatternRefused]


def test_patterns_without_topics_are_one_event_for_each_reason(make_driver):
    driver = make_driver(limits=CoreLimits(max_step_bytes=20_000))
    join(driver, "a", "o.*")
    driver.finish_work(WorkFailed(WorkFailure.REFUSED, "the patterns of 9 groups wait already"))
    for member_id, pattern in (("b", "p.*"), ("c", "q.*"), ("d", ".*")):
        member = join(driver, member_id, pattern)
    driver.advance(MIN_INTERVAL_MS + 1)
    member.beat()
    every = tuple(f"topic-{number:04}" for number in range(2_000))
    driver.finish_work(PatternMatches(1, {"o.*": ("orders",), ".*": every}))
    refused = [
        (event.pattern, event.detail, event.count, event.member_id)
        for event in driver.events_of(PatternRefused)
    ]
    assert refused == [
        ("o.*", "the patterns of 9 groups wait already", 1, ""),
        ("p.*", "this process cannot use it", 2, ""),
        (".*", "the group has no room for its topics", 1, ""),
    ]
    assert member.beat().error is ErrorCode.NONE


def test_more_patterns_than_a_group_may_have_are_refused():
    driver = ShardDriver(limits=CoreLimits(max_group_patterns=2))
    join(driver, "a", "o.*")
    join(driver, "b", "p.*")
    c = ConsumerStub(driver, "c", topics=None)
    call = c.join(subscribed_topic_names=(), subscribed_topic_regex="q.*")
    assert call.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "2 different patterns at most" in call.result.message
    assert join(driver, "d", "p.*").epoch > 0, "it is one that the group has"


def test_topics_of_a_pattern_that_could_not_be_stored_leave_the_group_as_it_is(make_driver):
    driver = make_driver(limits=CoreLimits(max_step_bytes=20_000))
    a = join(driver, "a", "o.*")
    driver.finish_work(PatternMatches(0, {"o.*": ("orders",)}))
    a.beat()
    b = join(driver, "b", ".*")
    driver.advance(MIN_INTERVAL_MS + 1)
    b.beat()
    every = tuple(f"topic-{number:04}" for number in range(2_000))
    step = driver.finish_work(PatternMatches(1, {"o.*": ("orders",), ".*": every}))
    assert step.record_bytes <= 20_000
    assert {*driver.shard.groups["g"].subscriptions.resolved} == {"o.*"}
    a.beat()
    assert set(a.held) == {ORDERS.topic_id}


def test_a_group_has_no_more_names_than_a_target_can_be_computed_for(monkeypatch, driver):
    monkeypatch.setattr(subscriptions, "MAX_NAMES", 5)
    a = join(driver, "a", "o.*")
    b = join(driver, "b", ".*")
    driver.work.clear()
    driver.shard.groups["g"].resolving = False
    driver.advance(MIN_INTERVAL_MS + 1)
    a.beat()
    driver.finish_work(PatternMatches(1, {"o.*": ("orders",), ".*": tuple("abcde")}))
    group = driver.shard.groups["g"]
    assert {*group.subscriptions.resolved} == {"o.*"}
    many = ("a", "b", "c", "d", "e")
    refused = ConsumerStub(driver, "c", topics=many).join()
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert ConsumerStub(driver, "c", topics=many[:4]).join().error is ErrorCode.NONE
    assert ConsumerStub(driver, "d", topics=many[:4]).join().error is ErrorCode.NONE, (
        "the same list"
    )
    assert b.beat().error is ErrorCode.NONE


def test_topics_of_a_pattern_without_room_leave_it_as_it_is():
    """The names of 100 topics take 2 KB, and metadata up to 1 KiB is always admitted."""
    driver = ShardDriver(max_metadata_bytes=0)
    a = join(driver, "a", "o.*")
    driver.finish_work(PatternMatches(0, {"o.*": ("orders",)}))
    a.beat()
    live_until_refresh(driver, a)
    many = ("orders", *(f"orders-{number:03}-and-a-long-name" for number in range(100)))
    driver.finish_work(PatternMatches(0, {"o.*": many}))
    a.beat()
    assert (a.epoch, set(a.held)) == (2, {ORDERS.topic_id})
    (event,) = driver.events_of(PatternRefused)
    assert (event.pattern, event.detail) == ("o.*", "the group has no room for its topics")
