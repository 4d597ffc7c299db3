"""The heartbeat of a host's member of a consumer group (KIP-848).

Topics have names here, and ids in the core.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.consumer import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from groupkeeper.coordinator.core.wire_values import Int32
from groupkeeper.coordinator.embed.messages import raise_refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeatRequest:
    """Join a consumer group, stay in it, or leave it. A field that is None repeats what the member
    sent before.
    """

    group_id: str
    member_id: str
    """The client creates this id, and keeps it as long as it runs."""
    member_epoch: Int32
    """The epoch of the last answer. 0 joins, and -1 leaves. -2 is for a static member that leaves
    for a short time."""
    group_instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    """How long the member may take to give up partitions. -1 leaves the timeout unchanged. A join
    must have a timeout."""
    topics: Collection[str] | None = None
    """The topics that the member subscribes to. A join must have topics or a pattern."""
    pattern: str | None = None
    """A regular expression (RE2). The member also subscribes to the topics that match it. ""
    removes the regular expression."""
    server_assignor: str | None = None
    owned_partitions: Mapping[str, Collection[int]] | None = None
    """The partitions that the member has, by topic. In a join it is empty: {}."""
    client_id: str = ""
    client_host: str = ""

    def to_core(self, image: TopicImage, pattern_error: str | None) -> ConsumerGroupHeartbeat:
        """Convert to the core's request, with topic ids instead of names. Owned partitions of
        unknown topics are left out.
        """
        owned = self.owned_partitions
        return ConsumerGroupHeartbeat(
            self.group_id,
            self.member_id,
            self.member_epoch,
            self.group_instance_id,
            self.rack_id,
            self.rebalance_timeout_ms,
            None if self.topics is None else tuple(self.topics),
            self.pattern,
            pattern_error,
            self.server_assignor,
            None
            if owned is None
            else tuple(
                [
                    (image.by_name[topic].topic_id, tuple(partitions))
                    for topic, partitions in owned.items()
                    if topic in image.by_name
                ]
            ),
            "",
            Client(self.client_id, self.client_host),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeatResponse:
    """The epoch and the partitions of the member, or an error. After UNKNOWN_MEMBER_ID and
    FENCED_MEMBER_EPOCH the member gives up all partitions and joins again.
    """

    error_code: ErrorCode
    error_message: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    """The time until the next heartbeat."""
    assignment: dict[str, list[int]] | None
    """The partitions by topic; None if they are as before. The member gives up every partition that
    is not in the assignment. It then sends the partitions that are left (``owned_partitions``)."""

    raise_for_error = raise_refusal

    @classmethod
    def of(
        cls, result: ConsumerGroupHeartbeatResult, image: TopicImage
    ) -> ConsumerGroupHeartbeatResponse:
        assignment = result.assignment
        return cls(
            error_code=result.error,
            error_message=result.message,
            member_epoch=result.member_epoch,
            heartbeat_interval_ms=result.heartbeat_interval_ms,
            assignment=None
            if assignment is None
            else {
                image.by_id[topic_id].name: list(partitions)
                for topic_id, partitions in assignment
                if topic_id in image.by_id
            },
        )
