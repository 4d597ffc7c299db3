"""Types of every assignor, and the two protocols that a third-party assignor implements.

The leader of a classic group assigns, so the coordinator needs no assignor for it. Hosts that embed
the coordinator call these assignors themselves. Consumer groups can also use third-party assignors
(``consumer.assignment_work``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from groupkeeper.coordinator.core.wire_values import Int32


class TopicPartition(NamedTuple):
    """A partition of a topic. Sorts by topic, then by number."""

    topic: str
    partition: Int32


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A member and the topics it subscribes to."""

    member_id: str
    topics: Collection[str]
    """The subscribed topics, in any order. Topics without partitions are ignored."""
    group_instance_id: str | None = None
    """The instance id of a static member, or None. A static member keeps its position in the order
    of members when it restarts.
    """

    def __post_init__(self) -> None:
        """Refuse a string: its characters would be taken for topics."""
        if isinstance(self.topics, str):
            raise TypeError(f"topics must be a collection of strings, not {self.topics!r}")

    @property
    def place(self) -> tuple[bool, str, str]:
        """The sort key of members, as in Kafka: static members first, by instance id, then the
        others by member id.
        """
        instance_id = self.group_instance_id
        return instance_id is None, instance_id or "", self.member_id


Assignment: TypeAlias = dict[str, list[TopicPartition]]
"""Member id -> its partitions, sorted. A member that gets nothing has an empty list."""


class PartitionAssignor(Protocol):
    """Assigns partitions to the members of a group.

    The result must depend only on the arguments, and not on their order: every process must compute
    the same result.
    """

    @property
    def name(self) -> str:
        """The protocol name under which members offer the assignor, as in ``JoinGroup``."""

    def assign(
        self, members: Sequence[MemberSubscription], partitions: Sequence[TopicPartition]
    ) -> Assignment:
        """Assign the partitions of every topic that a member subscribes to."""


@runtime_checkable
class StickyPartitionAssignor(PartitionAssignor, Protocol):
    """An assignor that can start from a previous assignment."""

    def assign_with_previous(
        self,
        members: Sequence[MemberSubscription],
        partitions: Sequence[TopicPartition],
        previous: Mapping[str, Collection[TopicPartition]],
    ) -> Assignment:
        """Assign the partitions so that few of them move to another member. ``previous`` is member
        id -> its partitions before.
        """


def topics_by_member(members: Sequence[MemberSubscription]) -> dict[str, frozenset[str]]:
    """Return the topics of each member, in the order of ``place``. So no result depends on the
    order of the caller. Raises ValueError if a member id appears more than once.
    """
    alike: dict[frozenset[str], frozenset[str]] = {}
    topics: dict[str, frozenset[str]] = {}
    for member in sorted(members, key=lambda member: member.place):
        subscribed = frozenset(member.topics)
        # equal subscriptions share one set, because a set of 10,000 topics takes half a megabyte
        topics[member.member_id] = alike.setdefault(subscribed, subscribed)
    if len(topics) != len(members):
        raise ValueError("a member id appears more than once")
    return topics


def partitions_by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Return the partitions of each topic, without duplicates. Topics and partitions are sorted."""
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in sorted(set(partitions)):
        by_topic.setdefault(partition.topic, []).append(partition)
    return by_topic


def subscribers_by_topic(topics: Mapping[str, frozenset[str]]) -> dict[str, tuple[str, ...]]:
    """Return the subscribers of each topic, in the order of ``topics``.

    Topics with equal subscribers share one tuple. Otherwise a thousand members that subscribe to
    the same thousand topics would need a million entries.
    """
    place_of = {member_id: place for place, member_id in enumerate(topics)}
    alike: dict[frozenset[str], list[str]] = {}
    for member_id, subscribed in topics.items():
        alike.setdefault(subscribed, []).append(member_id)
    kinds = list(alike.values())
    kinds_of: dict[str, list[int]] = {}
    for number, subscribed in enumerate(alike):
        for topic in subscribed:
            kinds_of.setdefault(topic, []).append(number)
    merged: dict[tuple[int, ...], tuple[str, ...]] = {}
    subscribers: dict[str, tuple[str, ...]] = {}
    for topic, numbers in kinds_of.items():
        key = tuple(numbers)
        if key not in merged:
            members = chain.from_iterable(kinds[number] for number in numbers)
            merged[key] = tuple(sorted(members, key=place_of.__getitem__))
        subscribers[topic] = merged[key]
    return subscribers
