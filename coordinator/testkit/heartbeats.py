"""Heartbeats for every member of a test server, while a test moves its clock."""

from __future__ import annotations

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.consumer import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResult,
    ConsumerGroupHeartbeat,
    DescribedConsumerMember,
)
from groupkeeper.coordinator.core.requests.membership import Heartbeat
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.embed.group_metadata import GroupMetadata
from groupkeeper.coordinator.testkit.refusals import CLIENT, refusals


async def heartbeats(coordinator: GroupCoordinator) -> list[Request]:
    """Return a heartbeat for each member of each group.

    A member of a consumer group gets one only if it has reached its target assignment. For any
    other member the answer could have partitions, which the real client would not receive.
    """
    with refusals("a heartbeat for all members"):
        groups = await coordinator.list_groups()
    found: list[Request] = []
    for group in groups:
        described = await coordinator.ask(ConsumerGroupDescribe(group.group_id))
        if described.error is ErrorCode.NONE:
            found += _of_consumer_group(described)
        else:
            found += _of_classic_group(group)
    return found


def _of_classic_group(group: GroupMetadata) -> list[Request]:
    return [
        Heartbeat(
            group.group_id, group.generation_id, each.member_id, each.group_instance_id, CLIENT
        )
        for each in group.members.values()
    ]


def _of_consumer_group(group: ConsumerGroupDescribeResult) -> list[Request]:
    return [
        _classic(group, each) if each.is_classic else _unchanged(group, each)
        for each in group.members
        if each.member_epoch == group.group_epoch and each.assignment == each.target_assignment
    ]


def _classic(group: ConsumerGroupDescribeResult, member: DescribedConsumerMember) -> Request:
    return Heartbeat(
        group.group_id, member.member_epoch, member.member_id, member.group_instance_id, CLIENT
    )


def _unchanged(group: ConsumerGroupDescribeResult, member: DescribedConsumerMember) -> Request:
    """Return a heartbeat that repeats the member's epoch and changes nothing else."""
    return ConsumerGroupHeartbeat(
        group.group_id,
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        group_instance_id=member.group_instance_id,
        rack_id=None,
        rebalance_timeout_ms=-1,
        subscribed_topic_names=None,
        subscribed_topic_regex=None,
        pattern_error=None,
        server_assignor=None,
        owned=None,
        new_member_id="",
        client=CLIENT,
    )
