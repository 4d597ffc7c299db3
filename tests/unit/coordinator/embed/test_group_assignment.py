"""Assigning partitions for a group whose members leave that to the host."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.assignors.types import TopicPartition
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.embed.group_assignment import assign
from groupkeeper.coordinator.embed.group_metadata import GroupMetadata, MemberMetadata, MemberState


def a_member(member_id: str, instance_id: str | None) -> MemberMetadata:
    return MemberMetadata(
        member_id=member_id,
        group_instance_id=instance_id,
        client_id="",
        client_host="",
        state=MemberState.AWAITING_SYNC,
        subscription=["orders"],
        assignment=None,
        owned_partitions={},
        protocol_metadata=b"",
        last_heartbeat_ms=None,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        join_time_ms=None,
    )


def a_group(assignor: str, *members: MemberMetadata) -> GroupMetadata:
    return GroupMetadata(
        group_id="g",
        state=GroupState.COMPLETING_REBALANCE,
        protocol_type="consumer",
        protocol_name=assignor,
        leader_id=members[0].member_id,
        generation_id=1,
        members={member.member_id: member for member in members},
        state_timestamp_ms=-1,
        rebalance_timeout_ms=10_000,
        session_timeout_ms=10_000,
    )


@pytest.mark.parametrize(
    ("assignor", "static", "dynamic"), [("range", [0, 1], [2]), ("roundrobin", [0, 2], [1])]
)
def test_static_members_are_assigned_before_the_others_as_kafkas_assignors_do(
    assignor: str, static: list[int], dynamic: list[int]
) -> None:
    """The figures are those of Kafka 4.3.1's classes."""
    group = a_group(assignor, a_member("a-1", None), a_member("z-1", "z"))
    partitions = [TopicPartition("orders", number) for number in range(3)]
    assert assign(group, partitions) == {
        "a-1": [TopicPartition("orders", number) for number in dynamic],
        "z-1": [TopicPartition("orders", number) for number in static],
    }
