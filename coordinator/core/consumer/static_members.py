"""Static members of a consumer group: a member may leave for a short time, and a member with the
same instance id may replace it.

See docs/spec/consumer-groups.md#static-members.
"""

from __future__ import annotations

import msgspec

from groupkeeper.coordinator.core.consumer import assignment_events, rebalance
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.member import (
    ConsumerGroupMember,
    room_bytes,
    target_bytes,
)
from groupkeeper.coordinator.core.consumer_records import (
    AssignedFields,
    ConsumerMember,
    ConsumerMemberFields,
    ConsumerMemberRemoved,
    PartitionEpochs,
)
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.consumer import STATIC_LEAVE_EPOCH
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import SMALL_RECORD_BYTES


def identity_error(
    group: ConsumerGroup, member_id: str, group_instance_id: str | None
) -> ErrorCode:
    """Return the error if a request is not from a member of this group, else NONE."""
    if group_instance_id is not None:
        owner = group.static_members.get(group_instance_id)
        if owner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if owner != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def has_left(member: ConsumerGroupMember) -> bool:
    """Return True if a static member has left for a short time."""
    return member.current.epoch == STATIC_LEAVE_EPOCH


def leave_for_now(shard: ShardState, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
    """Record that a static member has left for a short time. It stays in the group until its
    session ends.

    The member keeps its partitions, except those that it had to give up: these are free at once.
    """
    shard.deadlines.clear(member.rebalance)
    current = member.current
    left = AssignedFields(
        current.state, STATIC_LEAVE_EPOCH, current.previous_epoch, _from_now(current.assigned)
    )
    rebalance.record_current(shard, group, member, left, "member_leave")
    if member.session.at is None:
        # It ended while a heartbeat of the member was parked, which nothing answers any more.
        shard.restart_session(member)


def replace(
    shard: ShardState, group: ConsumerGroup, old: ConsumerGroupMember, fields: ConsumerMemberFields
) -> ConsumerMemberFields:
    """Replace a static member by a new member with these fields. The new member has the target and
    the partitions of the old one, and epoch 0. Return the fields that it would have if it had
    changed nothing.
    """
    assert old.parked is None, "a parked heartbeat would never be answered"
    for deadline in old.deadlines():
        shard.deadlines.clear(deadline)
    group_id, epochs = group.group_id, group.epochs
    member_id = fields.member_id
    before = msgspec.structs.replace(old.fields, member_id=member_id)
    current = msgspec.structs.replace(old.current, epoch=0, previous_epoch=0)
    targets = {member_id: old.target}
    targets_bytes = SMALL_RECORD_BYTES + target_bytes(len(old.target), old.target_partitions)
    assignment_events.add_all_lost(shard, group, old, "static_member_rejoin")
    shard.record(ConsumerMemberRemoved(group_id, old.member_id))
    shard.record(ConsumerMember(group_id, fields), room_bytes(fields))
    member = group.members[member_id]
    rebalance.record_target(shard, group, epochs.target, epochs.computed_ms, targets, targets_bytes)
    rebalance.record_current(shard, group, member, current, "static_member_rejoin")
    return before


def _from_now(assigned: PartitionEpochs) -> PartitionEpochs:
    """Return the same partitions, each with epoch 0, as if the member had always had them."""
    return {topic: tuple([(number, 0) for number, _ in parts]) for topic, parts in assigned.items()}
