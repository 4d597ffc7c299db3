"""Deletes the offsets of deleted topics (docs/spec/offsets.md#deleted-topics).

Also adds topic ids to offsets that were committed without one, by the name of their topic. Both run
in steps of bounded size.

An offset without an id was committed on a host without topics. Such an offset is deleted only when
its topic is deleted, not when the topic is merely missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.deadlines import NEXT_PORTION_MS
from groupkeeper.coordinator.core.events import OffsetDeleted
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.groups.lost_offsets import Portion, StoredOffset, lost_topics
from groupkeeper.coordinator.core.offsets.pending import drop_pending
from groupkeeper.coordinator.core.records import NO_OFFSET, PartitionEnd
from groupkeeper.coordinator.core.state import ShardState

MAX_OFFSETS_PER_STEP = 1_000
"""The largest number of offsets that one step changes. A step that has examined this many offsets
does not begin with another group. A group with few changes is examined as a whole. The limit is low
because the first steps of all shards run in one iteration of the event loop.
"""


def start_sweep(shard: ShardState) -> None:
    """Begin a sweep: examine a first portion of the groups now. Deadlines start the other portions.

    Does nothing if the host keeps no topics.
    """
    if shard.image.accepts_any:
        return  # a host without topics never learns that a topic was deleted
    shard.sweep_left = list(shard.groups)
    sweep_due(shard)


def sweep_also(shard: ShardState, group_id: str) -> None:
    """Add a group to the sweep, and examine the next portion. Does nothing if the host keeps no
    topics."""
    if not shard.image.accepts_any:
        shard.sweep_left.append(group_id)
        sweep_due(shard)


def sweep_due(shard: ShardState) -> None:
    """Examine the next portion of the groups. After the last group, delete the ends of deleted
    topics.
    """
    portion = Portion(MAX_OFFSETS_PER_STEP, shard.limits.max_step_bytes)
    while shard.sweep_left and portion.has_room():
        group = shard.groups.get(shard.sweep_left[-1])
        if group is None:
            portion.count_examined(1)
        if group is None or _examine(shard, group, portion):
            shard.sweep_left.pop()
    if shard.sweep_left or not _forget_ends(shard):
        shard.arm(shard.sweep, shard.now.monotonic_ms + NEXT_PORTION_MS)
    else:
        shard.deleted_topics.clear()
        shard.names_without_id -= shard.image.by_name.keys()


def _examine(shard: ShardState, group: Group, portion: Portion) -> bool:
    """Delete the group's offsets of deleted topics, and add missing topic ids, until the step is
    full. Return False if more offsets of the group must change.
    """
    portion.count_bytes(shard.pendings.group_bytes(group.group_id))
    drop_pending(shard, group, lambda topic, topic_id, _: _is_gone(shard, topic, topic_id))
    gone: list[StoredOffset] = []
    adopted: list[StoredOffset] = []
    is_whole = True
    for each in group.stored_offsets():
        topic, _, offset = each
        if _is_gone(shard, topic, offset.topic_id):
            changing = gone
        elif not offset.topic_id and _id_of(shard.image, topic):
            changing = adopted
        else:
            continue
        if len(gone) + len(adopted) == MAX_OFFSETS_PER_STEP:
            is_whole = False
            break
        changing.append(each)
    portion.count_examined(1 + group.offset_count())
    going = portion.take(group.group_id, gone)
    if going:
        _remove(shard, group, going)
    if len(going) < len(gone):
        return False
    taking = portion.take(group.group_id, adopted) if adopted else []
    if taking:
        shard.record_adopted(group, taking)
    return is_whole and len(taking) == len(adopted)


def _is_gone(shard: ShardState, topic: str, topic_id: str) -> bool:
    """Return True if an offset's topic was deleted. Always False if the store keeps no topics.

    An offset with an id belongs to that topic alone: a new topic with the same name is another
    topic.
    """
    if not shard.are_topics_stored:
        return False
    return topic_id not in shard.image.by_id if topic_id else topic in shard.deleted_topics


def _id_of(image: TopicImage, topic: str) -> str:
    info = image.by_name.get(topic)
    return "" if info is None else info.topic_id


def _remove(shard: ShardState, group: Group, gone: Sequence[StoredOffset]) -> None:
    shard.record_removed(group, gone)
    shard.event(
        OffsetDeleted(
            group_id=group.group_id,
            group_type=group.group_type,
            topics=lost_topics(gone),
            reason="topic_deleted",
        )
    )


def _forget_ends(shard: ShardState) -> bool:
    """Delete the ends of partitions whose topic was deleted. Return False if some are left for the
    next step.
    """
    known = shard.image.by_id
    gone = [key for key in shard.saved_ends if key[0] not in known]
    for topic_id, partition in gone[:MAX_OFFSETS_PER_STEP]:
        shard.record(PartitionEnd(topic_id, partition, NO_OFFSET))
    for topic_id in [t for t in shard.ends_by_topic if t and t not in known]:
        del shard.ends_by_topic[topic_id]
    return len(gone) <= MAX_OFFSETS_PER_STEP
