"""The functions that a shard calls for a classic group without a request."""

from __future__ import annotations

from typing import Final

from groupkeeper.coordinator.core.behaviour import Behaviour
from groupkeeper.coordinator.core.classic import membership, rebalance
from groupkeeper.coordinator.core.classic.group import ClassicGroup
from groupkeeper.coordinator.core.classic.saved import restore
from groupkeeper.coordinator.core.deadlines import DeadlineKind
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.work import Work, WorkOutcome


def _loaded(shard: ShardState, group: ClassicGroup) -> None:
    """Make a group Stable or Empty after a load, and start the sessions of its members.

    A group that is larger than ``group.max.size`` begins a rebalance. So does a group without a
    leader: it was a consumer group, and its members have not joined again since
    (docs/spec/migration.md#downgrade). See docs/spec/groups.md#restart.
    """
    restore(group)
    group.subscribed_topics = rebalance.subscribed_topics(group)
    for member in group.members.values():
        shard.restart_session(member)
    if len(group.members) > shard.limits.group_max_size:
        rebalance.prepare(shard, group, "group_max_size", "")
    elif group.members and group.leader_id is None:
        rebalance.prepare(shard, group, "downgrade", "")


def _resumed(shard: ShardState, group: ClassicGroup, stopped_ms: int) -> None:
    """Start every member's running session again at full length. Also start the current phase of a
    rebalance again. Parked requests stay parked.

    The deadlines of pending member ids (KIP-394) move by ``stopped_ms``.
    """
    for deadline in group.pending_members.values():
        if deadline.at is not None:
            shard.arm(deadline, deadline.at + stopped_ms)
    for member in group.members.values():
        if member.session.at is not None:
            shard.begin_session(member, member.session_length_ms)
    rebalance.resume(shard, group, stopped_ms)


def _topics_changed(_: ShardState, group: ClassicGroup) -> None:
    """Do nothing: the members watch the topics themselves, and join again."""


def _work_done(_: ShardState, group: ClassicGroup, work: Work, outcome: WorkOutcome) -> None:
    """Do nothing: the group was of another type when the computation began."""


CLASSIC: Final = Behaviour(
    ClassicGroup,
    _loaded,
    _resumed,
    rebalance.overrides_changed,
    _topics_changed,
    {
        DeadlineKind.SESSION: membership.session_due,
        DeadlineKind.JOIN_PHASE: rebalance.join_phase_due,
        DeadlineKind.SYNC_PHASE: rebalance.sync_phase_due,
    },
    None,
    _work_done,
)
