"""Groups that change their type: what a request of the other protocol does to a group.

See docs/spec/migration.md. Only this module knows classic and consumer groups. A conversion is one
record of the whole group. Everything is checked before anything is answered or changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from groupkeeper.coordinator.core.classic import joining, rebalance
from groupkeeper.coordinator.core.classic.group import CONSUMER, ClassicGroup
from groupkeeper.coordinator.core.classic.member import ClassicMember, encoded_bytes
from groupkeeper.coordinator.core.classic.saved import restore, to_record
from groupkeeper.coordinator.core.consumer import admission, classic_members, heartbeat
from groupkeeper.coordinator.core.consumer.admission import HeartbeatRefusal
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.reconciliation import ReconciliationState
from groupkeeper.coordinator.core.consumer_records import (
    AssignedFields,
    ClassicProtocol,
    ClassicSession,
    ConsumerGroupRecord,
    ConsumerMemberFields,
    Partitions,
    SavedConsumerMember,
)
from groupkeeper.coordinator.core.dispatch import handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.groups.census import Tally
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.records import GroupRecord
from groupkeeper.coordinator.core.requests.consumer import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from groupkeeper.coordinator.core.requests.membership import (
    JoinGroup,
    JoinGroupResult,
    JoinProtocol,
    SyncGroupResult,
)
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Ticket
from groupkeeper.protocol.consumer_protocol import (
    ConsumerProtocolError,
    decode_assignment,
    decode_subscription,
)

UPGRADES: Final = frozenset({"bidirectional", "upgrade"})
DOWNGRADES: Final = frozenset({"bidirectional", "downgrade"})
"""The migration policies that allow each direction. Empty groups are always converted."""


# --- classic group -> consumer group ---


@handles(ConsumerGroupHeartbeat, GroupType.CLASSIC)
def heartbeat_to_classic_group(
    shard: ShardState, group: ClassicGroup, request: ConsumerGroupHeartbeat, ticket: Ticket
) -> None:
    """Convert a classic group for a member of the consumer protocol that joins. Its offsets stay.

    See docs/spec/migration.md#upgrade.
    """
    if request.member_epoch != JOIN_EPOCH:
        _refuse(shard, ticket, admission.absent(request.group_id))
    elif group.is_empty():
        heartbeat.change(shard, None, request, ticket)
    else:
        record = _upgraded(shard, group)
        refusal = record if isinstance(record, HeartbeatRefusal) else _trial(shard, record, request)
        if refusal is not None:
            _refuse(shard, ticket, refusal)
            return
        assert isinstance(record, ConsumerGroupRecord), "else it is refused"
        heartbeat.change(shard, _upgrade(shard, group, record), request, ticket)


def _refuse(shard: ShardState, ticket: Ticket, refusal: HeartbeatRefusal) -> None:
    shard.reply(ticket, ConsumerGroupHeartbeatResult(refusal.error, refusal.message))


def _upgraded(shard: ShardState, group: ClassicGroup) -> ConsumerGroupRecord | HeartbeatRefusal:
    """Return the consumer group that a classic group becomes, or why it may not become one."""
    limits = shard.limits
    fits = (
        limits.consumer_migration_policy in UPGRADES
        and group.protocol_type == CONSUMER
        and len(group.members) <= limits.consumer_max_size
    )
    if not fits:
        return admission.absent(group.group_id)
    if group.protocol_name is None:
        # Clients give up on Kafka's answer, UNKNOWN_SERVER_ERROR, and repeat the join after this
        # one (docs/spec/edge-cases.md#edge-119).
        message = f"The first rebalance of group {group.group_id} is running."
        return HeartbeatRefusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message)
    try:
        members = [_consumer_member(shard, group, member) for member in group.members.values()]
    except ConsumerProtocolError:
        return admission.absent(group.group_id)
    owned = [
        (topic, number)
        for _, _, target in members
        for topic, numbers in target.items()
        for number in numbers
    ]
    if len(owned) > len(set(owned)):
        # docs/spec/edge-cases.md#edge-120
        return HeartbeatRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    return _whole(group, members)


def _consumer_member(
    shard: ShardState, group: ClassicGroup, member: ClassicMember
) -> tuple[ConsumerMemberFields, tuple[str, ...], Partitions]:
    """Return a classic member as a member of a consumer group: its fields, the names that it
    subscribes to, and its partitions.

    Raises ConsumerProtocolError if its bytes are not those of the consumer protocol, or belong to
    an assignor that needs its own.
    """
    metadata = member.metadata(group.protocol_name) or member.protocols[0].metadata
    subscription = decode_subscription(metadata)
    partitions: Partitions = {}
    if member.assignment:
        assignment = decode_assignment(member.assignment)
        if assignment.user_data:
            raise ConsumerProtocolError("an assignor keeps data of its own")
        by_name = shard.image.by_name
        for topic in sorted(assignment.partitions):
            if topic in by_name and assignment.partitions[topic]:
                numbers = tuple(sorted(assignment.partitions[topic]))
                partitions[by_name[topic].topic_id] = numbers
    protocols = tuple([ClassicProtocol(p.name, p.metadata) for p in member.protocols])
    fields = ConsumerMemberFields(
        member.member_id,
        member.group_instance_id,
        subscription.rack_id,
        member.client.client_id,
        member.client.client_host,
        member.rebalance_timeout_ms,
        classic=ClassicSession(member.session_timeout_ms, protocols),
    )
    return fields, tuple(sorted({*subscription.topics})), partitions


def _whole(
    group: ClassicGroup,
    members: Sequence[tuple[ConsumerMemberFields, tuple[str, ...], Partitions]],
) -> ConsumerGroupRecord:
    epoch = group.generation_id
    positions: dict[tuple[str, ...], int] = {}
    saved = [
        SavedConsumerMember(
            fields,
            positions.setdefault(names, len(positions)),
            AssignedFields(
                int(ReconciliationState.STABLE),
                epoch,
                epoch,
                {
                    topic: tuple([(number, epoch) for number in numbers])
                    for topic, numbers in target.items()
                },
            ),
            target,
        )
        for fields, names, target in members
    ]
    return ConsumerGroupRecord(
        group.group_id,
        epoch,
        target_epoch=epoch,
        subscriptions=tuple(positions),
        members=tuple(saved),
    )


def _trial(
    shard: ShardState, record: ConsumerGroupRecord, request: ConsumerGroupHeartbeat
) -> HeartbeatRefusal | None:
    """Return why the newcomer could not join the converted group."""
    group = ConsumerGroup(record.group_id, Tally())
    group.save(record)
    limits = shard.limits
    if group.size_bytes + group.assigned_bytes > min(limits.max_step_bytes, limits.max_group_bytes):
        return admission.absent(record.group_id)
    return admission.refusal(shard, group, request)


def _upgrade(shard: ShardState, group: ClassicGroup, record: ConsumerGroupRecord) -> ConsumerGroup:
    """Convert a group. Its members notice it with their next heartbeats."""
    for member in group.members.values():
        ticket = group.release_join(member)
        if ticket is not None:
            result = JoinGroupResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            shard.reply(ticket, result)
        ticket, member.parked_sync = member.parked_sync, None
        if ticket is not None:
            shard.reply(ticket, SyncGroupResult(ErrorCode.REBALANCE_IN_PROGRESS))
    for deadline in group.deadlines():
        shard.deadlines.clear(deadline)
    shard.record(record, group.size_bytes + group.assigned_bytes)
    converted = shard.groups[group.group_id]
    assert isinstance(converted, ConsumerGroup), "the record has made it"
    for each in converted.members.values():
        heartbeat.restart_session(shard, converted, each)
    shard.report_groups()
    return converted


# --- consumer group -> classic group ---


@handles(JoinGroup, GroupType.CONSUMER)
def join_consumer_group(
    shard: ShardState, group: ConsumerGroup, request: JoinGroup, ticket: Ticket
) -> None:
    """Replace an Empty consumer group by a classic group. Its offsets stay."""
    if not group.is_empty():
        classic_members.join_group(shard, group, request, ticket)
        return
    shard.record(GroupRecord(group.group_id, None, 0, None, None, shard.now.wall_ms, ()))
    joining.join_group(shard, _classic(shard, group.group_id), request, ticket)


def _classic(shard: ShardState, group_id: str) -> ClassicGroup:
    group = shard.groups[group_id]
    assert isinstance(group, ClassicGroup), "the record has made it"
    return group


def downgrade(shard: ShardState, group: Group, *, by_replacement: bool) -> bool:
    """Convert a consumer group in which only classic members are left
    (docs/spec/migration.md#downgrade). Return True if it was converted.

    ``by_replacement``: a classic member took the place of a static one, and all may go on if the
    target is up to date. Otherwise a rebalance begins.
    """
    assert isinstance(group, ConsumerGroup), "only those have members of both protocols"
    members = group.members.values()
    fits = (
        shard.limits.consumer_migration_policy in DOWNGRADES
        and 0 < len(members) <= shard.limits.group_max_size
        and all(member.fields.classic is not None for member in members)
    )
    if not fits:
        return False
    trial = _downgraded(shard, group)
    assigned = [encoded_bytes(len(member.assignment)) for member in trial.members.values()]
    size_bytes = trial.size_bytes + sum(assigned)
    if size_bytes > min(shard.limits.max_step_bytes, shard.limits.max_group_bytes):
        return False
    goes_on = by_replacement and not group.epochs.needs_target()
    for deadline in group.deadlines():
        shard.deadlines.clear(deadline)
    shard.record(to_record(trial), size_bytes)
    classic = _classic(shard, group.group_id)
    restore(classic)
    for member in classic.members.values():
        # Only one protocol is saved. All of them are known here.
        classic.set_protocols(member, trial.members[member.member_id].protocols)
        shard.restart_session(member)
    classic.subscribed_topics = rebalance.subscribed_topics(classic)
    shard.report_groups()
    if not goes_on:
        rebalance.prepare(shard, classic, "downgrade", classic.leader_id or "")
    return True


def _downgraded(shard: ShardState, group: ConsumerGroup) -> ClassicGroup:
    """Return the classic group that a consumer group becomes, apart from the shard."""
    classic = ClassicGroup(group.group_id, Tally())
    classic.protocol_type = CONSUMER
    classic.generation_id = group.epochs.group
    classic.state_timestamp_ms = shard.now.wall_ms
    for each in group.members.values():
        session = each.fields.classic
        assert session is not None, "the caller has checked it"
        member = ClassicMember(group.group_id, each.member_id, each.group_instance_id, each.client)
        member.session_timeout_ms = session.session_timeout_ms
        member.rebalance_timeout_ms = each.fields.rebalance_timeout_ms
        member.offer(tuple([JoinProtocol(p.name, p.metadata) for p in session.protocols]))
        member.assignment = classic_members.encode_target(shard, each)
        classic.add(member)
    classic.protocol_name = classic.select_protocol()
    return classic
