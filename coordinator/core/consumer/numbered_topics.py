"""The topics of a consumer group with the numbers by which assignors know them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from groupkeeper.coordinator.core.cluster.image import TopicInfo
from groupkeeper.coordinator.core.consumer_records import Partitions


class NumberedTopics:
    """Tables that convert topics and partitions to the numbers of ``assigning.GroupSpec``.

    The number of a topic is its position in ``topics``. Partitions are numbered from 0 over all
    topics. The tables never change.
    """

    __slots__ = ("_at_id", "_firsts", "at_name", "counts", "topics")

    def __init__(self, topics: Sequence[TopicInfo]) -> None:
        self.topics = topics
        self.counts = [topic.partitions for topic in topics]
        self.at_name = {topic.name: at for at, topic in enumerate(topics)}
        """Topic name -> its position in ``topics``."""
        self._at_id = {topic.topic_id: at for at, topic in enumerate(topics)}
        self._firsts = [0, *accumulate(self.counts)]

    def numbers(self, target: Partitions) -> list[int]:
        """Return the numbers of the partitions in a member's previous target. Partitions that do
        not exist any more are left out.
        """
        firsts, counts = self._firsts, self.counts
        found: list[int] = []
        for at, numbers in zip(map(self._at_id.get, target), target.values(), strict=True):
            if at is None:
                continue
            first, count = firsts[at], counts[at]
            if len(numbers) != count or numbers[-1] != count - 1:
                found += [first + number for number in numbers if 0 <= number < count]
            elif count == 1:  # a range takes three times as long, and there may be 50,000 topics
                found.append(first)
            else:
                found += range(first, first + count)
        return found
