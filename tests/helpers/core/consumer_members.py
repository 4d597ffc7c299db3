"""The client side of members of consumer groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import PartitionsMoved
from groupkeeper.coordinator.core.requests.consumer import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResult,
    ConsumerGroupHeartbeat,
)
from tests.helpers.core.shard_driver import CLIENT, Call, ShardDriver, TopicInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from groupkeeper.coordinator.core.events import Event

Held = dict[str, list[int]]
"""Topic id -> partitions."""


def a_consumer_heartbeat(group_id: str = "g", member_id: str = "a", **changes: Any) -> Any:
    """Return a heartbeat that changes nothing, except for the given changes."""
    fields: dict[str, Any] = {
        "member_epoch": 0,
        "group_instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "pattern_error": None,
        "server_assignor": None,
        "owned": None,
        "new_member_id": "minted",
        "client": CLIENT,
    }
    return ConsumerGroupHeartbeat(group_id, member_id, **{**fields, **changes})


@dataclass(eq=False)
class ConsumerStub:
    """One member: remembers its epoch and its partitions, and follows each answer."""

    driver: ShardDriver
    member_id: str
    topics: tuple[str, ...] | None = ("orders",)
    group_id: str = "g"
    instance_id: str | None = None
    epoch: int = 0
    held: Held = field(default_factory=dict)

    def join(self, **changes: Any) -> Call:
        """Join, or join again, without partitions."""
        self.held = {}
        return self.send(
            **{
                "member_epoch": 0,
                "rebalance_timeout_ms": 60_000,
                "subscribed_topic_names": self.topics,
                "owned": (),
                **changes,
            }
        )

    def beat(self, **changes: Any) -> Call:
        """Send a heartbeat that changes nothing, except for the given changes."""
        return self.send(**changes)

    def acknowledge(self) -> Call:
        """Send a heartbeat that reports the member's partitions."""
        return self.send(owned=self.owned())

    def leave(self, epoch: int = -1) -> Call:
        """Leave."""
        return self.send(member_epoch=epoch)

    def owned(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return what the member has, as a heartbeat reports it."""
        return tuple((topic, tuple(numbers)) for topic, numbers in self.held.items())

    def send(self, **changes: Any) -> Call:
        """Send a heartbeat, and take over the epoch and the partitions of the answer."""
        fields = {"member_epoch": self.epoch, "group_instance_id": self.instance_id, **changes}
        call = self.driver.send(a_consumer_heartbeat(self.group_id, self.member_id, **fields))
        if call.reply is not None:
            self.take(call)
        return call

    def take(self, call: Call) -> None:
        """Take over the epoch and the partitions of an answer without an error."""
        if call.error is ErrorCode.NONE:
            self.epoch = call.result.member_epoch
            if call.result.assignment is not None:
                self.held = {topic: [*numbers] for topic, numbers in call.result.assignment}

    def partitions(self) -> set[int]:
        """Return the partitions that the member has, of all topics."""
        return {number for numbers in self.held.values() for number in numbers}


def settle(driver: ShardDriver, members: Iterable[ConsumerStub], rounds: int = 12) -> None:
    """Let all members heartbeat and acknowledge until nothing changes."""
    for _ in range(rounds):
        driver.advance(1_000)
        for member in members:
            member.acknowledge()


def owners_by_events(
    events: Iterable[Event], topics: Iterable[TopicInfo]
) -> dict[tuple[str, int], str]:
    """Return the owners that a reader of the event log finds: (topic id, partition) ->
    member id.
    """
    ids = {topic.name: topic.topic_id for topic in topics}
    owners: dict[tuple[str, int], str] = {}
    for event in events:
        if isinstance(event, PartitionsMoved):
            for topic, numbers in event.lost_partitions.items():
                for number in numbers:
                    assert owners.pop((ids.get(topic, topic), number)) == event.member_id
            for topic, numbers in event.gained_partitions.items():
                for number in numbers:
                    place = ids.get(topic, topic), number
                    assert place not in owners, "the other one must lose it first"
                    owners[place] = event.member_id
    return owners


def describe_consumer(driver: ShardDriver, group_id: str = "g") -> ConsumerGroupDescribeResult:
    """Send a ConsumerGroupDescribe and return its result."""
    result = driver.send(ConsumerGroupDescribe(group_id)).result
    assert isinstance(result, ConsumerGroupDescribeResult)
    return result
