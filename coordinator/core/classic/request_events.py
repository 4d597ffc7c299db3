"""The events of requests. Each names the client in the same way, whatever the API."""

from __future__ import annotations

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    Assignment,
    CommitRejected,
    GroupCreated,
    MemberFenced,
    of_client,
)
from groupkeeper.coordinator.core.groups.group import CONSUMER, Group, encoded_bytes
from groupkeeper.coordinator.core.requests.membership import Heartbeat, JoinGroup, SyncGroup
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.protocol.consumer_protocol import ConsumerProtocolError, decode_assignment

MAX_DECODED_BYTES = 256 * 1024
"""Of a larger assignment only the size is logged: decoding it would delay all other requests."""

DECODED_GROWTH = 6
"""How many times longer a decoded assignment can be (each control character becomes six bytes)."""


def add_created_event(shard: ShardState, request: JoinGroup | OffsetCommit) -> None:
    """Add the event that the request created its group."""
    api = type(request).__name__
    shard.event(GroupCreated(group_id=request.group_id, **of_client(request.client), api=api))


def add_refused_event(
    shard: ShardState,
    request: JoinGroup | SyncGroup | Heartbeat | OffsetCommit,
    generation_id: int,
    error: ErrorCode,
) -> None:
    """Add the event that the request was refused as a whole: its member was replaced, or its
    generation is over.
    """
    kind = CommitRejected if isinstance(request, OffsetCommit) else MemberFenced
    shard.event(
        kind(
            group_id=request.group_id,
            generation_id=generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            **of_client(request.client),
            api=type(request).__name__,
            error=error.name,
        )
    )


def assignment_event(group: Group, max_step_bytes: int) -> Assignment:
    """Describe the assignment that the leader of this generation made.

    The group's record is in the same step, so the event may have only the rest of
    ``max_step_bytes``.
    """
    assigned = sum(len(m.assignment) for m in group.members.values())
    room = max_step_bytes - encoded_bytes(assigned) - 2 * group.size_bytes
    is_small = assigned <= min(MAX_DECODED_BYTES, room // DECODED_GROWTH)
    partitions: dict[str, dict[str, list[int]]] | None = None
    if group.protocol_type == CONSUMER and is_small:
        partitions = _decoded(group)
    opaque = None
    if partitions is None:
        opaque = {m.member_id: len(m.assignment) for m in group.members.values()}
    return Assignment(
        group_id=group.group_id,
        generation_id=group.generation_id,
        member_id=group.leader_id or "",
        protocol_type=group.protocol_type or "",
        protocol_name=group.protocol_name,
        partitions=partitions,
        opaque_bytes=opaque,
    )


def _decoded(group: Group) -> dict[str, dict[str, list[int]]] | None:
    decoded: dict[str, dict[str, list[int]]] = {}
    for member in group.members.values():
        if not member.assignment:
            decoded[member.member_id] = {}
            continue
        try:
            decoded[member.member_id] = decode_assignment(member.assignment).partitions
        except ConsumerProtocolError:
            return None
    return decoded
