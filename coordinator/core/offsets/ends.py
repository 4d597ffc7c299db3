"""The end of a partition in static mode: the largest offset that was ever committed.

See docs/design.md#ends. The end is usually the largest stored offset. Only if that offset is
lowered or deleted, the end gets its own record.
"""

from __future__ import annotations

from groupkeeper.coordinator.core.records import NO_OFFSET, OffsetsCommitted, PartitionEnd
from groupkeeper.coordinator.core.state import ShardState


def held_end(shard: ShardState, topic_id: str, partition: int, offset: int) -> PartitionEnd | None:
    """Return the record that keeps the end of a partition when this offset is lowered or deleted.
    Return None if no record is needed, because the end does not depend on this offset.
    """
    if not topic_id or offset < shard.end_of(topic_id, partition):
        return None
    if shard.saved_ends.get((topic_id, partition), NO_OFFSET) >= offset:
        return None
    return PartitionEnd(topic_id, partition, offset)


def lowered_ends(shard: ShardState, record: OffsetsCommitted) -> list[PartitionEnd]:
    """Return the records for the ends of partitions that this commit would lower.

    A commit lowers an end in two cases: it replaces the offset that was the end by a lower offset,
    or by an offset without a topic id.
    """
    lowered = []
    for topic in record.topics:
        for partition, offset, previous, _, _ in topic.partitions:
            end = None
            if not topic.topic_id:
                end = _end_of_known_topic(shard, record.group_id, topic.topic, partition)
            elif offset < previous:
                end = held_end(shard, topic.topic_id, partition, previous)
            if end is not None:
                lowered.append(end)
    return lowered


def _end_of_known_topic(
    shard: ShardState, group_id: str, topic: str, partition: int
) -> PartitionEnd | None:
    """Return the record that keeps the end when a commit without a topic id replaces the offset.
    Return None if no record is needed, because the end does not depend on this offset.

    A host without topics commits without topic ids. Such an offset does not count for the end of
    the topic.
    """
    group = shard.groups.get(group_id)
    stored = None if group is None else group.offsets.get(topic, {}).get(partition)
    return None if stored is None else held_end(shard, stored.topic_id, partition, stored.offset)
