"""The requests and responses of a host that embeds the coordinator, one pair for each call.

Most fields have defaults. A response has the result in ``error_code``, which a broker passes on.
``raise_for_error`` turns an error code into an exception.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from groupkeeper.coordinator.core.assignors.types import TopicPartition
from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
from groupkeeper.coordinator.core.wire_values import Int32, Int64
from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from groupkeeper.storage.host_values import checked, collection_of_texts


class _Judged(Protocol):
    @property
    def error_code(self) -> ErrorCode: ...


_R = TypeVar("_R", bound=_Judged)


def _raise_for_error(response: _R) -> _R:
    """Return the response; raise GroupError if the request was refused."""
    if response.error_code is not ErrorCode.NONE:
        raise GroupError(response.error_code)
    return response


# --- JoinGroup ---


@dataclass(frozen=True, slots=True)
class ProtocolMetadata:
    """One assignor that a member offers, with the member's metadata for it."""

    name: str
    metadata: bytes = b""

    @classmethod
    def subscribing(cls, name: str, topics: Iterable[str]) -> ProtocolMetadata:
        """Offer an assignor with a consumer's subscription to these topics."""
        subscription = Subscription(0, collection_of_texts("topics", topics))
        return cls(name, encode_subscription(subscription))


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupRequest:
    """Join a group, or its next generation."""

    group_id: str
    member_id: str = ""
    """"" for a new member: the coordinator creates an id."""
    client_id: str = ""
    client_host: str = ""
    group_instance_id: str | None = None
    """Makes the member static: it can restart within its session without a rebalance."""
    protocol_type: str = "consumer"
    protocols: Sequence[ProtocolMetadata] = ()
    """The assignors that the member offers, in order of preference."""
    session_timeout_ms: Int32 = 0
    """0: the config's default."""
    rebalance_timeout_ms: Int32 = 0
    """0: the config's default."""
    requires_known_member_id: bool = False
    """KIP-394: a new member first gets MEMBER_ID_REQUIRED with its id, and joins again with that.

    For clients that may lose the answer.
    """


@dataclass(frozen=True, slots=True)
class JoinGroupMember:
    """A member as the leader sees it."""

    member_id: str
    metadata: bytes
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupResponse:
    """The generation that the member is in."""

    error_code: ErrorCode
    generation_id: Int32
    protocol_name: str
    member_id: str
    leader_id: str
    members: list[JoinGroupMember]
    """Filled for the leader only."""

    raise_for_error = _raise_for_error

    @property
    def is_leader(self) -> bool:
        """True if this member must send the assignments."""
        return bool(self.member_id) and self.member_id == self.leader_id


# --- SyncGroup ---


@dataclass(frozen=True, slots=True)
class MemberAssignmentData:
    """The assignment of one member, in bytes that only the group understands."""

    member_id: str
    assignment: bytes

    @classmethod
    def of(cls, member_id: str, partitions: Iterable[TopicPartition]) -> MemberAssignmentData:
        """Assign partitions, encoded as a consumer's assignment."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in checked(partitions, list[TopicPartition], "partitions"):
            by_topic.setdefault(topic, []).append(partition)
        return cls(member_id, encode_assignment(ConsumerAssignment(0, by_topic)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupRequest:
    """Fetch a member's assignment; the leader sends everyone's."""

    group_id: str
    generation_id: Int32
    member_id: str
    assignments: Sequence[MemberAssignmentData] = ()
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupResponse:
    """A member's assignment."""

    error_code: ErrorCode
    assignment: bytes

    raise_for_error = _raise_for_error


# --- Heartbeat, LeaveGroup ---


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """Report that a member is alive."""

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse:
    """NONE, or the error that says what the member must do."""

    error_code: ErrorCode

    raise_for_error = _raise_for_error


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupRequest:
    """Remove a member from its group."""

    group_id: str
    member_id: str
    group_instance_id: str | None = None
    """A static member may be named by this alone, with an empty member id."""
    reason: str | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupResponse:
    """NONE, or the reason why the member was not removed."""

    error_code: ErrorCode

    raise_for_error = _raise_for_error


# --- Offsets ---


@dataclass(frozen=True, slots=True)
class OffsetCommitData:
    """The offset to commit for one partition."""

    offset: Int64
    metadata: str = ""
    leader_epoch: Int32 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequest:
    """Commit offsets of a group."""

    group_id: str
    offsets: Mapping[str, Mapping[Int32, OffsetCommitData]]
    """By topic, then by partition."""
    generation_id: Int32 = -1
    """-1 with an empty member id for a simple consumer or an administrator. Refused while the group
    has members.
    """
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    """The result of each partition; an offset with NONE is durable."""

    errors: dict[str, dict[int, ErrorCode]] = field(default_factory=dict)

    @property
    def error_code(self) -> ErrorCode:
        """The first error of any partition, else NONE."""
        codes = (code for rows in self.errors.values() for code in rows.values())
        return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)

    raise_for_error = _raise_for_error


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequest:
    """Read committed offsets of a group."""

    group_id: str
    topics: Mapping[str, Collection[Int32]] | None = None
    """The partitions by topic; None for all stored offsets."""


@dataclass(frozen=True, slots=True)
class OffsetFetchData:
    """The committed offset of one partition; -1 if there is none."""

    offset: int
    metadata: str = ""
    error_code: ErrorCode = ErrorCode.NONE
    leader_epoch: Int32 = -1


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse:
    """The committed offsets, by topic, then by partition."""

    offsets: dict[str, dict[int, OffsetFetchData]] = field(default_factory=dict)
