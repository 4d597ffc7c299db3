"""Where a partition ends in static mode: at the largest offset ever committed (design 1, LATEST).

A stored offset holds the end of its partition by itself. Only when the one that does is lowered or
goes is the end kept in a record of its own.
"""

from __future__ import annotations

from coordinator.core.records import NO_OFFSET, OffsetsCommitted, PartitionEnd
from coordinator.core.state import ShardState


def held_end(shard: ShardState, topic_id: str, partition: int, offset: int) -> PartitionEnd | None:
    """The record that keeps the end when an offset goes that holds it; None: this one does not."""
    if not topic_id or offset < shard.end_of(topic_id, partition):
        return None
    if shard.saved_ends.get((topic_id, partition), NO_OFFSET) >= offset:
        return None
    return PartitionEnd(topic_id, partition, offset)


def lowered_ends(shard: ShardState, record: OffsetsCommitted) -> list[PartitionEnd]:
    """The ends that only the offsets held which this commit is about to lower."""
    lowered = []
    for topic in record.topics:
        for part in topic.partitions:
            if part.offset < part.previous_offset:
                end = held_end(shard, topic.topic_id, part.partition, part.previous_offset)
                if end is not None:
                    lowered.append(end)
    return lowered
