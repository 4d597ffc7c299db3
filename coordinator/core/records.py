"""Records: the hard state of a shard, durable and keyed; the last write to a key wins.

SQL rows, znodes, Consul keys and a compacted topic can all store them. Only ``apply`` of a shard
turns them into state, for requests and for loads. Each class names the keys that it sets or clears.
Times are wall-clock milliseconds since the epoch. A topic id is in Kafka's printed form (22
characters of URL-safe base64); "" means none.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from groupkeeper.coordinator.core.consumer_records import ConsumerChange, ConsumerGroupRecord
from groupkeeper.coordinator.core.group_type import GroupType

NO_TIMESTAMP: Final = -1
"""The value of a time in milliseconds that is not set."""

NO_OFFSET = -1
"""The offset that means "none is stored", on the wire and as ``previous_offset``."""

NO_LEADER_EPOCH = -1
"""The leader epoch of a commit in which the client sent none."""


class SavedMember(msgspec.Struct, frozen=True, gc=False):
    """The part of a member that survives a restart (docs/spec/groups.md#restart)."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """The member's metadata for the chosen protocol. As in Kafka, other protocols are not saved."""
    assignment: bytes


class GroupRecord(msgspec.Struct, frozen=True, tag="group", tag_field="record"):
    """Sets a classic group's metadata as a whole. Its offsets stay. Key: group id."""

    group_id: str
    protocol_type: str | None
    generation_id: int
    protocol_name: str | None
    leader_id: str | None
    state_timestamp_ms: int
    """When the group entered its saved state. For an Empty group: when it became empty."""
    members: tuple[SavedMember, ...]


class GroupRemoved(msgspec.Struct, frozen=True, tag="group_removed", tag_field="record"):
    """Clears a group: its metadata and all of its offsets. Key: group id."""

    group_id: str


CommittedPartition: TypeAlias = tuple[int, int, int, int, str]
"""(partition, offset, previous offset, leader epoch, metadata): one partition of a commit.

The previous offset is the one that this commit replaces; -1 if there was none. The type is a bare
tuple, because a commit has many of them and each is read several times.
"""


CommittedRow: TypeAlias = tuple[Any, Any, Any, Any, Any]
"""The same tuple as ``CommittedPartition``, for code that mostly passes the numbers on. With
``Any``, mypyc does not unpack and pack each int.
"""


class CommittedTopic(msgspec.Struct, frozen=True, gc=False, rename={"partitions": "rows"}):
    """The offsets that one commit sets in one topic."""

    topic: str
    topic_id: str
    partitions: list[CommittedPartition]


COMMIT_API: Final = "OffsetCommit"
TXN_COMMIT_API: Final = "TxnOffsetCommit"


class OffsetsCommitted(
    msgspec.Struct,
    frozen=True,
    tag="commit",
    tag_field="record",
    rename={
        "group_id": "group",
        "generation_id": "generation",
        "group_instance_id": "instance_id",
    },
    omit_defaults=True,
):
    """Sets the offset of each named (group, topic, partition).

    It is both record and event, one for each request, and is written with the field names of
    events. If the group does not exist, it creates one without a protocol type (a "simple" group).
    """

    group_id: str
    generation_id: int
    """-1 with an empty member id: an administrator or a simple consumer."""
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    principal: str
    commit_time_ms: int
    expire_time_ms: int
    """The time after which retention may delete these offsets (OffsetCommit v2-4); -1: not set."""
    topics: list[CommittedTopic]
    group_type: GroupType = GroupType.CLASSIC
    """Not stored for a classic group, because it is the default."""
    api: str = COMMIT_API
    """``TXN_COMMIT_API`` if the offsets were committed with a transaction. It is the last field, so
    that its bytes can be found (``storage.event_log.lines``)."""


class OffsetsRemoved(msgspec.Struct, frozen=True, tag="offsets_removed", tag_field="record"):
    """Clears offsets of a group. Keys: (group, topic, partition)."""

    group_id: str
    partitions: list[tuple[str, int]]


class AdoptedTopic(msgspec.Struct, frozen=True, gc=False):
    """Offsets of one topic that get the id of the topic."""

    topic: str
    topic_id: str
    partitions: list[tuple[int, int]]
    """(partition, stored offset)."""


class OffsetsAdopted(msgspec.Struct, frozen=True, tag="offsets_adopted", tag_field="record"):
    """Sets the topic id of offsets that were stored without one. Keys: (group, topic, partition).

    A host without topics stores offsets without ids. If the host gets topics later, each offset
    gets the id of the topic of that name. An offset with an id keeps it.
    """

    group_id: str
    topics: list[AdoptedTopic]


class SavedOffset(msgspec.Struct, gc=False, array_like=True):
    """The committed offset of one partition. It is immutable: a commit replaces it."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_time_ms: int
    expire_time_ms: int
    topic_id: str

    def of_topic(self, topic_id: str) -> SavedOffset:
        """Return the same offset with another topic id."""
        return SavedOffset(
            self.offset,
            self.leader_epoch,
            self.metadata,
            self.commit_time_ms,
            self.expire_time_ms,
            topic_id,
        )

    def without_metadata(self) -> SavedOffset:
        """Return the same offset with empty metadata."""
        return SavedOffset(
            self.offset,
            self.leader_epoch,
            "",
            self.commit_time_ms,
            self.expire_time_ms,
            self.topic_id,
        )


GroupMetadata: TypeAlias = GroupRecord | ConsumerGroupRecord
"""A group of either type as a whole, without its offsets."""


class SavedGroup(msgspec.Struct, frozen=True, tag="saved_group", tag_field="record"):
    """Sets everything of a group at once. Keys: the group id, and every offset of the group.

    A storage that folds its log replaces the records of a group by this one (docs/design.md#fold).
    Loads return it. No request writes it.
    """

    group_id: str
    metadata: GroupMetadata | None
    """None for a group that has only offsets."""
    offsets: dict[str, dict[int, SavedOffset]]
    """Topic -> partition -> the offset."""


class SavedOffsets(msgspec.Struct, frozen=True, tag="saved_offsets", tag_field="record"):
    """Adds offsets to a loaded group.

    A load returns a large group as one ``SavedGroup`` and then several ``SavedOffsets``. No request
    writes this record. Keys: every offset that it names.
    """

    group_id: str
    offsets: dict[str, dict[int, SavedOffset]]
    """Topic -> partition -> the offset."""


class PartitionEnd(msgspec.Struct, frozen=True, gc=False, tag="partition_end", tag_field="record"):
    """Sets a lower bound of the end of a partition in static mode; an end of -1 clears it. Key:
    (topic id, partition), within a shard.

    Written only when the offset that held the shard's maximum is lowered or deleted
    (docs/design.md#ends), and to clear the end after the topic was deleted.
    """

    topic_id: str
    partition: int
    end_offset: int


class TopicRecord(msgspec.Struct, frozen=True, gc=False, tag="topic", tag_field="record"):
    """Sets a topic of static mode. Key: name. Stored in the cluster shard (-1)."""

    name: str
    topic_id: str
    partitions: int


class TopicRemoved(msgspec.Struct, frozen=True, gc=False, tag="topic_removed", tag_field="record"):
    """Clears a topic of static mode. Key: name. Stored in the cluster shard (-1)."""

    name: str


class GroupConfigs(msgspec.Struct, frozen=True, gc=False, tag="group_configs", tag_field="record"):
    """Sets all configs of a group, or clears them if there are none. Key: group id.

    Stored in the cluster shard (-1): configs outlive their group, and may be set before the group
    exists.
    """

    group_id: str
    configs: dict[str, str]


class ListenerPort(msgspec.Struct, frozen=True, gc=False, tag="listener_port", tag_field="record"):
    """Sets the port of the listener of an upstream broker in gateway mode. Key: broker id.

    Stored in the cluster shard (-1), so that clients find each broker at the same port after a
    restart. A port of 0 clears it.
    """

    broker_id: int
    port: int


PendingPartition: TypeAlias = tuple[int, int, int, str, bool]
"""(partition, offset, leader epoch, metadata, is overtaken): one pending offset.

A later commit of the partition overtakes the offset. An overtaken offset has no effect when its
transaction commits, but the partition stays unstable until the transaction ends.
"""


class PendingTopic(msgspec.Struct, frozen=True, gc=False, rename={"partitions": "rows"}):
    """The pending offsets of one TxnOffsetCommit in one topic."""

    topic: str
    topic_id: str
    partitions: list[PendingPartition]


class PendingOffsets(
    msgspec.Struct, frozen=True, gc=False, tag="pending_offsets", tag_field="record"
):
    """Sets the offsets that one TxnOffsetCommit made pending. Key: pending id, within a shard.

    This record does not create the group. If the group is new, the same step also has a record that
    creates the group.
    """

    pending_id: str
    arrival: int
    """The number of this record in the order in which its shard stored pending offsets. A later
    record has a larger number.
    """
    producer_id: int
    producer_epoch: int
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    principal: str
    commit_time_ms: int
    """When the TxnOffsetCommit was received. As in Kafka, retention counts from then."""
    topics: list[PendingTopic]


class PendingEnded(msgspec.Struct, frozen=True, gc=False, tag="pending_ended", tag_field="record"):
    """Clears pending offsets. Key: pending id, within a shard."""

    pending_id: str


class JournalPosition(
    msgspec.Struct, frozen=True, gc=False, tag="journal_position", tag_field="record"
):
    """Sets how far the journal of transactions is read (docs/design.md#journal). A shard has at
    most one such record.

    The shard reads the partition of the journal topic that has the shard's number.
    """

    topic_id: str
    """The id of the journal topic. If the topic is deleted and created again, it is another
    journal.
    """
    position: int
    """The offset of the next record to read after a restart."""


PENDING_RECORDS: Final = (PendingOffsets, PendingEnded, JournalPosition)
"""The records about open transactions."""


ADOPTION_BEGUN: Final = "begun"
"""The copy of the group's offsets from the upstream has begun, and is not complete."""
GROUP_REMOVED: Final = "removed"
"""The group was deleted here, so its offsets in the upstream are never adopted again."""


class AdoptionMark(msgspec.Struct, frozen=True, gc=False, tag="adoption_mark", tag_field="record"):
    """Sets the mark that decides whether a group is adopted. An adoption copies the group's offsets
    from the upstream cluster (docs/design.md#adoption). Key: group id.

    Only gateway mode writes this record. The mark outlives its group.
    """

    group_id: str
    state: str
    """``ADOPTION_BEGUN`` or ``GROUP_REMOVED``. An empty state clears the mark."""
    since_ms: int


class UpstreamId(msgspec.Struct, frozen=True, gc=False, tag="upstream_id", tag_field="record"):
    """Sets the cluster id of the upstream in gateway mode, which never changes. A store has at most
    one such record.

    Stored in the cluster shard (-1). Offsets of one cluster make no sense in another one.
    """

    cluster_id: str


OtherRecord: TypeAlias = (
    GroupRecord
    | ConsumerGroupRecord
    | ConsumerChange
    | GroupRemoved
    | OffsetsRemoved
    | OffsetsAdopted
    | SavedGroup
    | SavedOffsets
    | PartitionEnd
    | TopicRecord
    | TopicRemoved
    | GroupConfigs
    | ListenerPort
    | PendingOffsets
    | PendingEnded
    | JournalPosition
    | AdoptionMark
    | UpstreamId
)
"""All records except commits, which have their own encoding (``storage.event_log.lines``)."""

Record: TypeAlias = OffsetsCommitted | OtherRecord
