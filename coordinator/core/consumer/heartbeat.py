"""ConsumerGroupHeartbeat: members join, move to their target assignment, and leave.

See docs/spec/consumer-groups.md#heartbeat. The functions here follow its steps.
"""

from __future__ import annotations

from typing import Final

import msgspec

from groupkeeper.coordinator.core.consumer import (
    admission,
    failure_events,
    follow_work,
    leaving,
    rebalance,
    regexes,
    static_members,
)
from groupkeeper.coordinator.core.consumer.admission import (
    HeartbeatRefusal,
    instance_owner,
    owned_set,
    updated_fields,
)
from groupkeeper.coordinator.core.consumer.follow_work import FollowWork
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.member import ConsumerGroupMember, room_bytes
from groupkeeper.coordinator.core.consumer.reconciliation import numbers_by_topic
from groupkeeper.coordinator.core.consumer_records import (
    ConsumerGroupRecord,
    ConsumerMember,
    ConsumerMemberFields,
)
from groupkeeper.coordinator.core.dispatch import handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import GroupCreated, MemberFenced, MemberJoin, of_client
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.request_events import add_converted_event
from groupkeeper.coordinator.core.requests.consumer import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    TopicPartitions,
)
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Ticket
from groupkeeper.coordinator.core.work import Work, WorkOutcome

_NONE: Final = ErrorCode.NONE
_STABLE: Final = GroupState.STABLE


@handles(ConsumerGroupHeartbeat, GroupType.CONSUMER)
def consumer_group_heartbeat(
    shard: ShardState,
    group: ConsumerGroup | None,
    request: ConsumerGroupHeartbeat,
    ticket: Ticket,
) -> None:
    """Answer a heartbeat. If the heartbeat begins the computation of a large assignment, park it
    until the computation ends.
    """
    member = None if group is None else group.members.get(request.member_id)
    if group is None or member is None or not _is_steady(shard, group, member, request):
        change(shard, group, request, ticket)
        return
    shard.restart_session(member)
    answer = member.unchanged
    if answer is None or answer.member_epoch != request.member_epoch:
        answer = _result(shard, group, member, with_assignment=False)
        member.unchanged = answer
    member.repeated = request
    shard.step.answer = answer


def change(
    shard: ShardState,
    group: ConsumerGroup | None,
    request: ConsumerGroupHeartbeat,
    ticket: Ticket,
) -> None:
    """Handle a heartbeat that may change the group.

    If ``group`` is None, the group does not exist, or is an Empty one of another type. A join then
    creates the group, or replaces the Empty one.
    """
    request = with_member_id(request)
    # An absent group is checked like an empty one, and is created only for a member that may join.
    checked = ConsumerGroup(request.group_id, shard.tally) if group is None else group
    fields = updated_fields(checked, request)
    is_absent = group is None and request.member_epoch != JOIN_EPOCH
    refused = (
        admission.absent(request.group_id)
        if is_absent
        else admission.refusal(shard, checked, request, fields)
    )
    if refused is not None:
        _refuse(shard, group, request, ticket, refused)
    elif request.member_epoch < 0:
        leaving.leave(shard, checked, request, ticket)
    else:
        group = _create(shard, request) if group is None else group
        accept(shard, group, request, fields, ticket)


def with_member_id(request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeat:
    """Return the request with a member id. Version 0 allows a join without one."""
    if request.member_id != "":
        return request
    return msgspec.structs.replace(request, member_id=request.new_member_id)


def _is_steady(
    shard: ShardState,
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    request: ConsumerGroupHeartbeat,
) -> bool:
    """Return True if the heartbeat changes nothing, and the answer has nothing new for the member.

    The answer then has the epoch that the member sent. The member knows this epoch from an earlier
    answer, which waited until the epoch was durable. So this answer need not wait
    (docs/design.md#durable-first).
    """
    return (
        request.member_epoch == member.current.epoch
        and (group.state is _STABLE or _is_settled(group, member))
        and (request is member.repeated or _states_nothing(request))
        and request.group_instance_id == member.group_instance_id
        and request.client == member.client
        and not group.is_stale
        and member.fields.classic is None
        and member.parked is None
        and not (group.subscriptions.pattern_counts and regexes.are_due(shard, group))
    )


def _is_settled(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    """Return True if the target is up to date, and the member has reached it. In a Stable group
    this is true for all members.
    """
    epochs = group.epochs
    return epochs.target == epochs.group and member.is_settled(epochs.target)


def _states_nothing(request: ConsumerGroupHeartbeat) -> bool:
    """Return True if the heartbeat has none of the fields that a member sends only when they
    change.
    """
    return (
        request.owned is None
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.server_assignor is None
        and request.rack_id is None
    )


def _refuse(
    shard: ShardState,
    group: ConsumerGroup | None,
    request: ConsumerGroupHeartbeat,
    ticket: Ticket,
    refused: HeartbeatRefusal,
) -> None:
    if refused.error is ErrorCode.INVALID_REGULAR_EXPRESSION:
        failure_events.add_pattern_refused(shard, request, GroupType.CONSUMER, refused.detail)
    elif group is not None:
        shard.event(
            MemberFenced(
                group_id=request.group_id,
                generation_id=request.member_epoch,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                **of_client(request.client),
                api="ConsumerGroupHeartbeat",
                group_type=group.group_type,
                error=refused.error.name,
            )
        )
    shard.reply(ticket, ConsumerGroupHeartbeatResult(refused.error, refused.message))


# --- what an accepted heartbeat changes ---


def _create(shard: ShardState, request: ConsumerGroupHeartbeat) -> ConsumerGroup:
    """Record and return the group for a member that joins. It replaces an Empty group of another
    type.
    """
    group_id = request.group_id
    replaced = shard.groups.get(group_id)
    if replaced is not None:
        assert not any(replaced.parked()), "a parked request would never be answered"
        for deadline in replaced.deadlines():
            shard.deadlines.clear(deadline)
    shard.record(ConsumerGroupRecord(group_id))
    if replaced is None:
        shard.event(
            GroupCreated(
                group_id=group_id,
                group_type=GroupType.CONSUMER,
                **of_client(request.client),
                api="ConsumerGroupHeartbeat",
            )
        )
    group = shard.groups[group_id]
    assert isinstance(group, ConsumerGroup), "the record has made it"
    if replaced is not None:
        add_converted_event(shard, request, replaced, group)
    return group


def accept(
    shard: ShardState,
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeat,
    fields: ConsumerMemberFields,
    ticket: Ticket,
) -> None:
    """Carry out steps 5 to 11 of an accepted heartbeat: change the member and the group, then
    answer or park. ``fields`` are the new fields of the member. The caller has made all checks.
    """
    member = group.members.get(request.member_id)
    before = None if member is None else member.fields
    was_held = instance_owner(group, request)
    replaced = None
    if was_held is not None:
        replaced = was_held.member_id
        before = static_members.replace(shard, group, was_held, fields)
    elif fields != before:
        shard.record(ConsumerMember(group.group_id, fields), room_bytes(fields))
    member = group.members[request.member_id]
    member.client = request.client
    if before is None or replaced is not None:
        _add_join_event(shard, group, member, replaced)
    if before is not None and before.classic is not None:
        for deadline in (member.join_phase, member.sync_phase):
            shard.deadlines.clear(deadline)
        rebalance.time_revocation(shard, member)
    changed = settle_subscription(shard, group, member, before)
    leaving.answer_parked(shard, member, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    restart_session(shard, group, member)
    has_target = rebalance.update_target(shard, group)
    owned = None if request.owned is None else owned_set(request.owned)
    moved = rebalance.follow(shard, group, member, owned, subscription_changed=changed)
    # ``follow`` ran already, because the member reports only once which partitions it gave up
    if not has_target:
        member.parked = ticket  # answered by ``work_done``
        return
    is_told = moved or request.member_epoch == JOIN_EPOCH or _is_full(request)
    shard.reply(ticket, _result(shard, group, member, with_assignment=is_told))


def settle_subscription(
    shard: ShardState,
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    before: ConsumerMemberFields | None,
) -> bool:
    """Begin a new epoch if the subscription or the topics changed (steps 6 and 7). If the topics of
    a new pattern are not known yet, the epoch begins when they are found.

    Returns True if the subscription changed.
    """
    fields = member.fields
    names_before = () if before is None else before.subscribed_topic_names
    pattern_before = None if before is None else before.subscribed_topic_regex
    names_changed = fields.subscribed_topic_names != names_before
    pattern_changed = fields.subscribed_topic_regex != pattern_before
    pattern = fields.subscribed_topic_regex
    bumps = names_changed
    regexes.resolve_if_due(shard, group, pattern)
    if pattern_changed:
        # The resolution of a new pattern begins the epoch.
        bumps = bumps or pattern is None or pattern in group.subscriptions.resolved
        leaving.forget_pattern(shard, group, pattern_before)
    if bumps:
        reason = "member_join" if before is None else "subscription_changed"
        rebalance.bump(shard, group, reason, member.member_id)
    elif group.is_stale:
        group.is_stale = False
        if group.subscriptions.metadata_hash(shard.image) != group.epochs.metadata_hash:
            rebalance.bump(shard, group, "topics_changed", member.member_id)
    return names_changed or pattern_changed


def _add_join_event(
    shard: ShardState, group: ConsumerGroup, member: ConsumerGroupMember, replaced: str | None
) -> None:
    shard.event(
        MemberJoin(
            **group.event_fields(member, member.client),
            session_timeout_ms=session_timeout_ms(shard, group, member),
            rebalance_timeout_ms=member.fields.rebalance_timeout_ms,
            replaces=replaced,
        )
    )


def restart_session(shard: ShardState, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
    """Start the session of a member again, with the session timeout that it has now."""
    member.session_timeout_ms = session_timeout_ms(shard, group, member)
    shard.restart_session(member)


def session_timeout_ms(shard: ShardState, group: ConsumerGroup, member: ConsumerGroupMember) -> int:
    """Return the session timeout of a member. A classic member has its own timeout. Any other
    member has the timeout of the group.
    """
    if member.fields.classic is not None:
        return member.fields.classic.session_timeout_ms
    return group_session_timeout_ms(shard, group)


def group_session_timeout_ms(shard: ShardState, group: ConsumerGroup) -> int:
    """Return the session timeout of the members that use the consumer protocol."""
    own_ms = shard.overrides_of(group).consumer_session_timeout_ms
    return shard.limits.consumer_session_timeout_ms if own_ms is None else own_ms


# --- answers ---


def _is_full(request: ConsumerGroupHeartbeat) -> bool:
    """Return True if the heartbeat has all fields of a member. Its answer must then have the whole
    assignment.
    """
    return (
        request.rebalance_timeout_ms != -1
        and request.owned is not None
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
    )


def _result(
    shard: ShardState,
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    *,
    with_assignment: bool,
) -> ConsumerGroupHeartbeatResult:
    overrides = shard.overrides.get(group.group_id)
    interval_ms = None if overrides is None else overrides.consumer_heartbeat_interval_ms
    assignment: tuple[TopicPartitions, ...] | None = None
    if with_assignment:
        assignment = tuple(numbers_by_topic(member.current.assigned).items())
    return ConsumerGroupHeartbeatResult(
        _NONE,
        None,
        member.member_id,
        member.current.epoch,
        shard.limits.consumer_heartbeat_interval_ms if interval_ms is None else interval_ms,
        assignment,
    )


def work_done(shard: ShardState, group: ConsumerGroup, work: Work, outcome: WorkOutcome) -> None:
    """Process the outcome of a computation of any kind. The outcome of a target answers all parked
    heartbeats. If a large target was recorded, the next step answers them.
    """
    if regexes.work_done(shard, group, work, outcome):
        return
    if isinstance(work, FollowWork):
        if group.is_beginning and not rebalance.begin_computation(shard, group):
            return
        if group.computation is not None:
            return  # its outcome answers every heartbeat that waits
    elif not rebalance.work_done(shard, group, work, outcome):
        return
    if follow_work.is_large(shard.step):
        shard.begin_work(FollowWork(group_id=group.group_id, epoch=work.epoch))
        return
    for member in list(group.members.values()):
        ticket, member.parked = member.parked, None
        if ticket is not None:
            rebalance.follow(shard, group, member, None, subscription_changed=False)
            restart_session(shard, group, member)
            shard.reply(ticket, _result(shard, group, member, with_assignment=True))
