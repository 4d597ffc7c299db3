"""The periodic pass over all groups: offsets that nobody needs any more go, and groups with nothing
left.

Spec 6.11 and 7.6 (KIP-211; Kafka's OffsetMetadataManager.cleanupExpiredOffsets). A pass is cut to
steps of a bounded size; what remains is due at once.
"""

from __future__ import annotations

from typing import NamedTuple

from coordinator.core.deadlines import NEXT_PORTION_MS
from coordinator.core.events import GroupDeleted, OffsetExpired
from coordinator.core.group import CONSUMER, Group
from coordinator.core.lost_offsets import StoredOffset, lost_topics
from coordinator.core.offsets import held_end
from coordinator.core.records import GroupRemoved, OffsetsRemoved, SavedOffset
from coordinator.core.requests import GroupState
from coordinator.core.state import ShardState

MAX_OFFSETS_PER_STEP = 2_000
"""Offsets that one step looks at (a group is looked at as a whole)."""


def arm(shard: ShardState) -> None:
    """Begin the wait for the next pass."""
    at = shard.now.monotonic_ms + shard.limits.retention_check_interval_ms
    shard.deadlines.arm(shard.retention, at)


def retention_due(shard: ShardState) -> None:
    """Look at the next portion of groups; after the last one, wait for the next pass."""
    if not shard.retention_left:
        shard.retention_left = list(shard.groups)
    room = MAX_OFFSETS_PER_STEP
    while shard.retention_left and room > 0:
        group = shard.groups.get(shard.retention_left.pop())
        if group is not None:
            room -= 1 + sum(map(len, group.offsets.values()))
            _look_at(shard, group)
    if shard.retention_left:
        shard.deadlines.arm(shard.retention, shard.now.monotonic_ms + NEXT_PORTION_MS)
    else:
        arm(shard)


class _Rule(NamedTuple):
    """When the offsets of a group expire."""

    base_ms: int | None
    """Retention counts from here; None: from each offset's commit time."""
    kept_topics: frozenset[str]
    """Topics that are being consumed: their offsets stay."""


_NOTHING_KEPT: frozenset[str] = frozenset()


def _rule(group: Group) -> _Rule | None:
    """The table of spec 7.6; None: nothing of this group expires now."""
    if group.protocol_type is None:
        return _Rule(None, _NOTHING_KEPT)  # a simple group
    if group.state is GroupState.EMPTY:
        since = group.state_timestamp_ms
        return _Rule(since if since >= 0 else None, _NOTHING_KEPT)
    subscribed = group.subscribed_topics
    if (
        group.state is GroupState.STABLE
        and group.protocol_type == CONSUMER
        and subscribed is not None
    ):
        return _Rule(None, subscribed)
    return None


def _look_at(shard: ShardState, group: Group) -> None:
    rule = _rule(group)
    if rule is not None:
        expired = [
            (topic, partition, offset)
            for topic, stored in group.offsets.items()
            if topic not in rule.kept_topics
            for partition, offset in stored.items()
            if _is_expired(shard, rule, offset)
        ]
        if expired:
            _remove(shard, group, expired)
    if group.state is GroupState.EMPTY and not group.offsets:
        # Even if ids are pending in it (edge 12).
        for pending in group.pending_members.values():
            shard.deadlines.clear(pending)
        shard.record(GroupRemoved(group.group_id))
        shard.event(
            GroupDeleted(group=group.group_id, generation=group.generation_id, reason="expired")
        )


def _is_expired(shard: ShardState, rule: _Rule, offset: SavedOffset) -> bool:
    wall_ms = shard.now.wall_ms
    if offset.expire_time_ms >= 0:
        # A commit that named its own retention (v2-4) overrides every rule of the group.
        return offset.expire_time_ms <= wall_ms
    base_ms = offset.commit_time_ms if rule.base_ms is None else rule.base_ms
    return wall_ms - base_ms >= shard.limits.offsets_retention_ms


def _remove(shard: ShardState, group: Group, expired: list[StoredOffset]) -> None:
    ends = [held_end(shard, offset, partition) for _, partition, offset in expired]
    shard.record(OffsetsRemoved(group.group_id, [(topic, part) for topic, part, _ in expired]))
    for end in ends:
        if end is not None:
            shard.record(end)
    shard.event(
        OffsetExpired(
            group=group.group_id, generation=group.generation_id, topics=lost_topics(expired)
        )
    )
