"""The functions that a shard calls for a consumer group when no request causes it."""

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
    """Start the timers of all members again, at full length. All else is saved.

    Classic members have the timeout of the group until they are heard of. See
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


def _overrides_changed(shard: ShardState, group: ConsumerGroup) -> None:
    """Let a changed session timeout apply from the next heartbeat on."""
    timeout_ms = heartbeat.group_session_timeout_ms(shard, group)
    for member in group.members.values():
        if member.fields.classic is None:
            member.session_timeout_ms = timeout_ms


def _topics_changed(_shard: ShardState, group: ConsumerGroup) -> None:
    """Let the next heartbeat of any member look at the topics again."""
    group.is_stale = True


CONSUMER: Final = Behaviour(
    ConsumerGroup,
    _loaded,
    _overrides_changed,
    _topics_changed,
    {
        DeadlineKind.SESSION: leaving.session_due,
        DeadlineKind.MEMBER_REBALANCE: leaving.rebalance_due,
        DeadlineKind.MEMBER_JOIN: leaving.join_due,
        DeadlineKind.MEMBER_SYNC: leaving.sync_due,
    },
    heartbeat.work_done,
)
