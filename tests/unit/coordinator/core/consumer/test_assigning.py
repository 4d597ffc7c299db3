"""The assignors of consumer groups on small examples (docs/spec/consumer-groups.md#assignors)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from groupkeeper.coordinator.core.consumer.assigning import (
    GroupSpec,
    assign_range,
    assign_uniform,
    place,
)

BOTH = pytest.mark.parametrize("assign", [assign_range, assign_uniform])


def alike(
    counts: Sequence[int], members: int, previous: Sequence[Sequence[int]] | None = None
) -> GroupSpec:
    """A group whose members all subscribe to all topics."""
    nothing: list[list[int]] = [[] for _ in range(members)]
    return GroupSpec(counts, [range(len(counts))], [0] * members, previous or nothing)


def test_static_members_come_first_by_instance_and_then_the_others_by_id() -> None:
    members = [("b", None), ("z", "one"), ("a", None), ("a", "two")]
    assert sorted(members, key=lambda member: place(*member)) == [
        ("z", "one"),
        ("a", "two"),
        ("a", None),
        ("b", None),
    ]


def test_names_are_compared_as_java_compares_them() -> None:
    """A character beyond 16 bits is two units there, and sorts before the last of 16 bits."""
    names = ["\uffee", "\U0001f600", "é", "z"]
    in_order = sorted(names, key=lambda name: place(name, None))
    assert in_order == ["z", "é", "\U0001f600", "\uffee"]


def test_range_gives_the_first_members_one_more() -> None:
    """RangeAssignorTest.testFirstAssignmentNumMembersGreaterThanTotalNumPartitions and others."""
    assert assign_range(alike([3, 3], 2)) == [[0, 1, 3, 4], [2, 5]]
    assert assign_range(alike([3, 2], 3)) == [[0, 3], [1, 4], [2]]
    assert assign_range(alike([2], 3)) == [[0], [1], []]


def test_range_divides_a_topic_among_its_subscribers_only() -> None:
    """Member 0 subscribes to topics 0 and 1, member 1 to 2, member 2 to 1 and 2."""
    spec = GroupSpec([3, 3, 2], [[0, 1], [2], [1, 2]], [0, 1, 2], [[], [], []])
    assert assign_range(spec) == [[0, 1, 2, 3, 4], [6], [5, 7]]


def test_range_does_not_look_at_the_past() -> None:
    assert assign_range(alike([4], 2, [[2, 3], [0, 1]])) == [[0, 1], [2, 3]]


def test_uniform_spreads_each_topic_over_the_members() -> None:
    assert assign_uniform(alike([2, 2], 2)) == [[0, 2], [1, 3]]
    assert assign_uniform(alike([3, 2], 3)) == [[0, 3], [1, 4], [2]]


def test_uniform_takes_from_the_members_only_what_a_newcomer_needs() -> None:
    before = [[0, 2, 4], [1, 3, 5]]
    assert assign_uniform(alike([6], 3, [*before, []])) == [[0, 2], [1, 3], [4, 5]]


def test_uniform_lets_the_member_with_more_have_the_extra_partition() -> None:
    """Kafka gives it to the first member, which moves one partition for nothing."""
    assert assign_uniform(alike([3], 2, [[0], [1, 2]])) == [[0], [1, 2]]


def test_uniform_gives_the_partitions_of_a_member_that_left_to_the_others() -> None:
    assert assign_uniform(alike([6], 2, [[0, 2], [1, 3]])) == [[0, 2, 4], [1, 3, 5]]


def test_uniform_takes_away_topics_that_nobody_subscribes_to() -> None:
    spec = GroupSpec([2, 2], [[1]], [0, 0], [[0, 2], [1, 3]])
    assert assign_uniform(spec) == [[2], [3]]


def test_uniform_levels_members_of_different_subscriptions() -> None:
    """Only member 0 may have topic 0, so member 1 gets more of topic 1."""
    spec = GroupSpec([2, 4], [[0, 1], [1]], [0, 1], [[], []])
    target = assign_uniform(spec)
    assert [len(partitions) for partitions in target] == [3, 3]
    assert set(target[0]) >= {0, 1}


def test_uniform_counts_a_partition_of_two_pasts_once() -> None:
    assert assign_uniform(alike([2], 2, [[0, 1], [1]])) == [[0], [1]]


@BOTH
def test_a_group_without_topics_or_partitions_gets_nothing(assign) -> None:
    assert assign(GroupSpec([], [[]], [0, 0], [[], []])) == [[], []]
    assert assign(GroupSpec([0, 3], [[0]], [0], [[]])) == [[]]
    assert assign(GroupSpec([3], [[0], []], [1, 1], [[0], [1, 2]])) == [[], []]
