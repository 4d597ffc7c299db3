"""Finds offsets and groups that a shard should have deleted: expired offsets, and empty groups
without offsets (docs/spec/groups.md#generations, docs/spec/offsets.md#expiry). It does not use the
code with which the shard finds them.

It looks before and after each timer of the shard, and sometimes in between. The wall clock may be
set back. So an offset counts only from the first of the looks that have all found it expired.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from groupkeeper.coordinator.core.classic.group import CONSUMER, ClassicGroup
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.records import SavedOffset
from groupkeeper.coordinator.core.state import ShardState
from tests.simulation.patience import LATE_MS

Leftover: TypeAlias = tuple[str, str, int]
"""(group, topic, partition). For a group without offsets: the group alone."""


class Leftovers:
    """The offsets and groups that one shard must delete, since its load."""

    def __init__(self) -> None:
        self._since_ms: dict[Leftover, int] = {}
        """The time since which each of them should be deleted, in monotonic ms."""

    def look(self, shard: ShardState, now: Now) -> None:
        """Raise AssertionError if a pass should have deleted one of them before now."""
        was = self._since_ms
        now_ms = now.monotonic_ms
        self._since_ms = {key: was.get(key, now_ms) for key in _past_their_time(shard, now)}
        most_ms = shard.limits.retention_check_interval_ms + LATE_MS
        for key, since_ms in self._since_ms.items():
            late_ms = now_ms - since_ms
            assert late_ms <= most_ms, f"{key}: should have gone {late_ms} ms ago"


def _past_their_time(shard: ShardState, now: Now) -> Iterator[Leftover]:
    for group_id, group in shard.groups.items():
        if group.state is GroupState.EMPTY and not group.offsets:
            yield group_id, "", -1
        own_ms = shard.overrides_of(group).offsets_retention_ms
        retention_ms = shard.limits.offsets_retention_ms if own_ms is None else own_ms
        for topic, partition, offset in group.stored_offsets():
            until_ms = _until_ms(group, topic, offset, retention_ms)
            if until_ms is not None and until_ms <= now.wall_ms:
                yield group_id, topic, partition


def _until_ms(
    group: ClassicGroup, topic: str, offset: SavedOffset, retention_ms: int
) -> int | None:
    """Return the time until which an offset is kept (wall clock), or None if it cannot expire."""
    is_simple = group.protocol_type is None
    is_empty = group.state is GroupState.EMPTY
    if not is_simple and not is_empty:
        subscribed = group.subscribed_topics
        is_consumer = group.state is GroupState.STABLE and group.protocol_type == CONSUMER
        if not is_consumer or subscribed is None or topic in subscribed:
            return None
    if offset.expire_time_ms >= 0:
        return offset.expire_time_ms
    if is_empty and not is_simple and group.state_timestamp_ms >= 0:
        return group.state_timestamp_ms + retention_ms
    return offset.commit_time_ms + retention_ms
