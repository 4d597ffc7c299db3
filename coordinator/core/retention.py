"""The periodic pass over all groups: what nobody needs any more, goes (spec 6.11 and 7.6)."""

from __future__ import annotations

from coordinator.core.events import GroupDeleted
from coordinator.core.records import GroupRemoved
from coordinator.core.requests import GroupState
from coordinator.core.state import ShardState

MAX_GROUPS_PER_STEP = 1_000
"""Groups that one step removes; the rest waits for the next turn."""


def arm(shard: ShardState) -> None:
    """Begin the wait for the next pass."""
    at = shard.now.monotonic_ms + shard.limits.retention_check_interval_ms
    shard.deadlines.arm(shard.retention, at)


def retention_due(shard: ShardState) -> None:
    """Remove Empty groups without offsets, even if ids are pending in them (spec 6.11, edge 12)."""
    idle = [
        group
        for group in shard.groups.values()
        if group.state is GroupState.EMPTY and not group.offsets
    ]
    for group in idle[:MAX_GROUPS_PER_STEP]:
        for pending in group.pending_members.values():
            shard.deadlines.clear(pending)
        shard.record(GroupRemoved(group.group_id))
        shard.event(
            GroupDeleted(group=group.group_id, generation=group.generation_id, reason="expired")
        )
    if len(idle) > MAX_GROUPS_PER_STEP:
        shard.deadlines.arm(shard.retention, shard.now.monotonic_ms)
    else:
        arm(shard)
