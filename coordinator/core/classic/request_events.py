"""Events that a request leaves: who sent it is told alike, whatever it asked for."""

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
    """The request made its group come to be."""
    shard.event(
        GroupCreated(
            group=request.group_id,
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
    """The request was refused: another took its member's place, or its generation is over."""
    shard.event(
        MemberFenced(
            group=request.group_id,
            generation=generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            **of_client(request.client),
            api=type(request).__name__,
            error=error.name,
        )
    )
