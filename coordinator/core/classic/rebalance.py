"""A rebalance: the join phase (PreparingRebalance), then the sync phase (CompletingRebalance).

See docs/spec/joining.md#adding to #completing and docs/spec/groups.md#timers; Kafka's
GroupMetadataManager.prepareRebalance and completeClassicGroupJoin.
"""

from __future__ import annotations

from groupkeeper.coordinator.core.classic.group import CONSUMER, ClassicGroup
from groupkeeper.coordinator.core.classic.member import ClassicMember
from groupkeeper.coordinator.core.classic.saved import record_group
from groupkeeper.coordinator.core.classic.transitions import MembershipChange
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    MemberEvicted,
    MemberFenced,
    RebalanceEnd,
    RebalanceStart,
)
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.requests.membership import JoinGroupResult, SyncGroupResult
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.protocol.consumer_protocol import ConsumerProtocolError, all_subscribed_topics


def follow_up(
    shard: ShardState, group: ClassicGroup, change: MembershipChange, reason: str, member_id: str
) -> None:
    """Carry out a change from the table ``AFTER_JOIN`` or ``AFTER_LEAVE``: start a rebalance, or
    complete the join phase if all have joined.
    """
    if change is MembershipChange.PREPARE:
        prepare(shard, group, reason, member_id)
    elif change is MembershipChange.TRY_COMPLETE:
        try_complete_join_phase(shard, group)


def prepare(shard: ShardState, group: ClassicGroup, reason: str, member_id: str) -> None:
    """Start a join phase that ``member_id`` caused; "" if no single member caused it
    (docs/spec/joining.md#preparing).
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
            group_id=group.group_id,
            generation_id=group.generation_id,
            member_id=member_id,
            reason=reason,
            members=len(group.members),
        )
    )
    if group.is_initial_rebalance:
        # KIP-134: the members of a new group get time to arrive.
        delay_ms = _initial_delay_ms(shard, group)
        group.initial_delay_left_ms = max(group.largest_rebalance_timeout_ms() - delay_ms, 0)
        _arm_join_phase(shard, group, delay_ms)
    elif group.all_joined():
        complete_join_phase(shard, group)
    else:
        _arm_join_phase(shard, group, group.largest_rebalance_timeout_ms())


def _initial_delay_ms(shard: ShardState, group: ClassicGroup) -> int:
    delay_ms = shard.overrides_of(group).initial_rebalance_delay_ms
    return shard.limits.initial_rebalance_delay_ms if delay_ms is None else delay_ms


def _arm_join_phase(shard: ShardState, group: ClassicGroup, wait_ms: int) -> None:
    """Set the deadline of the join phase to ``wait_ms`` from now, or to the time at which
    ``rebalance.max.join.ms`` ends the phase, if that is earlier.
    """
    at = shard.now.monotonic_ms + wait_ms
    bound_at = _join_bound_at(shard, group)
    shard.arm(group.join_phase, at if bound_at is None else min(at, bound_at))


def _join_bound_at(shard: ShardState, group: ClassicGroup) -> int | None:
    """Return the time at which ``rebalance.max.join.ms`` ends the current join phase; None if the
    group has no such config.
    """
    bound_ms = shard.overrides_of(group).rebalance_max_join_ms
    return None if bound_ms is None else group.rebalance_started_ms + bound_ms


def overrides_changed(shard: ShardState, group: ClassicGroup) -> None:
    """Apply a changed ``rebalance.max.join.ms`` to the current join phase. The phase may end
    earlier than before, but never later.
    """
    bound_at = _join_bound_at(shard, group)
    due_at = group.join_phase.at
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and bound_at is not None
        and due_at is not None
    ):
        shard.arm(group.join_phase, min(due_at, bound_at))


def resume(shard: ShardState, group: ClassicGroup, stopped_ms: int) -> None:
    """Start the phase of a rebalance again, after the group was not served for ``stopped_ms``.
    Members could not join or sync in this time, so they get the whole rebalance timeout. Only an
    initial delay continues with the time that was left.
    """
    group.rebalance_started_ms += stopped_ms
    timeout_ms = group.largest_rebalance_timeout_ms()
    due_at = group.join_phase.at
    if due_at is not None:
        left_ms = due_at + stopped_ms - shard.now.monotonic_ms
        _arm_join_phase(shard, group, left_ms if group.is_initial_rebalance else timeout_ms)
    if group.sync_phase.at is not None:
        shard.arm(group.sync_phase, shard.now.monotonic_ms + timeout_ms)


def _abandon_sync_phase(shard: ShardState, group: ClassicGroup) -> None:
    """Clear the unfinished assignment, and answer parked syncs with REBALANCE_IN_PROGRESS."""
    for member in group.members.values():
        member.assignment = b""
        if member.parked_sync is not None:
            answer_sync(shard, group, member, ErrorCode.REBALANCE_IN_PROGRESS)


def try_complete_join_phase(shard: ShardState, group: ClassicGroup) -> None:
    """Complete the join phase early if all members have joined.

    The initial delay is never cut short.
    """
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and not group.is_initial_rebalance
        and group.all_joined()
    ):
        complete_join_phase(shard, group)


def join_phase_due(shard: ShardState, group: ClassicGroup, _member_id: str = "") -> None:
    """Complete the join phase when its timer fires, or wait again if new members still arrive
    (KIP-134).
    """
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


def _is_join_bound_reached(shard: ShardState, group: ClassicGroup) -> bool:
    bound_at = _join_bound_at(shard, group)
    return bound_at is not None and shard.now.monotonic_ms >= bound_at


def complete_join_phase(shard: ShardState, group: ClassicGroup) -> None:
    """End the join phase: evict dynamic members that have not joined, begin the next generation,
    and answer every parked join.

    If only absent static members are left, start the timer of the join phase again instead, but not
    beyond ``rebalance.max.join.ms``. See docs/spec/joining.md#completing.
    """
    now = shard.now
    shard.deadlines.clear(group.join_phase)
    awaited = [m for m in group.members.values() if m.parked_join is None]
    for member in awaited:
        if member.group_instance_id is None:
            evict(shard, group, member, "join_timeout")
    if group.members and not _elect_leader(group):
        # Only absent static members are left: each may return until its session ends.
        if not _is_join_bound_reached(shard, group):
            _arm_join_phase(shard, group, group.largest_rebalance_timeout_ms())
            return
        for member in list(group.members.values()):
            evict(shard, group, member, "join_timeout")
    group.next_generation()
    if group.members:
        group.protocol_name = group.select_protocol()
        group.subscribed_topics = subscribed_topics(group)
        group.transition_to(GroupState.COMPLETING_REBALANCE, now.wall_ms)
        _answer_joins(shard, group)
        shard.arm(group.sync_phase, now.monotonic_ms + group.largest_rebalance_timeout_ms())
    else:
        group.protocol_name = None
        group.subscribed_topics = None
        group.transition_to(GroupState.EMPTY, now.wall_ms)
        record_group(shard, group)
    shard.event(
        RebalanceEnd(
            group_id=group.group_id,
            generation_id=group.generation_id,
            duration_ms=now.monotonic_ms - group.rebalance_started_ms,
            members=len(group.members),
            awaited=[m.member_id for m in awaited],
            protocol_name=group.protocol_name,
            leader_id=group.leader_id,
        )
    )


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """Return all topics that members subscribe to, or None if they are unknown.

    They are unknown in three cases: the group's protocol type is not ``consumer``, a subscription
    cannot be decoded, or the subscriptions have too many names to read in one step. Every topic
    then counts as subscribed.
    """
    if group.protocol_type != CONSUMER:
        return None
    try:
        # Most members send the same bytes, which are then read once.
        return all_subscribed_topics(
            dict.fromkeys([m.metadata(group.protocol_name) for m in group.members.values()])
        )
    except ConsumerProtocolError:
        return None


def _elect_leader(group: ClassicGroup) -> bool:
    """Keep the leader if its join is parked. Otherwise choose a member whose join is parked.

    Returns False if no join is parked.
    """
    leader = group.members.get(group.leader_id or "")
    if leader is not None and leader.parked_join is not None:
        return True
    for member in group.members.values():
        if member.parked_join is not None:
            group.leader_id = member.member_id
            return True
    return False


def _answer_joins(shard: ShardState, group: ClassicGroup) -> None:
    """Answer every parked join with the new generation.

    The sessions of all members start again, also of absent static members.
    """
    for member in group.members.values():
        ticket = group.release_join(member)
        if ticket is not None:
            shard.reply(ticket, generation_result(group, member))
        member.is_new = False
        shard.restart_session(member)
        group.pending_sync.add(member.member_id)


def generation_result(group: ClassicGroup, member: ClassicMember) -> JoinGroupResult:
    """Return the reply to a join in the current generation. Only the leader sees all members."""
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


def sync_phase_due(shard: ShardState, group: ClassicGroup, _member_id: str = "") -> None:
    """Evict the members that joined but did not sync in time, even if the group is Stable. Then
    begin a rebalance.

    See docs/spec/membership.md#sync-group and docs/spec/edge-cases.md#edge-40.
    """
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return
    laggards = [group.members[member_id] for member_id in sorted(group.pending_sync)]
    if not laggards:
        return
    for member in laggards:
        evict(shard, group, member, "sync_timeout")
    prepare(shard, group, "sync_timeout", laggards[0].member_id)


def synced(shard: ShardState, group: ClassicGroup, member: ClassicMember) -> None:
    """Record that a member sent its SyncGroup in this generation."""
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        shard.deadlines.clear(group.sync_phase)


def answer_sync(
    shard: ShardState, group: ClassicGroup, member: ClassicMember, error: ErrorCode
) -> None:
    """Answer a member's parked sync and restart its session."""
    ticket, member.parked_sync = member.parked_sync, None
    assert ticket is not None, "nothing is parked"
    shard.reply(ticket, sync_result(group, member, error))
    shard.restart_session(member)


def sync_result(group: ClassicGroup, member: ClassicMember, error: ErrorCode) -> SyncGroupResult:
    """Return the reply to a sync: the member's assignment, or only an error."""
    if error is not ErrorCode.NONE:
        return SyncGroupResult(error)
    return SyncGroupResult(
        ErrorCode.NONE, member.assignment, group.protocol_type, group.protocol_name
    )


def evict(shard: ShardState, group: ClassicGroup, member: ClassicMember, reason: str) -> None:
    """Remove a member and add the event ``member_evicted``. The caller decides whether the group
    rebalances.
    """
    shard.event(
        MemberEvicted(
            **group.event_fields(member, member.client),
            reason=reason,
        )
    )
    remove_member(shard, group, member)


def remove_member(shard: ShardState, group: ClassicGroup, member: ClassicMember) -> None:
    """Remove a member, and answer its parked requests with UNKNOWN_MEMBER_ID.

    Kafka drops a removed member's parked sync. Here every request is answered
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


def fence_parked(shard: ShardState, group: ClassicGroup, member: ClassicMember) -> None:
    """Answer a replaced static member's parked requests with FENCED_INSTANCE_ID."""
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
                **group.event_fields(member, member.client),
                api="JoinGroup" if join_ticket is not None else "SyncGroup",
                error=error.name,
            )
        )
