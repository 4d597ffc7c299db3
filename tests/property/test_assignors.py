"""Assignors on random groups: what must hold, other people's assignors, and brute force."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from hypothesis import example, given, settings
from hypothesis import strategies as st

from groupkeeper.coordinator.core.assignors.registry import ASSIGNORS
from groupkeeper.coordinator.core.assignors.sticky import StickyAssignor
from groupkeeper.coordinator.core.assignors.types import MemberSubscription, TopicPartition
from tests.helpers.core.examples import examples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hypothesis.strategies import DrawFn

TOPICS = ("t0", "t1", "t2", "t3")
NAMES = ("a", "b", "c", "d", "e", "f")

STEADY = settings(max_examples=examples(100), derandomize=True, deadline=None, database=None)
MANY = settings(STEADY, max_examples=examples(200))


class Group(NamedTuple):
    """What an assignor is given."""

    members: list[MemberSubscription]
    partitions: list[TopicPartition]
    previous: dict[str, list[TopicPartition]]


@st.composite
def groups(draw: DrawFn, *, members: int = 6, partitions: int = 20, alike: bool = False) -> Group:
    """Groups whose previous assignment is as wrong as it likes: uneven, of others, with gaps."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=members))
    some_topics = st.lists(st.sampled_from(TOPICS), unique=True)
    same = draw(some_topics)
    subscriptions = [
        MemberSubscription(name, same if alike else draw(some_topics)) for name in names
    ]
    a_partition = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 7))
    all_partitions = draw(st.lists(a_partition, unique=True, max_size=partitions))
    owners = draw(
        st.lists(
            st.sampled_from([None, *NAMES[: len(names) + 1], *names]),
            min_size=len(all_partitions),
            max_size=len(all_partitions),
        )
    )
    previous: dict[str, list[TopicPartition]] = {}
    for partition, owner in zip(all_partitions, owners, strict=True):
        if owner is not None:
            previous.setdefault(owner, []).append(partition)
    return Group(subscriptions, all_partitions, previous)


def assignments(group: Group) -> dict[str, dict[str, list[TopicPartition]]]:
    """What each assignor makes of a group; sticky from the previous assignment too."""
    made = {name: one.assign(group.members, group.partitions) for name, one in ASSIGNORS.items()}
    return made | {"sticky from previous": sticky(group)}


def sticky(group: Group) -> dict[str, list[TopicPartition]]:
    return StickyAssignor().assign_with_previous(*group)


def moved(assignment: Mapping[str, Sequence[TopicPartition]], group: Group) -> int:
    """How many partitions are not where they were; those that were nowhere always count."""
    return sum(
        partition not in group.previous.get(member_id, ())
        for member_id, assigned in assignment.items()
        for partition in assigned
    )


def squares(assignment: Mapping[str, Sequence[TopicPartition]]) -> int:
    """The smaller, the more even: least exactly for the most even loads."""
    return sum(len(assigned) ** 2 for assigned in assignment.values())


@STEADY
@given(groups())
def test_each_subscribed_partition_goes_to_exactly_one_member_that_subscribes_to_it(group: Group):
    topics = {member.member_id: set(member.topics) for member in group.members}
    wanted = sorted(p for p in group.partitions if p.topic in set().union(*topics.values()))
    for name, assignment in assignments(group).items():
        dealt = [partition for assigned in assignment.values() for partition in assigned]
        assert sorted(dealt) == wanted, name
        for member_id, assigned in assignment.items():
            assert {partition.topic for partition in assigned} <= topics[member_id], name


@STEADY
@given(groups())
def test_every_member_is_in_the_result_in_order_and_so_are_its_partitions(group: Group):
    names = sorted(member.member_id for member in group.members)
    for name, assignment in assignments(group).items():
        assert list(assignment) == names, name
        assert all(assigned == sorted(assigned) for assigned in assignment.values()), name


@STEADY
@given(groups(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_given_does_not_matter(group: Group, random: Any):
    shuffled = Group(
        [
            MemberSubscription(member.member_id, random.sample(member.topics, len(member.topics)))
            for member in random.sample(group.members, len(group.members))
        ],
        random.sample(group.partitions, len(group.partitions)),
        {
            name: random.sample(group.previous[name], len(group.previous[name]))
            for name in random.sample(sorted(group.previous), len(group.previous))
        },
    )
    assert assignments(shuffled) == assignments(group)


@STEADY
@given(groups(alike=True))
def test_loads_differ_by_one_at_most_where_all_subscribe_to_the_same(group: Group):
    made = assignments(group)
    for name in ("roundrobin", "sticky", "sticky from previous"):
        loads = [len(assigned) for assigned in made[name].values()]
        assert max(loads) - min(loads) <= 1, name


@STEADY
@given(groups(alike=True))
def test_sticky_without_a_past_deals_as_roundrobin_where_all_subscribe_to_the_same(group: Group):
    made = assignments(group)
    assert made["sticky"] == made["roundrobin"]


@STEADY
@given(groups())
def test_range_gives_each_subscriber_of_a_topic_a_range_and_the_first_ones_one_more(group: Group):
    assignment = ASSIGNORS["range"].assign(group.members, group.partitions)
    for topic in TOPICS:
        subscribers = sorted(m.member_id for m in group.members if topic in m.topics)
        shares = [[p for p in assignment[name] if p.topic == topic] for name in subscribers]
        in_order = [partition for share in shares for partition in share]
        assert in_order == sorted(in_order)
        sizes = [len(share) for share in shares]
        assert sizes == sorted(sizes, reverse=True)
        assert not sizes or sizes[0] - sizes[-1] <= 1


class _Cluster:
    """What aiokafka's assignors ask of its ClusterMetadata."""

    def __init__(self, partitions: list[TopicPartition]) -> None:
        self._partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {p.partition for p in self._partitions if p.topic == topic} or None


@pytest.mark.parametrize(
    ("name", "peer"),
    [("range", RangePartitionAssignor), ("roundrobin", RoundRobinPartitionAssignor)],
)
@STEADY
@given(group=groups())
def test_range_and_roundrobin_deal_as_aiokafka_does(name: str, peer: Any, group: Group):
    metadata = {member.member_id: peer.metadata(member.topics) for member in group.members}
    theirs = peer.assign(cast("Any", _Cluster(group.partitions)), metadata)
    assert ASSIGNORS[name].assign(group.members, group.partitions) == {
        member_id: sorted(
            TopicPartition(topic, number)
            for topic, numbers in assignment.assignment
            for number in numbers
        )
        for member_id, assignment in theirs.items()
    }


def a_topic(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


WRONG_FIRST_CHOICE = Group(
    [
        MemberSubscription("a", ["t1"]),
        MemberSubscription("b", ["t0", "t1"]),
        MemberSubscription("c", ["t0", "t1"]),
    ],
    a_topic("t0", 0, 1, 2) + a_topic("t1", 0),
    {"b": a_topic("t0", 0, 1) + a_topic("t1", 0), "c": a_topic("t0", 2)},
)
"""b must give one up. Any to c would balance the two, but a needs t1 anyhow."""

SWAPPED_LOADS = Group(
    [
        MemberSubscription("a", ["t1"]),
        MemberSubscription("b", ["t1"]),
        MemberSubscription("c", ["t0"]),
        MemberSubscription("d", ["t0", "t1"]),
    ],
    a_topic("t0", 0, 1, 2) + a_topic("t1", 0, 1),
    {"b": a_topic("t1", 0), "c": a_topic("t0", 0, 1), "d": a_topic("t0", 2) + a_topic("t1", 1)},
)
"""Either c or d has two in the end, and it decides how many partitions move."""


def best_by_trying_all(group: Group) -> tuple[int, int]:
    """The most even balance there is, and the fewest moves with which it can be had."""
    takers = {
        partition: [m.member_id for m in group.members if partition.topic in m.topics]
        for partition in group.partitions
    }
    dealt = [partition for partition in group.partitions if takers[partition]]
    found = []
    for owners in product(*(takers[partition] for partition in dealt)):
        assignment: dict[str, list[TopicPartition]] = {}
        for partition, owner in zip(dealt, owners, strict=True):
            assignment.setdefault(owner, []).append(partition)
        found.append((squares(assignment), moved(assignment, group)))
    return min(found)


@MANY
@given(groups(members=4, partitions=6))
@example(WRONG_FIRST_CHOICE)
@example(SWAPPED_LOADS)
def test_sticky_has_the_best_balance_and_moves_no_more_than_any_assignment_with_it(group: Group):
    assignment = sticky(group)
    assert (squares(assignment), moved(assignment, group)) == best_by_trying_all(group)


@MANY
@given(groups(members=4, partitions=6, alike=True))
def test_sticky_moves_no_more_than_any_balanced_assignment_of_members_alike(group: Group):
    assignment = sticky(group)
    assert (squares(assignment), moved(assignment, group)) == best_by_trying_all(group)


@STEADY
@given(groups())
def test_sticky_leaves_its_own_assignment_as_it_is(group: Group):
    first = sticky(group)
    assert StickyAssignor().assign_with_previous(group.members, group.partitions, first) == first


@STEADY
@given(groups(alike=True), st.integers(0, 5))
def test_when_a_member_leaves_only_its_partitions_move(group: Group, which: int):
    first = sticky(group)
    left = group.members[which % len(group.members)].member_id
    staying = [member for member in group.members if member.member_id != left]
    second = StickyAssignor().assign_with_previous(staying, group.partitions, first)
    for member_id, assigned in second.items():
        assert set(first[member_id]) <= set(assigned)


@STEADY
@given(groups(alike=True))
def test_when_a_member_joins_partitions_move_to_it_alone(group: Group):
    first = sticky(group)
    joined = [*group.members, MemberSubscription("new", group.members[0].topics)]
    second = StickyAssignor().assign_with_previous(joined, group.partitions, first)
    for member_id, assigned in first.items():
        assert set(second[member_id]) <= set(assigned)
