"""The computation of one target assignment. An assignor works with numbers. The computation also
has the members and topics that these numbers mean.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from groupkeeper.coordinator.core.cluster.image import TopicInfo
from groupkeeper.coordinator.core.consumer.assigning import GroupSpec
from groupkeeper.coordinator.core.consumer.assignment_work import AssignmentNames
from groupkeeper.coordinator.core.consumer_records import Partitions


class TargetComputation(NamedTuple):
    """The input of an assignor, and the members and topics that its numbers mean."""

    epoch: int
    """The group epoch for which the target is computed."""
    assignor: str
    spec: GroupSpec
    members: Sequence[tuple[str, str | None]]
    """The id and the instance id of each member, in the order of the numbers."""
    topics: Sequence[TopicInfo]
    targets: Sequence[Partitions] = ()
    """The target of each member when the computation began."""

    def names(self) -> AssignmentNames:
        """Return the names, for an assignor that works with names."""
        return AssignmentNames(self.members, [topic.name for topic in self.topics])

    def converter(self) -> Callable[[Sequence[int]], Partitions]:
        """Return a function that converts a member's target from sorted numbers to topic id ->
        partitions.
        """
        firsts = self.spec.first_partitions()
        # Faster than a search: with 50,000 topics of one partition, searches would take most of
        # the time.
        at_first = {first: at for at, first in enumerate(firsts)}
        return lambda numbers: self._by_topic(numbers, firsts, at_first)

    def _by_topic(
        self, numbers: Sequence[int], firsts: Sequence[int], at_first: Mapping[int, int]
    ) -> Partitions:
        """Divide the sorted numbers of a member's partitions by topic. ``at_first`` is: number of a
        topic's first partition -> position of the topic.
        """
        found: dict[str, tuple[int, ...]] = {}
        whole: dict[int, tuple[int, ...]] = {}  # size of a topic -> all of its partitions
        only, counts, topics = (0,), self.spec.partition_counts, self.topics
        start = 0
        count = len(numbers)
        while start < count:
            number = numbers[start]
            at = at_first.get(number, -1)
            if at < 0:
                at = bisect_right(firsts, number) - 1
            size = counts[at]
            if size == 1:
                found[topics[at].topic_id] = only
                start += 1
                continue
            first, next_first = firsts[at], firsts[at + 1]
            end = start + size
            if number == first and end <= count and numbers[end - 1] == next_first - 1:
                own = whole.get(size, ())
                if not own:
                    own = whole[size] = tuple(range(size))
            else:
                end = bisect_left(numbers, next_first, start)
                own = tuple([each - first for each in numbers[start:end]])
            found[topics[at].topic_id] = own
            start = end
        return {topic_id: found[topic_id] for topic_id in sorted(found)}
