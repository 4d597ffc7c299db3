"""Converts a classic group to its saved metadata, and saved metadata to a group."""

from __future__ import annotations

from groupkeeper.coordinator.core.classic.group import ClassicGroup
from groupkeeper.coordinator.core.classic.member import ClassicMember, encoded_bytes
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.records import GroupRecord, SavedMember
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.membership import JoinProtocol
from groupkeeper.coordinator.core.state import ShardState


def to_record(group: ClassicGroup) -> GroupRecord:
    """Return the group's metadata as it must be saved now (docs/spec/groups.md#restart)."""
    return GroupRecord(
        group.group_id,
        group.protocol_type,
        group.generation_id,
        group.protocol_name,
        group.leader_id,
        group.state_timestamp_ms,
        tuple(
            SavedMember(
                m.member_id,
                m.group_instance_id,
                m.client.client_id,
                m.client.client_host,
                m.rebalance_timeout_ms,
                m.session_timeout_ms,
                m.metadata(group.protocol_name),
                m.assignment,
            )
            for m in group.members.values()
        ),
    )


def record_group(shard: ShardState, group: ClassicGroup) -> None:
    """Record the present metadata of a group, so that it survives a restart."""
    assigned = sum([len(member.assignment) for member in group.members.values()])
    shard.record(to_record(group), group.size_bytes + encoded_bytes(assigned))


def restore(group: ClassicGroup) -> None:
    """Rebuild the live state from the saved state. The group is then Stable if it has members, else
    Empty.
    """
    saved = group.saved
    if saved is None:
        return
    group.protocol_type = saved.protocol_type
    group.protocol_name = saved.protocol_name
    group.generation_id = saved.generation_id
    group.state_timestamp_ms = saved.state_timestamp_ms
    for kept in saved.members:
        # Only the chosen protocol of a member is saved. The member sends the others when it
        # rejoins.
        client = Client(kept.client_id, kept.client_host)
        member = ClassicMember(group.group_id, kept.member_id, kept.group_instance_id, client)
        member.session_timeout_ms = kept.session_timeout_ms
        member.rebalance_timeout_ms = kept.rebalance_timeout_ms
        member.offer((JoinProtocol(saved.protocol_name or "", kept.subscription),))
        member.assignment = kept.assignment
        group.add(member)
    group.leader_id = saved.leader_id
    state = GroupState.STABLE if group.members else GroupState.EMPTY
    group.count_state(group.state, state)
    group.state = state
