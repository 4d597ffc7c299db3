"""The room that is left in a group for more offsets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from groupkeeper.coordinator.core.groups.group import offset_bytes, topic_bytes
from groupkeeper.coordinator.core.records import CommittedTopic, SavedOffset

OffsetKey: TypeAlias = tuple[str, int]
"""(topic, partition)."""


def too_much(
    stored: dict[str, dict[int, SavedOffset]], topics: Iterable[CommittedTopic], room_bytes: int
) -> set[OffsetKey]:
    """Return the offsets of a commit for which ``room_bytes`` is too small.

    Offsets are checked in the order of the commit. An offset that is no larger than the one it
    replaces always fits. If a commit names a partition several times, the size of the largest
    offset counts at the first mention. Otherwise other offsets could use the room that the largest
    one needs later.
    """
    growth: dict[OffsetKey, int] = {}
    for topic in topics:
        before = stored.get(topic.topic)
        if before is None:
            room_bytes -= topic_bytes(topic.topic)
        for partition, _, _, _, metadata in topic.partitions:
            key = (topic.topic, partition)
            held = None if before is None else before.get(partition)
            grows_by = offset_bytes(metadata) - (0 if held is None else offset_bytes(held.metadata))
            growth[key] = max(grows_by, growth.get(key, grows_by))
    refused: set[OffsetKey] = set()
    for key, grows_by in growth.items():
        if grows_by > 0 and room_bytes < grows_by:
            refused.add(key)
        else:
            room_bytes -= grows_by
    return refused
