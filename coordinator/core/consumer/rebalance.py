"""How a consumer group moves to its next epoch: new epoch, new target, and members that follow.

See docs/spec/consumer-groups.md#heartbeat, steps 7 to 9. There is no phase that all members share:
each follows with its own heartbeats.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from groupkeeper.coordinator.core.consumer import targets
from groupkeeper.coordinator.core.consumer.assigning import Target
from groupkeeper.coordinator.core.consumer.assignment_work import (
    OUR_ASSIGNORS,
    AssignmentWork,
    compute,
    is_large,
)
from groupkeeper.coordinator.core.consumer.computation import TargetComputation
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.member import (
    ConsumerGroupMember,
    current_bytes,
    partitions_of,
    target_bytes,
    to_current,
    to_fields,
)
from groupkeeper.coordinator.core.consumer.reconciliation import (
    MemberTarget,
    Partition,
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
from groupkeeper.coordinator.core.work import WorkFailed, WorkOutcome

LEAST_RETRY_MS: Final = 1_000
"""The least time between two computations of a target if the first one failed."""


def bump(shard: ShardState, group: ConsumerGroup, reason: str, member_id: str) -> None:
    """Begin the next group epoch, which ``member_id`` caused."""
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
    """Add the event that a rebalance ended, if the last member has followed or left."""
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
    """Compute the target if it is older than the group and the interval allows it.

    Returns False if the computation is now under way elsewhere.
    """
    epochs = group.epochs
    if not epochs.needs_target() or group.computation is not None:
        return True
    if shard.now.monotonic_ms < group.retry_at_ms:
        return True
    if not epochs.may_compute(shard.now.wall_ms, _interval_ms(shard, group)):
        return True
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


def work_done(shard: ShardState, group: ConsumerGroup, outcome: WorkOutcome) -> None:
    """Install the result of the computation that was under way, unless the group has a newer
    target.
    """
    computation, group.computation = group.computation, None
    if computation is None or computation.epoch <= group.epochs.target:
        return
    if isinstance(outcome, WorkFailed):
        _retry_later(shard, group)
    else:
        assert isinstance(outcome, list), "the result of an AssignmentWork"
        _install(shard, group, computation, outcome)


def _retry_later(shard: ShardState, group: ConsumerGroup) -> None:
    """Keep the old target, and compute the next one after the interval."""
    wait_ms = max(_interval_ms(shard, group), LEAST_RETRY_MS)
    group.retry_at_ms = shard.now.monotonic_ms + wait_ms


def _install(
    shard: ShardState, group: ConsumerGroup, computation: TargetComputation, target: Target
) -> None:
    """Record the result, unless it breaks the rules or is too large to be stored."""
    changed = targets.changed_targets(group, computation.by_member(target))
    size_bytes = sum([SMALL_RECORD_BYTES + target_bytes(each) for each in changed.values()])
    limits = shard.limits
    fits = (
        size_bytes + group.size_bytes <= limits.max_step_bytes
        and size_bytes + group.saved_bytes() <= limits.max_group_bytes
    )
    if fits and targets.is_disjoint(target):
        record_target(shard, group, computation.epoch, shard.now.wall_ms, changed)
        end_if_settled(shard, group)
    else:
        _retry_later(shard, group)


def record_target(
    shard: ShardState,
    group: ConsumerGroup,
    epoch: int,
    computed_ms: int,
    changed: dict[str, Partitions],
) -> None:
    """Record the targets of some members, and the epoch of the target for all."""
    size_bytes = sum([SMALL_RECORD_BYTES + target_bytes(target) for target in changed.values()])
    record = ConsumerTarget(group.group_id, epoch, computed_ms, changed)
    shard.record(record, SMALL_RECORD_BYTES + size_bytes)
    shard.report_assigned()


# --- members that follow ---


def follow(
    shard: ShardState,
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    owned: Set[Partition] | None,
    *,
    subscription_changed: bool,
) -> bool:
    """Move a member towards its target. Return whether the set of its partitions changed."""
    before = to_current(member.current)
    target = MemberTarget(
        group.epochs.target,
        partitions_of(member.target),
        group.subscriptions.ids_of(member.subscription, shard.image),
    )
    after = reconcile(
        before, target, owned, group.owners.__contains__, subscription_changed=subscription_changed
    )
    if after is before:
        return False
    current = to_fields(after)
    if current != member.current:
        record_current(shard, group, member, current)
        _time_revocation(shard, member)
    return after.assigned.keys() != before.assigned.keys()


def is_free(shard: ShardState, group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    """Return whether nobody else owns what a member waits for."""
    topics = group.subscriptions.ids_of(member.subscription, shard.image)
    return all(
        group.owners.get(partition, member.member_id) == member.member_id
        for partition in partitions_of(member.target)
        if partition[0] in topics
    )


def record_current(
    shard: ShardState, group: ConsumerGroup, member: ConsumerGroupMember, current: AssignedFields
) -> None:
    """Record what a member has."""
    record = ConsumerCurrentAssignment(group.group_id, member.member_id, current)
    shard.record(record, SMALL_RECORD_BYTES + current_bytes(current))
    end_if_settled(shard, group)


def _time_revocation(shard: ShardState, member: ConsumerGroupMember) -> None:
    """Give a member its rebalance timeout to give up partitions."""
    if member.current.state == ReconciliationState.UNREVOKED_PARTITIONS:
        shard.arm(member.rebalance, shard.now.monotonic_ms + member.fields.rebalance_timeout_ms)
    else:
        shard.deadlines.clear(member.rebalance)
