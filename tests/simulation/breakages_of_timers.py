"""Bugs in timers: phases and sessions that end too late, never, or too early.

The table of ``breakages`` includes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from groupkeeper.coordinator.core.classic import behaviour, joining, membership, rebalance
from groupkeeper.coordinator.core.classic.group import ClassicGroup
from groupkeeper.coordinator.core.deadlines import DeadlineKind, Deadlines
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.offsets import commit as offset_commit
from groupkeeper.coordinator.core.requests.membership import Heartbeat, JoinGroup
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.runtime.alarm import Alarm
from groupkeeper.coordinator.runtime.lane import Lane
from tests.helpers.core.handlers import handle_with

Patch = pytest.MonkeyPatch


def alarm_never_rings(patch: Patch) -> None:
    patch.setattr(Alarm, "_ring", lambda self: None)


def alarm_rings_once(patch: Patch) -> None:
    """The alarm is not set again after it rings. Only a request sets it, but not a heartbeat."""
    patch.setattr(Alarm, "_rearm", lambda self: None)


def append_is_never_given_up(patch: Patch) -> None:
    patch.setattr(Lane, "_check_time", lambda *_: None)


def wait_for_a_load_is_never_given_up(patch: Patch) -> None:
    patch.setattr(Lane, "_check_wait", lambda *_: None)


def _due(patch: Patch, kind: DeadlineKind, function: Callable[..., None]) -> None:
    """Let another function follow when a deadline of a kind is reached."""
    patch.setitem(behaviour.CLASSIC.due, kind, function)


def session_evicts_nobody(patch: Patch) -> None:
    _due(patch, DeadlineKind.SESSION, lambda *_: None)


def session_begins_again(patch: Patch) -> None:
    """A session that ends starts again, as if the member had sent a heartbeat."""
    end = membership.session_due

    def forgiving(shard: ShardState, group: ClassicGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is None:
            end(shard, group, member_id)
        else:
            shard.restart_session(member)

    _due(patch, DeadlineKind.SESSION, forgiving)


def handed_out_id_stays(patch: Patch) -> None:
    """A member id with which nobody has joined is not removed. It delays its group."""
    end = membership.session_due

    def forgiving(shard: ShardState, group: ClassicGroup, member_id: str) -> None:
        pending = group.pending_members.get(member_id)
        if pending is None:
            end(shard, group, member_id)
        else:
            shard.arm(pending, shard.now.monotonic_ms + 6_000)

    _due(patch, DeadlineKind.SESSION, forgiving)


def join_phase_is_not_armed(patch: Patch) -> None:
    patch.setattr(rebalance, "_arm_join_phase", lambda *_: None)


def join_phase_goes_on(patch: Patch) -> None:
    """A join phase that should end starts again, and nobody is evicted."""
    due = rebalance.join_phase_due

    def patient(shard: ShardState, group: ClassicGroup, _: str) -> None:
        if group.is_initial_rebalance:
            due(shard, group)
        elif group.state is GroupState.PREPARING_REBALANCE:
            at_ms = shard.now.monotonic_ms + group.largest_rebalance_timeout_ms()
            shard.arm(group.join_phase, at_ms)  # beyond rebalance.max.join.ms too

    _due(patch, DeadlineKind.JOIN_PHASE, patient)


def bound_of_a_join_phase_is_ignored(patch: Patch) -> None:
    patch.setattr(rebalance, "_join_bound_at", lambda *_: None)


def sync_phase_goes_on(patch: Patch) -> None:
    def patient(shard: ShardState, group: ClassicGroup, _: str) -> None:
        shard.arm(group.sync_phase, shard.now.monotonic_ms + 5_000)

    _due(patch, DeadlineKind.SYNC_PHASE, patient)


def sync_phase_evicts_nobody(patch: Patch) -> None:
    """A member that never synced stays in a group that is Stable."""
    due = rebalance.sync_phase_due

    def forgiving(shard: ShardState, group: ClassicGroup, _: str) -> None:
        if group.state is GroupState.STABLE:
            group.pending_sync.clear()
        else:
            due(shard, group)

    _due(patch, DeadlineKind.SYNC_PHASE, forgiving)


def _ends_early(kind: DeadlineKind) -> Callable[[Patch], None]:
    """Deadlines of a kind are reached after a twentieth of their time."""

    def breakage(patch: Patch) -> None:
        clocks: list[ShardState] = []
        arm_join, complete = rebalance._arm_join_phase, rebalance.complete_join_phase
        arm = Deadlines.arm

        def hasty(self: Deadlines, deadline: Any, at_ms: int) -> bool:
            if deadline.kind is kind and clocks:
                now_ms = clocks[-1].now.monotonic_ms
                at_ms = now_ms + (at_ms - now_ms) // 20
            return arm(self, deadline, at_ms)

        def noting(function: Callable[..., None]) -> Callable[..., None]:
            def noted(shard: ShardState, *arguments: Any) -> None:
                clocks.append(shard)
                function(shard, *arguments)
                clocks.pop()

            return noted

        patch.setattr(Deadlines, "arm", hasty)
        patch.setattr(rebalance, "_arm_join_phase", noting(arm_join))
        patch.setattr(rebalance, "complete_join_phase", noting(complete))

    return breakage


def _unheard(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function without its effect on sessions: the request does not restart them."""

    def unheard(*arguments: Any) -> None:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(ShardState, "restart_session", lambda *_: None)
            function(*arguments)

    return unheard


def heartbeat_counts_in_stable_alone(patch: Patch) -> None:
    beat, unheard_beat = membership.heartbeat, _unheard(membership.heartbeat)

    def handle(shard: ShardState, group: Any, request: Heartbeat, ticket: Any) -> None:
        is_stable = group is None or group.state is GroupState.STABLE
        (beat if is_stable else unheard_beat)(shard, group, request, ticket)

    handle_with(patch, Heartbeat, handle)


def heartbeat_sets_no_alarm(patch: Patch) -> None:
    """A heartbeat does not set the alarm if it makes a deadline the earliest: that of a new member
    whose join is parked.
    """

    def handle(shard: ShardState, *rest: Any) -> None:
        membership.heartbeat(shard, *rest)
        shard.step.sets_alarm = False

    handle_with(patch, Heartbeat, handle)


def commit_does_not_count(patch: Patch) -> None:
    handle_with(patch, OffsetCommit, _unheard(offset_commit.commit_offsets))


def answered_sync_does_not_count(patch: Patch) -> None:
    patch.setattr(rebalance, "answer_sync", _unheard(rebalance.answer_sync))


def _asked(**kept: Callable[[int], int]) -> Callable[[Patch], None]:
    """A join is stored with other timeouts than it asked for."""

    def breakage(patch: Patch) -> None:
        def misread(function: Callable[..., Any]) -> Callable[..., Any]:
            def misreading(*arguments: Any) -> Any:
                return function(*map(changed, arguments))

            return misreading

        def changed(argument: Any) -> Any:
            if not isinstance(argument, JoinGroup):
                return argument
            values = {name: of(getattr(argument, name)) for name, of in kept.items()}
            return msgspec.structs.replace(argument, **values)

        for function in ("_add", "_update", "_take_over"):
            patch.setattr(joining, function, misread(getattr(joining, function)))

    return breakage


def restored_rebalance_timeout_is_short(patch: Patch) -> None:
    restore = behaviour.restore

    def hasty(group: ClassicGroup) -> None:
        restore(group)
        for member in group.members.values():
            member.rebalance_timeout_ms = min(100, member.rebalance_timeout_ms)

    patch.setattr(behaviour, "restore", hasty)


LATE: Final = "no alarm is set|is silent since|should be over|should have (synced|joined)"
"""The failure that a world reports if a timer is late."""

EARLY: Final = "ms before the phase may end"
SHORT: Final = "ms before its session ends|has no deadline"

TIMERS: Final[dict[str, tuple[Callable[[Patch], None], str]]] = {
    "timers that never ring": (alarm_never_rings, LATE),
    "timers that ring once": (alarm_rings_once, LATE),
    "an append that is never given up": (append_is_never_given_up, r"\d ms for "),
    "a wait for a load that is never given up": (
        wait_for_a_load_is_never_given_up,
        r"\d ms for OffsetCommit",
    ),
    "a session that ends and evicts nobody": (session_evicts_nobody, "has no deadline"),
    "a session that begins again when it ends": (session_begins_again, "is silent since"),
    "an id that nobody joins with and that stays": (handed_out_id_stays, "should have joined"),
    "a join phase without a timer": (join_phase_is_not_armed, "join phase"),
    "a join phase that never ends": (join_phase_goes_on, "in PreparingRebalance.*should be over"),
    "a join phase that goes on beyond what is set for its group": (
        bound_of_a_join_phase_is_ignored,
        "in PreparingRebalance.*should be over",
    ),
    "a sync phase that never ends": (sync_phase_goes_on, "in CompletingRebalance.*should be over"),
    "a join phase that ends early": (_ends_early(DeadlineKind.JOIN_PHASE), EARLY),
    "a sync phase that ends early": (_ends_early(DeadlineKind.SYNC_PHASE), EARLY),
    "a heartbeat that counts in Stable alone": (heartbeat_counts_in_stable_alone, SHORT),
    "a heartbeat that sets no alarm": (
        heartbeat_sets_no_alarm,
        "nobody looks for its session|no alarm is set",
    ),
    "a commit that does not count": (commit_does_not_count, SHORT),
    "a sync whose answer does not count": (answered_sync_does_not_count, SHORT),
    "a rebalance timeout that is kept as a tenth": (
        _asked(rebalance_timeout_ms=lambda ms: ms // 10),
        EARLY,
    ),
    "a session timeout that is kept times ten": (
        _asked(session_timeout_ms=lambda ms: 10 * ms),
        "is silent since",
    ),
    "a rebalance timeout that is loaded as 100 ms": (
        restored_rebalance_timeout_is_short,
        f"{EARLY}|at rest as",
    ),
    "a member that never synced and stays": (sync_phase_evicts_nobody, "should have synced"),
}
"""As ``breakages.BREAKAGES``."""
