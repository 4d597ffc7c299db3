"""Events about a request. Each names the client in the same way, whatever the API."""

from __future__ import annotations

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    GroupCreated,
    MemberFenced,
    of_client,
)
from groupkeeper.coordinator.core.requests import Heartbeat, JoinGroup, OffsetCommit, SyncGroup
from groupkeeper.coordinator.core.state import ShardState


def note_created(shard: ShardState, request: JoinGroup | OffsetCommit) -> None:
    """Add the event that the request created its group."""
    shard.event(
        GroupCreated(
            group_id=request.group_id,
            **of_client(request.client),
            api=type(request).__name__,
        )
    )


def note_fenced(
    shard: ShardState,
    request: JoinGroup | SyncGroup | Heartbeat,
    generation_id: int,
    error: ErrorCode,
) -> None:
    """Add the event that the request was refused: its member was replaced, or its generation is
    over.
    """
    shard.event(
        MemberFenced(
            group_id=request.group_id,
            generation_id=generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            **of_client(request.client),
            api=type(request).__name__,
            error=error.name,
        )
    )
