"""What a host that embeds the coordinator asks and is answered: a request and a response a call.

Every field but the group id has a default where one makes sense. A response says in ``error_code``
how the coordinator judged (a broker passes it on); ``raise_for_error`` is for those who would
rather have an exception.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from groupkeeper.coordinator.core.assignors.types import TopicPartition
from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
from groupkeeper.coordinator.core.wire_numbers import Int32, Int64
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
    """Return the response itself; raise GroupError where it says that the request was refused."""
    if response.error_code is not ErrorCode.NONE:
        raise GroupError(response.error_code)
    return response


# --- JoinGroup ---


@dataclass(frozen=True, slots=True)
class ProtocolMetadata:
    """One assignor that a member offers, with what the assignor is to know of the member."""

    name: str
    metadata: bytes = b""

    @classmethod
    def subscribing(cls, name: str, topics: Iterable[str]) -> ProtocolMetadata:
        """Offer an assignor with a consumer's subscription to these topics."""
        subscription = Subscription(0, collection_of_texts("topics", topics))
        return cls(name, encode_subscription(subscription))


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupRequest:
    """Enter a group, or its next generation."""

    group_id: str
    member_id: str = ""
    """"" for a newcomer: an id is made."""
    client_id: str = ""
    client_host: str = ""
    group_instance_id: str | None = None
    """Makes the member static: it may restart within its session without a rebalance."""
    protocol_type: str = "consumer"
    protocols: Sequence[ProtocolMetadata] = ()
    """The assignors that the member offers, the one it prefers first."""
    session_timeout_ms: Int32 = 0
    """0: the config's default."""
    rebalance_timeout_ms: Int32 = 0
    """0: the config's default."""
    requires_known_member_id: bool = False
    """KIP-394, as newer clients do it: a newcomer gets MEMBER_ID_REQUIRED with its id, and joins
    once more. For clients that may lose the answer on their way.
    """


@dataclass(frozen=True, slots=True)
class JoinGroupMember:
    """A member as the leader is shown it."""

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
    """For the leader alone."""

    raise_for_error = _raise_for_error

    @property
    def is_leader(self) -> bool:
        """It is for this member to bring the assignments."""
        return bool(self.member_id) and self.member_id == self.leader_id


# --- SyncGroup ---


@dataclass(frozen=True, slots=True)
class MemberAssignmentData:
    """What one member is assigned, in bytes that only the group understands."""

    member_id: str
    assignment: bytes

    @classmethod
    def of(cls, member_id: str, partitions: Iterable[TopicPartition]) -> MemberAssignmentData:
        """Assign partitions in a consumer's bytes."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in checked(partitions, list[TopicPartition], "partitions"):
            by_topic.setdefault(topic, []).append(partition)
        return cls(member_id, encode_assignment(ConsumerAssignment(0, by_topic)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupRequest:
    """Fetch a member's assignment; the leader brings everyone's."""

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
    """Say that a member is alive."""

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse:
    """NONE, or what the member has to do."""

    error_code: ErrorCode

    raise_for_error = _raise_for_error


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupRequest:
    """Take a member out of its group."""

    group_id: str
    member_id: str
    group_instance_id: str | None = None
    """A static member may be named by this and an empty member id."""
    reason: str | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupResponse:
    """NONE, or why the member is not gone."""

    error_code: ErrorCode

    raise_for_error = _raise_for_error


# --- Offsets ---


@dataclass(frozen=True, slots=True)
class OffsetCommitData:
    """What is committed for one partition."""

    offset: Int64
    metadata: str = ""
    leader_epoch: Int32 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequest:
    """Store offsets of a group."""

    group_id: str
    offsets: Mapping[str, Mapping[Int32, OffsetCommitData]]
    """By topic, then by partition."""
    generation_id: Int32 = -1
    """-1 with an empty member id: a simple consumer or an administrator; refused while the group
    has members.
    """
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    """How each partition was judged; what is NONE is durable."""

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
    """Topic to partitions; None: everything that is stored."""


@dataclass(frozen=True, slots=True)
class OffsetFetchData:
    """What is stored for one partition; offset -1 where nothing is."""

    offset: int
    metadata: str = ""
    error_code: ErrorCode = ErrorCode.NONE
    leader_epoch: Int32 = -1


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse:
    """The committed offsets, by topic, then by partition."""

    offsets: dict[str, dict[int, OffsetFetchData]] = field(default_factory=dict)
