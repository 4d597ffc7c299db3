"""The computation of one target assignment. The assignor works with numbers; the computation also
has the members and topics that these numbers mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from groupkeeper.coordinator.core.cluster.image import TopicInfo
from groupkeeper.coordinator.core.consumer.assigning import GroupSpec, Target
from groupkeeper.coordinator.core.consumer.assignment_work import AssignmentNames
from groupkeeper.coordinator.core.consumer_records import Partitions


class TargetComputation(NamedTuple):
    """The input of an assignor (numbers), and the members and topics that the numbers mean."""

    epoch: int
    assignor: str
    spec: GroupSpec
    members: Sequence[tuple[str, str | None]]
    """The id and the instance id of each member."""
    topics: Sequence[TopicInfo]

    def names(self) -> AssignmentNames:
        """Return the names, for an assignor that works with names."""
        return AssignmentNames(self.members, [topic.name for topic in self.topics])

    def by_member(self, target: Target) -> dict[tuple[str, str | None], Partitions]:
        """Convert a target from numbers to topic ids and partitions, by member."""
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
