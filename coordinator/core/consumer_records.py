"""The records of consumer groups (KIP-848): a small record for each change, and one of the whole
group.

They have the keys of Kafka's records. ``records`` explains records. A topic id is in Kafka's
printed form. Stored times are wall-clock milliseconds since the epoch, or -1.
"""

from __future__ import annotations

from typing import Final, TypeAlias, get_args

import msgspec

FIRST_EPOCH: Final = 1
"""The first epoch of a new group and of its target."""


class ClassicProtocol(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One protocol that a classic member of a consumer group offers."""

    name: str
    metadata: bytes


class ClassicSession(msgspec.Struct, frozen=True, gc=False):
    """The fields that only a member of the classic protocol has (docs/spec/migration.md)."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


class ConsumerMemberFields(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A member of a consumer group, without its assignment."""

    member_id: str
    group_instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] = ()
    """Sorted, without duplicates."""
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    classic: ClassicSession | None = None
    """None for a member of the consumer protocol."""


Partitions: TypeAlias = dict[str, tuple[int, ...]]
"""Topic id -> partitions, sorted."""

PartitionEpochs: TypeAlias = dict[str, tuple[tuple[int, int], ...]]
"""Topic id -> (partition, the epoch at which the member got it), sorted."""


class AssignedFields(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The partitions of one member, and how far it is on the way to its target
    (``core.consumer.reconciliation``).
    """

    state: int
    """The value of a ``ReconciliationState``."""
    epoch: int
    previous_epoch: int
    """The epoch before the last step towards the target. The member may still send it if an answer
    was lost.
    """
    assigned: PartitionEpochs = {}
    """The partitions that the member may use."""
    revoking: PartitionEpochs = {}
    """The partitions that the member has to give up. It owns them until it acknowledges the
    revocation.
    """


class ConsumerGroupEpoch(
    msgspec.Struct, frozen=True, gc=False, tag="consumer_group_epoch", tag_field="record"
):
    """Sets the group epoch of a consumer group. Key: group id."""

    group_id: str
    epoch: int
    metadata_hash: int
    """A hash of the topics that the group subscribes to (``core.consumer.subscriptions``)."""


class ConsumerMember(msgspec.Struct, frozen=True, tag="consumer_member", tag_field="record"):
    """Sets the fields of a member of a consumer group. Its target and its partitions stay.

    Key: (group id, member id).
    """

    group_id: str
    member: ConsumerMemberFields


class ConsumerMemberRemoved(
    msgspec.Struct, frozen=True, gc=False, tag="consumer_member_removed", tag_field="record"
):
    """Removes a member of a consumer group, with its target and its partitions.

    Key: (group id, member id).
    """

    group_id: str
    member_id: str


class ConsumerTarget(msgspec.Struct, frozen=True, tag="consumer_target", tag_field="record"):
    """Sets the targets of some members, and the epoch of the whole target.

    Keys: group id, and (group id, member id).
    """

    group_id: str
    epoch: int
    computed_ms: int
    """When the target was computed. The next computation must not begin before
    ``consumer_assignment_interval_ms`` has passed.
    """
    members: dict[str, Partitions]
    """Member id -> its new target, only for members whose target changed."""


class ConsumerCurrentAssignment(
    msgspec.Struct, frozen=True, tag="consumer_assignment", tag_field="record"
):
    """Sets the partitions that one member of a consumer group has. Key: (group id, member id)."""

    group_id: str
    member_id: str
    current: AssignedFields


class PatternTopics(msgspec.Struct, frozen=True, gc=False):
    """The topics whose names match a pattern."""

    topics: tuple[str, ...]
    """The names of the topics, sorted."""
    topics_version: int
    """``TopicImage.version`` of the topics whose names were compared."""
    resolved_ms: int


class ResolvedPattern(msgspec.Struct, frozen=True, tag="resolved_pattern", tag_field="record"):
    """Sets the topics of a pattern of a consumer group. If ``resolved`` is None, it clears them.
    Key: (group id, pattern).
    """

    group_id: str
    pattern: str
    resolved: PatternTopics | None


class SavedConsumerMember(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A member of a consumer group, with its assignment."""

    fields: ConsumerMemberFields
    """The fields of the member, but with an empty list of topic names. ``subscription`` has the
    names.
    """
    subscription: int
    """The position of the member's list of names in ``ConsumerGroupRecord.subscriptions``."""
    current: AssignedFields
    target: Partitions = {}


class ConsumerGroupRecord(msgspec.Struct, frozen=True, tag="consumer_group", tag_field="record"):
    """Sets a whole consumer group. Its offsets stay. Key: group id.

    Written when a group becomes a consumer group, and when the storage folds its log. The last
    ``GroupRecord`` or ``ConsumerGroupRecord`` decides the type of a group.
    """

    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    target_epoch: int = FIRST_EPOCH
    computed_ms: int = -1
    subscriptions: tuple[tuple[str, ...], ...] = ()
    """Each different list of topic names, once. 10,000 members with the same list share it."""
    members: tuple[SavedConsumerMember, ...] = ()
    patterns: dict[str, PatternTopics] = {}
    """Pattern -> the topics that match it."""


ConsumerChange: TypeAlias = (
    ConsumerGroupEpoch
    | ConsumerMember
    | ConsumerMemberRemoved
    | ConsumerTarget
    | ConsumerCurrentAssignment
    | ResolvedPattern
)
"""A record that changes one thing of a consumer group: its epoch, a member, a target or a
pattern.
"""

CONSUMER_CHANGES: Final = get_args(ConsumerChange)
"""The types of ``ConsumerChange`` as a tuple, for ``isinstance``."""
