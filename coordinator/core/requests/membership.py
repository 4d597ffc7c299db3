"""Requests of members: they join, synchronize, send heartbeats and leave."""

# A class attribute that overrides a declaration is never assigned again.
# mypy: disable-error-code="mutable-override"
from __future__ import annotations

from typing import NamedTuple

from groupkeeper.coordinator.core.declarations import AnyResult, GroupRead, GroupWrite
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.wire_values import Int32


class JoinProtocol(NamedTuple):
    """One protocol that a member offers."""

    name: str
    metadata: bytes


class JoinedMember(NamedTuple):
    """A member in the answer to the leader's join."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupResult(AnyResult, frozen=True):
    """The answer to a JoinGroup. With an error: generation -1, no leader, no members."""

    member_id: str = ""
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class JoinGroup(GroupWrite, frozen=True):
    """Enter a group or its next generation (docs/spec/joining.md#join-group)."""

    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: tuple[JoinProtocol, ...]
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32
    new_member_id: str
    """The id for a member that this join creates. The caller generates it. It is used only if
    ``member_id`` is empty.
    """
    requires_known_member_id: bool
    """True if a dynamic member without an id first gets one, with MEMBER_ID_REQUIRED (KIP-394,
    JoinGroup v4+).
    """
    supports_skip_assignment: bool
    """True if the answer to a static leader that returns may name it as leader (KIP-814, JoinGroup
    v9+).
    """
    client: Client
    reason: str | None = None

    result = JoinGroupResult
    parks = True


class SyncGroupResult(AnyResult, frozen=True):
    """The answer to a SyncGroup: the member's assignment, or only an error."""

    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


class SyncGroup(GroupWrite, frozen=True):
    """Fetch a member's assignment. The leader sends the assignments of all members
    (docs/spec/membership.md#sync-group).
    """

    generation_id: Int32
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    """None if the client sent none. It is then not compared (SyncGroup v0-4)."""
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]
    client: Client

    result = SyncGroupResult
    parks = True
    while_loading = ErrorCode.REBALANCE_IN_PROGRESS  # the Java client fails on code 14 in a sync


class Heartbeat(GroupRead, frozen=True, gc=False):
    """Report that a member is alive (docs/spec/membership.md#heartbeat). The answer is a bare
    ErrorCode.
    """

    generation_id: Int32
    member_id: str
    group_instance_id: str | None
    client: Client

    result = ErrorCode
    waits = False
    while_loading = ErrorCode.NONE  # so that members stay while the coordinator starts
    when_full = None  # it writes nothing, and a refusal could expire the session


class LeavingMember(NamedTuple):
    """One member of a LeaveGroup: by id, or only by instance id (administrative removal)."""

    member_id: str
    group_instance_id: str | None
    reason: str | None = None


class LeftMember(NamedTuple):
    """The result for one member of a LeaveGroup. The ids are those of the request."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


class LeaveGroupResult(AnyResult, frozen=True):
    """The answer to a LeaveGroup: an error of the whole request, or one error per member."""

    members: tuple[LeftMember, ...] = ()


class LeaveGroup(GroupWrite, frozen=True):
    """Remove members from a group (docs/spec/membership.md#leave-group)."""

    members: tuple[LeavingMember, ...]
    client: Client

    result = LeaveGroupResult


class EndSession(GroupWrite, frozen=True):
    """Evict a member now, as if its session had expired. No API of the wire uses it: it is for
    tests of clients. The answer is a bare ErrorCode.
    """

    member_id: str

    result = ErrorCode
