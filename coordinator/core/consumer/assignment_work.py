"""The computation of a target assignment: at once, or as work for another process (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Final, NamedTuple

from groupkeeper.coordinator.core.assignors.types import (
    MemberSubscription,
    PartitionAssignor,
    StickyPartitionAssignor,
    TopicPartition,
)
from groupkeeper.coordinator.core.consumer.assigning import (
    GroupSpec,
    Target,
    assign_range,
    assign_uniform,
)
from groupkeeper.coordinator.core.work import Work

LARGE_US: Final = 5_000
"""The longest estimated time, in microseconds, of an assignor that may run on the event loop. The
steps before and after it are not counted, because they run on the loop in any case.
"""
_US_PER_PART: Final = 0.3
"""Microseconds for each member and each partition, if all members have the same subscription. We
measured 0.16."""
_US_PER_PART_OF_SEVERAL: Final = 7.0
"""The same if members have different subscriptions, and only few partitions can stay with their
previous members. Most groups that we measured take less.
"""
_US_PER_TOPIC_OF_MEMBER: Final = 0.3
"""Microseconds for each topic of each member, for several subscriptions."""

OUR_ASSIGNORS: Final[Mapping[str, Callable[[GroupSpec], Target]]] = MappingProxyType(
    {"uniform": assign_uniform, "range": assign_range}
)
"""Our own assignors, by name. All other assignors are in other installed packages, and run only in
the other process.
"""


class AssignmentNames(NamedTuple):
    """Maps the numbers of a ``GroupSpec`` to names, for assignors of other packages."""

    members: Sequence[tuple[str, str | None]]
    """The id and the instance id of each member, in the order of the numbers."""
    topics: Sequence[str]


class AssignmentWork(Work, frozen=True, kw_only=True):
    """A target assignment to compute. Its result is a ``Target``."""

    assignor: str
    spec: GroupSpec
    names: AssignmentNames | None = None
    """Set only if the assignor is not one of ours."""


class InvalidTargetError(Exception):
    """An assignor of another package returned an assignment that breaks the rules."""


def is_large(assignor: str, spec: GroupSpec) -> bool:
    """Return True if this assignment must not be computed on the event loop.

    The assignment may take more than ``LARGE_US``, or its assignor is in another package. The time
    is estimated from the sizes, not measured, so the same request always makes the same steps.
    """
    if assignor not in OUR_ASSIGNORS:
        return True
    parts = len(spec.members) + sum(spec.partition_counts)
    if len(spec.subscriptions) <= 1:
        return _US_PER_PART * parts > LARGE_US
    topics = sum([len(spec.subscriptions[subscription]) for subscription in spec.members])
    return _US_PER_PART_OF_SEVERAL * parts + _US_PER_TOPIC_OF_MEMBER * topics > LARGE_US


def compute(
    assignor: str,
    spec: GroupSpec,
    names: AssignmentNames | None = None,
    find: Callable[[str], PartitionAssignor] | None = None,
) -> Target:
    """Return the target. ``names`` and ``find`` are needed only for an assignor of another package.
    ``find`` returns the assignor by its name.

    Raises InvalidTargetError if the assignment of such an assignor breaks a rule:

    - It names an unknown member or partition.
    - It gives one partition to two members.
    - It gives a member a partition of a topic to which the member does not subscribe.

    Other exceptions of the assignor are not caught.
    """
    ours = OUR_ASSIGNORS.get(assignor)
    if ours is not None:
        return ours(spec)
    assert names is not None, "an assignor of others deals in names"
    assert find is not None, "only the other process runs code of others"
    return _Named(spec, names).compute(find(assignor))


class _Named:
    """Runs an assignor that works with names."""

    def __init__(self, spec: GroupSpec, names: AssignmentNames) -> None:
        self._spec = spec
        self._names = names
        self._firsts = spec.first_partitions()
        counts = zip(names.topics, spec.partition_counts, strict=True)
        self._partitions = [
            TopicPartition(topic, number) for topic, count in counts for number in range(count)
        ]
        """All partitions. The index of a partition is its number in the ``GroupSpec``."""

    def compute(self, assignor: PartitionAssignor) -> Target:
        names, spec = self._names, self._spec
        topics_of = [[names.topics[topic] for topic in topics] for topics in spec.subscriptions]
        members = [
            MemberSubscription(member_id, topics_of[subscription], instance_id)
            for (member_id, instance_id), subscription in zip(
                names.members, spec.members, strict=True
            )
        ]
        subscribed = sorted({*chain.from_iterable([spec.subscriptions[m] for m in spec.members])})
        partitions = [p for topic in subscribed for p in self._of_topic(topic)]
        if isinstance(assignor, StickyPartitionAssignor):
            previous = {
                member.member_id: [self._partitions[number] for number in had]
                for member, had in zip(members, spec.previous, strict=True)
            }
            assigned = assignor.assign_with_previous(members, partitions, previous)
        else:
            assigned = assignor.assign(members, partitions)
        return self._checked(assigned)

    def _of_topic(self, topic: int) -> list[TopicPartition]:
        return self._partitions[self._firsts[topic] : self._firsts[topic + 1]]

    def _checked(self, assigned: Mapping[str, Sequence[TopicPartition]]) -> Target:
        """Convert a target with names to one with numbers. An assignor may leave partitions
        unassigned.

        Raises InvalidTargetError as ``compute`` does.
        """
        spec = self._spec
        number_of = {partition: number for number, partition in enumerate(self._partitions)}
        topic_of = {name: topic for topic, name in enumerate(self._names.topics)}
        place_of = {member_id: at for at, (member_id, _) in enumerate(self._names.members)}
        subscriptions = [frozenset(topics) for topics in spec.subscriptions]
        target: Target = [[] for _ in spec.members]
        owner_of: dict[int, str] = {}
        for member_id, partitions in assigned.items():
            at = place_of.get(member_id)
            if at is None:
                raise InvalidTargetError(f"there is no member {member_id!r}")
            for topic, partition in partitions:
                part = topic, partition
                number = number_of.get(TopicPartition(topic, partition))
                if number is None:
                    raise InvalidTargetError(f"there is no partition {part}")
                if topic_of[topic] not in subscriptions[spec.members[at]]:
                    raise InvalidTargetError(f"{member_id!r} does not subscribe to {part}")
                if number in owner_of:
                    both = f"{owner_of[number]!r} and {member_id!r}"
                    raise InvalidTargetError(f"both {both} have {part}")
                owner_of[number] = member_id
                target[at].append(number)
        for own in target:
            own.sort()
        return target
