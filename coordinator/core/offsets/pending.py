"""How other changes affect pending offsets: a later commit overtakes them, a deletion drops them.

See docs/spec/offsets.md#transactions; Kafka's OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.groups.pendings import pending_bytes
from groupkeeper.coordinator.core.offsets.room import OffsetKey
from groupkeeper.coordinator.core.records import (
    CommittedTopic,
    PendingEnded,
    PendingOffsets,
    PendingTopic,
)
from groupkeeper.coordinator.core.state import ShardState


def overtake(
    shard: ShardState, group_id: str, topics: Iterable[CommittedTopic], before: int | None = None
) -> None:
    """Record that a commit of these offsets overtakes earlier pending offsets of the same
    partitions.

    ``before`` is the arrival of the commit, if it was pending itself. If it is None, the commit is
    newer than all pending offsets.
    """
    if not shard.pendings.has_group(group_id):
        return
    unstable = shard.pendings.unstable(group_id)
    keys = {
        (topic.topic, row[0])
        for topic in topics
        for row in topic.partitions
        if row[0] in unstable.get(topic.topic, ())
    }
    if not keys:
        return
    for pending in shard.pendings.of_group(group_id, before):
        marked = [_overtaken(topic, keys) for topic in pending.topics]
        _replace(shard, pending, marked)


def _overtaken(topic: PendingTopic, keys: set[OffsetKey]) -> PendingTopic:
    rows = [
        (partition, offset, epoch, metadata, is_overtaken or (topic.topic, partition) in keys)
        for partition, offset, epoch, metadata, is_overtaken in topic.partitions
    ]
    return msgspec.structs.replace(topic, partitions=rows)


def drop_pending(shard: ShardState, group: Group, drops: Callable[[str, str, int], bool]) -> None:
    """Drop the pending offsets of a group for which ``drops`` returns True.

    ``drops`` is a function of (topic, topic id, partition).
    """
    for pending in shard.pendings.of_group(group.group_id):
        kept = [_kept(topic, drops) for topic in pending.topics]
        _replace(shard, pending, [topic for topic in kept if topic.partitions])


def _kept(topic: PendingTopic, drops: Callable[[str, str, int], bool]) -> PendingTopic:
    name, topic_id = topic.topic, topic.topic_id
    rows = [row for row in topic.partitions if not drops(name, topic_id, row[0])]
    return msgspec.structs.replace(topic, partitions=rows)


def _replace(shard: ShardState, pending: PendingOffsets, topics: list[PendingTopic]) -> None:
    if topics == pending.topics:
        return
    if not topics:
        shard.record(PendingEnded(pending.pending_id))
        return
    changed = msgspec.structs.replace(pending, topics=topics)
    shard.record(changed, pending_bytes(changed))
