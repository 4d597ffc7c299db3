"""The sticky assignor: members keep what they have as far as balance allows.

Balance comes first, movement second, as in Kafka's ``StickyAssignor``; but that one goes by greedy
steps, and this one always reaches the best balance that subscriptions allow, with the fewest moves
for it (in large groups whose subscriptions differ: the fewest within ``shares.EFFORT``). Topics
with the same subscribers are one pool: within it partitions differ only in who had them, so it is
enough to decide how many each member gets (``shares.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from groupkeeper.coordinator.core.assignors.shares import Pool, shares_of
from groupkeeper.coordinator.core.assignors.types import (
    Assignment,
    MemberSubscription,
    TopicPartition,
    partitions_by_topic,
    subscribers_by_topic,
    topics_by_member,
)


class StickyAssignor:
    """Keeps what it can, moves only what must move, balances within one."""

    name = "sticky"

    def assign(
        self, members: Sequence[MemberSubscription], partitions: Sequence[TopicPartition]
    ) -> Assignment:
        """Deal from nothing: what ``roundrobin`` would, where all subscribe to the same."""
        return self.assign_with_previous(members, partitions, {})

    def assign_with_previous(
        self,
        members: Sequence[MemberSubscription],
        partitions: Sequence[TopicPartition],
        previous: Mapping[str, Collection[TopicPartition]],
    ) -> Assignment:
        """Deal with as little movement as balance allows.

        What ``previous`` says of members, topics or partitions that are gone is passed over; of
        two members that both claim a partition, the first by ``place`` has it.
        """
        topics = topics_by_member(members)
        pools, owned = _pools(topics, partitions, previous)
        assignment: Assignment = {member_id: [] for member_id in topics}
        shares = shares_of(
            [
                Pool(
                    subscribers,
                    len(in_pool),
                    {member_id: len(has) for member_id, has in owned[subscribers].items()},
                )
                for subscribers, in_pool in pools.items()
            ]
        )
        for (subscribers, in_pool), share in zip(pools.items(), shares, strict=True):
            _deal(in_pool, owned[subscribers], share, assignment)
        for has in assignment.values():
            has.sort()
        return assignment


_Subscribers = tuple[str, ...]
_Owned = dict[str, list[TopicPartition]]


def _pools(
    topics: Mapping[str, frozenset[str]],
    partitions: Sequence[TopicPartition],
    previous: Mapping[str, Collection[TopicPartition]],
) -> tuple[dict[_Subscribers, list[TopicPartition]], dict[_Subscribers, _Owned]]:
    """Put topics with the same subscribers together, and sort out who had what of each pool."""
    subscribers = subscribers_by_topic(topics)
    pools: dict[_Subscribers, list[TopicPartition]] = {}
    for topic, of_topic in partitions_by_topic(partitions).items():
        if topic in subscribers:
            pools.setdefault(subscribers[topic], []).extend(of_topic)
    owned: dict[_Subscribers, _Owned] = {key: {} for key in pools}
    unclaimed = set().union(*pools.values())
    for member_id, subscribed in topics.items():
        for partition in sorted(unclaimed.intersection(previous.get(member_id, ()))):
            if partition.topic in subscribed:
                unclaimed.discard(partition)
                owned[subscribers[partition.topic]].setdefault(member_id, []).append(partition)
    return pools, owned


def _deal(
    in_pool: Sequence[TopicPartition],
    owned: Mapping[str, Sequence[TopicPartition]],
    share: Mapping[str, int],
    assignment: Assignment,
) -> None:
    """Let members keep what their share covers, and deal the rest in turn to those short of it."""
    kept: set[TopicPartition] = set()
    short: dict[str, int] = {}
    for member_id, count in share.items():
        keeps = owned.get(member_id, ())[:count]
        assignment[member_id] += keeps
        kept.update(keeps)
        if len(keeps) < count:
            short[member_id] = count - len(keeps)
    turns = _turns(short)
    for partition in in_pool:
        if partition not in kept:
            assignment[next(turns)].append(partition)


def _turns(short: dict[str, int]) -> Iterator[str]:
    """Name the members that are short, one after the other, each as often as it is short."""
    while short:
        yield from short
        short = {member_id: count - 1 for member_id, count in short.items() if count > 1}
