"""Groups that change their type because a request of the other protocol arrives.

See docs/spec/migration.md. Only this module and ``shard``, which creates groups, know both types of
groups. A conversion is one record of the whole group. All checks are made before anything is
answered or changed.

This file is long because both directions belong together: each reads the data that the other
stores.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from groupkeeper.coordinator.core.classic import joining, rebalance
from groupkeeper.coordinator.core.classic.assignment_event import assignment_event
from groupkeeper.coordinator.core.classic.group import CONSUMER, ClassicGroup
from groupkeeper.coordinator.core.classic.member import ClassicMember, encoded_bytes
from groupkeeper.coordinator.core.classic.saved import restore, to_record
from groupkeeper.coordinator.core.consumer import admission, classic_members, heartbeat
from groupkeeper.coordinator.core.consumer.admission import HeartbeatRefusal
from groupkeeper.coordinator.core.consumer.failure_events import add_pattern_refused
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.member import room_bytes
from groupkeeper.coordinator.core.consumer.reconciliation import ReconciliationState
from groupkeeper.coordinator.core.consumer_records import (
    AssignedFields,
    ClassicProtocol,
    ClassicSession,
    ConsumerGroupRecord,
    ConsumerMemberFields,
    PartitionEpochs,
    Partitions,
    SavedConsumerMember,
)
from groupkeeper.coordinator.core.dispatch import handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import GroupConverted
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.groups.census import SMALL_METADATA_BYTES, Tally
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.records import GroupRecord
from groupkeeper.coordinator.core.request_events import add_converted_event
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
from groupkeeper.coordinator.core.step import SMALL_RECORD_BYTES, Ticket
from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    ConsumerProtocolError,
    MembersReader,
    Subscription,
    encode_assignment,
    subscription_version,
)

UPGRADES: Final = frozenset({"bidirectional", "upgrade"})
DOWNGRADES: Final = frozenset({"bidirectional", "downgrade"})
"""The migration policies that allow a downgrade; ``UPGRADES`` has those that allow an upgrade.
Empty groups are converted with every policy.
"""

JOIN_RECORDS: Final = 4
"""The number of small records that a join may add: the epoch, the target, the member's partitions,
and one in reserve.
"""
STICKY_ASSIGNORS: Final = frozenset({"sticky", "cooperative-sticky"})
"""Classic assignors whose data says only what a member was assigned, and in which generation. A
member needs it from no one. The leaders of some clients, such as librdkafka, put the data of each
member into its assignment.
"""
NOTHING_ASSIGNED: Final = encode_assignment(ConsumerAssignment(0, {}))

# --- classic group -> consumer group ---


class _Converted(NamedTuple):
    """A member of a classic group, as the member of a consumer group that it becomes."""

    fields: ConsumerMemberFields
    names: tuple[str, ...]
    """The topics that it subscribes to."""
    target: Partitions
    """The partitions that the leader last assigned to it."""
    reported: Partitions
    """The partitions that it had when it last joined. Members with a cooperative assignor read on
    while they join.
    """


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
        _join_and_upgrade(shard, group, heartbeat.with_member_id(request), ticket)


def _join_and_upgrade(
    shard: ShardState, group: ClassicGroup, request: ConsumerGroupHeartbeat, ticket: Ticket
) -> None:
    """Convert a classic group with members, if it can be converted and the new member may join."""
    record = _upgraded(shard, group)
    if isinstance(record, HeartbeatRefusal):
        _refuse(shard, ticket, record)
        return
    trial = ConsumerGroup(record.group_id, Tally())
    trial.save(record)
    fields = admission.updated_fields(trial, request)
    refusal = _trial_refusal(shard, group, trial, request, fields)
    if refusal is not None:
        if refusal.error is ErrorCode.INVALID_REGULAR_EXPRESSION:
            add_pattern_refused(shard, request, group.group_type, refusal.detail)
        _refuse(shard, ticket, refusal)
        return
    size_bytes = trial.size_bytes + trial.assigned_bytes
    if not _owes_a_target(shard, trial, request, fields):
        metadata_hash = trial.subscriptions.metadata_hash(shard.image)
        record = msgspec.structs.replace(record, metadata_hash=metadata_hash)
    converted = _upgrade(shard, group, record, size_bytes)
    add_converted_event(shard, request, group, converted)
    heartbeat.accept(shard, converted, request, fields, ticket)


def _owes_a_target(
    shard: ShardState,
    trial: ConsumerGroup,
    request: ConsumerGroupHeartbeat,
    fields: ConsumerMemberFields,
) -> bool:
    """Return True if nobody reads some partitions of the converted group, and the new member does
    not begin an epoch by itself. The group then gets no hash of its topics, so its first heartbeat
    begins one.

    The rebalance that the conversion ends may have been about to assign these partitions: a member
    had left, or a topic had grown. The epoch of a conversion does not grow for a new member without
    topics, nor for a static member with the topics that it had.
    """
    known = admission.instance_owner(trial, request) or trial.members.get(request.member_id)
    names = () if known is None else known.fields.subscribed_topic_names
    if fields.subscribed_topic_names != names:
        return False
    image, subscriptions = shard.image, trial.subscriptions
    read: Counter[str] = Counter()
    for member in trial.members.values():
        topics = subscriptions.ids_of(member.subscription, image)
        for topic, numbers in member.target.items():
            if topic in topics:  # a leader may assign numbers that do not exist
                end = bisect_left(numbers, image.by_id[topic].partitions)
                read[topic] += end - bisect_left(numbers, 0)
    existing = subscriptions.existing(image)
    return any(read[topic.topic_id] < topic.partitions for topic in existing)


def _refuse(shard: ShardState, ticket: Ticket, refusal: HeartbeatRefusal) -> None:
    shard.reply(ticket, ConsumerGroupHeartbeatResult(refusal.error, refusal.message))


def _upgraded(shard: ShardState, group: ClassicGroup) -> ConsumerGroupRecord | HeartbeatRefusal:
    """Return the record of the consumer group that a classic group becomes. If the group cannot be
    converted, return the refusal of the heartbeat.
    """
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
        members = _consumer_members(shard, group)
    except ConsumerProtocolError:
        return admission.absent(group.group_id)
    owned: dict[str, set[int]] = {}
    for each in members:
        for topic, numbers in each.target.items():
            of_others = owned.setdefault(topic, set())
            if not of_others.isdisjoint(numbers):
                # docs/spec/edge-cases.md#edge-120
                return HeartbeatRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, None)
            of_others.update(numbers)
    return _whole(group, members, owned)


def _consumer_members(shard: ShardState, group: ClassicGroup) -> list[_Converted]:
    """Return the members of a classic group as members of a consumer group.

    Raises ConsumerProtocolError in three cases: the bytes of a member are not those of the consumer
    protocol, its assignment has user data (except that of ``STICKY_ASSIGNORS``), or the members
    have too many topics and partitions.
    """
    members = []
    reader = MembersReader()
    # Not the assignments that DescribeGroups shows. After a downgrade these are the targets, and
    # after a rebalance that was abandoned they are empty. But members may read on what they were
    # told before.
    saved = () if group.saved is None else group.saved.members
    by_id = {each.member_id: each.assignment for each in saved}
    by_instance = {each.group_instance_id: each.assignment for each in saved}
    by_instance.pop(None, None)
    sorted_lists: dict[int, tuple[list[str], tuple[str, ...]]] = {}
    """The ``id`` of a list of topics -> the list, and the names that its members subscribe to."""
    for member in group.members.values():
        metadata = member.metadata(group.protocol_name) or member.protocols[0].metadata
        subscription = reader.subscription(metadata)
        # Answers to this member will have the version of its first protocol: check that too.
        subscription_version(member.protocols[0].metadata)
        told = by_id.get(member.member_id) or by_instance.get(member.group_instance_id)
        assignment = reader.assignment(told or NOTHING_ASSIGNED)
        if assignment.user_data and group.protocol_name not in STICKY_ASSIGNORS:
            raise ConsumerProtocolError("an assignor keeps data of its own")
        topics = subscription.topics
        if id(topics) not in sorted_lists:
            sorted_lists[id(topics)] = topics, tuple(sorted({*topics}))
        _, names = sorted_lists[id(topics)]
        members.append(_consumer_member(shard, member, subscription, names, assignment))
    return members


def _consumer_member(
    shard: ShardState,
    member: ClassicMember,
    subscription: Subscription,
    names: tuple[str, ...],
    assignment: ConsumerAssignment,
) -> _Converted:
    by_name = shard.image.by_name
    target: Partitions = {
        by_name[topic].topic_id: tuple(sorted({*assignment.partitions[topic]}))
        for topic in sorted(assignment.partitions)
        if topic in by_name and assignment.partitions[topic]
    }
    reported: Partitions = {
        by_name[topic].topic_id: _existing(numbers, by_name[topic].partitions)
        for topic, numbers in subscription.owned_partitions.items()
        if topic in by_name
    }
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
    return _Converted(fields, names, target, reported)


def _existing(numbers: Sequence[int], partitions: int) -> tuple[int, ...]:
    return tuple([number for number in numbers if 0 <= number < partitions])


def _whole(
    group: ClassicGroup, members: Sequence[_Converted], owned: dict[str, set[int]]
) -> ConsumerGroupRecord:
    """Return the record of the consumer group. ``owned`` has the partitions that the leader last
    assigned, by topic id; the partitions that members must still give up are added.
    """
    epoch = group.generation_id
    positions: dict[tuple[str, ...], int] = {}
    saved = []
    for each in members:
        revoking = _unacknowledged(each.reported, owned, epoch) if each.reported else {}
        state = ReconciliationState.UNREVOKED_PARTITIONS if revoking else ReconciliationState.STABLE
        assigned = {
            topic: tuple([(number, epoch) for number in numbers])
            for topic, numbers in each.target.items()
        }
        current = AssignedFields(int(state), epoch, epoch, assigned, revoking)
        position = positions.setdefault(each.names, len(positions))
        saved.append(SavedConsumerMember(each.fields, position, current, each.target))
    return ConsumerGroupRecord(
        group.group_id,
        epoch,
        target_epoch=epoch,
        subscriptions=tuple(positions),
        members=tuple(saved),
    )


def _unacknowledged(
    reported: Partitions, owned: dict[str, set[int]], epoch: int
) -> PartitionEpochs:
    """Return the partitions that a member had when it last joined, and that nobody has now. Add
    them to ``owned``.

    A cooperative leader assigns them to nobody until their member has joined again without them. If
    they were free, the target of the conversion would give them to another member, while this one
    may still read them. This happens in Kafka, where all members are Stable after a conversion
    (ConsumerGroup.fromClassicGroup).
    """
    revoking: PartitionEpochs = {}
    for topic in sorted(reported):
        taken = owned.setdefault(topic, set())
        numbers = {*reported[topic]}.difference(taken)
        if numbers:
            taken.update(numbers)
            revoking[topic] = tuple([(number, epoch) for number in sorted(numbers)])
    return revoking


def _trial_refusal(
    shard: ShardState,
    group: ClassicGroup,
    trial: ConsumerGroup,
    request: ConsumerGroupHeartbeat,
    fields: ConsumerMemberFields,
) -> HeartbeatRefusal | None:
    """Return the reason why the new member cannot join the converted group, or why the group cannot
    be stored. Return None if both are possible. ``trial`` is the consumer group that ``group``
    becomes.
    """
    limits = shard.limits
    size_bytes = trial.size_bytes + trial.assigned_bytes + room_bytes(fields)
    size_bytes += JOIN_RECORDS * SMALL_RECORD_BYTES
    if size_bytes > min(limits.max_step_bytes, limits.max_group_bytes):
        return admission.absent(trial.group_id)
    grown_bytes = trial.metadata_bytes() - group.metadata_bytes()
    converted_bytes = max(0, grown_bytes - SMALL_METADATA_BYTES * len(group.members))
    refusal = admission.refusal(shard, trial, request, fields, converted_bytes)
    if refusal is not None:
        return refusal
    # The partitions take more room in a consumer group than in a classic one. And members may have
    # to give up more than is assigned.
    needed_bytes = max(trial.reserved_bytes, trial.assigned_bytes)
    added_bytes = needed_bytes - group.reserved_bytes
    has_room = shard.admits_assignment(needed_bytes, added_bytes, len(group.members))
    return None if has_room else admission.no_room()


def _upgrade(
    shard: ShardState, group: ClassicGroup, record: ConsumerGroupRecord, size_bytes: int
) -> ConsumerGroup:
    """Record the conversion of a classic group, and return the consumer group. Parked joins and
    syncs are answered with REBALANCE_IN_PROGRESS. The other members notice the change with their
    next heartbeats.
    """
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
    shard.record(record, size_bytes)
    converted = shard.groups[group.group_id]
    assert isinstance(converted, ConsumerGroup), "the record has made it"
    for each in converted.members.values():
        heartbeat.restart_session(shard, converted, each)
    return converted


# --- consumer group -> classic group ---


@handles(JoinGroup, GroupType.CONSUMER)
def join_consumer_group(
    shard: ShardState, group: ConsumerGroup, request: JoinGroup, ticket: Ticket
) -> None:
    """Handle a JoinGroup to a consumer group. If the group is Empty, replace it by a classic group
    that keeps the offsets. Otherwise the member joins as a classic member.

    An Empty group becomes a classic one as in Kafka, also if its protocols are refused then. It
    stays as it is if we have no room for the member, because Kafka has no such refusal.
    """
    limits = shard.limits
    timeout_ms = request.session_timeout_ms
    if not limits.min_session_timeout_ms <= timeout_ms <= limits.max_session_timeout_ms:
        shard.reply(ticket, JoinGroupResult(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
        return
    if not group.is_empty():
        classic_members.join_group(shard, group, request, ticket)
        return
    if request.member_id != "":
        # The request is refused, as if the group were absent, and the group stays as it is.
        joining.join_group(shard, None, request, ticket)
        return
    trial = ClassicGroup(group.group_id, Tally())
    protocols = joining.without_duplicates(request.protocols)
    if trial.supports(request.protocol_type, protocols):
        error = joining.room_error(shard, trial, request, protocols)
        if error:
            shard.reply(ticket, JoinGroupResult(error, ""))
            return
    shard.record(GroupRecord(group.group_id, None, 0, None, None, shard.now.wall_ms, ()))
    classic = _classic(shard, group.group_id)
    add_converted_event(shard, request, group, classic)
    joining.join_group(shard, classic, request, ticket)


def _classic(shard: ShardState, group_id: str) -> ClassicGroup:
    group = shard.groups[group_id]
    assert isinstance(group, ClassicGroup), "the record has made it"
    return group


def downgrade(shard: ShardState, group: Group, *, by_replacement: bool) -> bool:
    """Convert a consumer group in which only classic members are left
    (docs/spec/migration.md#downgrade). Return True if it was converted.

    ``by_replacement`` is True if a classic member has just replaced a static member of the consumer
    protocol, and the target is up to date. If no member waits for a partition either, the members
    continue with this target. In all other cases a rebalance begins.
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
    goes_on = by_replacement and group.state is GroupState.STABLE
    for deadline in group.deadlines():
        shard.deadlines.clear(deadline)
    record = to_record(trial)
    if not goes_on:
        # Nobody may read the partitions of the member that left. A load begins the rebalance again
        # if a group has no leader. In Kafka the group is then Stable.
        record = msgspec.structs.replace(record, leader_id=None)
    shard.record(record, size_bytes)
    classic = _classic(shard, group.group_id)
    restore(classic)
    classic.leader_id = trial.leader_id
    for member in classic.members.values():
        # ``restore`` sets only the chosen protocol, because a record has no others.
        classic.set_protocols(member, trial.members[member.member_id].protocols)
        shard.restart_session(member)
    classic.subscribed_topics = rebalance.subscribed_topics(classic)
    shard.event(
        GroupConverted(
            group_id=group.group_id,
            group_type=classic.group_type,
            generation_id=classic.generation_id,
            from_type=group.group_type.value,
            to_type=classic.group_type.value,
            members=len(classic.members),
        )
    )
    shard.event(assignment_event(classic, shard.limits.max_step_bytes))
    if not goes_on:
        for each in members:  # only DescribeGroups shows the targets, as in Kafka
            target = classic_members.encode_target(shard, each)
            classic.members[each.member_id].assignment = target
        rebalance.prepare(shard, classic, "downgrade", classic.leader_id or "")
    return True


def _downgraded(shard: ShardState, group: ConsumerGroup) -> ClassicGroup:
    """Return the classic group that a consumer group becomes. It is not yet in the shard."""
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
        # Not its target: after a restart the group is Stable, and a member that joins again is told
        # these partitions. Another one may not have given up what is in the target.
        member.assignment = classic_members.encode_owned(shard, each)
        classic.add(member)
    classic.protocol_name = classic.select_protocol()
    return classic
