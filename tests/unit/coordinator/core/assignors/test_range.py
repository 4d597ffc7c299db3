"""The range assignor."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.assignors.range import RangeAssignor
from groupkeeper.coordinator.core.assignors.types import MemberSubscription, TopicPartition


def a_topic(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def numbers(assigned: list[TopicPartition], topic: str) -> list[int]:
    return [partition.partition for partition in assigned if partition.topic == topic]


def test_first_members_get_the_partitions_that_are_left_over():
    members = [MemberSubscription(name, ["orders"]) for name in ("a", "b", "c")]
    assignment = RangeAssignor().assign(members, a_topic("orders", 8))
    assert [numbers(assignment[name], "orders") for name in "abc"] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_each_topic_is_cut_by_itself():
    members = [MemberSubscription(name, ["orders", "returns"]) for name in ("a", "b")]
    assignment = RangeAssignor().assign(members, a_topic("orders", 3) + a_topic("returns", 3))
    assert assignment["a"] == [
        TopicPartition("orders", 0),
        TopicPartition("orders", 1),
        TopicPartition("returns", 0),
        TopicPartition("returns", 1),
    ]
    assert assignment["b"] == [TopicPartition("orders", 2), TopicPartition("returns", 2)]


def test_more_members_than_partitions_leaves_the_last_with_nothing():
    members = [MemberSubscription(name, ["orders"]) for name in ("a", "b", "c")]
    assignment = RangeAssignor().assign(members, a_topic("orders", 2))
    assert assignment == {
        "a": [TopicPartition("orders", 0)],
        "b": [TopicPartition("orders", 1)],
        "c": [],
    }


def test_a_topic_goes_to_its_subscribers_alone():
    members = [MemberSubscription("a", ["orders"]), MemberSubscription("b", ["returns"])]
    assignment = RangeAssignor().assign(members, a_topic("orders", 2) + a_topic("returns", 1))
    assert assignment == {"a": a_topic("orders", 2), "b": a_topic("returns", 1)}


def test_gaps_in_the_numbers_of_partitions_do_not_matter():
    members = [MemberSubscription(name, ["orders"]) for name in ("a", "b")]
    partitions = [TopicPartition("orders", number) for number in (9, 2, 5, 7)]
    assignment = RangeAssignor().assign(members, partitions)
    assert [numbers(assignment[name], "orders") for name in "ab"] == [[2, 5], [7, 9]]


def test_static_members_come_before_the_others_by_their_instance_ids():
    """testOneStaticConsumerAndOneDynamicConsumerTwoTopicsSixPartitions of Kafka's RangeAssignor."""
    members = [
        MemberSubscription("consumer-a", ["topic1", "topic2"]),
        MemberSubscription("consumer-b", ["topic1", "topic2"], "instance1"),
    ]
    partitions = a_topic("topic1", 3) + a_topic("topic2", 3)
    assert RangeAssignor().assign(members, partitions) == {
        "consumer-b": a_topic("topic1", 2) + a_topic("topic2", 2),
        "consumer-a": [TopicPartition("topic1", 2), TopicPartition("topic2", 2)],
    }


def test_static_members_keep_their_ranges_under_new_member_ids():
    for ids in (("x", "y", "z"), ("z", "x", "y")):
        members = [
            MemberSubscription(member_id, ["orders"], f"instance{number}")
            for number, member_id in enumerate(ids, 1)
        ]
        assignment = RangeAssignor().assign(members, a_topic("orders", 3))
        assert [numbers(assignment[member_id], "orders") for member_id in ids] == [[0], [1], [2]]


def test_a_text_is_no_collection_of_topics():
    """It was taken for topics of one letter each."""
    with pytest.raises(TypeError, match="topics must be a collection of strings, not 'orders'"):
        MemberSubscription("a", "orders")


def test_no_members_make_an_empty_assignment():
    assert RangeAssignor().assign([], a_topic("orders", 2)) == {}


def test_a_member_named_twice_is_refused():
    members = [MemberSubscription("a", ["orders"]), MemberSubscription("a", ["returns"])]
    with pytest.raises(ValueError, match="more than once"):
        RangeAssignor().assign(members, [])
