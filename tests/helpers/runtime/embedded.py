"""Members of a host that embeds the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from groupkeeper.coordinator.core.assignors.types import TopicPartition
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.embed.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    MemberAssignmentData,
    OffsetCommitData,
    OffsetCommitRequest,
    ProtocolMetadata,
    SyncGroupRequest,
)
from groupkeeper.protocol.consumer_protocol import decode_assignment

ORDERS = [TopicPartition("orders", number) for number in range(6)]


async def join(
    coordinator: GroupCoordinator,
    member_id: str = "",
    *,
    group_id: str = "g",
    assignor: str = "range",
    topics: Sequence[str] = ("orders",),
    **changes: Any,
) -> JoinGroupResponse:
    """Join with a consumer's subscription."""
    request = JoinGroupRequest(
        group_id=group_id,
        member_id=member_id,
        client_id="app",
        protocols=[ProtocolMetadata.subscribing(assignor, topics)],
        **changes,
    )
    return await coordinator.join_group(request)


async def sync(
    coordinator: GroupCoordinator, joined: JoinGroupResponse, group_id: str = "g"
) -> list[int]:
    """Sync. The leader assigns with the assignor that the group has chosen. Return the member's
    partitions.
    """
    parts: list[MemberAssignmentData] = []
    if joined.is_leader:
        assignment = await coordinator.perform_assignment(group_id, ORDERS)
        parts = [MemberAssignmentData.of(*each) for each in assignment.items()]
    request = SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=parts,
    )
    synced = (await coordinator.sync_group(request)).raise_for_error()
    return decode_assignment(synced.assignment).partitions.get("orders", [])


async def beat(
    coordinator: GroupCoordinator, joined: JoinGroupResponse, group_id: str = "g"
) -> ErrorCode:
    """Heartbeat."""
    request = HeartbeatRequest(
        group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id
    )
    return (await coordinator.heartbeat(request)).error_code


async def heartbeat_until_rebalance(
    coordinator: GroupCoordinator, joined: JoinGroupResponse
) -> None:
    """Heartbeat until a rebalance is under way."""
    while await beat(coordinator, joined) is ErrorCode.NONE:  # noqa: ASYNC110 - as members do
        await asyncio.sleep(0)


async def two_members(
    coordinator: GroupCoordinator, assignor: str = "range"
) -> tuple[JoinGroupResponse, JoinGroupResponse]:
    """Bring a group of two members into a generation that waits for its syncs."""
    first = (await join(coordinator, assignor=assignor)).raise_for_error()
    await sync(coordinator, first)
    second = asyncio.create_task(join(coordinator, assignor=assignor))
    await heartbeat_until_rebalance(coordinator, first)
    again = await join(coordinator, first.member_id, assignor=assignor)
    return again, await second


def a_commit(offset: int, partition: int = 0, **changes: Any) -> OffsetCommitRequest:
    """Commit one partition of ``orders`` of group ``g``."""
    fields = {"group_id": "g", "offsets": {"orders": {partition: OffsetCommitData(offset)}}}
    return OffsetCommitRequest(**{**fields, **changes})
