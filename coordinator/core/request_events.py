"""The events that requests cause. Each names the client in the same way, for every API."""

from __future__ import annotations

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    CommitRejected,
    GroupConverted,
    GroupCreated,
    MemberFenced,
    of_client,
)
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.requests.consumer import ConsumerGroupHeartbeat
from groupkeeper.coordinator.core.requests.membership import Heartbeat, JoinGroup, SyncGroup
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit
from groupkeeper.coordinator.core.requests.transactions import TxnOffsetCommit
from groupkeeper.coordinator.core.state import ShardState


def add_created_event(
    shard: ShardState, request: JoinGroup | OffsetCommit | TxnOffsetCommit
) -> None:
    """Add the event ``group_created`` of the group that the request has created."""
    api = type(request).__name__
    shard.event(GroupCreated(group_id=request.group_id, **of_client(request.client), api=api))


def add_converted_event(
    shard: ShardState, request: JoinGroup | ConsumerGroupHeartbeat, before: Group, after: Group
) -> None:
    """Add the event ``group_converted``: this request changed the type of its group."""
    shard.event(
        GroupConverted(
            group_id=after.group_id,
            group_type=after.group_type,
            generation_id=after.epoch(),
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            **of_client(request.client),
            api=type(request).__name__,
            from_type=before.group_type.value,
            to_type=after.group_type.value,
            members=len(after.members),
        )
    )


def add_refused_event(
    shard: ShardState,
    group: Group,
    request: JoinGroup | SyncGroup | Heartbeat | OffsetCommit | TxnOffsetCommit,
    generation_id: int,
    error: ErrorCode,
) -> None:
    """Add the event that a request was refused as a whole: its member is unknown or was replaced,
    or its generation is over. The event is ``commit_rejected`` for a commit, otherwise
    ``member_fenced``.
    """
    kind = CommitRejected if isinstance(request, OffsetCommit | TxnOffsetCommit) else MemberFenced
    shard.event(
        kind(
            group_id=request.group_id,
            generation_id=generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            **of_client(request.client),
            api=type(request).__name__,
            group_type=group.group_type,
            error=error.name,
        )
    )
