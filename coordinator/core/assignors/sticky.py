"""The sticky assignor: members keep their partitions unless balance requires a move.

Balance comes first and few moves second, as in Kafka's ``StickyAssignor``. Kafka's assignor uses
greedy steps. This one always reaches the best balance that the subscriptions allow, with the fewest
moves. In large groups with different subscriptions, the search for fewer moves ends after
``shares.EFFORT`` exchanges.

Topics with the same subscribers form a pool. Within a pool partitions differ only in their previous
owner, so it is enough to decide how many each member gets (``shares.py``).
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
    """Moves only the partitions that balance requires."""

    name = "sticky"

    def assign(
        self, members: Sequence[MemberSubscription], partitions: Sequence[TopicPartition]
    ) -> Assignment:
        """Assign without a previous assignment.

        If all members subscribe to the same topics, ``roundrobin`` gives the same result.
        """
        return self.assign_with_previous(members, partitions, {})

    def assign_with_previous(
        self,
        members: Sequence[MemberSubscription],
        partitions: Sequence[TopicPartition],
        previous: Mapping[str, Collection[TopicPartition]],
    ) -> Assignment:
        """Assign with the fewest moves that balance allows.

        Members, topics and partitions in ``previous`` that no longer exist are ignored. If two
        members claim a partition, the first by ``MemberSubscription.place`` has it.
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
    """Return two maps: subscribers -> the partitions of their pool, and subscribers -> member id ->
    the partitions of the pool that the member had before.
    """
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
    """Let each member keep its partitions up to its share. Deal the others in turn. Adds all to
    ``assignment``.
    """
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
    """Yield the members that still need partitions, again and again in the same order. Each is
    yielded once for each partition that it needs (``short``).
    """
    while short:
        yield from short
        short = {member_id: count - 1 for member_id, count in short.items() if count > 1}
