"""JoinGroup: which members may enter a group, and what happens when one enters.

See docs/spec/joining.md#join-group and #static-members.
"""

from __future__ import annotations

from groupkeeper.coordinator.core.classic import rebalance
from groupkeeper.coordinator.core.classic.group import ClassicGroup
from groupkeeper.coordinator.core.classic.member import ClassicMember, member_bytes, metadata_bytes
from groupkeeper.coordinator.core.classic.saved import record_group
from groupkeeper.coordinator.core.classic.transitions import (
    AFTER_JOIN,
    REJOIN_ACTION,
    STATIC_REJOIN_ACTION,
    RejoinAction,
    StaticRejoinAction,
)
from groupkeeper.coordinator.core.deadlines import Deadline, DeadlineKind
from groupkeeper.coordinator.core.dispatch import handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberJoin, quoted
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.limits import NEW_MEMBER_JOIN_TIMEOUT_MS
from groupkeeper.coordinator.core.request_events import add_created_event, add_refused_event
from groupkeeper.coordinator.core.requests.membership import (
    JoinGroup,
    JoinGroupResult,
    JoinProtocol,
)
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Ticket


@handles(JoinGroup, GroupType.CLASSIC)
def join_group(
    shard: ShardState, group: ClassicGroup | None, request: JoinGroup, ticket: Ticket
) -> None:
    """Answer a JoinGroup, or park it until its join phase ends."""
    limits = shard.limits
    if request.group_id == "":
        _refuse(shard, request, ticket, ErrorCode.INVALID_GROUP_ID)
        return
    timeout_ms = request.session_timeout_ms
    if not limits.min_session_timeout_ms <= timeout_ms <= limits.max_session_timeout_ms:
        _refuse(shard, request, ticket, ErrorCode.INVALID_SESSION_TIMEOUT)
        return
    if group is None:
        if request.member_id != "":
            _refuse(shard, request, ticket, ErrorCode.UNKNOWN_MEMBER_ID)
            return
        group = ClassicGroup(request.group_id, shard.tally)
        if group.size_bytes > min(limits.max_step_bytes, limits.max_group_bytes):
            shard.reply(ticket, JoinGroupResult(ErrorCode.UNKNOWN_SERVER_ERROR, ""))
            return
        if not shard.census.admits():
            shard.reply(ticket, JoinGroupResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, ""))
            return
        _create(shard, group, request)
    _join(shard, group, request, ticket)


def _create(shard: ShardState, group: ClassicGroup, request: JoinGroup) -> None:
    """Add and record the new group. The group exists even if this join is refused later.

    See docs/spec/edge-cases.md#edge-5.
    """
    group.state_timestamp_ms = shard.now.wall_ms
    shard.enter(group)
    record_group(shard, group)
    add_created_event(shard, request)


def _join(shard: ShardState, group: ClassicGroup, request: JoinGroup, ticket: Ticket) -> None:
    protocols = without_duplicates(request.protocols)
    if not _has_room(shard, group, request.member_id):
        _turn_away(shard, group, request, ticket)
    elif not group.supports(request.protocol_type, protocols):
        _refuse(shard, request, ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif error := room_error(shard, group, request, protocols):
        shard.reply(ticket, JoinGroupResult(error, ""))
    elif request.member_id == "":
        _join_unknown(shard, group, request, protocols, ticket)
    elif request.member_id in group.pending_members:
        _join_pending(shard, group, request, protocols, ticket)
    else:
        error = group.identity_error(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            add_refused_event(shard, group, request, group.generation_id, error)
            _refuse(shard, request, ticket, error)
            return
        _rejoin(shard, group, group.members[request.member_id], request, protocols, ticket)


def _refuse(shard: ShardState, request: JoinGroup, ticket: Ticket, error: ErrorCode) -> None:
    """Answer with an error, and with the member id of the request."""
    shard.reply(ticket, JoinGroupResult(error, request.member_id))


def without_duplicates(protocols: tuple[JoinProtocol, ...]) -> tuple[JoinProtocol, ...]:
    """Keep the first protocol of each name.

    Kafka never answers a member whose join repeats a name (docs/spec/edge-cases.md#edge-21).
    """
    unique = {p.name: p for p in reversed(protocols)}
    if len(unique) == len(protocols):
        return protocols
    return tuple(p for p in protocols if unique[p.name] is p)


# --- limits ---


def _has_room(shard: ShardState, group: ClassicGroup, member_id: str) -> bool:
    """Return True if ``group.max.size`` admits the member. This depends on the state of the group.

    See docs/spec/joining.md#size; Kafka's acceptJoiningMember.
    """
    limit = shard.limits.group_max_size
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        # If the limit was lowered, the members that rejoin last are refused.
        is_parked = member is not None and member.parked_join is not None
        return is_parked or group.parked_joins < limit
    return member is not None or len(group.members) < limit


def _turn_away(shard: ShardState, group: ClassicGroup, request: JoinGroup, ticket: Ticket) -> None:
    """Refuse a member that exceeds ``group.max.size``. If it was a member or had a pending id,
    remove it.
    """
    shard.reply(ticket, JoinGroupResult(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
    pending = group.pending_members.pop(request.member_id, None)
    if pending is not None:
        shard.deadlines.clear(pending)
    member = group.members.get(request.member_id)
    if member is not None:
        rebalance.evict(shard, group, member, "group_max_size")
    if pending is not None or member is not None:
        rebalance.try_complete_join_phase(shard, group)


def room_error(
    shard: ShardState, group: ClassicGroup, request: JoinGroup, protocols: tuple[JoinProtocol, ...]
) -> ErrorCode:
    """Return the error if the group or the coordinator has no room for this member, else NONE. It
    is asked before any change (docs/design.md#bounds).
    """
    limits, client_id = shard.limits, request.client.client_id
    member_id = request.member_id or request.new_member_id
    size_bytes = member_bytes(member_id, request.group_instance_id, client_id, protocols)
    metadata = metadata_bytes(protocols)
    present = _present_member(group, request)
    added_bytes = size_bytes - (0 if present is None else present.size_bytes)
    most = limits.max_step_bytes
    if added_bytes > 0:  # the limit of a group may have been larger before
        most = min(most, limits.max_group_bytes)
    # The group's offsets do not count: they must not keep a consumer out of its group.
    if group.size_bytes + added_bytes > most:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    held = 0 if present is None else present.metadata_bytes
    if not shard.admits_metadata(metadata, metadata - held):
        # On this error clients find the coordinator again and repeat the join after their back-off.
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NONE


def _present_member(group: ClassicGroup, request: JoinGroup) -> ClassicMember | None:
    """Return the member that joins again, or the static member that this join replaces."""
    member_id = request.member_id or group.static_members.get(request.group_instance_id or "", "")
    return group.members.get(member_id)


# --- newcomers ---


def _join_unknown(
    shard: ShardState,
    group: ClassicGroup,
    request: JoinGroup,
    protocols: tuple[JoinProtocol, ...],
    ticket: Ticket,
) -> None:
    """Handle a join without a member id: a new member, or a static member that returns."""
    if request.group_instance_id is not None:
        old_id = group.static_members.get(request.group_instance_id)
        if old_id is not None:
            _replace_static(shard, group, group.members[old_id], request, protocols, ticket)
        else:
            _add(shard, group, request.new_member_id, request, protocols, ticket)
    elif request.requires_known_member_id:
        # KIP-394: a client that dies before its second join must not delay the rebalance. The first
        # join only returns an id. The member exists when it joins with that id.
        pending = Deadline(DeadlineKind.SESSION, (group.group_id, request.new_member_id))
        group.pending_members[request.new_member_id] = pending
        shard.arm(pending, shard.now.monotonic_ms + request.session_timeout_ms)
        shard.reply(ticket, JoinGroupResult(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id))
    else:
        _add(shard, group, request.new_member_id, request, protocols, ticket)


def _join_pending(
    shard: ShardState,
    group: ClassicGroup,
    request: JoinGroup,
    protocols: tuple[JoinProtocol, ...],
    ticket: Ticket,
) -> None:
    """Handle the second join of KIP-394, which has the id from the answer to the first one."""
    if request.group_instance_id is not None:
        # Kafka throws here: only dynamic members receive an id this way
        # (docs/spec/edge-cases.md#edge-11).
        shard.reply(ticket, JoinGroupResult(ErrorCode.UNKNOWN_SERVER_ERROR, ""))
        return
    shard.deadlines.clear(group.pending_members.pop(request.member_id))
    _add(shard, group, request.member_id, request, protocols, ticket)


def _add(
    shard: ShardState,
    group: ClassicGroup,
    member_id: str,
    request: JoinGroup,
    protocols: tuple[JoinProtocol, ...],
    ticket: Ticket,
) -> None:
    """Add a new member and park its join (docs/spec/joining.md#adding)."""
    member = ClassicMember(group.group_id, member_id, request.group_instance_id, request.client)
    member.offer(protocols)
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.is_new = True
    member.join_time_ms = shard.now.wall_ms
    if not group.members:
        group.protocol_type = request.protocol_type
    group.add(member)
    if group.state is GroupState.PREPARING_REBALANCE and group.is_initial_rebalance:
        group.new_member_added = True
    group.park_join(member, ticket)
    # Without this session a new member whose client gave up would stay as long as its join is
    # parked.
    shard.begin_session(member, NEW_MEMBER_JOIN_TIMEOUT_MS)
    _add_join_event(shard, group, member, request, replaces=None)
    rebalance.follow_up(shard, group, AFTER_JOIN[group.state], "member_join", member_id)


def _add_join_event(
    shard: ShardState,
    group: ClassicGroup,
    member: ClassicMember,
    request: JoinGroup,
    replaces: str | None,
) -> None:
    shard.event(
        MemberJoin(
            **group.event_fields(member, request.client),
            protocols=[p.name for p in member.protocols],
            session_timeout_ms=member.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            replaces=replaces,
            reason=request.reason and quoted(request.reason),
        )
    )


# --- members that come back ---


def _rejoin(
    shard: ShardState,
    group: ClassicGroup,
    member: ClassicMember,
    request: JoinGroup,
    protocols: tuple[JoinProtocol, ...],
    ticket: Ticket,
) -> None:
    """Handle the join of an existing member, by the table ``REJOIN_ACTION``."""
    is_leader = member.member_id == group.leader_id
    changed = member.protocols != protocols
    action = REJOIN_ACTION[group.state, is_leader, changed]
    if action is RejoinAction.REFUSE:
        _refuse(shard, request, ticket, ErrorCode.UNKNOWN_MEMBER_ID)
        return
    if action is RejoinAction.ANSWER:
        shard.reply(ticket, rebalance.generation_result(group, member))
        return
    _update(group, member, request, protocols)
    superseded = group.park_join(member, ticket)
    if superseded is not None:
        # The client gave up waiting and asked again: only one of the two joins may succeed.
        result = JoinGroupResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        shard.reply(superseded, result)
    if action is RejoinAction.REBALANCE:
        reason = "member_changed" if changed else "leader_rejoin"
        rebalance.prepare(shard, group, reason, member.member_id)
    else:
        rebalance.try_complete_join_phase(shard, group)


def _update(
    group: ClassicGroup,
    member: ClassicMember,
    request: JoinGroup,
    protocols: tuple[JoinProtocol, ...],
) -> None:
    group.set_protocols(member, protocols)
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms


def _replace_static(
    shard: ShardState,
    group: ClassicGroup,
    old: ClassicMember,
    request: JoinGroup,
    protocols: tuple[JoinProtocol, ...],
    ticket: Ticket,
) -> None:
    """Give a new id to a static member that returned without a member id (KIP-345)."""
    leader_before = group.leader_id
    member = _take_over(shard, group, old, request, protocols)
    action = STATIC_REJOIN_ACTION[group.state]
    if action is StaticRejoinAction.KEEP and group.select_protocol() == group.protocol_name:
        # No rebalance, even if the subscription changed: the new metadata is saved, the assignment
        # stays.
        record_group(shard, group)
        shard.reply(ticket, _static_result(group, member, request, leader_before))
        return
    group.park_join(member, ticket)
    if action is StaticRejoinAction.PARK:
        rebalance.try_complete_join_phase(shard, group)
    else:
        rebalance.prepare(shard, group, "static_member_rejoin", member.member_id)


def _take_over(
    shard: ShardState,
    group: ClassicGroup,
    old: ClassicMember,
    request: JoinGroup,
    protocols: tuple[JoinProtocol, ...],
) -> ClassicMember:
    """Replace a static member by a member with its new id, and return that member. Answer the
    parked requests of the old id with FENCED_INSTANCE_ID.
    """
    member = ClassicMember(group.group_id, request.new_member_id, old.group_instance_id, old.client)
    member.offer(protocols)
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.assignment = old.assignment
    member.join_time_ms = shard.now.wall_ms
    rebalance.fence_parked(shard, group, old)
    shard.deadlines.clear(old.session)
    # Until the first heartbeat the session has the old member's timeout. This is as in Kafka, which
    # restarts the session before it reads the new timeouts
    # (updateStaticMemberThenRebalanceOrCompleteJoin).
    member.session_timeout_ms = old.session_timeout_ms
    shard.restart_session(member)
    member.session_timeout_ms = request.session_timeout_ms
    group.replace(old, member)
    _add_join_event(shard, group, member, request, replaces=old.member_id)
    return member


def _static_result(
    group: ClassicGroup, member: ClassicMember, request: JoinGroup, leader_before: str | None
) -> JoinGroupResult:
    """Return the reply to a static member that returned and keeps its generation.

    See KIP-814, docs/spec/edge-cases.md#edge-53 and #edge-54.
    """
    if request.supports_skip_assignment:
        leads = member.member_id == group.leader_id
        leader, members = group.leader_id, group.members_for_leader() if leads else ()
    else:
        # An old client that sees itself as leader would assign. So it receives the leader id that
        # the group had before the replacement.
        leads, leader, members = False, leader_before, ()
    return JoinGroupResult(
        ErrorCode.NONE,
        member.member_id,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        leader or "",
        leads,
        members,
    )
