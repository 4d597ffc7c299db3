"""SyncGroup, Heartbeat, LeaveGroup, and the end of a member's session.

See docs/spec/membership.md and docs/spec/groups.md#timers.
"""

from __future__ import annotations

from groupkeeper.coordinator.core.classic import rebalance
from groupkeeper.coordinator.core.classic.assignment_event import assignment_event
from groupkeeper.coordinator.core.classic.group import ClassicGroup
from groupkeeper.coordinator.core.classic.member import ClassicMember, encoded_bytes
from groupkeeper.coordinator.core.classic.saved import record_group
from groupkeeper.coordinator.core.classic.transitions import (
    AFTER_LEAVE,
    HEARTBEAT_ANSWER,
    SYNC_ACTION,
    SYNC_REFUSAL,
    MembershipChange,
    SyncAction,
)
from groupkeeper.coordinator.core.dispatch import handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberLeave, quoted
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.limits import NEW_MEMBER_JOIN_TIMEOUT_MS
from groupkeeper.coordinator.core.request_events import add_refused_event
from groupkeeper.coordinator.core.requests.membership import (
    EndSession,
    Heartbeat,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncGroupResult,
)
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Ticket

# --- Heartbeat ---


@handles(Heartbeat, GroupType.CLASSIC)
def heartbeat(
    shard: ShardState, group: ClassicGroup | None, request: Heartbeat, ticket: Ticket
) -> None:
    """Answer a Heartbeat.

    NONE and REBALANCE_IN_PROGRESS need not wait for earlier writes (docs/design.md#durable-first).
    """
    member = None if group is None else group.members.get(request.member_id)
    if (
        group is None
        or member is None
        or request.group_instance_id is not None
        or request.generation_id != group.generation_id
    ):
        # For a dynamic member of this generation the checks above are enough.
        error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else group.generation_error(request)
        if error or group is None:
            _refuse_heartbeat(shard, group, request, ticket, error)
            return
        member = group.members[request.member_id]
    shard.restart_session(member)
    shard.step.answer = HEARTBEAT_ANSWER[group.state]


def _refuse_heartbeat(
    shard: ShardState,
    group: ClassicGroup | None,
    request: Heartbeat,
    ticket: Ticket,
    error: ErrorCode,
) -> None:
    # A group with an empty id may have offsets, but no members. So only a refusal checks the id.
    if request.group_id == "":
        error = ErrorCode.INVALID_GROUP_ID
    elif group is not None:
        add_refused_event(shard, group, request, request.generation_id, error)
    shard.reply(ticket, error)


# --- SyncGroup ---


@handles(SyncGroup, GroupType.CLASSIC)
def sync_group(
    shard: ShardState, group: ClassicGroup | None, request: SyncGroup, ticket: Ticket
) -> None:
    """Answer a SyncGroup, or park it until the leader's SyncGroup arrives."""
    error = _sync_error(group, request)
    if error is not ErrorCode.NONE:
        if group is not None and error is not ErrorCode.REBALANCE_IN_PROGRESS:
            add_refused_event(shard, group, request, request.generation_id, error)
        shard.reply(ticket, SyncGroupResult(error))
        return
    assert group is not None, "no group is an error"
    member = group.members[request.member_id]
    if SYNC_ACTION[group.state] is SyncAction.ANSWER:
        rebalance.synced(shard, group, member)
        shard.reply(ticket, rebalance.sync_result(group, member, ErrorCode.NONE))
        return
    is_leader = member.member_id == group.leader_id
    if is_leader and not _fits(shard, group, request):
        shard.reply(ticket, SyncGroupResult(ErrorCode.UNKNOWN_SERVER_ERROR))
        return
    if is_leader and not _has_room(shard, group, request):
        # On this error clients find the coordinator again and rejoin after their back-off.
        shard.reply(ticket, SyncGroupResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    _park_sync(shard, group, member, ticket)
    if is_leader:
        _store_assignment(shard, group, request)


def _sync_error(group: ClassicGroup | None, request: SyncGroup) -> ErrorCode:
    """Return the first error of the checks in docs/spec/membership.md#sync-group, else NONE."""
    if request.group_id == "":
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.generation_error(request)
    if error is not ErrorCode.NONE:
        return error
    for sent, known in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if sent is not None and known is not None and sent != known:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return SYNC_REFUSAL.get(group.state, ErrorCode.NONE)


def _park_sync(
    shard: ShardState, group: ClassicGroup, member: ClassicMember, ticket: Ticket
) -> None:
    superseded, member.parked_sync = member.parked_sync, ticket
    if superseded is not None:
        shard.reply(superseded, SyncGroupResult(ErrorCode.REBALANCE_IN_PROGRESS))
    rebalance.synced(shard, group, member)


def _fits(shard: ShardState, group: ClassicGroup, request: SyncGroup) -> bool:
    """Return True if the group's record with these assignments, and its event, fit into a step.

    The group's offsets do not count, as in a join.
    """
    limits = shard.limits
    size = _assigned_bytes(group, request) + group.size_bytes
    return size + group.size_bytes <= limits.max_step_bytes and size <= limits.max_group_bytes


def _has_room(shard: ShardState, group: ClassicGroup, request: SyncGroup) -> bool:
    """Return whether the limit for the assignments of all groups has room for these assignments."""
    assigned = _assigned_bytes(group, request)
    return shard.admits_assignment(assigned, assigned - group.reserved_bytes)


def _assigned_bytes(group: ClassicGroup, request: SyncGroup) -> int:
    return sum(
        encoded_bytes(len(data))
        for member_id, data in dict(request.assignments).items()
        if member_id in group.members
    )


def _store_assignment(shard: ShardState, group: ClassicGroup, request: SyncGroup) -> None:
    """Store the leader's assignment and make the group Stable.

    Members that the leader left out receive an empty assignment (docs/spec/edge-cases.md#edge-32).
    """
    assigned = dict(request.assignments)
    for member in group.members.values():
        member.assignment = assigned.get(member.member_id, b"")
    group.transition_to(GroupState.STABLE, shard.now.wall_ms)
    record_group(shard, group)
    shard.event(assignment_event(group, shard.limits.max_step_bytes))
    for member in group.members.values():
        if member.parked_sync is not None:
            rebalance.answer_sync(shard, group, member, ErrorCode.NONE)


# --- LeaveGroup ---


@handles(LeaveGroup, GroupType.CLASSIC)
def leave_group(
    shard: ShardState, group: ClassicGroup | None, request: LeaveGroup, ticket: Ticket
) -> None:
    """Remove members. Each entry gets its own error. At most one rebalance begins, even if several
    members leave.
    """
    if request.group_id == "":
        shard.reply(ticket, LeaveGroupResult(ErrorCode.INVALID_GROUP_ID))
        return
    left = tuple(
        LeftMember(
            leaving.member_id,
            leaving.group_instance_id,
            ErrorCode.UNKNOWN_MEMBER_ID
            if group is None
            else _leave(shard, group, leaving, request),
        )
        for leaving in request.members
    )
    shard.reply(ticket, LeaveGroupResult(ErrorCode.NONE, left))
    gone = [member for member in left if member.error is ErrorCode.NONE]
    if group is not None and gone:
        change = AFTER_LEAVE[group.state]
        rebalance.follow_up(shard, group, change, "member_leave", gone[0].member_id)


def _leave(
    shard: ShardState, group: ClassicGroup, leaving: LeavingMember, request: LeaveGroup
) -> ErrorCode:
    """Remove the member that one entry names, and return the error of the entry
    (docs/spec/membership.md#leave-group).
    """
    member_id = leaving.member_id
    if member_id == "":
        # An administrative removal names only the instance.
        known = group.static_members.get(leaving.group_instance_id or "")
        if leaving.group_instance_id is None or known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = known
    elif member_id in group.pending_members:
        shard.deadlines.clear(group.pending_members.pop(member_id))
        return ErrorCode.NONE
    else:
        error = group.identity_error(member_id, leaving.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
    member = group.members[member_id]
    shard.event(
        MemberLeave(
            **group.event_fields(member, request.client),
            reason=leaving.reason and quoted(leaving.reason),
        )
    )
    rebalance.remove_member(shard, group, member)
    return ErrorCode.NONE


# --- sessions ---


def session_due(shard: ShardState, group: ClassicGroup, member_id: str) -> None:
    """Evict a member that was silent for its session timeout, or remove a pending member id
    (KIP-394).

    A member with a parked request stays, because the answer restarts its session. Only a member in
    its first join phase is evicted nevertheless. See docs/spec/groups.md#timers.
    """
    member = group.members.get(member_id)
    is_parked = member is not None and (
        member.parked_join is not None or member.parked_sync is not None
    )
    if member is not None and is_parked and not member.is_new:
        return  # the member waits for our answer, which restarts its session
    _lose(shard, group, member_id)


@handles(EndSession, GroupType.CLASSIC)
def end_session(
    shard: ShardState, group: ClassicGroup | None, request: EndSession, ticket: Ticket
) -> None:
    """Evict a member at once, even if it has a parked request. Only tests of clients send this
    request.
    """
    member_id = request.member_id
    if group is None or (member_id not in group.members and member_id not in group.pending_members):
        shard.reply(ticket, ErrorCode.UNKNOWN_MEMBER_ID)
        return
    pending = group.pending_members.get(member_id)
    if pending is not None:
        shard.deadlines.clear(pending)
    shard.reply(ticket, ErrorCode.NONE)
    _lose(shard, group, member_id)


def _lose(shard: ShardState, group: ClassicGroup, member_id: str) -> None:
    """Remove a member or a pending id that was silent for too long. If needed, begin a rebalance of
    the other members, or complete the join phase.
    """
    if group.pending_members.pop(member_id, None) is not None:
        rebalance.try_complete_join_phase(shard, group)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    is_first = member.is_new and member.session_length_ms == NEW_MEMBER_JOIN_TIMEOUT_MS
    reason = "new_member_timeout" if is_first else "session_timeout"
    rebalance.evict(shard, group, member, reason)
    change = AFTER_LEAVE[group.state]
    if change is not MembershipChange.TRY_COMPLETE:
        rebalance.follow_up(shard, group, change, reason, member_id)
    elif group.all_joined():
        # This applies during the initial delay too (Kafka: removeMemberAndUpdateGroup).
        rebalance.complete_join_phase(shard, group)
