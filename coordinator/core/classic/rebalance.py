"""A rebalance: the join phase (PreparingRebalance), then the sync phase (CompletingRebalance).

docs/spec/joining.md#adding to #completing, docs/spec/groups.md#timers; Kafka's
GroupMetadataManager.prepareRebalance and completeClassicGroupJoin.
"""

from __future__ import annotations

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    MemberEvicted,
    MemberFenced,
    RebalanceEnd,
    RebalanceStart,
    of_client,
)
from groupkeeper.coordinator.core.groups.group import Group, Member
from groupkeeper.coordinator.core.groups.transitions import MembershipChange
from groupkeeper.coordinator.core.requests import (
    GroupState,
    JoinGroupResult,
    SyncGroupResult,
)
from groupkeeper.coordinator.core.state import ShardState


def follow_up(
    shard: ShardState, group: Group, change: MembershipChange, reason: str, member_id: str
) -> None:
    """Do what the tables AFTER_JOIN and AFTER_LEAVE say."""
    if change is MembershipChange.PREPARE:
        prepare(shard, group, reason, member_id)
    elif change is MembershipChange.TRY_COMPLETE:
        try_complete_join_phase(shard, group)


def prepare(shard: ShardState, group: Group, reason: str, member_id: str) -> None:
    """Start a join phase (docs/spec/joining.md#preparing); ``member_id`` is the member that caused
    it.
    """
    now = shard.now
    if group.state is GroupState.COMPLETING_REBALANCE:
        _abandon_sync_phase(shard, group)
    group.pending_sync.clear()
    shard.deadlines.clear(group.sync_phase)
    group.is_initial_rebalance = group.state is GroupState.EMPTY
    group.transition_to(GroupState.PREPARING_REBALANCE, now.wall_ms)
    group.rebalance_started_ms = now.monotonic_ms
    group.new_member_added = False
    shard.event(
        RebalanceStart(
            group=group.group_id,
            generation=group.generation_id,
            member_id=member_id,
            reason=reason,
            members=len(group.members),
        )
    )
    if group.is_initial_rebalance:
        # KIP-134: give the other members of a group that starts up the time to arrive.
        delay_ms = _initial_delay_ms(shard, group)
        group.initial_delay_left_ms = max(group.largest_rebalance_timeout_ms() - delay_ms, 0)
        _arm_join_phase(shard, group, delay_ms)
    elif group.all_joined():
        complete_join_phase(shard, group)
    else:
        _arm_join_phase(shard, group, group.largest_rebalance_timeout_ms())


def _initial_delay_ms(shard: ShardState, group: Group) -> int:
    delay_ms = shard.settings_of(group).initial_rebalance_delay_ms
    return shard.limits.initial_rebalance_delay_ms if delay_ms is None else delay_ms


def _arm_join_phase(shard: ShardState, group: Group, wait_ms: int) -> None:
    """Wait for members, but not beyond what the group's configs allow for the whole phase."""
    at = shard.now.monotonic_ms + wait_ms
    bound_at = _join_bound_at(shard, group)
    shard.arm(group.join_phase, at if bound_at is None else min(at, bound_at))


def _join_bound_at(shard: ShardState, group: Group) -> int | None:
    """When ``rebalance.max.join.ms`` ends the join phase that is running."""
    bound_ms = shard.settings_of(group).rebalance_max_join_ms
    return None if bound_ms is None else group.rebalance_started_ms + bound_ms


def settings_changed(shard: ShardState, group: Group) -> None:
    """A join phase that is running is bound by what was set just now."""
    bound_at = _join_bound_at(shard, group)
    due_at = group.join_phase.at
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and bound_at is not None
        and due_at is not None
    ):
        shard.arm(group.join_phase, min(due_at, bound_at))


def _abandon_sync_phase(shard: ShardState, group: Group) -> None:
    """The assignment that was being made is void: who waits for it must join again."""
    for member in group.members.values():
        member.assignment = b""
        if member.parked_sync is not None:
            answer_sync(shard, group, member, ErrorCode.REBALANCE_IN_PROGRESS)


def try_complete_join_phase(shard: ShardState, group: Group) -> None:
    """Complete the join phase early, if all are there; the initial delay is never cut short."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and not group.is_initial_rebalance
        and group.all_joined()
    ):
        complete_join_phase(shard, group)


def join_phase_due(shard: ShardState, group: Group) -> None:
    """The join timer fired: complete, or wait once more where newcomers still arrive (KIP-134)."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    bound_reached = _is_join_bound_reached(shard, group)
    waits_on = group.new_member_added and group.initial_delay_left_ms > 0 and not bound_reached
    if group.is_initial_rebalance and waits_on:
        group.new_member_added = False
        step_ms = min(_initial_delay_ms(shard, group), group.initial_delay_left_ms)
        group.initial_delay_left_ms -= step_ms
        _arm_join_phase(shard, group, step_ms)
        return
    complete_join_phase(shard, group)


def _is_join_bound_reached(shard: ShardState, group: Group) -> bool:
    bound_at = _join_bound_at(shard, group)
    return bound_at is not None and shard.now.monotonic_ms >= bound_at


def complete_join_phase(shard: ShardState, group: Group) -> None:
    """End the join phase: next generation, and every parked join is answered
    (docs/spec/joining.md#completing).
    """
    now = shard.now
    shard.deadlines.clear(group.join_phase)
    awaited = [m for m in group.members.values() if m.parked_join is None]
    for member in awaited:
        if member.group_instance_id is None:
            evict(shard, group, member, "join_timeout")
    if group.members and not _elect_leader(group):
        # Only static members that did not come back are left: they have until their sessions end.
        if not _is_join_bound_reached(shard, group):
            _arm_join_phase(shard, group, group.largest_rebalance_timeout_ms())
            return
        for member in list(group.members.values()):
            evict(shard, group, member, "join_timeout")
    group.next_generation()
    if group.members:
        group.protocol_name = group.select_protocol()
        group.subscribed_topics = group.compute_subscribed_topics()
        group.transition_to(GroupState.COMPLETING_REBALANCE, now.wall_ms)
        _answer_joins(shard, group)
        shard.arm(group.sync_phase, now.monotonic_ms + group.largest_rebalance_timeout_ms())
    else:
        group.protocol_name = None
        group.subscribed_topics = None
        group.transition_to(GroupState.EMPTY, now.wall_ms)
        shard.record_group(group)
    shard.event(
        RebalanceEnd(
            group=group.group_id,
            generation=group.generation_id,
            duration_ms=now.monotonic_ms - group.rebalance_started_ms,
            members=len(group.members),
            awaited=[m.member_id for m in awaited],
            protocol_name=group.protocol_name,
            leader_id=group.leader_id,
        )
    )


def _elect_leader(group: Group) -> bool:
    """Keep the leader if it is there, else take any parked member; False: nobody is parked."""
    leader = group.members.get(group.leader_id or "")
    if leader is not None and leader.parked_join is not None:
        return True
    for member in group.members.values():
        if member.parked_join is not None:
            group.leader_id = member.member_id
            return True
    return False


def _answer_joins(shard: ShardState, group: Group) -> None:
    """Tell everyone the new generation; sessions start again, for absent static members too."""
    for member in group.members.values():
        ticket = group.release_join(member)
        if ticket is not None:
            shard.reply(ticket, generation_result(group, member))
        member.is_new = False
        restart_session(shard, member)
        group.pending_sync.add(member.member_id)


def generation_result(group: Group, member: Member) -> JoinGroupResult:
    """The answer to a join that belongs to the current generation; the leader sees the members."""
    return JoinGroupResult(
        ErrorCode.NONE,
        member.member_id,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id or "",
        False,
        group.members_for_leader() if member.member_id == group.leader_id else (),
    )


def sync_phase_due(shard: ShardState, group: Group) -> None:
    """The sync timer fired: who joined but never synced goes, Stable or not
    (docs/spec/membership.md#sync-group, docs/spec/edge-cases.md#edge-40).
    """
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return
    laggards = [group.members[member_id] for member_id in sorted(group.pending_sync)]
    if not laggards:
        return
    for member in laggards:
        evict(shard, group, member, "sync_timeout")
    prepare(shard, group, "sync_timeout", laggards[0].member_id)


def synced(shard: ShardState, group: Group, member: Member) -> None:
    """A member's SyncGroup arrived in this generation."""
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        shard.deadlines.clear(group.sync_phase)


def answer_sync(shard: ShardState, group: Group, member: Member, error: ErrorCode) -> None:
    """Answer a member's parked sync and start its session afresh."""
    ticket, member.parked_sync = member.parked_sync, None
    assert ticket is not None, "nothing is parked"
    shard.reply(ticket, sync_result(group, member, error))
    restart_session(shard, member)


def sync_result(group: Group, member: Member, error: ErrorCode) -> SyncGroupResult:
    """The answer to a sync: the member's assignment, or an error and nothing else."""
    if error is not ErrorCode.NONE:
        return SyncGroupResult(error)
    return SyncGroupResult(
        ErrorCode.NONE, member.assignment, group.protocol_type, group.protocol_name
    )


def restart_session(shard: ShardState, member: Member) -> None:
    """The member was heard of: its session lasts from now, a new member's too that waits to join
    (Kafka: rescheduleClassicGroupMemberHeartbeat).
    """
    member.session_length_ms = length_ms = member.session_timeout_ms
    if shard.deadlines.arm(member.session, shard.now.monotonic_ms + length_ms):
        shard.step.sets_alarm = True


def begin_session(shard: ShardState, member: Member, length_ms: int) -> None:
    """Let the member's session be so long."""
    member.session_length_ms = length_ms
    shard.arm(member.session, shard.now.monotonic_ms + length_ms)


def evict(shard: ShardState, group: Group, member: Member, reason: str) -> None:
    """Remove a member by the coordinator's own decision; what follows is the caller's."""
    shard.event(
        MemberEvicted(
            group=group.group_id,
            generation=group.generation_id,
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            **of_client(member.client),
            reason=reason,
        )
    )
    remove_member(shard, group, member)


def remove_member(shard: ShardState, group: Group, member: Member) -> None:
    """Take a member out; what it has parked is answered UNKNOWN_MEMBER_ID.

    Kafka drops a parked sync of a removed member; nothing may go unanswered here
    (docs/understand/differences.md#nobody-waits-in-vain, docs/spec/edge-cases.md#edge-118).
    """
    shard.deadlines.clear(member.session)
    ticket = group.release_join(member)
    if ticket is not None:
        shard.reply(ticket, JoinGroupResult(ErrorCode.UNKNOWN_MEMBER_ID, ""))
    ticket, member.parked_sync = member.parked_sync, None
    if ticket is not None:
        shard.reply(ticket, SyncGroupResult(ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member)
    shard.note_metadata()


def fence_parked(shard: ShardState, group: Group, member: Member) -> None:
    """Another client took the place of this static member: what it has parked is answered so."""
    join_ticket = group.release_join(member)
    sync_ticket, member.parked_sync = member.parked_sync, None
    error = ErrorCode.FENCED_INSTANCE_ID
    if join_ticket is not None:
        shard.reply(join_ticket, JoinGroupResult(error, member.member_id))
    if sync_ticket is not None:
        shard.reply(sync_ticket, SyncGroupResult(error))
    if join_ticket is not None or sync_ticket is not None:
        shard.event(
            MemberFenced(
                group=group.group_id,
                generation=group.generation_id,
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                **of_client(member.client),
                api="JoinGroup" if join_ticket is not None else "SyncGroup",
                error=error.name,
            )
        )
