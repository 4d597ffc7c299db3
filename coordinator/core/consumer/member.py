"""A member of a consumer group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from groupkeeper.coordinator.core.consumer.assigning import place
from groupkeeper.coordinator.core.consumer.reconciliation import (
    CurrentAssignment,
    Partition,
    ReconciliationState,
)
from groupkeeper.coordinator.core.consumer.subscriptions import Subscribed, subscription_of
from groupkeeper.coordinator.core.consumer_records import (
    AssignedFields,
    ConsumerMemberFields,
    PartitionEpochs,
    Partitions,
)
from groupkeeper.coordinator.core.deadlines import Deadline, DeadlineKind
from groupkeeper.coordinator.core.groups.group import Member, text_bytes
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.step import Ticket

NOT_ASSIGNED: Final = AssignedFields(ReconciliationState.STABLE, 0, -1)
"""What a member has before its first heartbeat is handled."""

MEMBER_OVERHEAD_BYTES: Final = 512
"""The size that a member adds to a record, without its texts. It is deliberately too high."""
_TOPIC_BYTES: Final = 32
_TARGET_BYTES: Final = 12
_ASSIGNED_BYTES: Final = 25
"""Upper bounds of a topic, a partition of a target, and one with an epoch, in JSON."""


class ConsumerGroupMember(Member):
    """One member of a consumer group. Only ``ConsumerGroup`` changes what is saved of it."""

    __slots__ = (
        "assigned_bytes",
        "current",
        "fields",
        "join_phase",
        "parked",
        "place",
        "rebalance",
        "size_bytes",
        "subscription",
        "sync_phase",
        "target",
    )

    def __init__(self, group_id: str, fields: ConsumerMemberFields) -> None:
        client = Client(fields.client_id, fields.client_host)
        super().__init__(group_id, fields.member_id, fields.group_instance_id, client)
        # Saved: only apply writes these.
        self.fields = fields
        self.subscription = Subscribed((), None)
        """That of the fields, as the group counts it."""
        self.current: AssignedFields = NOT_ASSIGNED
        self.target: Partitions = {}
        self.size_bytes = 0
        """An upper bound of the size of the fields, without names: those are counted in the
        group."""
        self.assigned_bytes = 0
        self.place = place(fields.member_id, fields.group_instance_id)
        # Live.
        key = (group_id, fields.member_id)
        self.rebalance = Deadline(DeadlineKind.MEMBER_REBALANCE, key)
        """When the member must have given up what it has to."""
        self.join_phase = Deadline(DeadlineKind.MEMBER_JOIN, key)
        """When a member of the classic protocol must have joined again."""
        self.sync_phase = Deadline(DeadlineKind.MEMBER_SYNC, key)
        """When a member of the classic protocol must have sent its SyncGroup."""
        self.parked: Ticket | None = None
        """A heartbeat that waits for the computation of an assignment."""

    def set_fields(self, fields: ConsumerMemberFields) -> None:
        """Replace what is saved of the member, without what is assigned to it."""
        self.fields = fields
        self.size_bytes = fields_bytes(fields)
        self.place = place(fields.member_id, fields.group_instance_id)
        client = self.client
        if (client.client_id, client.client_host) != (fields.client_id, fields.client_host):
            self.client = Client(fields.client_id, fields.client_host)

    @property
    def epoch(self) -> int:
        """The member epoch."""
        return self.current.epoch

    def is_settled(self, epoch: int) -> bool:
        """Return whether the member has all that the target of this epoch gives it."""
        return self.current.epoch == epoch and not self.current.state

    def deadlines(self) -> tuple[Deadline, ...]:
        """Return every deadline of the member."""
        return self.session, self.rebalance, self.join_phase, self.sync_phase


def same_subscription(fields: ConsumerMemberFields, other: ConsumerMemberFields) -> bool:
    """Return whether two members subscribe to the same."""
    return subscription_of(fields) == subscription_of(other)


# --- sizes ---


def fields_bytes(fields: ConsumerMemberFields) -> int:
    """Return an upper bound of the size of a member's fields, without names."""
    texts = (
        fields.member_id,
        fields.group_instance_id,
        fields.rack_id,
        fields.client_id,
        fields.client_host,
        fields.subscribed_topic_regex,
        fields.server_assignor,
    )
    size = MEMBER_OVERHEAD_BYTES + sum([text_bytes(text) for text in texts if text])
    if fields.classic is not None:
        for protocol in fields.classic.protocols:
            size += text_bytes(protocol.name) + len(protocol.metadata) * 4 // 3 + 16
    return size


def target_bytes(target: Partitions) -> int:
    """Return an upper bound of the size of a member's target."""
    return sum([_TOPIC_BYTES + _TARGET_BYTES * len(parts) for parts in target.values()])


def current_bytes(current: AssignedFields) -> int:
    """Return an upper bound of the size of what a member has."""
    return sum(
        [
            _TOPIC_BYTES + _ASSIGNED_BYTES * len(parts)
            for of_topic in (current.assigned, current.revoking)
            for parts in of_topic.values()
        ]
    )


# --- from the form of records to that of reconciliation, and back ---


def partitions_of(by_topic: Partitions) -> set[Partition]:
    """Return partitions one by one."""
    return {(topic, number) for topic, numbers in by_topic.items() for number in numbers}


def owned_partitions(current: AssignedFields) -> Iterable[Partition]:
    """Yield what a member has, and what it has not given up yet."""
    for of_topic in (current.assigned, current.revoking):
        for topic, parts in of_topic.items():
            for number, _ in parts:
                yield topic, number


def to_current(fields: AssignedFields) -> CurrentAssignment:
    """Return what a member has, as ``reconcile`` needs it."""
    return CurrentAssignment(
        ReconciliationState(fields.state),
        fields.epoch,
        fields.previous_epoch,
        _flat(fields.assigned),
        _flat(fields.revoking),
    )


def to_fields(current: CurrentAssignment) -> AssignedFields:
    """Return what a member has, as it is saved."""
    return AssignedFields(
        int(current.state),
        current.epoch,
        current.previous_epoch,
        _by_topic(current.assigned),
        _by_topic(current.revoking),
    )


def _flat(by_topic: PartitionEpochs) -> dict[Partition, int]:
    return {(topic, number): epoch for topic, parts in by_topic.items() for number, epoch in parts}


def _by_topic(epochs: Mapping[Partition, int]) -> PartitionEpochs:
    found: dict[str, list[tuple[int, int]]] = {}
    for (topic, number), epoch in epochs.items():
        found.setdefault(topic, []).append((number, epoch))
    return {topic: tuple(sorted(found[topic])) for topic in sorted(found)}
