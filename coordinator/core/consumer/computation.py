"""One computation of a target assignment: what the assignor is given, and the names behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from groupkeeper.coordinator.core.cluster.image import TopicInfo
from groupkeeper.coordinator.core.consumer.assigning import GroupSpec, Target
from groupkeeper.coordinator.core.consumer.assignment_work import AssignmentNames
from groupkeeper.coordinator.core.consumer_records import Partitions


class TargetComputation(NamedTuple):
    """What an assignor is given, and the names behind its numbers."""

    epoch: int
    assignor: str
    spec: GroupSpec
    members: Sequence[tuple[str, str | None]]
    """By member: its id and its instance id."""
    topics: Sequence[TopicInfo]

    def names(self) -> AssignmentNames:
        """Return the names, for an assignor that deals in them."""
        return AssignmentNames(self.members, [topic.name for topic in self.topics])

    def by_member(self, target: Target) -> dict[tuple[str, str | None], Partitions]:
        """Return a result in the form of records."""
        place_of = [
            (topic.topic_id, number) for topic in self.topics for number in range(topic.partitions)
        ]
        found: dict[tuple[str, str | None], Partitions] = {}
        for identity, numbers in zip(self.members, target, strict=True):
            lists: dict[str, list[int]] = {}
            for topic_id, number in [place_of[each] for each in numbers]:
                lists.setdefault(topic_id, []).append(number)
            found[identity] = {topic_id: tuple(lists[topic_id]) for topic_id in sorted(lists)}
        return found
