"""The assignors ``range`` and ``uniform``: which member of a consumer group gets which partition.

See docs/spec/consumer-groups.md#assignors. These assignors work with numbers, because a group may
have 1,000 members and 10,000 partitions. The assignors of hosts work with names
(``core.assignors``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias

from groupkeeper.coordinator.core.assignors.flow import Flow
from groupkeeper.coordinator.core.assignors.take_back import take_back_moves

EFFORT: Final = 100_000
"""The largest number of exchanges of partitions that ``uniform`` examines to avoid moves, if
members subscribe to different topics. The limit is a count and not a time, because a result must
not depend on the machine. For 1,000 members with 20 subscriptions of 1,000 topics and a random
previous target the search takes 0.6 s at most.
"""

Target: TypeAlias = list[list[int]]
"""For each member of a ``GroupSpec``, its sorted partitions."""


class GroupSpec(NamedTuple):
    """The input of an assignor.

    A member, a topic and a subscription are positions in these lists. Partitions are numbered from
    0 over all topics: first the partitions of topic 0, then the partitions of topic 1.
    """

    partition_counts: Sequence[int]
    """The number of partitions of each topic."""
    subscriptions: Sequence[Collection[int]]
    """For each different subscription, its topics."""
    members: Sequence[int]
    """For each member, its subscription. The members are in the order of ``place``."""
    previous: Sequence[Sequence[int]]
    """For each member, the partitions in its previous target, by their present numbers. If two
    members have the same partition, only the first one counts.
    """

    def first_partitions(self) -> list[int]:
        """Return the number of each topic's first partition. The last value is the number of all
        partitions.
        """
        return [0, *accumulate(self.partition_counts)]

    def subscribers(self) -> dict[tuple[int, ...], tuple[list[int], list[int]]]:
        """Return (topics, subscribers) for all topics that have the same subscribers. Topics and
        subscribers are sorted.

        The key has the subscriptions that contain these topics.
        """
        having: dict[int, list[int]] = {}
        for subscription in sorted(set(self.members)):
            for topic in self.subscriptions[subscription]:
                having.setdefault(topic, []).append(subscription)
        alike: dict[tuple[int, ...], list[int]] = {}
        for topic in sorted(having):
            alike.setdefault(tuple(having[topic]), []).append(topic)
        members_of: dict[int, list[int]] = {}
        for member, subscription in enumerate(self.members):
            members_of.setdefault(subscription, []).append(member)
        return {
            key: (topics, sorted([member for each in key for member in members_of[each]]))
            for key, topics in alike.items()
        }


def place(member_id: str, group_instance_id: str | None) -> tuple[bool, bytes]:
    """Return the sort key of a member. Static members come first, sorted by instance id, then the
    others by member id.

    As Kafka compares Java strings, the key compares UTF-16 units.
    """
    name = member_id if group_instance_id is None else group_instance_id
    return group_instance_id is None, name.encode("utf-16-be", "surrogatepass")


def assign_range(spec: GroupSpec) -> Target:
    """Assign the partitions of each topic as ranges, in the order of the members.

    If the number of partitions does not divide evenly, the first members get one more. So topics
    with the same number of partitions and the same subscribers are divided in the same way. Kafka's
    assignor has the same result.
    """
    firsts = spec.first_partitions()
    target: Target = [[] for _ in spec.members]
    ranges: list[tuple[int, list[int]]] = [
        (topic, subscribers)
        for topics, subscribers in spec.subscribers().values()
        for topic in topics
    ]
    for topic, subscribers in sorted(ranges):
        share, extra = divmod(spec.partition_counts[topic], len(subscribers))
        start = firsts[topic]
        for at, member in enumerate(subscribers if share else subscribers[:extra]):
            end = start + share + (at < extra)
            target[member] += range(start, end)
            start = end
    return target


def assign_uniform(spec: GroupSpec) -> Target:
    """Assign all partitions as evenly as the subscriptions allow, with few moves from ``previous``.

    If all members have the same subscription, their numbers of partitions differ by one at most,
    and no such assignment moves fewer partitions.
    """
    pools = _pools(spec)
    target: Target = [[] for _ in spec.members]
    for pool, shares in zip(pools, _shares(spec, pools), strict=True):
        pool.deal(shares, target)
    for partitions in target:
        partitions.sort()
    return target


class _Pool:
    """The partitions of all topics that have the same subscribers."""

    def __init__(self, subscribers: list[int]) -> None:
        self.subscribers = subscribers
        self.size = 0
        self.owned: dict[int, list[int]] = {}
        """Member -> its previous partitions, without topics that it no longer subscribes to."""
        self.free: list[int] = []
        """The partitions that no member had before, sorted. ``deal`` adds those that members must
        give up.
        """

    def even_shares(self) -> dict[int, int]:
        """Return member -> how many partitions it gets. No member may be in another pool. If the
        division has a remainder, members that already have more partitions get it first.
        """
        share, extra = divmod(self.size, len(self.subscribers))
        owned = self.owned
        by_need = sorted(self.subscribers, key=lambda member: len(owned.get(member, ())) <= share)
        gets_more = set(by_need[:extra])
        return {member: share + (member in gets_more) for member in self.subscribers}

    def deal(self, shares: dict[int, int], target: Target) -> None:
        """Let each member keep its previous partitions up to its share, and assign the others in
        turns.
        """
        needs = {member: share for member, share in shares.items() if share}
        for member, owned in self.owned.items():
            share = needs.pop(member, 0)
            owned.sort()
            target[member] += owned[:share]
            self.free += owned[share:]
            if share > len(owned):
                needs[member] = share - len(owned)
        free = iter(sorted(self.free))
        while needs:
            for member in needs:
                target[member].append(next(free))
            needs = {member: need - 1 for member, need in needs.items() if need > 1}


def _pools(spec: GroupSpec) -> list[_Pool]:
    """Divide the topics of a group into pools. Return the pools with the previous partitions of
    each member.
    """
    firsts = spec.first_partitions()
    pool_of: list[_Pool | None] = [None] * firsts[-1]
    subscriptions_of: dict[_Pool, frozenset[int]] = {}
    for subscriptions, (topics, subscribers) in spec.subscribers().items():
        pool = _Pool(subscribers)
        subscriptions_of[pool] = frozenset(subscriptions)
        for topic in topics:
            count = spec.partition_counts[topic]
            pool_of[firsts[topic] : firsts[topic] + count] = [pool] * count
            pool.size += count
    for member, partitions in enumerate(spec.previous):
        subscription = spec.members[member]
        for partition in partitions:
            had_in = pool_of[partition]
            if had_in is not None and subscription in subscriptions_of[had_in]:
                had_in.owned.setdefault(member, []).append(partition)
                pool_of[partition] = None
    for partition, left_in in enumerate(pool_of):
        if left_in is not None:
            left_in.free.append(partition)
    return list(subscriptions_of)


def _shares(spec: GroupSpec, pools: Sequence[_Pool]) -> list[dict[int, int]]:
    """Return for each pool: member -> how many partitions of the pool it gets.

    If members are in several pools, a ``Flow`` of partitions from pools to members is computed.
    """
    seats = sum([len(pool.subscribers) for pool in pools])
    if seats == len({member for pool in pools for member in pool.subscribers}):
        return [pool.even_shares() for pool in pools]
    owned = [{member: len(had) for member, had in pool.owned.items()} for pool in pools]
    flow = Flow(len(spec.members), [pool.subscribers for pool in pools], owned)
    flow.deal_free([len(pool.free) for pool in pools])
    flow.level()
    take_back_moves(flow, EFFORT)
    return flow.held
