"""The round-robin assignor."""

from __future__ import annotations

from groupkeeper.coordinator.core.assignors.roundrobin import RoundRobinAssignor
from groupkeeper.coordinator.core.assignors.types import MemberSubscription, TopicPartition


def short(assignment: dict[str, list[TopicPartition]]) -> dict[str, str]:
    """Print an assignment as Kafka's documentation does: ``t0p0 t1p1``."""
    return {
        member_id: " ".join(f"{topic}p{number}" for topic, number in assigned)
        for member_id, assigned in assignment.items()
    }


def topics(**counts: int) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)]


def test_the_turn_goes_on_from_one_topic_to_the_next():
    """The first example in the documentation of Kafka's RoundRobinAssignor."""
    members = [MemberSubscription(name, ["t0", "t1"]) for name in ("C0", "C1")]
    assignment = RoundRobinAssignor().assign(members, topics(t0=3, t1=3))
    assert short(assignment) == {"C0": "t0p0 t0p2 t1p1", "C1": "t0p1 t1p0 t1p2"}


def test_members_that_do_not_subscribe_are_passed_over():
    """The second example in the documentation of Kafka's RoundRobinAssignor."""
    members = [
        MemberSubscription("C0", ["t0"]),
        MemberSubscription("C1", ["t0", "t1"]),
        MemberSubscription("C2", ["t0", "t1", "t2"]),
    ]
    assignment = RoundRobinAssignor().assign(members, topics(t0=1, t1=2, t2=3))
    assert short(assignment) == {"C0": "t0p0", "C1": "t1p0", "C2": "t1p1 t2p0 t2p1 t2p2"}


def test_a_topic_without_subscribers_goes_to_nobody():
    members = [MemberSubscription("C0", ["t1"]), MemberSubscription("C1", [])]
    assignment = RoundRobinAssignor().assign(members, topics(t0=2, t1=1))
    assert short(assignment) == {"C0": "t1p0", "C1": ""}


def test_a_partition_that_is_named_twice_is_dealt_once():
    members = [MemberSubscription(name, ["t0"]) for name in ("C0", "C1")]
    assignment = RoundRobinAssignor().assign(members, topics(t0=2) + topics(t0=2))
    assert short(assignment) == {"C0": "t0p0", "C1": "t0p1"}


def test_static_members_come_before_the_others_by_their_instance_ids():
    """testOneStaticConsumerAndOneDynamicConsumerTwoTopicsSixPartitions of Kafka's
    RoundRobinAssignor.
    """
    members = [
        MemberSubscription("consumer-a", ["topic1", "topic2"]),
        MemberSubscription("consumer-b", ["topic1", "topic2"], "instance1"),
    ]
    assignment = RoundRobinAssignor().assign(members, topics(topic1=3, topic2=3))
    assert short(assignment) == {
        "consumer-b": "topic1p0 topic1p2 topic2p1",
        "consumer-a": "topic1p1 topic2p0 topic2p2",
    }


def test_static_members_with_other_subscriptions_keep_their_place_in_the_turn():
    members = [
        MemberSubscription("a", ["t0", "t1"]),
        MemberSubscription("b", ["t1"], "i2"),
        MemberSubscription("c", ["t0", "t1"], "i1"),
    ]
    assignment = RoundRobinAssignor().assign(members, topics(t0=1, t1=3))
    assert short(assignment) == {"c": "t0p0 t1p2", "b": "t1p0", "a": "t1p1"}
