"""The events that say who owns which partitions of a consumer group, and why."""

from __future__ import annotations

from groupkeeper.coordinator.core.consumer import assignment_events
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    MemberEvicted,
    PartitionsMoved,
    RebalanceEnd,
    RebalanceStart,
    TargetAssignment,
)
from tests.helpers.core.consumer_members import ConsumerStub, owners_by_events, settle
from tests.helpers.core.shard_driver import ORDERS, PAYMENTS


def last(driver, kind):
    return [event for event in driver.events if type(event) is kind][-1]


def moved(driver) -> list[tuple]:
    """What each event about moved partitions says."""
    return [
        (e.member_id, e.generation_id, e.reason, e.gained_partitions, e.lost_partitions)
        for e in driver.events
        if type(e) is PartitionsMoved
    ]


def test_a_target_says_who_computed_it_and_whose_part_changed(driver) -> None:
    ConsumerStub(driver, "a").join()
    event = last(driver, TargetAssignment)
    assert (event.group_type, event.generation_id, event.assignor) == ("consumer", 2, "uniform")
    assert (event.members, event.changed_members) == (1, 1)
    assert event.targets == {"a": {"orders": [*range(12)]}}


def test_a_large_target_is_only_counted(driver, monkeypatch) -> None:
    monkeypatch.setattr(assignment_events, "MAX_LISTED_BYTES", 100)
    ConsumerStub(driver, "a").join()
    assert last(driver, TargetAssignment).targets is None
    assert last(driver, TargetAssignment).changed_members == 1


def test_a_target_is_only_counted_if_its_list_may_not_fit_in_the_step(make_driver) -> None:
    """The list has names of topics, which are longer than the ids in the record."""
    listed = {}
    for most_bytes in (3_000, 6_000):
        driver = make_driver(max_step_bytes=most_bytes)
        assert ConsumerStub(driver, "a").join().error is ErrorCode.NONE
        event = last(driver, TargetAssignment)
        assert event.changed_members == 1
        listed[most_bytes] = event.targets is not None
    assert listed == {3_000: False, 6_000: True}


def test_a_partition_moves_when_its_owner_gives_it_up(driver) -> None:
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join()
    driver.advance(1_000)
    b.join()
    del driver.events[:]
    a.beat()
    assert moved(driver) == [], "it owns them until it has acknowledged"
    a.acknowledge()
    b.beat()
    assert moved(driver) == [
        ("a", 3, "target_assignment", {}, {"orders": [*range(6, 12)]}),
        ("b", 3, "target_assignment", {"orders": [*range(6, 12)]}, {}),
    ]


def test_a_member_that_leaves_loses_all_it_has_and_says_why(driver) -> None:
    a = ConsumerStub(driver, "a")
    a.join()
    a.leave()
    assert moved(driver)[-1] == ("a", 2, "member_leave", {}, {"orders": [*range(12)]})


def test_an_evicted_member_loses_all_it_has_and_says_why(driver) -> None:
    ConsumerStub(driver, "a").join()
    driver.advance(45_000)
    assert moved(driver)[-1] == ("a", 2, "session_timeout", {}, {"orders": [*range(12)]})


def test_a_member_that_does_not_give_up_partitions_is_evicted_for_that_reason(driver) -> None:
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join(rebalance_timeout_ms=10_000)
    driver.advance(1_000)
    b.join()
    a.beat()
    driver.advance(10_000)
    event = last(driver, MemberEvicted)
    assert (event.member_id, event.reason, event.generation_id) == ("a", "rebalance_timeout", 2)
    assert last(driver, RebalanceStart).reason == "rebalance_timeout"
    assert moved(driver)[-1][:3] == ("a", 2, "rebalance_timeout")


def test_a_static_member_that_comes_back_has_what_its_old_id_had(driver) -> None:
    a = ConsumerStub(driver, "a", instance_id="i")
    a.join()
    a.leave(-2)
    a.member_id = "a2"
    a.join()
    everything = {"orders": [*range(12)]}
    assert moved(driver)[-2:] == [
        ("a", -2, "static_member_rejoin", {}, everything),
        ("a2", 0, "static_member_rejoin", everything, {}),
    ]
    assert {*owners_by_events(driver.events, [ORDERS]).values()} == {"a2"}


def test_each_epoch_has_a_start_with_its_reason_and_the_group_one_end(driver) -> None:
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join()
    driver.advance(1_000)
    del driver.events[:]
    b.join()
    b.beat(subscribed_topic_names=("orders", "payments"))
    settle(driver, [a, b])
    starts = [event for event in driver.events if type(event) is RebalanceStart]
    assert [(e.generation_id, e.reason, e.member_id) for e in starts] == [
        (3, "member_join", "b"),
        (4, "subscription_changed", "b"),
    ]
    ends = [event for event in driver.events if type(event) is RebalanceEnd]
    assert [(event.generation_id, event.members) for event in ends] == [(4, 2)]


def test_a_rebalance_lasts_from_its_first_epoch_to_its_end(driver) -> None:
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join()
    driver.advance(1_000)
    b.join()
    driver.advance(700)
    b.beat(subscribed_topic_names=("orders", "payments"))  # begins another epoch
    driver.advance(300)
    for member in (a, a, b):
        member.acknowledge()
    event = last(driver, RebalanceEnd)
    assert (event.generation_id, event.duration_ms) == (4, 1_000)


def test_partitions_of_a_topic_that_was_deleted_are_named(driver) -> None:
    a = ConsumerStub(driver, "a")
    a.join()
    driver.change_topics(PAYMENTS)
    driver.advance(1_000)
    settle(driver, [a])
    assert moved(driver)[-1][2:] == ("target_assignment", {}, {"orders": [*range(12)]})
