"""Requests of consumer groups, whose partitions the coordinator assigns (KIP-848)."""

# A class attribute that overrides a declaration is never assigned again.
# mypy: disable-error-code="mutable-override"
from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from groupkeeper.coordinator.core.declarations import AnyResult, GroupRead, GroupWrite
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.waiting import Waiting
from groupkeeper.coordinator.core.wire_values import Int32

JOIN_EPOCH: Final = 0
"""The epoch of a heartbeat with which a member joins its group, or joins it again."""
LEAVE_EPOCH: Final = -1
"""The epoch of a heartbeat with which a member leaves its group."""
STATIC_LEAVE_EPOCH: Final = -2
"""The epoch of a static member that left for a short time. The heartbeat with which it leaves has
the same epoch.
"""

TopicPartitions: TypeAlias = tuple[str, tuple[int, ...]]
"""(topic id, numbers of partitions of this topic)."""


class ConsumerGroupHeartbeatResult(AnyResult, frozen=True):
    """The answer to a ConsumerGroupHeartbeat. With an error, only ``message`` is set."""

    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[TopicPartitions, ...] | None = None
    """The partitions of the member, without those that it must give up. None if they have not
    changed.
    """


class ConsumerGroupHeartbeat(GroupWrite, frozen=True):
    """Join a consumer group, stay in it, or leave it (docs/spec/consumer-groups.md#heartbeat).

    The caller has made the checks that need no group (docs/spec/consumer-groups.md#validation). If
    a field is None, the value that the member sent before stays.
    """

    member_id: str
    """Empty only in version 0, where the server makes the id of a new member."""
    member_epoch: Int32
    group_instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: Int32
    """-1 means that the member keeps its present rebalance timeout."""
    subscribed_topic_names: tuple[str, ...] | None
    subscribed_topic_regex: str | None
    """"" clears the pattern."""
    pattern_error: str | None
    """The reason why the pattern does not compile, or None. The caller compiles the pattern,
    because the core has no library for this.
    """
    server_assignor: str | None
    owned: tuple[TopicPartitions, ...] | None
    """The partitions that the member still has. None if it does not report them."""
    new_member_id: str
    """The id for a member whose ``member_id`` is empty. The caller generates it."""
    client: Client

    result = ConsumerGroupHeartbeatResult
    waits = False  # the answer to a heartbeat that changes nothing does not wait
    parks = True
    """A heartbeat may wait for the computation of an assignment (``core.work``)."""
    if_absent = GroupType.CONSUMER

    @property
    def when_full(self) -> ErrorCode | None:  # type: ignore[override]  # others: a constant
        """Return the error for a heartbeat that joins or leaves. Return None for other heartbeats:
        a refusal could end the member's session, and few of them write.
        """
        if self.member_epoch > JOIN_EPOCH:
            return None
        return ErrorCode.COORDINATOR_NOT_AVAILABLE


class DescribedConsumerMember(NamedTuple):
    """The fields of one member in the answer to ConsumerGroupDescribe."""

    member_id: str
    group_instance_id: str | None
    rack_id: str | None
    member_epoch: int
    """-2 for a static member that left for a short time."""
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str
    """"" if there is none, as in Kafka."""
    assignment: tuple[tuple[str, str, tuple[int, ...]], ...]
    """(topic id, topic, partitions) that the member has, including partitions that it has to give
    up.
    """
    target_assignment: tuple[tuple[str, str, tuple[int, ...]], ...]
    """(topic id, topic, partitions) that the member will have when it reaches its target."""
    is_classic: bool
    """True if the member uses the classic protocol (version 1: member type 0 instead of 1)."""


class ConsumerGroupDescribeResult(AnyResult, frozen=True):
    """The answer to a ConsumerGroupDescribe. With an error, only ``message`` is set."""

    group_id: str = ""
    message: str | None = None
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[DescribedConsumerMember, ...] = ()
    waiting: Waiting | None = None
    """The members that the group waits for. None if there are none, or the request did not ask."""

    def replaced(self, code: ErrorCode, loads_again: bool) -> ConsumerGroupDescribeResult:
        """Return a refusal that keeps the group id."""
        return ConsumerGroupDescribeResult(code, self.group_id)


class ConsumerGroupDescribe(GroupRead, frozen=True):
    """Describe one consumer group (docs/spec/consumer-groups.md#describe). ``with_waiting`` adds
    the members that the group waits for.
    """

    with_waiting: bool = False

    result = ConsumerGroupDescribeResult

    def refused(self, code: ErrorCode) -> ConsumerGroupDescribeResult:
        return ConsumerGroupDescribeResult(code, self.group_id)
