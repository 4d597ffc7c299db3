"""The assignors of consumer groups on random groups: what must hold, and brute force."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from groupkeeper.coordinator.core.assignors.range import RangeAssignor
from groupkeeper.coordinator.core.assignors.types import MemberSubscription, TopicPartition
from groupkeeper.coordinator.core.consumer.assigning import (
    GroupSpec,
    Target,
    assign_range,
    assign_uniform,
)
from tests.helpers.core.examples import examples

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

STEADY = settings(max_examples=examples(100), derandomize=True, deadline=None, database=None)
MANY = settings(STEADY, max_examples=examples(200))
BOTH = pytest.mark.parametrize("assign", [assign_range, assign_uniform])


@st.composite
def specs(
    draw: DrawFn, *, members: int = 5, partitions: int = 20, alike: bool = False
) -> GroupSpec:
    """Groups whose previous target is as uneven as it likes, and has gaps."""
    counts = draw(st.lists(st.integers(0, 5), max_size=4))
    while sum(counts) > partitions:
        counts.pop()
    a_subscription = st.sets(st.sampled_from(range(len(counts)))) if counts else st.just(set())
    subscriptions = draw(st.lists(a_subscription, min_size=1, max_size=1 if alike else 3))
    of_members = draw(
        st.lists(st.sampled_from(range(len(subscriptions))), min_size=1, max_size=members)
    )
    previous: list[list[int]] = [[] for _ in of_members]
    for partition in draw(st.permutations(range(sum(counts)))):
        owner = draw(st.sampled_from([None, *range(len(of_members))]))
        if owner is not None:
            previous[owner].append(partition)
    return GroupSpec(counts, subscriptions, of_members, previous)


def subscribed(spec: GroupSpec, member: int) -> set[int]:
    """The partitions that a member may have."""
    firsts = spec.first_partitions()
    topics = spec.subscriptions[spec.members[member]]
    return {p for topic in topics for p in range(firsts[topic], firsts[topic + 1])}


def moved(spec: GroupSpec, target: Target) -> int:
    """How many partitions are not where they were; those that were nowhere always count."""
    return sum(
        len(set(now) - set(before)) for now, before in zip(target, spec.previous, strict=True)
    )


def squares(target: Target) -> int:
    """The smaller, the more even: least exactly for the most even loads."""
    return sum(len(partitions) ** 2 for partitions in target)


@BOTH
@STEADY
@given(spec=specs())
def test_each_subscribed_partition_goes_to_one_member_that_subscribes_to_it(assign, spec):
    target = assign(spec)
    allowed = [subscribed(spec, member) for member in range(len(spec.members))]
    dealt = [partition for partitions in target for partition in partitions]
    assert sorted(dealt) == sorted(set().union(*allowed))
    for partitions, may_have in zip(target, allowed, strict=True):
        assert set(partitions) <= may_have
        assert partitions == sorted(partitions)


@BOTH
@STEADY
@given(spec=specs(), random=st.randoms(use_true_random=False))
def test_the_order_within_what_is_given_does_not_matter(assign, spec, random):
    order = random.sample(range(len(spec.subscriptions)), len(spec.subscriptions))
    shuffled = GroupSpec(
        spec.partition_counts,
        [random.sample(sorted(spec.subscriptions[n]), len(spec.subscriptions[n])) for n in order],
        [order.index(subscription) for subscription in spec.members],
        [random.sample(before, len(before)) for before in spec.previous],
    )
    assert assign(shuffled) == assign(spec)


@STEADY
@given(spec=specs())
def test_range_is_the_range_of_hosts_by_numbers(spec):
    """That one is compared with aiokafka's."""
    firsts = spec.first_partitions()
    names = [str(topic) for topic in range(len(spec.partition_counts))]
    members = [
        MemberSubscription(f"{member}", [names[t] for t in spec.subscriptions[subscription]])
        for member, subscription in enumerate(spec.members)
    ]
    everything = [
        TopicPartition(name, n)
        for name, count in zip(names, spec.partition_counts, strict=True)
        for n in range(count)
    ]
    by_name = RangeAssignor().assign(members, everything)
    assert assign_range(spec) == [
        [firsts[int(topic)] + n for topic, n in by_name[member.member_id]] for member in members
    ]


@STEADY
@given(count=st.integers(0, 12), topics=st.integers(1, 3), members=st.integers(1, 5))
def test_range_divides_topics_of_equal_size_alike(count, topics, members):
    spec = GroupSpec([count] * topics, [range(topics)], [0] * members, [[]] * members)
    for partitions in assign_range(spec):
        numbers = [[p % count for p in partitions if p // count == t] for t in range(topics)]
        assert numbers == [numbers[0]] * topics


@STEADY
@given(spec=specs(alike=True))
def test_loads_differ_by_one_at_most_where_all_subscribe_to_the_same(spec):
    loads = [len(partitions) for partitions in assign_uniform(spec)]
    assert max(loads) - min(loads) <= 1


WRONG_FIRST_CHOICE = GroupSpec([3, 1], [{1}, {0, 1}], [0, 1, 1], [[], [0, 1, 3], [2]])
"""The second member must give one up. Any to the third would balance the two, but the first needs
topic 1 anyhow."""

SWAPPED_LOADS = GroupSpec([3, 2], [{1}, {0}, {0, 1}], [0, 0, 1, 2], [[], [3], [0, 1], [2, 4]])
"""Either of the last two has two in the end, and it decides how many partitions move."""


@MANY
@given(spec=specs(members=4, partitions=6))
@example(WRONG_FIRST_CHOICE)
@example(SWAPPED_LOADS)
def test_uniform_is_as_even_as_can_be_and_then_moves_as_few_as_can_be(spec):
    takers: dict[int, list[int]] = {}
    for member in range(len(spec.members)):
        for partition in subscribed(spec, member):
            takers.setdefault(partition, []).append(member)
    found = []
    for owners in product(*takers.values()):
        target: Target = [[] for _ in spec.members]
        for partition, owner in zip(takers, owners, strict=True):
            target[owner].append(partition)
        found.append((squares(target), moved(spec, target)))
    target = assign_uniform(spec)
    assert (squares(target), moved(spec, target)) == min(found)


@STEADY
@given(spec=specs())
def test_what_uniform_has_made_stays(spec):
    target = assign_uniform(spec)
    assert assign_uniform(spec._replace(previous=target)) == target
