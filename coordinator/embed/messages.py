"""The requests and responses of a host that embeds the coordinator, one pair for each call.

Most fields have defaults. A response has the result in ``error_code``, which a broker passes on.
``raise_for_error`` turns an error code into an exception. ``to_core`` converts a request for the
core, and ``of`` converts the result of the core.

This file is long because it is a list: every call of a host, with its request and its response.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from groupkeeper.coordinator.core.assignors.types import TopicPartition
from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.membership import (
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    JoinProtocol,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    SyncGroup,
    SyncGroupResult,
)
from groupkeeper.coordinator.core.requests.offsets import (
    CommitTopic,
    FetchTopic,
    OffsetCommit,
    OffsetCommitResult,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchResult,
)
from groupkeeper.coordinator.core.wire_values import Int32, Int64
from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from groupkeeper.storage.host_values import checked, collection_of_texts

if TYPE_CHECKING:
    from groupkeeper.coordinator.runtime.settings import CoordinatorConfig

_T = TypeVar("_T")

NOBODY: Final = Client("", "")
"""The client of a host's deletions, because a host names no client for them."""


def checked_request(request: object, kind: type[_T]) -> _T:
    """Return a host's request with its values checked. Raises TypeError if it is not a ``kind``."""
    if not isinstance(request, kind):
        raise TypeError(f"this call needs a {kind.__name__}, not {request!r}")
    return checked(request, kind)


class _Answer(Protocol):
    @property
    def error_code(self) -> ErrorCode: ...


_R = TypeVar("_R", bound=_Answer)


def raise_refusal(response: _R) -> _R:
    """Return the response; raise GroupError if the request was refused."""
    if response.error_code is not ErrorCode.NONE:
        raise GroupError(response.error_code)
    return response


def raise_first(errors: Mapping[str, Mapping[int, ErrorCode]]) -> None:
    """Raise GroupError for the first partition with an error."""
    for rows in errors.values():
        for error in rows.values():
            if error is not ErrorCode.NONE:
                raise GroupError(error)


# --- JoinGroup ---


@dataclass(frozen=True, slots=True)
class ProtocolMetadata:
    """One assignor that a member offers, with the member's metadata for it."""

    name: str
    metadata: bytes = b""

    @classmethod
    def subscribing(cls, name: str, topics: Iterable[str]) -> ProtocolMetadata:
        """Return the offer of an assignor. Its metadata is a consumer's subscription to these
        topics.
        """
        subscription = Subscription(0, collection_of_texts("topics", topics))
        return cls(name, encode_subscription(subscription))


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupRequest:
    """A JoinGroup of a new member, or of a member that joins again. ``join_group`` answers it."""

    group_id: str
    member_id: str = ""
    """Empty for a new member: the coordinator then creates an id."""
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
    """KIP-394: a new member first gets the error MEMBER_ID_REQUIRED with an id, and joins again
    with this id. Set it for clients that may lose an answer."""

    def to_core(self, config: CoordinatorConfig) -> JoinGroup:
        """Return the core's request. Its defaults are filled in, and it has an id for a new
        member.
        """
        session_timeout_ms = self.session_timeout_ms or min(
            max(config.default_session_timeout_ms, config.min_session_timeout_ms),
            config.max_session_timeout_ms,
        )
        # A client id or an instance id, and a UUID (docs/spec/groups.md#model).
        owner = self.group_instance_id or self.client_id or "member"
        return JoinGroup(
            group_id=self.group_id,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=self.protocol_type,
            protocols=tuple(JoinProtocol(each.name, each.metadata) for each in self.protocols),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms or config.default_rebalance_timeout_ms,
            new_member_id=f"{owner}-{uuid.uuid4()}",
            requires_known_member_id=self.requires_known_member_id,
            supports_skip_assignment=False,
            client=Client(self.client_id, self.client_host),
        )


@dataclass(frozen=True, slots=True)
class JoinGroupMember:
    """A member in the answer to the leader."""

    member_id: str
    metadata: bytes
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupResponse:
    """The generation that the member has joined, or an error."""

    error_code: ErrorCode
    generation_id: Int32
    protocol_name: str
    member_id: str
    leader_id: str
    members: list[JoinGroupMember]
    """All members; empty for a member that is not the leader."""

    raise_for_error = raise_refusal

    @classmethod
    def of(cls, result: JoinGroupResult) -> JoinGroupResponse:
        members = [
            JoinGroupMember(m.member_id, m.metadata, m.group_instance_id) for m in result.members
        ]
        return cls(
            error_code=result.error,
            generation_id=result.generation_id,
            protocol_name=result.protocol_name or "",
            member_id=result.member_id,
            leader_id=result.leader,
            members=members,
        )

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
        """Return the assignment of one member, with these partitions encoded as a consumer's
        assignment.
        """
        by_topic: dict[str, list[int]] = {}
        for topic, partition in checked(partitions, list[TopicPartition], "partitions"):
            by_topic.setdefault(topic, []).append(partition)
        return cls(member_id, encode_assignment(ConsumerAssignment(0, by_topic)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupRequest:
    """Fetch a member's assignment. The leader's request has the assignments of all members."""

    group_id: str
    generation_id: Int32
    member_id: str
    assignments: Sequence[MemberAssignmentData] = ()
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""

    def to_core(self) -> SyncGroup:
        """Convert to the core's SyncGroup, without protocol type and name. The core then does not
        compare them with the group's.
        """
        return SyncGroup(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=None,
            protocol_name=None,
            assignments=tuple((each.member_id, each.assignment) for each in self.assignments),
            client=Client(self.client_id, self.client_host),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupResponse:
    """A member's assignment, or an error."""

    error_code: ErrorCode
    assignment: bytes

    raise_for_error = raise_refusal

    @classmethod
    def of(cls, result: SyncGroupResult) -> SyncGroupResponse:
        return cls(error_code=result.error, assignment=result.assignment)


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

    def to_core(self) -> Heartbeat:
        return Heartbeat(
            self.group_id,
            self.generation_id,
            self.member_id,
            self.group_instance_id,
            Client(self.client_id, self.client_host),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse:
    """NONE, or an error. After REBALANCE_IN_PROGRESS, for example, the member must join again."""

    error_code: ErrorCode

    raise_for_error = raise_refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupRequest:
    """Remove a member from its group."""

    group_id: str
    member_id: str
    group_instance_id: str | None = None
    """The instance id of a static member. With it, the member id may be empty."""
    reason: str | None = None
    client_id: str = ""
    client_host: str = ""

    def to_core(self) -> LeaveGroup:
        leaving = LeavingMember(self.member_id, self.group_instance_id, self.reason)
        client = Client(self.client_id, self.client_host)
        return LeaveGroup(self.group_id, (leaving,), client)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupResponse:
    """NONE, or the reason why the member was not removed."""

    error_code: ErrorCode

    raise_for_error = raise_refusal

    @classmethod
    def of(cls, result: LeaveGroupResult) -> LeaveGroupResponse:
        """Return the error of the request, or else the error of its only member."""
        error = result.error
        if error is ErrorCode.NONE and result.members:
            error = result.members[0].error
        return cls(error_code=error)


# --- Offsets ---


@dataclass(frozen=True, slots=True)
class OffsetCommitData:
    """The values that are committed for one partition: offset, metadata and leader epoch."""

    offset: Int64
    metadata: str = ""
    leader_epoch: Int32 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequest:
    """A commit by a member of a group, by a simple consumer or by an administrator."""

    group_id: str
    offsets: Mapping[str, Mapping[Int32, OffsetCommitData]]
    """Topic -> partition -> the offset."""
    generation_id: Int32 = -1
    """-1 with an empty member id for a simple consumer or an administrator. Such a commit is
    refused while the group has members."""
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""

    def to_core(self) -> OffsetCommit:
        topics: list[CommitTopic] = [
            (name, "", [(p, o.offset, o.leader_epoch, o.metadata) for p, o in rows.items()])
            for name, rows in self.offsets.items()
        ]
        return OffsetCommit(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            topics=topics,
            by_topic_id=False,
            retention_ms=-1,
            absent_group_error=ErrorCode.GROUP_ID_NOT_FOUND,
            client=Client(self.client_id, self.client_host),
        )


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    """The result of each partition; an offset with NONE is durable."""

    errors: dict[str, dict[int, ErrorCode]] = field(default_factory=dict)

    @property
    def error_code(self) -> ErrorCode:
        """The first error of any partition, else NONE."""
        codes = (code for rows in self.errors.values() for code in rows.values())
        return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)

    raise_for_error = raise_refusal

    @classmethod
    def of(cls, request: OffsetCommitRequest, result: OffsetCommitResult) -> OffsetCommitResponse:
        """Return the error of each partition. If the result has one error for the whole request,
        each partition gets this error.
        """
        if result.topics is not None:
            return cls({name: dict(rows) for name, _, rows in result.topics})
        errors = {name: dict.fromkeys(rows, result.error) for name, rows in request.offsets.items()}
        return cls(errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequest:
    """Read committed offsets of a group."""

    group_id: str
    topics: Mapping[str, Collection[Int32]] | None = None
    """The partitions by topic; None for all stored offsets."""

    def to_core(self) -> OffsetFetch:
        topics: list[FetchTopic] | None = None
        if self.topics is not None:
            topics = [(name, "", list(rows)) for name, rows in self.topics.items()]
        return OffsetFetch(self.group_id, topics, by_topic_id=False, require_stable=False)


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

    @classmethod
    def of(cls, result: OffsetFetchResult) -> OffsetFetchResponse:
        """Return the offsets of the result. Raises GroupError if the whole request was refused."""
        if result.error is not ErrorCode.NONE:
            raise GroupError(result.error)
        return cls(
            {
                name: {
                    partition: OffsetFetchData(offset, metadata, error, leader_epoch)
                    for partition, offset, leader_epoch, metadata, error in rows
                }
                for name, _, rows in result.topics
            }
        )


def offset_delete(group_id: str, partitions: Mapping[str, Iterable[int]]) -> OffsetDelete:
    """Return the core's OffsetDelete for a host's arguments. Raises TypeError or ValueError if an
    argument is invalid.
    """
    if isinstance(partitions, Mapping):  # the partitions of a topic may be a mapping too
        partitions = {
            t: [*rows] if isinstance(rows, Mapping) else rows for t, rows in partitions.items()
        }
    topics = tuple(checked(partitions, dict[str, list[Int32]], "partitions").items())
    return OffsetDelete(group_id, topics, NOBODY)
