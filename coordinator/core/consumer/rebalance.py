"""How a consumer group rebalances: a new epoch, a new target, and members that move to the target.

See docs/spec/consumer-groups.md#heartbeat, steps 7 to 9. There is no phase for all members: each
member moves to the target with its own heartbeats.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

from groupkeeper.coordinator.core.consumer import assignment_events, failure_events, targets
from groupkeeper.coordinator.core.consumer.assigning import Target
from groupkeeper.coordinator.core.consumer.assignment_work import (
    OUR_ASSIGNORS,
    AssignmentWork,
    compute,
    is_large,
)
from groupkeeper.coordinator.core.consumer.computation import TargetComputation
from groupkeeper.coordinator.core.consumer.follow_work import FollowWork
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.member import (
    MOST_CURRENT_OF_TARGET,
    ConsumerGroupMember,
    current_bytes,
    has_same_partitions,
    partition_count,
    target_bytes,
    target_room_bytes,
)
from groupkeeper.coordinator.core.consumer.reconciliation import (
    MemberTarget,
    ReconciliationState,
    reconcile,
)
from groupkeeper.coordinator.core.consumer_records import (
    AssignedFields,
    ConsumerCurrentAssignment,
    ConsumerGroupEpoch,
    ConsumerTarget,
    Partitions,
)
from groupkeeper.coordinator.core.events import RebalanceEnd, RebalanceStart
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import SMALL_RECORD_BYTES
from groupkeeper.coordinator.core.work import Work, WorkFailed, WorkFailure, WorkOutcome

MANY_NAMES: Final = 10_000
"""If a group has more topic names, the computation of a target begins only in the step after the
heartbeat that needs it. The heartbeat itself may have 20,000 names, and the computation makes
tables of all names of the group.
"""
LEAST_RETRY_MS: Final = 1_000
"""The least time in ms between a failed computation of a target and the next computation."""
_NOT_DISJOINT: Final = WorkFailed(WorkFailure.INVALID, "two members have the same partition")
_TOO_LARGE: Final = WorkFailed(
    WorkFailure.TOO_LARGE, "the group would be too large to store with it"
)


_NO_ROOM: Final = WorkFailed(
    WorkFailure.REFUSED, "the assignments of all groups together have no more room"
)


def bump(shard: ShardState, group: ConsumerGroup, reason: str, member_id: str) -> None:
    """Record the next group epoch. ``member_id`` is the member that caused it; "" if none did."""
    metadata_hash = group.subscriptions.metadata_hash(shard.image)
    group.is_stale = False
    shard.record(ConsumerGroupEpoch(group.group_id, group.epochs.group + 1, metadata_hash))
    if group.rebalance_started_ms is None:
        group.rebalance_started_ms = shard.now.monotonic_ms
    shard.event(
        RebalanceStart(
            group_id=group.group_id,
            group_type=group.group_type,
            generation_id=group.epochs.group,
            member_id=member_id,
            reason=reason,
            members=len(group.members),
        )
    )
    end_if_settled(shard, group)


def end_if_settled(shard: ShardState, group: ConsumerGroup) -> None:
    """Add the event that a rebalance ended, if every member that is left has reached the target."""
    started_ms = group.rebalance_started_ms
    if started_ms is not None and group.state in (GroupState.STABLE, GroupState.EMPTY):
        group.rebalance_started_ms = None
        shard.event(
            RebalanceEnd(
                group_id=group.group_id,
                group_type=group.group_type,
                generation_id=group.epochs.group,
                duration_ms=shard.now.monotonic_ms - started_ms,
                members=len(group.members),
            )
        )


# --- the target ---


def update_target(shard: ShardState, group: ConsumerGroup) -> bool:
    """Compute a new target if the target is of an older epoch than the group, and the interval
    since the last computation has passed. Return False if this call began a computation that ends
    only in a later step.
    """
    epochs = group.epochs
    if not epochs.needs_target() or group.is_beginning or group.computation is not None:
        return True
    if shard.now.monotonic_ms < group.retry_at_ms:
        return True
    if not epochs.may_compute(shard.now.wall_ms, _interval_ms(shard, group)):
        return True
    if group.subscriptions.name_count > MANY_NAMES:
        group.is_beginning = True
        shard.begin_work(FollowWork(group_id=group.group_id, epoch=epochs.group))
        return False
    return begin_computation(shard, group)


def begin_computation(shard: ShardState, group: ConsumerGroup) -> bool:
    """Begin to compute the target of the group in its present state. Return True if the target is
    complete, False if a later step completes it.
    """
    group.is_beginning = False
    assignor = group.assignor(shard.limits.consumer_assignors[0])
    computation = targets.begin(group, shard.image, assignor)
    if not is_large(assignor, computation.spec):
        _install(shard, group, computation, compute(assignor, computation.spec))
        return True
    group.computation = computation
    shard.begin_work(
        AssignmentWork(
            group_id=group.group_id,
            epoch=computation.epoch,
            assignor=assignor,
            spec=computation.spec,
            names=None if assignor in OUR_ASSIGNORS else computation.names(),
        )
    )
    return False


def _interval_ms(shard: ShardState, group: ConsumerGroup) -> int:
    own_ms = shard.overrides_of(group).consumer_assignment_interval_ms
    return shard.limits.consumer_assignment_interval_ms if own_ms is None else own_ms


def work_done(shard: ShardState, group: ConsumerGroup, work: Work, outcome: WorkOutcome) -> bool:
    """Record the target that was computed. If the computation failed, keep the old target. Return
    True in both cases.

    Return False if the group does not wait for this computation: an earlier group with the same id
    began it.
    """
    assert isinstance(work, AssignmentWork), "patterns are handled elsewhere"
    computation = group.computation
    if computation is None or computation.spec is not work.spec:
        return False
    group.computation = None
    assert computation.epoch > group.epochs.target, "one computation of a target runs at a time"
    if isinstance(outcome, WorkFailed):
        _retry_later(shard, group, computation, outcome)
    else:
        assert isinstance(outcome, list), "the result of an AssignmentWork"
        _install(shard, group, computation, outcome)
    return True


def _retry_later(
    shard: ShardState, group: ConsumerGroup, computation: TargetComputation, failed: WorkFailed
) -> None:
    """Keep the old target, and add the event ``assignment_failed``. The next computation may begin
    after the assignment interval, and at the earliest after ``LEAST_RETRY_MS``.
    """
    failure_events.add_assignment_failed(shard, group, computation, failed)
    wait_ms = max(_interval_ms(shard, group), LEAST_RETRY_MS)
    group.retry_at_ms = shard.now.monotonic_ms + wait_ms


def _install(
    shard: ShardState, group: ConsumerGroup, computation: TargetComputation, target: Target
) -> None:
    """Record the new target, unless it breaks the rules or is too large to be stored."""
    changed = targets.changed_targets(group, computation, target)
    topics = sum(map(len, changed.values()))
    partitions = sum(map(partition_count, changed.values()))
    size_bytes = target_bytes(topics, partitions)
    if not targets.is_disjoint(target):
        _retry_later(shard, group, computation, _NOT_DISJOINT)
    elif not _fits(shard, group, len(changed), size_bytes):
        _retry_later(shard, group, computation, _TOO_LARGE)
    elif not _has_room(shard, group, changed, topics, partitions):
        _retry_later(shard, group, computation, _NO_ROOM)
    else:
        record_bytes = SMALL_RECORD_BYTES * len(changed) + size_bytes
        record_target(shard, group, computation.epoch, shard.now.wall_ms, changed, record_bytes)
        assignment_events.add_target(shard, group, computation.assignor, changed, record_bytes)
        end_if_settled(shard, group)


def _fits(shard: ShardState, group: ConsumerGroup, changed: int, changed_bytes: int) -> bool:
    """Return True if the storage accepts the record of the targets of ``changed`` members, and
    later the records of the members that move to them.

    The group's offsets do not count, as for a classic group.
    """
    followed_bytes = MOST_CURRENT_OF_TARGET * changed_bytes
    small_records = 1 + changed + sum([1 for _ in group.parked()])
    step_bytes = SMALL_RECORD_BYTES * small_records + changed_bytes + followed_bytes
    group_bytes = group.size_bytes + group.assigned_bytes + changed_bytes + followed_bytes
    limits = shard.limits
    return (
        shard.step.record_bytes + step_bytes <= limits.max_step_bytes
        and group_bytes <= limits.max_group_bytes
    )


def _has_room(
    shard: ShardState,
    group: ConsumerGroup,
    changed: Mapping[str, Partitions],
    topics: int,
    partitions: int,
) -> bool:
    """Return True if the limit for the assignments of all groups has room for the changed targets,
    which have ``topics`` topics and ``partitions`` partitions in all.

    Partitions may move between members at any time, and each member has room for a small target.
    """
    members = [group.members[each] for each in changed]
    partitions += group.target_partitions - sum([each.target_partitions for each in members])
    if group.may_move(partitions):
        return True
    topics += group.target_topics - sum([len(each.target) for each in members])
    size_bytes = target_room_bytes(topics, partitions)
    added_bytes = size_bytes - group.reserved_bytes
    return shard.admits_assignment(size_bytes, added_bytes, len(group.members))


def record_target(
    shard: ShardState,
    group: ConsumerGroup,
    epoch: int,
    computed_ms: int,
    changed: dict[str, Partitions],
    size_bytes: int,
) -> None:
    """Record the targets of some members, and the epoch of the whole target. ``size_bytes`` is the
    size of these targets in the record.
    """
    record = ConsumerTarget(group.group_id, epoch, computed_ms, changed)
    shard.record(record, SMALL_RECORD_BYTES + size_bytes)


# --- members that follow ---


def follow(
    shard: ShardState,
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    owned: Mapping[str, Set[int]] | None,
    *,
    subscription_changed: bool,
) -> bool:
    """Move a member one step towards its target. Return True if the assigned partitions of the
    member changed. ``reconcile`` explains ``owned``.
    """
    before = member.current
    target = MemberTarget(
        group.epochs.target,
        member.target,
        group.subscriptions.ids_of(member.subscription, shard.image),
    )
    after = reconcile(
        before, target, owned, group.owners, subscription_changed=subscription_changed
    )
    if after is before:
        return False
    if after != before:
        record_current(shard, group, member, after, "target_assignment")
        time_revocation(shard, member)
    return not has_same_partitions(before.assigned, after.assigned)


def is_free(shard: ShardState, group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    """Return True if no other member owns a partition in the member's target."""
    topics = group.subscriptions.ids_of(member.subscription, shard.image)
    own_id = member.member_id
    for topic, numbers in member.target.items():
        if topic in topics:
            owners = group.owners.get(topic, {})
            if any(owners.get(number, own_id) != own_id for number in numbers):
                return False
    return True


def record_current(
    shard: ShardState,
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    current: AssignedFields,
    reason: str,
) -> None:
    """Record the partitions that a member has, and add the events about them."""
    before = member.current
    record = ConsumerCurrentAssignment(group.group_id, member.member_id, current)
    shard.record(record, SMALL_RECORD_BYTES + current_bytes(current))
    assignment_events.add_moved(shard, group, member, before, reason)
    end_if_settled(shard, group)


def time_revocation(shard: ShardState, member: ConsumerGroupMember) -> None:
    """Start the time in which a member must give up partitions. If it has none to give up, clear
    its deadline.

    A classic member has the deadline ``join_phase`` instead, which starts with the first answer
    REBALANCE_IN_PROGRESS.
    """
    if member.current.state != ReconciliationState.UNREVOKED_PARTITIONS:
        shard.deadlines.clear(member.rebalance)
    elif member.fields.classic is None:
        shard.arm(member.rebalance, shard.now.monotonic_ms + member.fields.rebalance_timeout_ms)
