"""Events that a request leaves: who sent it is told alike, whatever it asked for."""

from __future__ import annotations

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import GroupCreated, MemberFenced
from groupkeeper.coordinator.core.requests import Heartbeat, JoinGroup, OffsetCommit, SyncGroup
from groupkeeper.coordinator.core.state import ShardState


def note_created(shard: ShardState, request: JoinGroup | OffsetCommit) -> None:
    """The request made its group come to be."""
    client = request.client
    shard.event(
        GroupCreated(
            group=request.group_id,
            client_id=client.client_id,
            client_host=client.client_host,
            principal=client.principal,
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
    client = request.client
    shard.event(
        MemberFenced(
            group=request.group_id,
            generation=generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            client_id=client.client_id,
            client_host=client.client_host,
            principal=client.principal,
            api=type(request).__name__,
            error=error.name,
        )
    )
