"""Events: facts for the log. They are never read back into state.

What is common to all (``log_id, seq, ts_ms, shard, lease_epoch``) is added by the writer that
appends them; here stands what the core knows. A commit is not among them:
``records.OffsetsCommitted`` is record and event in one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypedDict

import msgspec

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.requests import Client

MAX_REASON_LENGTH = 255
"""What an event quotes of a client's reason; clients cut theirs to the same (KIP-800)."""


def quoted_reason(reason: str | None) -> str | None:
    """A client's reason, as an event may hold it."""
    return None if reason is None else reason[:MAX_REASON_LENGTH]


class ClientFields(TypedDict):
    """What an event says of who asked."""

    client_id: str
    client_host: str
    principal: str


def of_client(client: Client) -> ClientFields:
    """Tell who asked, for an event."""
    return {
        "client_id": client.client_id,
        "client_host": client.client_host,
        "principal": client.principal,
    }


class _Event(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True, omit_defaults=True):
    group: str = ""
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    principal: str = ""
    api: str = ""


class CommitRejected(_Event, frozen=True, kw_only=True, tag="commit_rejected"):
    """A commit was refused as a whole; repeats of a member are merged by the event writer."""

    error: str
    count: int = 1


class MemberFenced(_Event, frozen=True, kw_only=True, tag="member_fenced"):
    """A member was refused: another took its place, or its generation is over."""

    error: str
    count: int = 1


class MemberJoin(_Event, frozen=True, kw_only=True, tag="member_join"):
    """A member was added, or (``replaces``) a static member came back under a new id."""

    group_type: str = "classic"
    protocols: list[str] = msgspec.field(default_factory=list)
    session_timeout_ms: int = -1
    rebalance_timeout_ms: int = -1
    replaces: str | None = None
    reason: str | None = None


class MemberLeave(_Event, frozen=True, kw_only=True, tag="member_leave"):
    """A member left, or an administrator removed it."""

    reason: str | None = None


class MemberEvicted(_Event, frozen=True, kw_only=True, tag="member_evicted"):
    """The coordinator removed a member: ``session_timeout``, ``join_timeout``, ``sync_timeout``,
    ``new_member_timeout`` or ``group_max_size``.
    """

    reason: str


class RebalanceStart(_Event, frozen=True, kw_only=True, tag="rebalance_start"):
    """A join phase began; ``member_id`` is the member that caused it."""

    reason: str
    members: int = 0


class RebalanceEnd(_Event, frozen=True, kw_only=True, tag="rebalance_end"):
    """A join phase was completed; ``duration_ms`` counts from its start."""

    duration_ms: int
    members: int = 0
    awaited: list[str] = msgspec.field(default_factory=list)
    """Members that did not come back in time."""
    protocol_name: str | None = None
    leader_id: str | None = None


class Assignment(_Event, frozen=True, kw_only=True, tag="assignment"):
    """The leader's assignment was stored: per member, what it holds."""

    protocol_type: str
    protocol_name: str | None = None
    partitions: dict[str, dict[str, list[int]]] | None = None
    """member id -> topic -> partitions; None when the bytes are not of the consumer protocol."""
    opaque_bytes: dict[str, int] | None = None
    """member id -> size of its assignment, where it is not of the consumer protocol."""


class GroupCreated(_Event, frozen=True, kw_only=True, tag="group_created"):
    """A group came to be."""

    group_type: str = "classic"


class GroupDeleted(_Event, frozen=True, kw_only=True, tag="group_deleted"):
    """A group went: ``expired`` or ``deleted`` by an administrator."""

    reason: str
    offsets: int = 0


class LostPartition(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The last value of a committed offset that went, so that it can be restored."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_time_ms: int


class LostTopic(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The offsets of one topic that went."""

    topic: str
    topic_id: str
    partitions: list[LostPartition]


class OffsetExpired(_Event, frozen=True, kw_only=True, tag="offset_expired"):
    """Retention dropped committed offsets of a group; the values are their last."""

    topics: list[LostTopic]


class OffsetDeleted(_Event, frozen=True, kw_only=True, tag="offset_deleted"):
    """Committed offsets of a group were deleted; the values are their last."""

    topics: list[LostTopic]
    reason: str
    """``topic_deleted``, ``deleted`` by an administrator, or ``group_deleted``."""


class EndPartition(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The end of one partition."""

    partition: int
    offset: int


class EndTopic(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Ends of one topic."""

    topic: str
    topic_id: str
    partitions: list[EndPartition]


class EndOffset(_Event, frozen=True, kw_only=True, tag="end_offset"):
    """A sample of partitions' ends, of several topics: those that changed since the last one."""

    topics: list[EndTopic]


class ShardLoaded(_Event, frozen=True, kw_only=True, tag="shard_loaded"):
    """A shard was read from storage and answers again."""

    groups: int
    offsets: int
    duration_ms: int


class AdminAction(_Event, frozen=True, kw_only=True, tag="admin_action"):
    """An administrator changed something that is not an offset."""

    action: str
    target: str = ""
    detail: str = ""


class LogStarted(_Event, frozen=True, kw_only=True, tag="log_started"):
    """The first event of a log; the storage writes it, and no shard does."""

    previous_log_id: str | None
    """None where the store does not know it any more."""
    previous_seq: int
    reason: str


Event: TypeAlias = (
    CommitRejected
    | MemberFenced
    | MemberJoin
    | MemberLeave
    | MemberEvicted
    | RebalanceStart
    | RebalanceEnd
    | Assignment
    | GroupCreated
    | GroupDeleted
    | OffsetExpired
    | OffsetDeleted
    | EndOffset
    | ShardLoaded
    | AdminAction
    | LogStarted
)


def text_length(event: Event) -> int:
    """The characters that an event has from its client: names, which may be 32,767 bytes long."""
    length = len(event.group) + len(event.member_id) + len(event.instance_id or "")
    if type(event) is MemberJoin:
        length += sum([len(protocol) for protocol in event.protocols])
    return length + len(event.client_id)
