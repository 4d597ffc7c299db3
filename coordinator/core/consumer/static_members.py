"""Static members of a consumer group: who they are, and who takes over from them.

See docs/spec/consumer-groups.md#static-members.
"""

from __future__ import annotations

import msgspec

from groupkeeper.coordinator.core.consumer import rebalance
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.member import ConsumerGroupMember
from groupkeeper.coordinator.core.consumer_records import (
    AssignedFields,
    ConsumerMember,
    ConsumerMemberRemoved,
    PartitionEpochs,
)
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.consumer import STATIC_LEAVE_EPOCH
from groupkeeper.coordinator.core.state import ShardState


def identity_error(
    group: ConsumerGroup, member_id: str, group_instance_id: str | None
) -> ErrorCode:
    """Return the error if a request is not from a member of this group."""
    if group_instance_id is not None:
        owner = group.static_members.get(group_instance_id)
        if owner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if owner != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def has_left(member: ConsumerGroupMember) -> bool:
    """Return whether a static member left for a short time."""
    return member.current.epoch == STATIC_LEAVE_EPOCH


def leave_for_now(shard: ShardState, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
    """Keep the place of a static member until its session ends.

    Others may have what it was giving up. What it has stays its own.
    """
    shard.deadlines.clear(member.rebalance)
    current = member.current
    left = AssignedFields(
        current.state, STATIC_LEAVE_EPOCH, current.previous_epoch, _from_now(current.assigned)
    )
    rebalance.record_current(shard, group, member, left)


def replace(
    shard: ShardState, group: ConsumerGroup, old: ConsumerGroupMember, member_id: str
) -> ConsumerGroupMember:
    """Give all that a static member has to its new id. Its epoch begins again."""
    assert old.parked is None, "a parked heartbeat would never be answered"
    for deadline in old.deadlines():
        shard.deadlines.clear(deadline)
    group_id, epochs = group.group_id, group.epochs
    fields = msgspec.structs.replace(old.fields, member_id=member_id)
    current = AssignedFields(old.current.state, 0, 0, _from_now(old.current.assigned))
    target = old.target
    shard.record(ConsumerMemberRemoved(group_id, old.member_id))
    shard.record(ConsumerMember(group_id, fields), old.size_bytes)
    member = group.members[member_id]
    rebalance.record_target(shard, group, epochs.target, epochs.computed_ms, {member_id: target})
    rebalance.record_current(shard, group, member, current)
    return member


def _from_now(assigned: PartitionEpochs) -> PartitionEpochs:
    """Return the same partitions, which the member has had from the beginning."""
    return {topic: tuple([(number, 0) for number, _ in parts]) for topic, parts in assigned.items()}
