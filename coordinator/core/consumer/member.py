"""A member of a consumer group: its saved fields, its target, its partitions, and its deadlines."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Final

from groupkeeper.coordinator.core.consumer.assigning import place
from groupkeeper.coordinator.core.consumer.reconciliation import (
    ReconciliationState,
    numbers_by_topic,
)
from groupkeeper.coordinator.core.consumer.subscriptions import (
    Subscribed,
    names_bytes,
    subscription_of,
)
from groupkeeper.coordinator.core.consumer_records import (
    AssignedFields,
    ConsumerMemberFields,
    PartitionEpochs,
    Partitions,
)
from groupkeeper.coordinator.core.deadlines import Deadline, DeadlineKind
from groupkeeper.coordinator.core.groups.group import Member, text_bytes
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.consumer import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from groupkeeper.coordinator.core.step import Ticket

NOT_ASSIGNED: Final = AssignedFields(ReconciliationState.STABLE, 0, -1)
"""No partitions. A member has this before its first heartbeat is handled, and when it is
removed.
"""

MEMBER_OVERHEAD_BYTES: Final = 512
"""An upper bound of the size that a member adds to a record, without its texts."""
_TOPIC_BYTES: Final = 32
_TARGET_BYTES: Final = 12
_ASSIGNED_BYTES: Final = 25
"""Upper bounds of sizes in JSON: of a topic, of a partition in a target, and of a partition with
its epoch.
"""

MOST_CURRENT_OF_TARGET: Final = 3
"""How many times larger than the record of its target the record of a member's partitions can
be.
"""


class ConsumerGroupMember(Member):
    """One member of a consumer group. Only ``ConsumerGroup`` changes its saved state."""

    __slots__ = (
        "current",
        "fields",
        "join_phase",
        "parked",
        "place",
        "rebalance",
        "repeated",
        "size_bytes",
        "subscription",
        "sync_phase",
        "target",
        "target_partitions",
        "unchanged",
    )

    def __init__(self, group_id: str, fields: ConsumerMemberFields) -> None:
        client = Client(fields.client_id, fields.client_host)
        super().__init__(group_id, fields.member_id, fields.group_instance_id, client)
        # Saved: only apply writes these.
        self.fields = fields
        self.subscription = Subscribed((), None)
        """The subscription in ``fields``. Members with equal subscriptions share one object."""
        self.current: AssignedFields = NOT_ASSIGNED
        self.target: Partitions = {}
        self.target_partitions = 0
        """The number of partitions in the target."""
        self.size_bytes = 0
        """An upper bound of the size of the fields, without the names of topics. The group counts
        the names.
        """
        self.place = place(fields.member_id, fields.group_instance_id)
        """The sort key of the member for assignors."""
        # Not saved.
        key = (group_id, fields.member_id)
        self.rebalance = Deadline(DeadlineKind.MEMBER_REBALANCE, key)
        """The time at which the member is evicted if it still owns partitions that it must give up.
        """
        self.join_phase = Deadline(DeadlineKind.MEMBER_JOIN, key)
        """The time at which a member of the classic protocol is evicted if it has not joined again.
        """
        self.sync_phase = Deadline(DeadlineKind.MEMBER_SYNC, key)
        """The time at which a member of the classic protocol is evicted if it has not sent its
        SyncGroup."""
        self.parked: Ticket | None = None
        """The parked heartbeat, which waits for the computation of a target. None if there is
        none.
        """
        self.repeated: ConsumerGroupHeartbeat | None = None
        """The last heartbeat that changed nothing. If the client repeats it, its connection passes
        the same object again.
        """
        self.unchanged: ConsumerGroupHeartbeatResult | None = None
        """The answer to ``repeated``. It is valid until the heartbeat interval or the epoch
        changes."""

    def set_fields(self, fields: ConsumerMemberFields) -> None:
        """Replace the saved fields of the member. Its target and its partitions stay."""
        self.fields = fields
        self.size_bytes = fields_bytes(fields)
        self.place = place(fields.member_id, fields.group_instance_id)
        client = self.client
        if (client.client_id, client.client_host) != (fields.client_id, fields.client_host):
            self.client = Client(fields.client_id, fields.client_host)

    @property
    def epoch(self) -> int:
        """The epoch of the member's present assignment. Its requests must have this epoch."""
        return self.current.epoch

    def is_settled(self, epoch: int) -> bool:
        """Return True if the member has all partitions of the target of this epoch."""
        return self.current.epoch == epoch and not self.current.state

    def deadlines(self) -> tuple[Deadline, ...]:
        """Return all deadlines of the member. Some may not be set."""
        return self.session, self.rebalance, self.join_phase, self.sync_phase


def same_subscription(fields: ConsumerMemberFields, other: ConsumerMemberFields) -> bool:
    """Return True if two members have the same subscription."""
    return subscription_of(fields) == subscription_of(other)


# --- sizes ---


def fields_bytes(fields: ConsumerMemberFields) -> int:
    """Return an upper bound of the size of a member's fields, without the names of topics."""
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


def room_bytes(fields: ConsumerMemberFields) -> int:
    """Return an upper bound of the size of a member's record, with its topic names."""
    return fields_bytes(fields) + names_bytes(fields.subscribed_topic_names)


def target_bytes(topics: int, partitions: int) -> int:
    """Return an upper bound of the size of targets with ``topics`` topics and ``partitions``
    partitions in all. A topic counts once for each target that has it.
    """
    return _TOPIC_BYTES * topics + _TARGET_BYTES * partitions


def target_room_bytes(topics: int, partitions: int) -> int:
    """Return an upper bound of the size of these targets, and of the partitions of the members that
    move to them.
    """
    return (1 + MOST_CURRENT_OF_TARGET) * target_bytes(topics, partitions)


def current_bytes(current: AssignedFields) -> int:
    """Return an upper bound of the size of a member's partitions with their epochs."""
    return sum([_assigned_bytes(each) for each in (current.assigned, current.revoking) if each])


def _assigned_bytes(by_topic: PartitionEpochs) -> int:
    return _TOPIC_BYTES * len(by_topic) + _ASSIGNED_BYTES * partition_count(by_topic)


# --- partitions ---


def partition_count(by_topic: Mapping[str, Sized]) -> int:
    """Return the number of partitions of all topics."""
    return sum(map(len, by_topic.values()))


def owned_partitions(current: AssignedFields) -> Partitions:
    """Return the partitions that a member owns, by topic, including those that it has to give
    up. They are not sorted.
    """
    owned = numbers_by_topic(current.assigned)
    for topic, numbers in numbers_by_topic(current.revoking).items():
        owned[topic] = (*owned[topic], *numbers) if topic in owned else numbers
    return owned


def moved_partitions(
    before: AssignedFields, after: AssignedFields
) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Return what a member got and what it lost, each as topic id -> sorted partitions.

    A member may have 20,000 topics. Most topics do not change, or are gained or lost as a whole. So
    only the partitions of the other topics are compared.
    """
    had, has = owned_partitions(before), owned_partitions(after)
    gained, lost = {}, {}
    for topic in sorted({**had, **has}):
        old, new = had.get(topic), has.get(topic)
        if old == new:
            continue
        if old is None:
            gained[topic] = sorted(has[topic])
        elif new is None:
            lost[topic] = sorted(old)
        else:
            if beyond := frozenset(new).difference(old):
                gained[topic] = sorted(beyond)
            if beyond := frozenset(old).difference(new):
                lost[topic] = sorted(beyond)
    return gained, lost


def has_same_partitions(some: PartitionEpochs, others: PartitionEpochs) -> bool:
    """Return True if the two have the same partitions. Their epochs are not compared."""
    if some.keys() != others.keys():
        return False
    return some == others or numbers_by_topic(some) == numbers_by_topic(others)
