"""The end of each partition, from durable commits (docs/design.md#ends).

In static mode an end is the largest offset that a group ever committed. The end only grows, and is
deleted with its topic. Every commit passes through this module, so it is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from groupkeeper.coordinator.core.compiling import mypyc_attr
from groupkeeper.coordinator.core.records import CommittedRow, OffsetsCommitted

PartitionKey: TypeAlias = tuple[str, int]
"""(topic id, partition)."""


@mypyc_attr(allow_interpreted_subclasses=True)  # the gateway has one
class Ends:
    """The ends of the partitions that durable commits have named."""

    def __init__(self) -> None:
        self._topics: Mapping[str, object] = {}
        self._ends: dict[str, dict[int, int]] = {}
        self.rewinds = 0
        """The number of offsets that durable commits have lowered."""

    def of(self, topic_id: str, partition: int) -> int:
        """Return the end of a partition; 0 if no commit named an end."""
        return self._ends.get(topic_id, {}).get(partition, 0)

    def knows(self, topic_id: str) -> bool:
        """Return True if this topic exists. The ends of other topics are not kept."""
        return topic_id in self._topics

    def topics_changed(self, topics: Mapping[str, object]) -> None:
        """Forget the ends of topics that are not in ``topics``, which has all topics by id."""
        for topic_id in self._topics.keys() - topics.keys():
            self.forget(topic_id)
        self._topics = topics

    def forget(self, topic_id: str) -> None:
        """Forget the ends of a deleted topic."""
        self._ends.pop(topic_id, None)

    def committed(self, record: OffsetsCommitted) -> None:
        """Raise the ends of the partitions of a durable commit, and count the offsets that it
        lowered.
        """
        for topic in record.topics:
            topic_id = topic.topic_id
            if topic_id not in self._topics:
                continue  # the topic was deleted before the commit was durable
            ends = self._ends.get(topic_id)
            if ends is None:
                ends = self._ends[topic_id] = {}
            rows: list[CommittedRow] = topic.partitions
            for partition, offset, previous, _, _ in rows:
                end: Any = ends.get(partition)
                known: int = 0 if end is None else end  # mypyc compares ints faster than Any
                new: int = offset
                if new > known:
                    ends[partition] = offset
                else:
                    old: int = previous
                    if new < old:
                        self.rewinds += 1

    def raise_to(self, found: Mapping[PartitionKey, int]) -> None:
        """Raise the ends that are below those in ``found``. No end is ever lowered."""
        for (topic_id, partition), end in found.items():
            if topic_id in self._topics:
                ends = self._ends.setdefault(topic_id, {})
                if end > ends.get(partition, 0):
                    ends[partition] = end
