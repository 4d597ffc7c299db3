"""Assigns partitions in the host, for groups whose members do not assign them."""

from __future__ import annotations

from collections.abc import Sequence

from groupkeeper.coordinator.core.assignors.registry import UnknownAssignorError
from groupkeeper.coordinator.core.assignors.types import (
    Assignment,
    MemberSubscription,
    PartitionAssignor,
    StickyPartitionAssignor,
    TopicPartition,
)
from groupkeeper.coordinator.core.classic.group import CONSUMER
from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.embed.assignor_plugins import AssignorPluginError, get_assignor
from groupkeeper.coordinator.embed.group_metadata import GroupMetadata, MemberMetadata
from groupkeeper.storage.host_values import checked


def assign(group: GroupMetadata, partitions: Sequence[TopicPartition]) -> Assignment:
    """Return an assignment made by the assignor that the group has chosen.

    A sticky assignor starts from the partitions that the members have. Raises GroupError for
    another protocol type than ``consumer``, during a join phase, and for an assignor that cannot be
    used.
    """
    if group.protocol_type not in (CONSUMER, ""):
        raise GroupError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the subscriptions of protocol type {group.protocol_type!r} are unknown",
        )
    if not group.members:
        return {}
    if group.state is GroupState.PREPARING_REBALANCE or not group.protocol_name:
        raise GroupError(
            ErrorCode.REBALANCE_IN_PROGRESS, "the members of the next generation are not known yet"
        )
    assignor = _assignor(group.protocol_name)
    partitions = checked(partitions, list[TopicPartition], "partitions")
    members = [
        MemberSubscription(m.member_id, m.subscription, m.group_instance_id)
        for m in group.members.values()
    ]
    if isinstance(assignor, StickyPartitionAssignor):
        previous = {m.member_id: _held(m) for m in group.members.values()}
        return assignor.assign_with_previous(members, partitions, previous)
    return assignor.assign(members, partitions)


def _assignor(name: str) -> PartitionAssignor:
    try:
        return get_assignor(name)
    except (UnknownAssignorError, AssignorPluginError) as error:
        raise GroupError(ErrorCode.UNSUPPORTED_ASSIGNOR, str(error)) from error


def _held(member: MemberMetadata) -> list[TopicPartition]:
    """Return the member's partitions in this generation. If the member has no assignment yet,
    return the partitions that it named in its join.
    """
    assignment = member.assignment
    held = member.owned_partitions if assignment is None else assignment.partitions
    return [TopicPartition(topic, number) for topic, numbers in held.items() for number in numbers]
