"""Requests and results of the core as bytes of a client. kio writes and reads them as an
independent codec, in the versions of old, middle-aged and new clients.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kio.index import load_response_schema
from kio.serial import entity_reader

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.consumer import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from groupkeeper.coordinator.core.requests.membership import (
    Heartbeat,
    JoinedMember,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeftMember,
    SyncGroup,
    SyncGroupResult,
)
from groupkeeper.coordinator.core.requests.offsets import (
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetch,
    OffsetFetchResult,
)
from groupkeeper.protocol.packing import printed_topic_id, raw_topic_id
from tests.helpers.wire.raw_client import API_KEYS, encode_request

Versions = Mapping[str, int]

NEW: Final[Versions] = {
    "consumer_group_heartbeat": 1,
    "join_group": 9,
    "sync_group": 5,
    "heartbeat": 4,
    "leave_group": 5,
    "offset_commit": 9,
    "offset_fetch": 9,
}
MIDDLE: Final[Versions] = {
    "join_group": 5,
    "sync_group": 3,
    "heartbeat": 3,
    "leave_group": 3,
    "offset_commit": 7,
    "offset_fetch": 7,
}
OLD: Final[Versions] = {
    "join_group": 2,
    "sync_group": 1,
    "heartbeat": 1,
    "leave_group": 1,
    "offset_commit": 2,
    "offset_fetch": 3,
}
"""Before static members and MEMBER_ID_REQUIRED."""

MANY_GROUPS: Final = 8
"""The first version of OffsetFetch in which one request may ask for several groups."""

_API: Final[Mapping[type, str]] = {
    ConsumerGroupHeartbeat: "consumer_group_heartbeat",
    JoinGroup: "join_group",
    SyncGroup: "sync_group",
    Heartbeat: "heartbeat",
    LeaveGroup: "leave_group",
    OffsetCommit: "offset_commit",
    OffsetFetch: "offset_fetch",
}


def can_encode(request: Any) -> bool:
    """Return whether this request can be sent as bytes. Administrators call in process."""
    return type(request) in _API


def encode(requests: Sequence[Any], versions: Versions, correlation_id: int) -> bytes:
    """Write the frame of a request, or of an OffsetFetch of several groups."""
    request = requests[0]
    api = _API[type(request)]
    client = getattr(request, "client", None)
    client_id = "" if client is None else client.client_id
    values = _values(request)
    if isinstance(request, OffsetFetch):
        values["groups"] = [_group_values(one) for one in requests]
    return encode_request(api, versions[api], values, correlation_id, client_id)


def correlation_id_of(frame: bytes) -> int:
    """Return the correlation id of a reply."""
    correlation_id: int = struct.unpack_from(">i", frame, 4)[0]
    return correlation_id


def decode(requests: Sequence[Any], versions: Versions, frame: bytes) -> list[Any]:
    """Read the reply to a request: a result for each group of an OffsetFetch, otherwise one. Raises
    AssertionError if it answers for other groups.
    """
    request = requests[0]
    api = _API[type(request)]
    schema = load_response_schema(API_KEYS[api], versions[api])
    _, size = entity_reader(schema.__header_schema__)(frame[4:], 0)
    wire, _ = entity_reader(schema)(frame[4:], size)
    if hasattr(wire, "groups"):
        asked, told = [r.group_id for r in requests], [group.group_id for group in wire.groups]
        assert asked == told, f"asked for {asked}, told of {told}"
        return [_fetched(group) for group in wire.groups]
    return [_result(request, wire)]


def _values(request: Any) -> dict[str, Any]:
    match request:
        case ConsumerGroupHeartbeat():
            return _consumer_values(request)
        case OffsetCommit():
            return _commit_values(request)
        case OffsetFetch():
            return _group_values(request) | {"require_stable": request.require_stable}
        case LeaveGroup():
            members = [
                {"member_id": m.member_id, "group_instance_id": m.group_instance_id}
                for m in request.members
            ]
            first = request.members[0].member_id
            return {"group_id": request.group_id, "member_id": first, "members": members}
    common = {
        "group_id": request.group_id,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
    }
    match request:
        case JoinGroup():
            protocols = [{"name": p.name, "metadata": p.metadata} for p in request.protocols]
            return common | {
                "session_timeout": request.session_timeout_ms,
                "rebalance_timeout": request.rebalance_timeout_ms,
                "protocol_type": request.protocol_type,
                "protocols": protocols,
            }
        case SyncGroup():
            assignments = [
                {"member_id": name, "assignment": data} for name, data in request.assignments
            ]
            return common | {
                "generation_id": request.generation_id,
                "protocol_type": request.protocol_type,
                "protocol_name": request.protocol_name,
                "assignments": assignments,
            }
    return common | {"generation_id": request.generation_id}


def _consumer_values(request: ConsumerGroupHeartbeat) -> dict[str, Any]:
    names, owned = request.subscribed_topic_names, request.owned
    return {
        "group_id": request.group_id,
        "member_id": request.member_id,
        "member_epoch": request.member_epoch,
        "instance_id": request.group_instance_id,
        "rack_id": request.rack_id,
        "rebalance_timeout": request.rebalance_timeout_ms,
        "subscribed_topic_names": None if names is None else [*names],
        "subscribed_topic_regex": request.subscribed_topic_regex,
        "server_assignor": request.server_assignor,
        "topic_partitions": None
        if owned is None
        else [
            {"topic_id": uuid.UUID(bytes=raw_topic_id(topic)), "partitions": [*numbers]}
            for topic, numbers in owned
        ],
    }


def _commit_values(request: OffsetCommit) -> dict[str, Any]:
    topics = [
        {
            "name": name,
            "partitions": [
                {
                    "partition_index": number,
                    "committed_offset": offset,
                    "committed_leader_epoch": epoch,
                    "committed_metadata": metadata,
                }
                for number, offset, epoch, metadata in partitions
            ],
        }
        for name, _, partitions in request.topics
    ]
    return {
        "group_id": request.group_id,
        "generation_id_or_member_epoch": request.generation_id,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "retention_time": request.retention_ms,
        "topics": topics,
    }


def _group_values(request: OffsetFetch) -> dict[str, Any]:
    topics = None
    if request.topics is not None:
        topics = [{"name": name, "partition_indexes": nums} for name, _, nums in request.topics]
    return {"group_id": request.group_id, "topics": topics, "member_epoch": -1}


def _result(request: Any, wire: Any) -> Any:
    match request:
        case ConsumerGroupHeartbeat():
            return _beaten(wire)
        case OffsetCommit():
            topics = [
                (t.name, "", [(p.partition_index, _code(p)) for p in t.partitions])
                for t in wire.topics
            ]
            return OffsetCommitResult(ErrorCode.NONE, topics)
        case OffsetFetch():
            return _fetched(wire)
        case JoinGroup():
            members = tuple(
                JoinedMember(m.member_id, getattr(m, "group_instance_id", None), m.metadata)
                for m in wire.members
            )
            return JoinGroupResult(
                _code(wire),
                wire.member_id,
                wire.generation_id,
                getattr(wire, "protocol_type", None),
                wire.protocol_name,
                wire.leader,
                getattr(wire, "skip_assignment", False),
                members,
            )
        case SyncGroup():
            return SyncGroupResult(_code(wire), wire.assignment)
        case LeaveGroup():
            left = tuple(
                LeftMember(m.member_id, m.group_instance_id, _code(m))
                for m in getattr(wire, "members", ())
            )
            return LeaveGroupResult(_code(wire), left)
    return _code(wire)


def _beaten(wire: Any) -> ConsumerGroupHeartbeatResult:
    assignment = None
    if wire.assignment is not None:
        assignment = tuple(
            (printed_topic_id(topic.topic_id.bytes), tuple(topic.partitions))
            for topic in wire.assignment.topic_partitions
        )
    return ConsumerGroupHeartbeatResult(
        _code(wire), wire.error_message, wire.member_id, wire.member_epoch, 0, assignment
    )


def _fetched(group: Any) -> OffsetFetchResult:
    topics = [
        (
            t.name,
            "",
            [
                (
                    p.partition_index,
                    p.committed_offset,
                    getattr(p, "committed_leader_epoch", -1),
                    p.metadata,
                    _code(p),
                )
                for p in t.partitions
            ],
        )
        for t in group.topics
    ]
    return OffsetFetchResult(_code(group), topics)


def _code(wire: Any) -> ErrorCode:
    return ErrorCode(wire.error_code.value)
