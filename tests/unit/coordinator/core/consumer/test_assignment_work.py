"""A target as work: what is large, and assignors that deal in names."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.assignors.range import RangeAssignor
from groupkeeper.coordinator.core.assignors.sticky import StickyAssignor
from groupkeeper.coordinator.core.assignors.types import TopicPartition
from groupkeeper.coordinator.core.consumer.assigning import GroupSpec, assign_range, assign_uniform
from groupkeeper.coordinator.core.consumer.assignment_work import (
    AssignmentNames,
    InvalidTargetError,
    compute,
    is_large,
)

SPEC = GroupSpec(
    partition_counts=[3, 2, 4],
    subscriptions=[[0, 1], [0]],
    members=[0, 1, 1],
    previous=[[0, 1, 2, 3, 4], [], []],
)
"""Nobody subscribes to topic 2."""
NAMES = AssignmentNames([("m-1", "i-1"), ("m-2", None), ("m-3", None)], ["a", "b", "c"])


class Fixed:
    name = "fixed"

    def __init__(self, assigned):
        self._assigned = assigned

    def assign(self, members, partitions):
        self.members = members
        self.partitions = partitions
        return self._assigned


def found(assignor):
    return lambda name: assignor


@pytest.mark.parametrize(
    ("name", "function"), [("range", assign_range), ("uniform", assign_uniform)]
)
def test_our_assignors_need_no_names(name, function):
    assert compute(name, SPEC) == function(SPEC)


def test_an_assignor_of_others_gets_names_and_its_result_becomes_numbers():
    assignor = Fixed({"m-3": [("a", 2), ("a", 0)], "m-1": [("b", 1)]})
    assert compute("fixed", SPEC, NAMES, found(assignor)) == [[4], [], [0, 2]]
    assert [(m.member_id, m.group_instance_id, set(m.topics)) for m in assignor.members] == [
        ("m-1", "i-1", {"a", "b"}),
        ("m-2", None, {"a"}),
        ("m-3", None, {"a"}),
    ]
    expected = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2)]
    assert assignor.partitions == [*expected, TopicPartition("b", 0), TopicPartition("b", 1)]


def test_an_assignor_of_others_starts_from_the_previous_target_if_it_can():
    previous = [[3, 4], [2], [0, 1]]
    spec = SPEC._replace(previous=previous)
    assert compute("sticky", spec, NAMES, found(StickyAssignor())) == previous


def test_range_over_names_is_range_over_numbers():
    """For members whose names are in the order of their places."""
    assert compute("names", SPEC, NAMES, found(RangeAssignor())) == assign_range(SPEC)


@pytest.mark.parametrize(
    ("assigned", "reason"),
    [
        ({"m-9": []}, "there is no member 'm-9'"),
        ({"m-1": [("a", 3)]}, "there is no partition ('a', 3)"),
        ({"m-1": [("z", 0)]}, "there is no partition ('z', 0)"),
        ({"m-2": [("b", 0)]}, "'m-2' does not subscribe to ('b', 0)"),
        ({"m-1": [("a", 0)], "m-2": [("a", 0)]}, "both 'm-1' and 'm-2' have ('a', 0)"),
        ({"m-1": [("a", 0), ("a", 0)]}, "both 'm-1' and 'm-1' have ('a', 0)"),
    ],
)
def test_a_wrong_target_is_refused(assigned, reason):
    with pytest.raises(InvalidTargetError) as refused:
        compute("fixed", SPEC, NAMES, found(Fixed(assigned)))
    assert str(refused.value) == reason


def of_shape(members: int, topics: int, partitions: int, subscriptions: int) -> GroupSpec:
    return GroupSpec(
        [partitions] * topics,
        [range(topics)] * subscriptions,
        [member % subscriptions for member in range(members)],
        [[] for _ in range(members)],
    )


@pytest.mark.parametrize(
    ("shape", "large"),
    [
        ((10, 10, 10, 1), False),
        ((1_000, 10, 1_000, 1), False),  # 2 ms
        ((10_000, 10, 1_000, 1), True),
        ((1, 1, 100_000, 1), True),
        ((20, 10, 10, 20), False),
        ((300, 50, 50, 20), True),  # 22 ms from a random past
        ((100, 1_000, 1, 20), True),  # 16 ms
    ],
)
def test_the_shape_of_a_group_tells_whether_it_is_large(shape, large):
    assert is_large("uniform", of_shape(*shape)) is large


def test_code_of_others_never_runs_in_this_process():
    assert is_large("theirs", of_shape(1, 1, 1, 1))
