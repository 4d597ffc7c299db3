"""Retention: a periodic pass that deletes expired offsets, and groups without members and offsets.

See docs/spec/groups.md#generations and docs/spec/offsets.md#expiry (KIP-211; Kafka's
OffsetMetadataManager.cleanupExpiredOffsets). A pass is split into steps of bounded size, which
follow each other without a pause.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from groupkeeper.coordinator.core.deadlines import NEXT_PORTION_MS
from groupkeeper.coordinator.core.events import GroupDeleted, OffsetExpired
from groupkeeper.coordinator.core.groups.group import Group, OffsetExpiry
from groupkeeper.coordinator.core.groups.lost_offsets import Portion, StoredOffset, lost_topics
from groupkeeper.coordinator.core.offsets.ends import held_end
from groupkeeper.coordinator.core.records import SavedOffset
from groupkeeper.coordinator.core.state import ShardState

MAX_OFFSETS_PER_STEP = 2_000
"""The largest number of offsets that one step deletes. A step that has examined this many offsets
does not begin with another group. A group with few expired offsets is examined as a whole.
"""


def arm(shard: ShardState) -> None:
    """Arm the deadline of the next pass, ``retention_check_interval_ms`` from now."""
    at = shard.now.monotonic_ms + shard.limits.retention_check_interval_ms
    shard.arm(shard.retention, at)


def retention_due(shard: ShardState) -> None:
    """Examine the next portion of groups. After the last portion, wait for the next pass."""
    if not shard.retention_left:
        shard.retention_left = list(shard.groups)
    portion = Portion(MAX_OFFSETS_PER_STEP, shard.limits.max_step_bytes)
    while shard.retention_left and portion.has_room():
        group = shard.groups.get(shard.retention_left[-1])
        if group is None or _examine(shard, group, portion):
            shard.retention_left.pop()
    if shard.retention_left:
        shard.arm(shard.retention, shard.now.monotonic_ms + NEXT_PORTION_MS)
    else:
        arm(shard)


def _retention_ms(shard: ShardState, group: Group) -> int:
    own_ms = shard.overrides_of(group).offsets_retention_ms
    return shard.limits.offsets_retention_ms if own_ms is None else own_ms


def _examine(shard: ShardState, group: Group, portion: Portion) -> bool:
    """Delete the expired offsets of a group. If the group is Empty and has no offsets left, not
    even pending ones, delete it too. Return False if some expired offsets do not fit into this
    step.
    """
    rule = group.offset_expiry()
    unstable = shard.pendings.unstable(group.group_id)
    expired: list[StoredOffset] = []
    if rule is not None:
        retention_ms = _retention_ms(shard, group)
        expired_now = (
            (topic, partition, offset)
            for topic, partition, offset in group.stored_offsets()
            if topic not in rule.kept_topics
            and _is_expired(shard, rule, retention_ms, offset)
            and not (topic in unstable and partition in unstable[topic])
        )
        expired = list(islice(expired_now, MAX_OFFSETS_PER_STEP + 1))
    fits = portion.take(group.group_id, expired[:MAX_OFFSETS_PER_STEP])
    portion.count_examined(1 + group.offset_count())
    if fits:
        _remove(shard, group, fits)
    if len(fits) < len(expired):
        return False
    if group.is_empty() and not group.offsets and not unstable:
        _remove_group(shard, group)
    return True


def _remove_group(shard: ShardState, group: Group) -> None:
    """Delete a group without offsets, and its pending member ids
    (docs/spec/edge-cases.md#edge-12).
    """
    shard.record_group_removed(group)
    shard.event(
        GroupDeleted(
            group_id=group.group_id,
            generation_id=group.epoch(),
            group_type=group.group_type,
            reason="expired",
        )
    )


def _is_expired(
    shard: ShardState, rule: OffsetExpiry, retention_ms: int, offset: SavedOffset
) -> bool:
    wall_ms = shard.now.wall_ms
    if offset.expire_time_ms >= 0:
        # The retention of the commit itself (v2-4) overrides every rule of the group.
        return offset.expire_time_ms <= wall_ms
    since_ms = offset.commit_time_ms if rule.since_ms is None else rule.since_ms
    if since_ms < 0:
        # The store of a host may keep no commit times. The age of the offset is then unknown.
        return False
    return wall_ms - since_ms >= retention_ms


def _remove(shard: ShardState, group: Group, expired: Sequence[StoredOffset]) -> None:
    ends = [held_end(shard, o.topic_id, partition, o.offset) for _, partition, o in expired]
    shard.record_removed(group, expired)
    for end in ends:
        if end is not None:
            shard.record(end)
    shard.event(
        OffsetExpired(
            group_id=group.group_id,
            generation_id=group.epoch(),
            group_type=group.group_type,
            topics=lost_topics(expired),
        )
    )
