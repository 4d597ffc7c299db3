"""Members of a consumer group that use the classic protocol: JoinGroup, SyncGroup, Heartbeat,
LeaveGroup.

See docs/spec/migration.md#classic-requests. These members get the partitions that the coordinator
assigns, and each change looks to them like a rebalance. None of their requests is parked.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from groupkeeper.coordinator.core.consumer import (
    admission,
    heartbeat,
    leaving,
    rebalance,
    static_members,
)
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.member import (
    ConsumerGroupMember,
    owned_partitions,
    room_bytes,
    same_subscription,
)
from groupkeeper.coordinator.core.consumer.reconciliation import ReconciliationState
from groupkeeper.coordinator.core.consumer_records import (
    ClassicProtocol,
    ClassicSession,
    ConsumerMember,
    ConsumerMemberFields,
    Partitions,
)
from groupkeeper.coordinator.core.dispatch import handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberJoin, MemberLeave, quoted
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.request_events import add_refused_event
from groupkeeper.coordinator.core.requests.membership import (
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncGroupResult,
)
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Ticket
from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    ConsumerProtocolError,
    MembersReader,
    Subscription,
    encode_assignment,
    subscription_version,
)

CONSUMER: Final = "consumer"
_NONE: Final = ErrorCode.NONE


# --- JoinGroup ---


def join_group(shard: ShardState, group: ConsumerGroup, request: JoinGroup, ticket: Ticket) -> None:
    """Answer a JoinGroup at once. As in Kafka, refusals have an empty member id, except
    MEMBER_ID_REQUIRED. The caller has checked the session timeout.
    """
    error = _join_error(shard, group, request)
    if error:
        shard.reply(ticket, JoinGroupResult(error, ""))
        return
    is_new = request.member_id == ""
    if is_new and request.group_instance_id is None and request.requires_known_member_id:
        # the coordinator does not remember this id (docs/spec/edge-cases.md#edge-113)
        shard.reply(ticket, JoinGroupResult(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id))
        return
    try:
        subscription = MembersReader().subscription(request.protocols[0].metadata)
    except ConsumerProtocolError:
        # docs/spec/edge-cases.md#edge-115
        shard.reply(ticket, JoinGroupResult(ErrorCode.UNKNOWN_SERVER_ERROR, ""))
        return
    member_id = request.new_member_id if is_new else request.member_id
    fields = _joined_fields(group, member_id, request, subscription)
    refusal = admission.room_refusal(shard, group, fields)
    if refusal is not None:
        shard.reply(ticket, JoinGroupResult(refusal.error, ""))
        return
    _join(shard, group, fields, request, subscription, ticket)


def _join_error(shard: ShardState, group: ConsumerGroup, request: JoinGroup) -> ErrorCode:
    if shard.limits.consumer_migration_policy == "disabled":
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    is_full = len(group.members) >= shard.limits.consumer_max_size
    if is_full and request.member_id not in group.members:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if request.protocol_type != CONSUMER or not _supports(group, request):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.group_instance_id is not None and request.member_id != "":
        return static_members.identity_error(group, request.member_id, request.group_instance_id)
    return _NONE


def _supports(group: ConsumerGroup, request: JoinGroup) -> bool:
    """Return True if all classic members support one of the protocols of this request."""
    support: Counter[str] = Counter()
    classic = 0
    for member in group.members.values():
        if member.fields.classic is not None:
            classic += 1
            support.update({protocol.name for protocol in member.fields.classic.protocols})
    return any(support[protocol.name] == classic for protocol in request.protocols)


def _joined_fields(
    group: ConsumerGroup, member_id: str, request: JoinGroup, subscription: Subscription
) -> ConsumerMemberFields:
    known = group.members.get(member_id)
    if request.group_instance_id is not None:
        known = group.members.get(group.static_members.get(request.group_instance_id, ""), known)
    fields = ConsumerMemberFields(member_id) if known is None else known.fields
    protocols = tuple([ClassicProtocol(p.name, p.metadata) for p in request.protocols])
    return ConsumerMemberFields(
        member_id,
        request.group_instance_id or fields.group_instance_id,
        subscription.rack_id or fields.rack_id,
        request.client.client_id,
        request.client.client_host,
        request.rebalance_timeout_ms,
        tuple(sorted({*subscription.topics})),
        None,  # a classic client matches patterns itself, and sends the topics that it found
        fields.server_assignor,
        ClassicSession(request.session_timeout_ms, protocols),
    )


def _join(
    shard: ShardState,
    group: ConsumerGroup,
    fields: ConsumerMemberFields,
    request: JoinGroup,
    subscription: Subscription,
    ticket: Ticket,
) -> None:
    """Add or update the member, begin a new epoch if needed, and answer with the member's epoch."""
    known = group.members.get(fields.member_id)
    before = None if known is None else known.fields
    replaced: str | None = None
    was_consumer = False
    if request.group_instance_id is not None:
        owner = group.members.get(group.static_members.get(request.group_instance_id, ""))
        was_consumer = owner is not None and owner.fields.classic is None
        if owner is not None and owner.member_id != fields.member_id:
            replaced = owner.member_id
            leaving.answer_parked(shard, owner, ErrorCode.FENCED_INSTANCE_ID)
            before = static_members.replace(shard, group, owner, fields)
    if known is not None:
        # Only a heartbeat of the consumer protocol can be parked, and this member has changed to
        # the classic protocol.
        leaving.answer_parked(shard, known, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if replaced is None and before != fields:
        shard.record(ConsumerMember(group.group_id, fields), room_bytes(fields))
    member = group.members[fields.member_id]
    member.client = request.client
    if before is None or replaced is not None:
        _add_join_event(shard, group, member, request, replaced)
    if was_consumer and _has_old_target(shard, group, member, before):
        # The classic group rebalances at once, so no target is computed for it.
        epoch = member.current.epoch
        if shard.members_removed(group):
            _reply_joined(shard, ticket, request, member.member_id, epoch)
            return
    changed = heartbeat.settle_subscription(shard, group, member, before)
    rebalance.update_target(shard, group)
    owned = _owned(shard, subscription)
    rebalance.follow(shard, group, member, owned, subscription_changed=changed)
    heartbeat.restart_session(shard, group, member)
    now_ms = shard.now.monotonic_ms
    shard.deadlines.clear(member.join_phase)
    shard.arm(member.sync_phase, now_ms + fields.rebalance_timeout_ms)
    _reply_joined(shard, ticket, request, member.member_id, member.current.epoch)
    if was_consumer:
        shard.members_removed(group, by_replacement=True)


def _reply_joined(
    shard: ShardState, ticket: Ticket, request: JoinGroup, member_id: str, epoch: int
) -> None:
    name = request.protocols[0].name
    shard.reply(ticket, JoinGroupResult(_NONE, member_id, epoch, CONSUMER, name))


def _has_old_target(
    shard: ShardState,
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    before: ConsumerMemberFields | None,
) -> bool:
    """Return True if the group needs a new target, now that this member has joined."""
    return (
        group.epochs.needs_target()
        or before is None
        or not same_subscription(before, member.fields)
        or group.subscriptions.metadata_hash(shard.image) != group.epochs.metadata_hash
    )


def _owned(shard: ShardState, subscription: Subscription) -> dict[str, set[int]]:
    """Return the partitions that a member reports as its own, by topic id.

    A subscription of version 0 cannot report partitions. So a join with such a subscription
    acknowledges that the member gave up every partition that it had to give up.
    """
    by_name = shard.image.by_name
    return {
        by_name[topic].topic_id: {*numbers}
        for topic, numbers in subscription.owned_partitions.items()
        if topic in by_name
    }


def _add_join_event(
    shard: ShardState,
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    request: JoinGroup,
    replaced: str | None,
) -> None:
    shard.event(
        MemberJoin(
            **group.event_fields(member, request.client),
            protocols=[protocol.name for protocol in request.protocols],
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            replaces=replaced,
            reason=request.reason and quoted(request.reason),
        )
    )


# --- SyncGroup and Heartbeat ---


def _error(group: ConsumerGroup, request: SyncGroup | Heartbeat) -> ErrorCode:
    """Return an error if the request does not come from a classic member, or does not have the
    current epoch of the member. Otherwise return NONE.
    """
    member_id = request.member_id
    error = static_members.identity_error(group, member_id, request.group_instance_id)
    if error:
        return error
    member = group.members[member_id]
    if member.fields.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if request.generation_id != member.current.epoch:
        return ErrorCode.ILLEGAL_GENERATION
    return _NONE


@handles(SyncGroup, GroupType.CONSUMER)
def sync_group(shard: ShardState, group: ConsumerGroup, request: SyncGroup, ticket: Ticket) -> None:
    """Answer with the member's partitions. If the member must join again first, answer with
    REBALANCE_IN_PROGRESS.
    """
    error = _error(group, request)
    if error:
        add_refused_event(shard, group, request, request.generation_id, error)
        shard.reply(ticket, SyncGroupResult(error))
        return
    member = group.members[request.member_id]
    session = member.fields.classic
    assert session is not None, "others are refused"
    name = session.protocols[0].name
    wrong_type = request.protocol_type is not None and request.protocol_type != CONSUMER
    if wrong_type or (request.protocol_name is not None and request.protocol_name != name):
        shard.reply(ticket, SyncGroupResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    shard.deadlines.clear(member.sync_phase)
    heartbeat.restart_session(shard, group, member)
    is_revoking = member.current.state == ReconciliationState.UNREVOKED_PARTITIONS
    if member.current.epoch < group.epochs.target and not is_revoking:
        _expect_join(shard, member)
        shard.reply(ticket, SyncGroupResult(ErrorCode.REBALANCE_IN_PROGRESS))
        return
    assigned = member.current.assigned.items()
    data = _encode(shard, member, {t: tuple([n for n, _ in parts]) for t, parts in assigned})
    shard.reply(ticket, SyncGroupResult(_NONE, data, request.protocol_type, request.protocol_name))


def _encode(shard: ShardState, member: ConsumerGroupMember, partitions: Partitions) -> bytes:
    """Encode partitions as an assignment of the consumer protocol, in the version of the member's
    own subscription. Deleted topics are left out.
    """
    session = member.fields.classic
    assert session is not None, "a member of the consumer protocol is told its partitions"
    by_id = shard.image.by_id
    named = {by_id[topic].name: [*parts] for topic, parts in partitions.items() if topic in by_id}
    version = subscription_version(session.protocols[0].metadata)
    return encode_assignment(ConsumerAssignment(version, named))


def encode_target(shard: ShardState, member: ConsumerGroupMember) -> bytes:
    """Encode the target of a classic member as an assignment of the consumer protocol."""
    return _encode(shard, member, member.target)


def encode_owned(shard: ShardState, member: ConsumerGroupMember) -> bytes:
    """Encode the partitions that a classic member has, also those that it must give up, as an
    assignment of the consumer protocol.
    """
    owned = owned_partitions(member.current)
    return _encode(shard, member, {topic: tuple(sorted(parts)) for topic, parts in owned.items()})


@handles(Heartbeat, GroupType.CONSUMER)
def classic_heartbeat(
    shard: ShardState, group: ConsumerGroup, request: Heartbeat, ticket: Ticket
) -> None:
    """Answer a Heartbeat. NONE and REBALANCE_IN_PROGRESS need not wait for earlier writes
    (docs/design.md#durable-first).
    """
    error = _error(group, request)
    if error:
        add_refused_event(shard, group, request, request.generation_id, error)
        shard.reply(ticket, error)
        return
    member = group.members[request.member_id]
    heartbeat.restart_session(shard, group, member)
    if _must_join(shard, group, member):
        _expect_join(shard, member)
        shard.reply(ticket, ErrorCode.REBALANCE_IN_PROGRESS, False)
    else:
        shard.reply(ticket, _NONE, False)


def _must_join(shard: ShardState, group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    """Return True if the member must join again: it has to give up partitions, or can get new
    ones.
    """
    current = member.current
    if current.epoch < group.epochs.target:
        return True
    if current.state == ReconciliationState.UNREVOKED_PARTITIONS:
        return True
    return current.state == ReconciliationState.UNRELEASED_PARTITIONS and rebalance.is_free(
        shard, group, member
    )


def _expect_join(shard: ShardState, member: ConsumerGroupMember) -> None:
    """Start the time in which a member must join again, unless it has already started."""
    if member.join_phase.at is None:
        shard.arm(member.join_phase, shard.now.monotonic_ms + member.fields.rebalance_timeout_ms)


# --- LeaveGroup ---


@handles(LeaveGroup, GroupType.CONSUMER)
def leave_group(
    shard: ShardState, group: ConsumerGroup, request: LeaveGroup, ticket: Ticket
) -> None:
    """Remove members. Begin one new epoch for all removals together.

    Administrators use this request too, so it removes members of both protocols. If only classic
    members are left, the group may become a classic group instead.
    """
    gone: dict[str, ConsumerGroupMember] = {}
    left = tuple(_leave(shard, group, each, request, gone) for each in request.members)
    shard.reply(ticket, LeaveGroupResult(_NONE, left))
    if gone:
        leaving.remove(shard, group, list(gone.values()), "member_leave")


def _leave(
    shard: ShardState,
    group: ConsumerGroup,
    entry: LeavingMember,
    request: LeaveGroup,
    gone: dict[str, ConsumerGroupMember],
) -> LeftMember:
    member_id, instance_id = entry.member_id, entry.group_instance_id
    known = member_id or group.static_members.get(instance_id or "", "")
    error = static_members.identity_error(group, known, instance_id)
    if not error and known not in gone:
        member = gone[known] = group.members[known]
        reason = entry.reason and quoted(entry.reason)
        shard.event(MemberLeave(**group.event_fields(member, request.client), reason=reason))
    return LeftMember(member_id, instance_id, error)
