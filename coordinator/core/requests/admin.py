"""Requests of administrators, and of programs that embed the coordinator: lists, descriptions and
deletions of groups.
"""

# A class attribute that overrides a declaration is never assigned again.
# mypy: disable-error-code="mutable-override"
from __future__ import annotations

from typing import ClassVar, NamedTuple

from groupkeeper.coordinator.core.declarations import (
    AnyRequest,
    AnyResult,
    GroupRead,
    GroupWrite,
    Result,
    ShardRoute,
)
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.waiting import Waiting


class ListedGroup(NamedTuple):
    """The fields of one group in the answer to ListGroups."""

    group_id: str
    protocol_type: str
    group_state: GroupState
    group_type: str


class ListGroupsResult(AnyResult, frozen=True):
    """The answer to a ListGroups for one shard or for all shards."""

    groups: tuple[ListedGroup, ...] = ()
    is_whole: bool = True  # False if a shard that this process lost was skipped
    left: tuple[str, ...] = ()  # ids that did not fit: ask again


class ListGroups(AnyRequest, frozen=True):
    """List the groups of one shard. Filters are lower case. An empty filter matches all groups
    (docs/spec/administration.md#list-groups).
    """

    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    among: tuple[str, ...] | None = None  # the ids to list; None: all

    group_id: ClassVar = None  # handled like an absent group
    result = ListGroupsResult
    route = ShardRoute.EVERY
    parks = False
    reads = True
    waits = True
    while_loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    when_full = ErrorCode.COORDINATOR_NOT_AVAILABLE


class DescribedMember(NamedTuple):
    """The fields of one member in the answer to DescribeGroups."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribeGroupResult(AnyResult, frozen=True):
    """The answer to a DescribeGroup. Handlers of old versions drop GROUP_ID_NOT_FOUND."""

    group_id: str = ""
    state: GroupState = GroupState.DEAD
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()
    message: str | None = None
    waiting: Waiting | None = None

    def replaced(self, code: ErrorCode, loads_again: bool) -> DescribeGroupResult:
        """Return a refusal that keeps the group id."""
        return DescribeGroupResult(code, self.group_id)


class DescribeGroup(GroupRead, frozen=True):
    """Describe one classic group (docs/spec/administration.md#describe-groups). ``with_waiting``
    adds the members that the group waits for, and the topics of all its members.
    """

    with_waiting: bool = False

    result = DescribeGroupResult

    def refused(self, code: ErrorCode) -> Result:
        return DescribeGroupResult(code, self.group_id)


class MemberView(NamedTuple):
    """The fields of one member that a host can read. DescribeGroups has fewer."""

    member_id: str
    group_instance_id: str | None
    client: Client
    metadata: bytes
    """The metadata for the group's chosen protocol. Empty before a protocol is chosen."""
    assignment: bytes
    session_timeout_ms: int
    rebalance_timeout_ms: int
    is_joining: bool
    """True if the JoinGroup of the member is parked, or its heartbeat in a consumer group."""
    is_syncing: bool
    """True if the generation is complete, but the member has not sent its SyncGroup. In a consumer
    group: True if the member has not reached its target assignment.
    """
    last_heard_ms: int | None
    """When the current session started (wall-clock ms). None if the member has no session."""
    join_time_ms: int | None
    """When the member id was created (wall-clock ms). None after a load, because the time is not
    stored. Always None in a consumer group.
    """


class GroupView(NamedTuple):
    """The fields of one group that a host can read. DescribeGroups has fewer."""

    group_id: str
    state: GroupState
    protocol_type: str | None
    protocol_name: str | None
    leader_id: str | None
    generation_id: int
    state_timestamp_ms: int
    members: tuple[MemberView, ...]


class ReadGroupResult(AnyResult, frozen=True):
    """The answer to a ReadGroup. ``group`` is None if there is an error."""

    group: GroupView | None = None


class ReadGroup(GroupRead, frozen=True):
    """Read the whole state of one group, for a host that embeds us."""

    result = ReadGroupResult


class PartlyDeleted(AnyResult, frozen=True):
    """The answer to a DeleteGroup of a large group, after a portion of its offsets was deleted.

    With COORDINATOR_LOAD_IN_PROGRESS the same request must be sent again, to delete the next
    portion.
    """


class DeleteGroup(GroupWrite, frozen=True):
    """Delete an Empty group and its offsets (docs/spec/administration.md#delete-groups). The answer
    is a bare ErrorCode, or PartlyDeleted.
    """

    client: Client

    result = ErrorCode
