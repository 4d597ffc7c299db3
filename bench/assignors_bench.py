"""Measure what an assignment costs and how many partitions it moves, beside aiokafka's assignors.

    python -m bench.assignors_bench

It measures CPU time, so that other load on the machine does not count.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.structs import TopicPartition as TheirPartition

from bench.figures import Figure, cpu_us
from groupkeeper.coordinator.core.assignors.registry import ASSIGNORS
from groupkeeper.coordinator.core.assignors.sticky import StickyAssignor
from groupkeeper.coordinator.core.assignors.types import (
    Assignment,
    MemberSubscription,
    TopicPartition,
)
from groupkeeper.coordinator.core.consumer.assigning import (
    GroupSpec,
    assign_range,
    assign_uniform,
)

T = TypeVar("T")
PEERS: Mapping[str, Any] = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Group:
    """A group of some members, topics and partitions. The members share some subscriptions."""

    def __init__(self, members: int, topics: int, partitions: int, subscriptions: int = 1) -> None:
        """Subscribe to all topics, or to random choices that are the same in every run."""
        draw = random.Random(partitions)
        names = [f"topic-{n}" for n in range(topics)]
        each = partitions // topics
        self._numbers = {name: set(range(each)) for name in names}
        self.partitions = [TopicPartition(name, n) for name in names for n in range(each)]
        some = [names] * subscriptions
        if subscriptions > 1:
            some = [draw.sample(names, draw.randint(1, topics)) for _ in range(subscriptions)]
        self.members = [
            MemberSubscription(f"member-{n:05}", some[n % subscriptions]) for n in range(members)
        ]
        self.title = f"{members} x {partitions}, {topics} topics, {subscriptions} subscriptions"

    def topics(self) -> set[str]:
        """Return all topics, for aiokafka's assignors."""
        return set(self._numbers)

    def numbers(self) -> Mapping[str, set[int]]:
        """Return the partitions of each topic."""
        return self._numbers

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of a topic, for aiokafka's assignors."""
        return self._numbers.get(topic)


def timed(label: str, work: Callable[[], T]) -> T:
    """Run ``work`` once, print its CPU time, and return its result."""
    start = time.process_time()
    result = work()
    print(f"  {label:<40} {(time.process_time() - start) * 1000:9.1f} ms", end="")
    return result


def moved(assignment: Assignment, previous: Mapping[str, Sequence[TopicPartition]]) -> int:
    """Return how many partitions have a new member."""
    return sum(len(set(has).difference(previous.get(name, ()))) for name, has in assignment.items())


def bench_fresh(group: Group, peers: Sequence[str]) -> None:
    """Assign without a previous assignment."""
    for name, assignor in ASSIGNORS.items():
        timed(name, partial(assignor.assign, group.members, group.partitions))
        print()
    for name in peers:
        peer = PEERS[name]
        metadata = {
            m.member_id: peer._metadata(m.topics, [])
            if name == "sticky"
            else peer.metadata(m.topics)
            for m in group.members
        }
        timed(f"{name} of aiokafka", partial(peer.assign, group, metadata))
        print()


def bench_rebalances(group: Group, *, with_peer: bool = False) -> None:
    """Assign again after members left and joined, and after a random previous assignment."""
    sticky = StickyAssignor()
    members, partitions = group.members, group.partitions
    tenth, half = len(members) // 10, len(members) // 2
    draw = random.Random(1)
    anywhere: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        anywhere.setdefault(draw.choice(members).member_id, []).append(partition)
    all_of_them = sticky.assign(members, partitions)
    cases = {
        "nothing changed": (members, all_of_them),
        "one left": (members[1:], all_of_them),
        "a tenth left": (members[tenth:], all_of_them),
        "a tenth joined": (members, sticky.assign(members[tenth:], partitions)),
        "twice as many": (members, sticky.assign(members[:half], partitions)),
        "a random past": (members, anywhere),
    }
    for label, (now, previous) in cases.items():
        assignment = timed(
            f"sticky, {label}",
            partial(sticky.assign_with_previous, now, partitions, previous),
        )
        print(f" {moved(assignment, previous):6} moved")
        if with_peer:
            bench_peer(group, label, now, previous)


def bench_peer(
    group: Group,
    label: str,
    now: Sequence[MemberSubscription],
    previous: Mapping[str, Sequence[TopicPartition]],
) -> None:
    """Run the same rebalance with aiokafka's sticky assignor, which reads user data."""
    peer = PEERS["sticky"]
    metadata = {
        m.member_id: peer._metadata(
            m.topics, [TheirPartition(*p) for p in previous.get(m.member_id, ())], 1
        )
        for m in now
    }
    theirs = timed(f"sticky of aiokafka, {label}", partial(peer.assign, group, metadata))
    assignment = {
        name: [TopicPartition(*partition) for partition in has.partitions()]
        for name, has in theirs.items()
    }
    print(f" {moved(assignment, previous):6} moved")


def bench_consumer_group(group: Group) -> None:
    """Assign to a consumer group: without a previous assignment, and after a member joined."""
    firsts = {}
    counts = []
    for topic, numbers in group.numbers().items():
        firsts[topic] = len(counts)
        counts.append(len(numbers))
    topics = [tuple(sorted(firsts[topic] for topic in m.topics)) for m in group.members]
    subscriptions = sorted(set(topics))
    members = [subscriptions.index(each) for each in topics]
    fresh = GroupSpec(counts, subscriptions, members, [[]] * len(members))
    timed("range of consumer groups, fresh", partial(assign_range, fresh))
    print()
    target = timed("uniform of consumer groups, fresh", partial(assign_uniform, fresh))
    print()
    joined = GroupSpec(counts, subscriptions, [*members, members[0]], [*target, []])
    after = timed("uniform of consumer groups, one joined", partial(assign_uniform, joined))
    print(
        f" {sum(len(set(n) - set(b)) for n, b in zip(after, joined.previous, strict=True)):6} moved"
    )


def figures() -> Iterator[Figure]:
    """Measure 20 members with 200 partitions of ten topics, beside aiokafka's assignor."""
    group = Group(20, 10, 200)
    for name, assignor in ASSIGNORS.items():
        ours = cpu_us(partial(assignor.assign, group.members, group.partitions), 5, 10)
        peer = PEERS[name]
        metadata = {
            m.member_id: peer._metadata(m.topics, [])
            if name == "sticky"
            else peer.metadata(m.topics)
            for m in group.members
        }
        theirs = cpu_us(partial(peer.assign, group, metadata), 2, 5)
        yield Figure("assignors", f"{name}, 20 members x 200", ours, f"aiokafka {theirs:.0f}")


def main() -> None:
    """Measure small groups beside aiokafka, then the largest groups."""
    for group in (Group(20, 10, 200), Group(20, 10, 200, subscriptions=5)):
        print(group.title)
        bench_fresh(group, ["range", "roundrobin", "sticky"])
        bench_rebalances(group, with_peer=True)
    for group in (
        Group(1_000, 1, 10_000),
        Group(1_000, 100, 10_000),
        Group(1_000, 10_000, 10_000),
        Group(1_000, 100, 10_000, subscriptions=5),
        Group(1_000, 100, 10_000, subscriptions=1_000),
        Group(1_000, 1_000, 10_000, subscriptions=20),
    ):
        print(group.title)
        bench_fresh(group, [])
        bench_rebalances(group)
        bench_consumer_group(group)


if __name__ == "__main__":
    main()
