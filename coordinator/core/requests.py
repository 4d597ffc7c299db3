"""Requests to a shard and their results: one type an API, whatever version the client spoke.

Handlers build requests and render results; the core has never heard of a version number. Where a
version changes behaviour, the request carries the behaviour ("requires_known_member_id"), not the
version. What each declares of itself stands below its fields (``declarations``).

Long because it is a list: every request and its result.
"""

# What a class declares is never assigned again.
# mypy: disable-error-code="mutable-override"
from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Final, NamedTuple, Self, TypeAlias, get_args

from groupkeeper.coordinator.core.declarations import (
    AnyRequest,
    AnyResult,
    GroupRequest,
    Result,
    ShardRoute,
)
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.waiting import Waiting
from groupkeeper.coordinator.core.wire_numbers import Int32, Int64


class GroupState(StrEnum):
    """State of a classic group, spelled as on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Now(NamedTuple):
    """The two clocks of docs/design.md#clocks: for deadlines, and for commit times and
    retention.
    """

    monotonic_ms: int
    wall_ms: int


class Client(NamedTuple):
    """Who sent a request."""

    client_id: str
    client_host: str
    """The peer's address as Kafka prints it, with a leading slash: ``/127.0.0.1``."""
    principal: str = "User:ANONYMOUS"


# --- Membership ---


class JoinProtocol(NamedTuple):
    """One protocol that a member offers."""

    name: str
    metadata: bytes


class JoinedMember(NamedTuple):
    """A member as the leader is shown it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupResult(AnyResult, frozen=True):
    """Answer to a JoinGroup; with an error, generation -1, no leader, no members."""

    member_id: str = ""
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class JoinGroup(GroupRequest, frozen=True):
    """Enter a group, or its next generation (docs/spec/joining.md#join-group)."""

    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: tuple[JoinProtocol, ...]
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32
    new_member_id: str
    """The id to give if this join makes a member: minted by the caller."""
    requires_known_member_id: bool
    """KIP-394: an unknown dynamic member is first handed an id (JoinGroup v4+)."""
    supports_skip_assignment: bool
    """KIP-814: a returning static leader is told that it leads (JoinGroup v9+)."""
    client: Client
    reason: str | None = None

    result = JoinGroupResult
    parks = True
    reads = False
    waits = True
    while_loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    when_full = ErrorCode.COORDINATOR_NOT_AVAILABLE


class SyncGroupResult(AnyResult, frozen=True):
    """Answer to a SyncGroup."""

    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


class SyncGroup(GroupRequest, frozen=True):
    """Fetch a member's assignment; the leader brings everyone's
    (docs/spec/membership.md#sync-group).
    """

    generation_id: Int32
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    """None: not sent, not compared (SyncGroup v0-4)."""
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]
    client: Client

    result = SyncGroupResult
    parks = True
    reads = False
    waits = True
    while_loading = ErrorCode.REBALANCE_IN_PROGRESS  # 14 is fatal to the Java client there
    when_full = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Heartbeat(GroupRequest, frozen=True, gc=False):
    """Say that a member is alive (docs/spec/membership.md#heartbeat). Answered with a bare
    ErrorCode.
    """

    generation_id: Int32
    member_id: str
    group_instance_id: str | None
    client: Client

    result = ErrorCode
    parks = False
    reads = True
    waits = False
    while_loading = ErrorCode.NONE  # members survive a coordinator that starts
    when_full = None  # it writes nothing, and refusing it would let a session run out


class LeavingMember(NamedTuple):
    """One member of a LeaveGroup: by id, or (administrative removal) by instance id alone."""

    member_id: str
    group_instance_id: str | None
    reason: str | None = None


class LeftMember(NamedTuple):
    """What became of one member of a LeaveGroup; ids as the request had them."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


class LeaveGroupResult(AnyResult, frozen=True):
    """Answer to a LeaveGroup: a request-wide error, or one error a member."""

    members: tuple[LeftMember, ...] = ()


class LeaveGroup(GroupRequest, frozen=True):
    """Take members out of a group (docs/spec/membership.md#leave-group)."""

    members: tuple[LeavingMember, ...]
    client: Client

    result = LeaveGroupResult
    parks = False
    reads = False
    waits = True
    while_loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    when_full = ErrorCode.COORDINATOR_NOT_AVAILABLE


# --- Offsets ---

CommitPartition: TypeAlias = tuple[Int32, Int64, Int32, str | None]
"""(partition, offset, leader epoch or -1, metadata)."""

CommitTopic: TypeAlias = tuple[str, str, list[CommitPartition]]
"""(name, topic id, partitions): the name is "" where the client named the topic by id, and vice
versa.
"""

CommittedTopicResult: TypeAlias = tuple[str, str, list[tuple[int, ErrorCode]]]
"""(name, topic id, [(partition, error)]), name and id as in the request."""


class OffsetCommitResult(AnyResult, frozen=True, gc=False):
    """Answer to an OffsetCommit; its error is that of every partition where ``topics`` is None."""

    topics: list[CommittedTopicResult] | None = None


class OffsetCommit(GroupRequest, frozen=True):
    """Store offsets of a group (docs/spec/offsets.md#commit)."""

    generation_id: Int32
    """The generation or member epoch; -1 for simple consumers and administrators."""
    member_id: str
    group_instance_id: str | None
    topics: list[CommitTopic]
    by_topic_id: bool
    """Topics are named by id (OffsetCommit v10)."""
    retention_ms: Int64
    """-1, or how long these offsets are to be kept (OffsetCommit v2-4)."""
    absent_group_error: ErrorCode
    """For a generation >= 0 at a group that is not there: GROUP_ID_NOT_FOUND, or
    ILLEGAL_GENERATION (v0-8).
    """
    client: Client

    result = OffsetCommitResult
    parks = False
    reads = False
    waits = True
    while_loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    when_full = ErrorCode.COORDINATOR_NOT_AVAILABLE


FetchTopic: TypeAlias = tuple[str, str, list[Int32]]
"""(name, topic id, partitions), one of name and id being ""."""

FetchedPartition: TypeAlias = tuple[int, int, int, str, ErrorCode]
"""(partition, offset, leader epoch, metadata, error); nothing stored: offset -1, epoch -1,
metadata "".
"""

FetchedTopic: TypeAlias = tuple[str, str, Collection[FetchedPartition]]
"""(name, topic id, partitions); both are set where the topic is known, else as in the request."""


class OffsetFetchResult(AnyResult, frozen=True, gc=False):
    """Answer to an OffsetFetch: a group-wide error, or the topics."""

    topics: Collection[FetchedTopic] = ()


class OffsetFetch(GroupRequest, frozen=True):
    """Read the committed offsets of one group (docs/spec/offsets.md#fetch)."""

    topics: list[FetchTopic] | None
    """None: everything that is stored."""
    by_topic_id: bool
    """Topics are named by id, in request and reply (OffsetFetch v10)."""
    require_stable: bool
    member_id: str | None = None
    member_epoch: Int32 = -1

    result = OffsetFetchResult
    parks = False
    reads = True
    waits = True
    while_loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    when_full = ErrorCode.NOT_COORDINATOR  # older consumers retry nothing else

    def loading_answer(self) -> Result:
        """Older consumers that require stable offsets do not retry 14."""
        code = ErrorCode.NOT_COORDINATOR if self.require_stable else self.while_loading
        return self.refused(code)


class OffsetDeleteResult(AnyResult, frozen=True):
    """Answer to an OffsetDelete: a group-wide error, or one error a partition."""

    topics: tuple[tuple[str, list[tuple[int, ErrorCode]]], ...] = ()


class OffsetDelete(GroupRequest, frozen=True):
    """Delete offsets of topics that the group does not subscribe to
    (docs/spec/offsets.md#delete).
    """

    topics: tuple[tuple[str, list[Int32]], ...]
    """(name, partitions)."""
    client: Client

    result = OffsetDeleteResult
    parks = False
    reads = False
    waits = True
    while_loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    when_full = ErrorCode.COORDINATOR_NOT_AVAILABLE


# --- Administration ---


class ListedGroup(NamedTuple):
    """A group in a listing."""

    group_id: str
    protocol_type: str
    group_state: GroupState
    group_type: str


class ListGroupsResult(AnyResult, frozen=True):
    """Answer to a ListGroups for one shard, or for all."""

    groups: tuple[ListedGroup, ...] = ()
    is_whole: bool = True  # False: a shard that is no longer ours was skipped
    left: tuple[str, ...] = ()  # groups to be asked for next: one answer lists so many


class ListGroups(AnyRequest, frozen=True):
    """List the groups of one shard. Filters are lower case; empty: no filter
    (docs/spec/administration.md#list-groups).
    """

    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    among: tuple[str, ...] | None = None  # None: all

    result = ListGroupsResult
    route = ShardRoute.EVERY
    parks = False
    reads = True
    waits = True
    while_loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    when_full = ErrorCode.COORDINATOR_NOT_AVAILABLE


class DescribedMember(NamedTuple):
    """A member in a description."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribeGroupResult(AnyResult, frozen=True):
    """Answer to a DescribeGroup; handlers of old versions drop GROUP_ID_NOT_FOUND."""

    group_id: str = ""
    state: GroupState = GroupState.DEAD
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()
    message: str | None = None
    waiting: Waiting | None = None

    def replaced(self, code: ErrorCode) -> DescribeGroupResult:
        """Keep whose description it would have been."""
        return DescribeGroupResult(code, self.group_id)


class DescribeGroup(GroupRequest, frozen=True):
    """Describe one classic group (docs/spec/administration.md#describe-groups), with what it waits
    for on demand.
    """

    with_waiting: bool = False

    result = DescribeGroupResult
    parks = False
    reads = True
    waits = True
    while_loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    when_full = ErrorCode.COORDINATOR_NOT_AVAILABLE

    def refused(self, code: ErrorCode) -> Result:
        """Say whose description it would have been."""
        return DescribeGroupResult(code, self.group_id)


class MemberView(NamedTuple):
    """A member as the coordinator sees it."""

    member_id: str
    group_instance_id: str | None
    client: Client
    metadata: bytes
    """For the protocol that the group has chosen; empty before it has."""
    assignment: bytes
    session_timeout_ms: int
    rebalance_timeout_ms: int
    is_joining: bool
    """Its JoinGroup is parked."""
    is_syncing: bool
    """The generation is complete and its SyncGroup has not come."""
    last_heard_ms: int | None
    """Wall clock; None where no session runs."""
    join_time_ms: int | None
    """Wall clock; None for a member that was loaded: when it came is not stored."""


class GroupView(NamedTuple):
    """A group as the coordinator sees it."""

    group_id: str
    state: GroupState
    protocol_type: str | None
    protocol_name: str | None
    leader_id: str | None
    generation_id: int
    state_timestamp_ms: int
    members: tuple[MemberView, ...]


class ReadGroupResult(AnyResult, frozen=True):
    """Answer to a ReadGroup."""

    group: GroupView | None = None


class ReadGroup(GroupRequest, frozen=True):
    """Read everything that is known of one group: what a host that embeds us is shown."""

    result = ReadGroupResult
    parks = False
    reads = True
    waits = True
    while_loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    when_full = ErrorCode.COORDINATOR_NOT_AVAILABLE


class EndSession(GroupRequest, frozen=True):
    """Evict a member now, as if its session were over. No API of the wire leads here: for tests of
    clients. Answered with a bare ErrorCode."""

    member_id: str

    result = ErrorCode
    parks = False
    reads = False
    waits = True
    while_loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    when_full = ErrorCode.COORDINATOR_NOT_AVAILABLE


class DeleteGroup(GroupRequest, frozen=True):
    """Delete an Empty group and its offsets (docs/spec/administration.md#delete-groups). Answered
    with a bare ErrorCode.
    """

    client: Client

    result = ErrorCode
    parks = False
    reads = False
    waits = True
    while_loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    when_full = ErrorCode.COORDINATOR_NOT_AVAILABLE


# --- The cluster shard ---


class ClusterResult(AnyResult, frozen=True):
    """Topics and configs have a controller where groups have a coordinator."""

    def replaced(self, code: ErrorCode) -> Self:
        """Send the client to the controller instead."""
        return super().replaced(_of_controller(code))


class ClusterRequest(AnyRequest, frozen=True):
    """A request to the cluster shard."""

    client: Client
    route = ShardRoute.CLUSTER

    def refused(self, code: ErrorCode) -> Result:
        """Send the client to the controller instead."""
        return super().refused(_of_controller(code))


def _of_controller(code: ErrorCode) -> ErrorCode:
    return ErrorCode.NOT_CONTROLLER if code is ErrorCode.NOT_COORDINATOR else code


class NewTopic(NamedTuple):
    """A topic to create; ``topic_id`` is minted by the caller, for the core has no randomness."""

    name: str
    partitions: Int32
    topic_id: str
    refusal: tuple[ErrorCode, str] | None = None  # beside its name, which is judged first


class TopicChange(NamedTuple):
    """What became of one topic of a ChangeTopics; one that an id named in vain has no name."""

    name: str | None
    topic_id: str
    partitions: int
    error: ErrorCode
    message: str | None


class ChangeTopicsResult(ClusterResult, frozen=True):
    """Answer to a ChangeTopics: ``error`` for the whole (NOT_CONTROLLER while loading), else per
    topic.
    """

    created: tuple[TopicChange, ...] = ()
    grown: tuple[TopicChange, ...] = ()
    deleted: tuple[TopicChange, ...] = ()


class ChangeTopics(ClusterRequest, frozen=True):
    """Create, grow and delete topics, each checked on its own; answered in the same order.

    ``validate_only`` answers what would be answered and changes nothing.
    """

    create: tuple[NewTopic, ...] = ()
    grow: tuple[tuple[str, Int32], ...] = ()
    """(name, new number of partitions)."""
    delete: tuple[tuple[str | None, str], ...] = ()
    """(name, ""), or (None, topic id)."""
    validate_only: bool = False

    result = ChangeTopicsResult
    parks = False
    reads = False
    waits = True
    while_loading = ErrorCode.NOT_CONTROLLER
    when_full = ErrorCode.NOT_CONTROLLER


class GroupConfigChange(NamedTuple):
    """What to change in the configs of one group."""

    group_id: str
    changes: tuple[tuple[str, str | None], ...]
    """(key, new value, or None to go back to what holds for all), each key once."""


class GroupConfigResult(NamedTuple):
    """What became of one group of an AlterGroupConfigs."""

    group_id: str
    error: ErrorCode
    message: str | None


class AlterGroupConfigsResult(ClusterResult, frozen=True):
    """Answer to an AlterGroupConfigs: an error for the whole (as of ChangeTopics), or per group."""

    groups: tuple[GroupConfigResult, ...] = ()


class AlterGroupConfigs(ClusterRequest, frozen=True):
    """Change configs of groups (docs/spec/administration.md#group-configs), each group judged on
    its own; answered in the same order.

    No group comes twice. ``validate_only`` answers what would be answered and changes nothing.
    """

    groups: tuple[GroupConfigChange, ...]
    validate_only: bool = False

    result = AlterGroupConfigsResult
    parks = False
    reads = False
    waits = True
    while_loading = ErrorCode.NOT_CONTROLLER
    when_full = ErrorCode.NOT_CONTROLLER


Request: TypeAlias = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | ListGroups
    | DescribeGroup
    | ReadGroup
    | EndSession
    | DeleteGroup
    | OffsetDelete
    | ChangeTopics
    | AlterGroupConfigs
)

PARKED_RESULTS: Final = frozenset(kind.result for kind in get_args(Request) if kind.parks)
"""What ends the wait of a request that may have been parked."""
