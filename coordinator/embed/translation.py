"""Translation between a host's requests and responses (``messages``) and those of the core."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
from groupkeeper.coordinator.core.requests import (
    Client,
    CommitTopic,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    JoinProtocol,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    OffsetCommit,
    OffsetCommitResult,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchResult,
    SyncGroup,
    SyncGroupResult,
)
from groupkeeper.coordinator.core.wire_values import Int32
from groupkeeper.coordinator.embed.messages import (
    HeartbeatRequest,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchData,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.host_values import checked

_R = TypeVar("_R")

NOBODY: Final = Client("", "")
"""The client of a deletion for which the host names none."""


def _checked(request: object, kind: type[_R]) -> _R:
    """Return a host's request with its values checked. Raises TypeError for another type."""
    if not isinstance(request, kind):
        raise TypeError(f"this call needs a {kind.__name__}, not {request!r}")
    return checked(request, kind)


def join_to_core(request: JoinGroupRequest, config: CoordinatorConfig) -> JoinGroup:
    """Fill in the defaults and create the id of a new member."""
    request = _checked(request, JoinGroupRequest)
    session_timeout_ms = request.session_timeout_ms or min(
        max(config.default_session_timeout_ms, config.min_session_timeout_ms),
        config.max_session_timeout_ms,
    )
    # A client id or an instance id, and a UUID (docs/spec/groups.md#model).
    owner = request.group_instance_id or request.client_id or "member"
    return JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocols=tuple(JoinProtocol(each.name, each.metadata) for each in request.protocols),
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms or config.default_rebalance_timeout_ms,
        new_member_id=f"{owner}-{uuid.uuid4()}",
        requires_known_member_id=request.requires_known_member_id,
        supports_skip_assignment=False,
        client=Client(request.client_id, request.client_host),
    )


def join_from_core(result: JoinGroupResult) -> JoinGroupResponse:
    """Translate the result of a join."""
    members = [
        JoinGroupMember(m.member_id, m.metadata, m.group_instance_id) for m in result.members
    ]
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_name=result.protocol_name or "",
        member_id=result.member_id,
        leader_id=result.leader,
        members=members,
    )


def sync_to_core(request: SyncGroupRequest) -> SyncGroup:
    """Translate a sync. A host does not name the protocol, so it is not compared."""
    request = _checked(request, SyncGroupRequest)
    return SyncGroup(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=None,
        protocol_name=None,
        assignments=tuple((each.member_id, each.assignment) for each in request.assignments),
        client=Client(request.client_id, request.client_host),
    )


def sync_from_core(result: SyncGroupResult) -> SyncGroupResponse:
    """Translate the result of a sync."""
    return SyncGroupResponse(error_code=result.error, assignment=result.assignment)


def heartbeat_to_core(request: HeartbeatRequest) -> Heartbeat:
    """Translate a heartbeat."""
    request = _checked(request, HeartbeatRequest)
    return Heartbeat(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        Client(request.client_id, request.client_host),
    )


def leave_to_core(request: LeaveGroupRequest) -> LeaveGroup:
    """Translate the leaving of one member."""
    request = _checked(request, LeaveGroupRequest)
    leaving = LeavingMember(request.member_id, request.group_instance_id, request.reason)
    client = Client(request.client_id, request.client_host)
    return LeaveGroup(request.group_id, (leaving,), client)


def leave_from_core(result: LeaveGroupResult) -> LeaveGroupResponse:
    """Return the error of the one member."""
    error = result.error
    if error is ErrorCode.NONE and result.members:
        error = result.members[0].error
    return LeaveGroupResponse(error_code=error)


def commit_to_core(request: OffsetCommitRequest) -> OffsetCommit:
    """Translate a commit."""
    request = _checked(request, OffsetCommitRequest)
    topics: list[CommitTopic] = [
        (name, "", [(p, each.offset, each.leader_epoch, each.metadata) for p, each in rows.items()])
        for name, rows in request.offsets.items()
    ]
    return OffsetCommit(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=topics,
        by_topic_id=False,
        retention_ms=-1,
        absent_group_error=ErrorCode.GROUP_ID_NOT_FOUND,
        client=Client(request.client_id, request.client_host),
    )


def commit_from_core(
    request: OffsetCommitRequest, result: OffsetCommitResult
) -> OffsetCommitResponse:
    """Return the error of each partition, also if one error is the result of all."""
    if result.topics is not None:
        return OffsetCommitResponse({name: dict(rows) for name, _, rows in result.topics})
    return OffsetCommitResponse(
        {name: dict.fromkeys(rows, result.error) for name, rows in request.offsets.items()}
    )


def delete_to_core(group_id: str, partitions: Mapping[str, Iterable[int]]) -> OffsetDelete:
    """Translate a deletion of offsets."""
    if isinstance(partitions, Mapping):  # the partitions of a topic may be a mapping too
        partitions = {
            t: [*rows] if isinstance(rows, Mapping) else rows for t, rows in partitions.items()
        }
    topics = tuple(checked(partitions, dict[str, list[Int32]], "partitions").items())
    return OffsetDelete(group_id, topics, NOBODY)


def fetch_to_core(request: OffsetFetchRequest) -> OffsetFetch:
    """Translate a fetch of offsets."""
    request = _checked(request, OffsetFetchRequest)
    topics = request.topics
    wanted = None if topics is None else [(name, "", list(rows)) for name, rows in topics.items()]
    return OffsetFetch(request.group_id, wanted, by_topic_id=False, require_stable=False)


def fetch_from_core(result: OffsetFetchResult) -> OffsetFetchResponse:
    """Translate the result of a fetch of offsets.

    Raises GroupError if the group as a whole was refused.
    """
    if result.error is not ErrorCode.NONE:
        raise GroupError(result.error)
    return OffsetFetchResponse(
        {
            name: {
                partition: OffsetFetchData(offset, metadata, error, leader_epoch)
                for partition, offset, leader_epoch, metadata, error in rows
            }
            for name, _, rows in result.topics
        }
    )
