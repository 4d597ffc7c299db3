"""The computation of one target assignment. The assignor works with numbers; the computation also
has the members and topics that these numbers mean.
"""

from __future__ import annotations

from collections import defaultdict
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
        # No tuple for each partition: 50,000 would cost a tenth of a second.
        topic_of: list[int] = []
        first_of: list[int] = []
        for index, topic in enumerate(self.topics):
            first_of.append(len(topic_of))
            topic_of.extend([index] * topic.partitions)
        found: dict[tuple[str, str | None], Partitions] = {}
        for identity, numbers in zip(self.members, target, strict=True):
            by_index: defaultdict[int, list[int]] = defaultdict(list)
            for each in numbers:
                index = topic_of[each]
                by_index[index].append(each - first_of[index])
            lists = {self.topics[index].topic_id: parts for index, parts in by_index.items()}
            found[identity] = {topic_id: tuple(lists[topic_id]) for topic_id in sorted(lists)}
        return found
