"""The functions that a shard calls for a consumer group without a request."""

from __future__ import annotations

from typing import Final

from groupkeeper.coordinator.core.behaviour import Behaviour
from groupkeeper.coordinator.core.consumer import heartbeat, leaving
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.reconciliation import ReconciliationState
from groupkeeper.coordinator.core.consumer.static_members import has_left
from groupkeeper.coordinator.core.deadlines import DeadlineKind
from groupkeeper.coordinator.core.state import ShardState


def _loaded(shard: ShardState, group: ConsumerGroup) -> None:
    """Start the sessions of all members at full length, and the time in which members must give up
    partitions. The deadlines for joins and syncs of classic members do not start again, because
    they are not saved.

    A classic member gets the group's session timeout until its first request. See
    docs/spec/consumer-groups.md#timers.
    """
    timeout_ms = heartbeat.group_session_timeout_ms(shard, group)
    for member in group.members.values():
        member.session_timeout_ms = timeout_ms
        shard.restart_session(member)
        is_revoking = member.current.state == ReconciliationState.UNREVOKED_PARTITIONS
        if is_revoking and not has_left(member):
            at = shard.now.monotonic_ms + member.fields.rebalance_timeout_ms
            shard.arm(member.rebalance, at)


def _resumed(shard: ShardState, group: ConsumerGroup, _stopped_ms: int) -> None:
    """Start the running timers of all members again, at full length."""
    for member in group.members.values():
        if member.session.at is not None:
            shard.begin_session(member, member.session_length_ms)
        at = shard.now.monotonic_ms + member.fields.rebalance_timeout_ms
        for deadline in (member.rebalance, member.join_phase, member.sync_phase):
            if deadline.at is not None:
                shard.arm(deadline, at)


def _overrides_changed(shard: ShardState, group: ConsumerGroup) -> None:
    """Use a changed session timeout or heartbeat interval from the next heartbeat on."""
    timeout_ms = heartbeat.group_session_timeout_ms(shard, group)
    for member in group.members.values():
        member.unchanged = None
        if member.fields.classic is None:
            member.session_timeout_ms = timeout_ms


def _topics_changed(_shard: ShardState, group: ConsumerGroup) -> None:
    """Mark the group. The next heartbeat of any member then checks whether the subscribed topics
    changed.
    """
    group.is_stale = True


CONSUMER: Final = Behaviour(
    ConsumerGroup,
    _loaded,
    _resumed,
    _overrides_changed,
    _topics_changed,
    {
        DeadlineKind.SESSION: leaving.session_due,
        DeadlineKind.MEMBER_REBALANCE: leaving.rebalance_due,
        DeadlineKind.MEMBER_JOIN: leaving.join_due,
        DeadlineKind.MEMBER_SYNC: leaving.sync_due,
    },
    leaving.removal_items,
    heartbeat.work_done,
)
