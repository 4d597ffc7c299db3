"""Deletes the offsets of deleted topics (docs/spec/offsets.md#deleted-topics), and gives offsets
that were stored without a topic id the id of the topic of their name, both cut to steps of a
bounded size.

An offset without an id was committed where there were no topics. That a topic of its name is
missing says nothing then: only its deletion does.
"""

from __future__ import annotations

from collections.abc import Sequence

from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.deadlines import NEXT_PORTION_MS
from groupkeeper.coordinator.core.events import OffsetDeleted
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.groups.lost_offsets import Portion, StoredOffset, lost_topics
from groupkeeper.coordinator.core.records import NO_OFFSET, PartitionEnd
from groupkeeper.coordinator.core.state import ShardState

MAX_OFFSETS_PER_STEP = 1_000
"""Offsets that one step looks at (a group is looked at as a whole): the first step of every shard
falls into one turn of the loop."""


def start_sweep(shard: ShardState) -> None:
    """Look at a first portion of the groups now and leave the rest to a deadline of its own."""
    if shard.image.accepts_any:
        return  # a host without topics: nothing says that one is gone
    shard.sweep_left = list(shard.groups)
    sweep_due(shard)


def sweep_also(shard: ShardState, group_id: str) -> None:
    """Look at one group more."""
    if not shard.image.accepts_any:
        shard.sweep_left.append(group_id)
        sweep_due(shard)


def sweep_due(shard: ShardState) -> None:
    """Look at the next portion of the groups."""
    portion = Portion(MAX_OFFSETS_PER_STEP, shard.limits.max_step_bytes)
    while shard.sweep_left and portion.has_room():
        group = shard.groups.get(shard.sweep_left[-1])
        if group is None:
            portion.looked_at(1)
        if group is None or _look_at(shard, group, portion):
            shard.sweep_left.pop()
    if shard.sweep_left or not _forget_ends(shard):
        shard.arm(shard.sweep, shard.now.monotonic_ms + NEXT_PORTION_MS)
    else:
        shard.deleted_topics.clear()
        shard.names_without_id -= shard.image.by_name.keys()


def _look_at(shard: ShardState, group: Group, portion: Portion) -> bool:
    """Remove and adopt what fits of a group; False: the rest does not fit into this step."""
    gone: list[StoredOffset] = []
    adopted: list[StoredOffset] = []
    for each in group.stored_offsets():
        topic, _, offset = each
        if _is_gone(shard, topic, offset.topic_id):
            gone.append(each)
        elif not offset.topic_id and _id_of(shard.image, topic):
            adopted.append(each)
    portion.looked_at(1 + group.offset_count())
    going = portion.take(group.group_id, gone)
    if going:
        _remove(shard, group, going)
    if len(going) < len(gone):
        return False
    taking = portion.take(group.group_id, adopted) if adopted else []
    if taking:
        shard.record_adopted(group, taking)
    return len(taking) == len(adopted)


def _is_gone(shard: ShardState, topic: str, topic_id: str) -> bool:
    """By its id where one was stored: a topic made again under the name is another topic."""
    if not shard.are_topics_stored:
        return False
    return topic_id not in shard.image.by_id if topic_id else topic in shard.deleted_topics


def _id_of(image: TopicImage, topic: str) -> str:
    info = image.by_name.get(topic)
    return "" if info is None else info.topic_id


def _remove(shard: ShardState, group: Group, gone: Sequence[StoredOffset]) -> None:
    shard.record_removed(group, gone)
    shard.event(
        OffsetDeleted(group=group.group_id, topics=lost_topics(gone), reason="topic_deleted")
    )


def _forget_ends(shard: ShardState) -> bool:
    """A partition's end goes with its topic, after its offsets; False: there are more to forget."""
    known = shard.image.by_id
    gone = [key for key in shard.saved_ends if key[0] not in known]
    for topic_id, partition in gone[:MAX_OFFSETS_PER_STEP]:
        shard.record(PartitionEnd(topic_id, partition, NO_OFFSET))
    for topic_id in [t for t in shard.ends_by_topic if t and t not in known]:
        del shard.ends_by_topic[topic_id]
    return len(gone) <= MAX_OFFSETS_PER_STEP
