"""What was stored for topics that are gone, goes (spec 7.8), cut to steps of a bounded size."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.core.deadlines import NEXT_PORTION_MS
from coordinator.core.events import OffsetDeleted
from coordinator.core.group import Group
from coordinator.core.lost_offsets import Portion, StoredOffset, lost_topics
from coordinator.core.records import NO_OFFSET, PartitionEnd
from coordinator.core.state import ShardState
from coordinator.core.topic_image import TopicImage

MAX_OFFSETS_PER_STEP = 1_000
"""Offsets that one step looks at (a group is looked at as a whole): the first step of every shard
falls into one turn of the loop."""


def start_sweep(shard: ShardState) -> None:
    """Remove a first portion now and leave the rest to a deadline of its own."""
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
    """Remove the next portion."""
    portion = Portion(MAX_OFFSETS_PER_STEP, shard.limits.max_step_bytes)
    while shard.sweep_left and portion.has_room():
        group = shard.groups.get(shard.sweep_left[-1])
        gone = [] if group is None else _gone(shard.image, group)
        fits = [] if group is None else portion.take(group.group_id, gone)
        portion.looked_at(1 if group is None else 1 + group.offset_count())
        if group is not None and fits:
            _remove(shard, group, fits)
        if len(fits) == len(gone):
            shard.sweep_left.pop()
    if shard.sweep_left or not _forget_ends(shard):
        shard.deadlines.arm(shard.sweep, shard.now.monotonic_ms + NEXT_PORTION_MS)


def _is_gone(image: TopicImage, topic: str, topic_id: str) -> bool:
    """By its id where one was stored: a topic made again under the name is another topic."""
    return topic_id not in image.by_id if topic_id else topic not in image.by_name


def _gone(image: TopicImage, group: Group) -> list[StoredOffset]:
    return [
        (topic, partition, offset)
        for topic, partition, offset in group.stored_offsets()
        if _is_gone(image, topic, offset.topic_id)
    ]


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
