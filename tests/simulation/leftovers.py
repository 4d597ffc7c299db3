"""What must have gone: offsets that are past their time, and groups with nothing left
(docs/spec/groups.md#generations, docs/spec/offsets.md#expiry). A second account, which knows
nothing of how the shard looks for them.

It looks whenever a timer of the shard rings, before and after, and now and then between: the wall
clock may be set, and what is past its time is so only while it is so at each look.
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
    """What one shard has to delete, since its load."""

    def __init__(self) -> None:
        self._since_ms: dict[Leftover, int] = {}
        """Since when it should be deleted, in monotonic ms."""

    def look(self, shard: ShardState, now: Now) -> None:
        """Raise AssertionError if something is left that a pass should have deleted by now."""
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
    """Return until when it is kept (wall clock). None if nothing asks for it now."""
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
