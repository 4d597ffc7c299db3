"""Events: facts for the log. The coordinator never loads its state from them.

The writer that appends an event adds the fields common to all (``log_id, seq, ts_ms, shard,
lease_epoch``). The classes here have the fields that the core knows. Commits are not here:
``records.OffsetsCommitted`` is both record and event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, TypedDict

import msgspec

from groupkeeper.coordinator.core.group_type import GroupType

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.requests.client import Client

MAX_REASON_LENGTH = 255
"""The largest number of characters of a text from a client that an event has, such as a reason.
Clients cut their reasons to the same length (KIP-800).
"""


def quoted(text: str) -> str:
    """Return the first ``MAX_REASON_LENGTH`` characters of a text."""
    return text[:MAX_REASON_LENGTH]


class ClientFields(TypedDict):
    """The fields of an event that name its client."""

    client_id: str
    client_host: str
    principal: str


def of_client(client: Client) -> ClientFields:
    """Return the fields of an event that name the client."""
    return {
        "client_id": client.client_id,
        "client_host": client.client_host,
        "principal": client.principal,
    }


class MemberFields(ClientFields):
    """The fields of an event that name a member."""

    group_id: str
    group_type: GroupType
    generation_id: int
    member_id: str
    group_instance_id: str | None


_STORED: Final = {
    "group_id": "group",
    "generation_id": "generation",
    "group_instance_id": "instance_id",
}
"""Field -> its name in the log. Names in the log never change."""


class _Event(
    msgspec.Struct,
    frozen=True,
    tag_field="kind",
    kw_only=True,
    omit_defaults=True,
    rename=_STORED,
):
    group_id: str = ""
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    principal: str = ""
    api: str = ""
    group_type: GroupType = GroupType.CLASSIC
    """Not stored for a classic group, because it is the default."""


class CommitRejected(_Event, frozen=True, kw_only=True, tag="commit_rejected"):
    """A commit was refused as a whole. The event writer merges repeats of one member."""

    error: str
    count: int = 1


class MemberFenced(_Event, frozen=True, kw_only=True, tag="member_fenced"):
    """A request of a member was refused: the member is unknown or was replaced, its generation or
    epoch is over, or there is no room for it (``error``).
    """

    error: str
    count: int = 1


class MemberJoin(_Event, frozen=True, kw_only=True, tag="member_join"):
    """A member was added, or a static member returned under a new id that replaces ``replaces``."""

    protocols: list[str] = msgspec.field(default_factory=list)
    session_timeout_ms: int = -1
    rebalance_timeout_ms: int = -1
    replaces: str | None = None
    reason: str | None = None


class MemberLeave(_Event, frozen=True, kw_only=True, tag="member_leave"):
    """A member left, or an administrator removed it."""

    reason: str | None = None


class MemberEvicted(_Event, frozen=True, kw_only=True, tag="member_evicted"):
    """The coordinator removed a member. ``reason`` is ``session_timeout``, ``join_timeout``,
    ``sync_timeout``, ``rebalance_timeout``, ``new_member_timeout`` or ``group_max_size``.
    """

    reason: str


class RebalanceStart(_Event, frozen=True, kw_only=True, tag="rebalance_start"):
    """A join phase of a classic group began, or a new epoch of a consumer group. ``member_id`` is
    the member that caused it; "" if none did.
    """

    reason: str
    members: int = 0


class RebalanceEnd(_Event, frozen=True, kw_only=True, tag="rebalance_end"):
    """A join phase of a classic group ended, or all members of a consumer group reached their
    target assignment. ``duration_ms`` counts from the start of the rebalance.
    """

    duration_ms: int
    members: int = 0
    awaited: list[str] = msgspec.field(default_factory=list)
    """Members that did not rejoin in time."""
    protocol_name: str | None = None
    leader_id: str | None = None


class Assignment(_Event, frozen=True, kw_only=True, tag="assignment"):
    """The leader's assignment was stored: the partitions of each member."""

    protocol_type: str
    protocol_name: str | None = None
    partitions: dict[str, dict[str, list[int]]] | None = None
    """member id -> topic -> partitions; None if ``opaque_bytes`` is set."""
    opaque_bytes: dict[str, int] | None = None
    """member id -> size of its assignment. Set if the assignments cannot be decoded, or are too
    large to be decoded in one step."""


class TargetAssignment(_Event, frozen=True, kw_only=True, tag="target_assignment"):
    """A consumer group got a new target assignment. Its members move to this target one by one."""

    assignor: str
    members: int
    changed_members: int
    """The number of members whose target changed."""
    targets: dict[str, dict[str, list[int]]] | None = None
    """member id -> topic -> partitions, only for members whose target changed. None if the targets
    are too large to be listed in one step.
    """


class AssignmentFailed(_Event, frozen=True, kw_only=True, tag="assignment_failed"):
    """A target assignment could not be computed or stored. The group keeps the old one."""

    assignor: str
    reason: str
    """The value of a ``WorkFailure``."""
    detail: str = ""
    """The reason in words."""
    members: int = 0
    count: int = 1


class PatternRefused(_Event, frozen=True, kw_only=True, tag="pattern_refused"):
    """A pattern of a consumer group cannot be used. If ``member_id`` is set, this member was
    refused. Otherwise the group keeps the topics that it had for the pattern.
    """

    pattern: str
    detail: str
    """The reason in words."""
    count: int = 1


class PartitionsMoved(_Event, frozen=True, kw_only=True, tag="partitions_moved"):
    """A member of a consumer group got or lost partitions."""

    reason: str
    """``target_assignment``, ``static_member_rejoin``, or the reason for which the member left."""
    gained_partitions: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """Topic -> the numbers of the partitions that the member got."""
    lost_partitions: dict[str, list[int]] = msgspec.field(default_factory=dict)


class GroupConverted(_Event, frozen=True, kw_only=True, tag="group_converted"):
    """A group changed its type. Its offsets stay. ``group_type`` is the new type."""

    from_type: str
    to_type: str
    members: int = 0


class GroupCreated(_Event, frozen=True, kw_only=True, tag="group_created"):
    """A group was created: its first member joins, or its first offset is committed."""


class GroupDeleted(_Event, frozen=True, kw_only=True, tag="group_deleted"):
    """A group was deleted. ``reason`` is ``expired`` if retention did it, and ``deleted`` if a
    request did.
    """

    reason: str
    offsets: int = 0


class LostPartition(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The last value of a deleted offset, so that it can be restored."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_time_ms: int


class LostTopic(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The deleted offsets of one topic."""

    topic: str
    topic_id: str
    partitions: list[LostPartition]


class OffsetExpired(_Event, frozen=True, kw_only=True, tag="offset_expired"):
    """Retention deleted committed offsets of a group. ``topics`` has their last values."""

    topics: list[LostTopic]


class OffsetDeleted(_Event, frozen=True, kw_only=True, tag="offset_deleted"):
    """Committed offsets of a group were deleted. ``topics`` has their last values."""

    topics: list[LostTopic]
    reason: str
    """``topic_deleted``, ``deleted`` by an administrator, or ``group_deleted``."""


class EndPartition(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One partition of an ``EndOffset``. ``offset`` is the end of the partition."""

    partition: int
    offset: int


class EndTopic(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One topic of an ``EndOffset``, with those partitions whose ends changed."""

    topic: str
    topic_id: str
    partitions: list[EndPartition]


class EndOffset(_Event, frozen=True, kw_only=True, tag="end_offset"):
    """A sample of the ends of partitions. It has the ends that changed since the last sample. The
    first sample after a load has all ends above 0.
    """

    topics: list[EndTopic]


class ShardLoaded(_Event, frozen=True, kw_only=True, tag="shard_loaded"):
    """A shard was loaded from storage and answers again."""

    groups: int
    offsets: int
    duration_ms: int


class AdminAction(_Event, frozen=True, kw_only=True, tag="admin_action"):
    """An administrator changed topics or the configs of a group, or the gateway adopted a group."""

    action: str
    target: str = ""
    detail: str = ""


class LogStarted(_Event, frozen=True, kw_only=True, tag="log_started"):
    """The first event of a log. The storage writes it, not a shard."""

    previous_log_id: str | None
    """The log before this one. None if the store does not know it."""
    previous_seq: int
    reason: str
    store: str = ""
    """The name of the store; "" in logs of old versions, which did not name their stores."""


Event: TypeAlias = (
    CommitRejected
    | MemberFenced
    | MemberJoin
    | MemberLeave
    | MemberEvicted
    | RebalanceStart
    | RebalanceEnd
    | Assignment
    | TargetAssignment
    | AssignmentFailed
    | PatternRefused
    | PartitionsMoved
    | GroupConverted
    | GroupCreated
    | GroupDeleted
    | OffsetExpired
    | OffsetDeleted
    | EndOffset
    | ShardLoaded
    | AdminAction
    | LogStarted
)
