"""The records of consumer groups (KIP-848): small ones for each change, and one for the whole.

They have the keys of Kafka's records. ``records`` says what a record is. A topic id is in Kafka's
printed form. Where times are stored, they are wall-clock milliseconds since the epoch, or -1.
"""

from __future__ import annotations

from typing import Final, TypeAlias, get_args

import msgspec

FIRST_EPOCH: Final = 1
"""The group epoch and the epoch of the target of a new group."""


class ClassicProtocol(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One protocol that a classic member of a consumer group offers."""

    name: str
    metadata: bytes


class ClassicSession(msgspec.Struct, frozen=True, gc=False):
    """What only a member of the classic protocol has (docs/spec/migration.md)."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


class ConsumerMemberFields(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A member of a consumer group, without what is assigned to it."""

    member_id: str
    group_instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] = ()
    """Sorted, each once."""
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    classic: ClassicSession | None = None
    """None for a member of the consumer protocol."""


Partitions: TypeAlias = dict[str, tuple[int, ...]]
"""Topic id -> partitions, sorted."""

PartitionEpochs: TypeAlias = dict[str, tuple[tuple[int, int], ...]]
"""Topic id -> (partition, the epoch at which the member got it), sorted."""


class AssignedFields(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one member has, and how far it has come (``core.consumer.reconciliation``)."""

    state: int
    """``ReconciliationState``."""
    epoch: int
    previous_epoch: int
    assigned: PartitionEpochs = {}
    revoking: PartitionEpochs = {}
    """What it has to give up, and owns until it acknowledges."""


class ConsumerGroupEpoch(
    msgspec.Struct, frozen=True, gc=False, tag="consumer_group_epoch", tag_field="record"
):
    """Sets the group epoch of a consumer group. Key: group id."""

    group_id: str
    epoch: int
    metadata_hash: int
    """Of the topics that the group subscribes to (``core.consumer.subscriptions``)."""


class ConsumerMember(msgspec.Struct, frozen=True, tag="consumer_member", tag_field="record"):
    """Sets a member of a consumer group. What is assigned to it stays. Key: (group id, member
    id).
    """

    group_id: str
    member: ConsumerMemberFields


class ConsumerMemberRemoved(
    msgspec.Struct, frozen=True, gc=False, tag="consumer_member_removed", tag_field="record"
):
    """Clears a member of a consumer group, its target and what is assigned to it. Key: (group id,
    member id).
    """

    group_id: str
    member_id: str


class ConsumerTarget(msgspec.Struct, frozen=True, tag="consumer_target", tag_field="record"):
    """Sets the target assignment of some members, and the epoch that it has for all. Keys: group
    id, and (group id, member id).
    """

    group_id: str
    epoch: int
    computed_ms: int
    """When it was computed. The next computation may not come at once."""
    members: dict[str, Partitions]
    """Only the members whose target changed."""


class ConsumerCurrentAssignment(
    msgspec.Struct, frozen=True, tag="consumer_assignment", tag_field="record"
):
    """Sets what one member of a consumer group has. Key: (group id, member id)."""

    group_id: str
    member_id: str
    current: AssignedFields


class PatternTopics(msgspec.Struct, frozen=True, gc=False):
    """The topics whose names match a pattern."""

    topics: tuple[str, ...]
    """Sorted."""
    topics_version: int
    """``TopicImage.version`` of the topics that were looked through."""
    resolved_ms: int


class ResolvedPattern(msgspec.Struct, frozen=True, tag="resolved_pattern", tag_field="record"):
    """Sets the topics of a pattern of a consumer group, or clears them. Key: (group id,
    pattern).
    """

    group_id: str
    pattern: str
    resolved: PatternTopics | None


class SavedConsumerMember(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A member of a consumer group, with what is assigned to it."""

    fields: ConsumerMemberFields
    """Without the names that it subscribes to: ``subscription`` has them."""
    subscription: int
    """Its position in ``ConsumerGroupRecord.subscriptions``."""
    current: AssignedFields
    target: Partitions = {}


class ConsumerGroupRecord(msgspec.Struct, frozen=True, tag="consumer_group", tag_field="record"):
    """Sets a consumer group as a whole. Its offsets stay. Key: group id.

    Written when a group becomes a consumer group, and by the fold. The last ``GroupRecord`` or
    ``ConsumerGroupRecord`` decides the type of a group.
    """

    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    target_epoch: int = FIRST_EPOCH
    computed_ms: int = -1
    subscriptions: tuple[tuple[str, ...], ...] = ()
    """The different lists of names. 10,000 members with equal ones share one."""
    members: tuple[SavedConsumerMember, ...] = ()
    patterns: dict[str, PatternTopics] = {}


ConsumerChange: TypeAlias = (
    ConsumerGroupEpoch
    | ConsumerMember
    | ConsumerMemberRemoved
    | ConsumerTarget
    | ConsumerCurrentAssignment
    | ResolvedPattern
)
"""A change of a part of a consumer group."""

CONSUMER_CHANGES: Final = get_args(ConsumerChange)
"""The same as a tuple of types, for ``isinstance``."""
