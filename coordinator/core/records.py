"""Records: the hard state of a shard, durable and keyed; the last write to a key wins.

A SQL row, a znode, a Consul key and a compacted topic can all hold them. ``Shard.apply`` is the one
place that turns them into state, live and on load alike. Each class says which keys it sets or
clears. Times are wall-clock milliseconds since the epoch. A topic id is Kafka's own printed form
(22 characters of URL-safe base64); "" means none.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

NO_TIMESTAMP = -1
"""In a field of milliseconds: not set."""

NO_OFFSET = -1
"""Nothing is stored: on the wire, and as ``previous_offset``."""

NO_LEADER_EPOCH = -1
"""The client told no leader epoch with its commit."""


class SavedMember(msgspec.Struct, frozen=True, gc=False):
    """A member as it survives a restart (docs/spec/groups.md#restart)."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """The member's metadata for the chosen protocol; other protocols are not kept (as in Kafka)."""
    assignment: bytes


class GroupRecord(msgspec.Struct, frozen=True, tag="group", tag_field="record"):
    """Sets a classic group's metadata, replaced as a whole; its offsets stay. Key: group id."""

    group_id: str
    protocol_type: str | None
    generation_id: int
    protocol_name: str | None
    leader_id: str | None
    state_timestamp_ms: int
    """When the group entered its saved state; for an Empty group, when it became empty."""
    members: tuple[SavedMember, ...]


class GroupRemoved(msgspec.Struct, frozen=True, tag="group_removed", tag_field="record"):
    """Clears a group: its metadata and all of its offsets. Key: group id."""

    group_id: str


class CommittedPartition(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One partition of a commit."""

    partition: int
    offset: int
    previous_offset: int
    """The offset that this commit replaces; -1 where there was none."""
    leader_epoch: int
    metadata: str


class CommittedTopic(msgspec.Struct, frozen=True, gc=False, rename={"partitions": "rows"}):
    """One topic of a commit."""

    topic: str
    topic_id: str
    partitions: list[CommittedPartition]


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
):
    """Sets the offset of each (group, topic, partition) named. Record and event in one, one a
    request: it is written down under the names that events have.

    Creates the group, without a protocol type, where there is none (a "simple" group).
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
    """-1, or the instant after which retention may drop these offsets (OffsetCommit v2-4)."""
    topics: list[CommittedTopic]


class OffsetsRemoved(msgspec.Struct, frozen=True, tag="offsets_removed", tag_field="record"):
    """Clears offsets of a group. Keys: (group, topic, partition)."""

    group_id: str
    partitions: list[tuple[str, int]]


class AdoptedTopic(msgspec.Struct, frozen=True, gc=False):
    """Offsets of one topic that take its id."""

    topic: str
    topic_id: str
    partitions: list[tuple[int, int]]
    """(partition, the offset that is stored)."""


class OffsetsAdopted(msgspec.Struct, frozen=True, tag="offsets_adopted", tag_field="record"):
    """Gives offsets that were stored without a topic id the id of the topic of their name; one
    that has an id keeps it. Keys: (group, topic, partition).

    Written where a host without topics committed, and topics came later.
    """

    group_id: str
    topics: list[AdoptedTopic]


class SavedOffset(msgspec.Struct, gc=False, array_like=True):
    """The committed offset of one partition. Never changed in place: replaced."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_time_ms: int
    expire_time_ms: int
    topic_id: str

    def of_topic(self, topic_id: str) -> SavedOffset:
        """The same offset of the topic with this id."""
        return SavedOffset(
            self.offset,
            self.leader_epoch,
            self.metadata,
            self.commit_time_ms,
            self.expire_time_ms,
            topic_id,
        )


class SavedGroup(msgspec.Struct, frozen=True, tag="saved_group", tag_field="record"):
    """Sets everything of a group at once: what a storage folds and what a load yields.

    Written by the fold (docs/design.md#fold), never by a request. Key: group id, and every offset
    of it.
    """

    group_id: str
    metadata: GroupRecord | None
    """None for a group that exists by its offsets alone."""
    offsets: dict[str, dict[int, SavedOffset]]
    """By topic, then by partition."""


class SavedOffsets(msgspec.Struct, frozen=True, tag="saved_offsets", tag_field="record"):
    """Sets offsets of a group beside those that it has: what a load yields of a large group behind
    its SavedGroup, part by part. Never written by a request. Keys: every offset that it names.
    """

    group_id: str
    offsets: dict[str, dict[int, SavedOffset]]
    """By topic, then by partition."""


class PartitionEnd(msgspec.Struct, frozen=True, gc=False, tag="partition_end", tag_field="record"):
    """Sets the least end of a partition in static mode. Key: (topic id, partition), within a shard.

    Written only when the value that held the shard's maximum is lowered or goes
    (docs/design.md#ends).
    """

    topic_id: str
    partition: int
    end_offset: int


class TopicRecord(msgspec.Struct, frozen=True, gc=False, tag="topic", tag_field="record"):
    """Sets a topic of static mode. Key: name. Lives in the cluster shard (-1)."""

    name: str
    topic_id: str
    partitions: int


class TopicRemoved(msgspec.Struct, frozen=True, gc=False, tag="topic_removed", tag_field="record"):
    """Clears a topic of static mode. Key: name. Lives in the cluster shard (-1)."""

    name: str


class GroupConfigs(msgspec.Struct, frozen=True, gc=False, tag="group_configs", tag_field="record"):
    """Sets all configs of a group, or clears them where there are none. Key: group id.

    Lives in the cluster shard (-1): a config outlives its group, and may be set before it.
    """

    group_id: str
    configs: dict[str, str]


OtherRecord: TypeAlias = (
    GroupRecord
    | GroupRemoved
    | OffsetsRemoved
    | OffsetsAdopted
    | SavedGroup
    | SavedOffsets
    | PartitionEnd
    | TopicRecord
    | TopicRemoved
    | GroupConfigs
)
"""All but commits, which are written down in a way of their own (``storage.event_log.lines``)."""

Record: TypeAlias = OffsetsCommitted | OtherRecord
