"""Checks the timers of a shard (docs/spec/joining.md#join-group to docs/spec/groups.md#timers). It
computes each deadline by itself, and does not use the shard's code for timers.

The lengths of sessions and phases are from the joins, also from joins before the last load. The
time when a member was last active is from its requests and their answers. The shard supplies its
members, which of them wait, the phase of each group, and settings (initial delay,
rebalance.max.join.ms).

It reports each session or phase that ends too late, or never. It also reports one that evicts a
member too early.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import NamedTuple, TypeAlias

from groupkeeper.coordinator.core.classic.group import ClassicGroup
from groupkeeper.coordinator.core.classic.member import ClassicMember
from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberEvicted, RebalanceEnd
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.requests.membership import (
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    SyncGroup,
)
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Step

LATE_MS = 1_100
"""The longest delay of a timer. After a stall the clock adds one second, which the shard sees only
in the next turn of the loop.
"""

_HEARD = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)


class Timeouts(NamedTuple):
    """The timeouts of a member's last join."""

    session_ms: int
    rebalance_ms: int


Asked: TypeAlias = MutableMapping[tuple[str, str], Timeouts]
"""(group, member) -> its timeouts. All shards share it, because a member keeps its timeouts over a
load of its shard.
"""


class Patience:
    """The deadlines of one shard, since its load. All times are of the shard's monotonic clock, in
    ms.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._groups: dict[str, GroupPatience] = {}

    def after_step(
        self,
        shard: ShardState,
        step: Step,
        request: Request | None = None,
        result: Result | None = None,
    ) -> None:
        """Note a step, and the answer to its request. Raises AssertionError if something ended too
        early in it.
        """
        early = []
        for group_id in self._groups.keys() - shard.groups.keys():
            del self._groups[group_id]
        group_of_request = getattr(request, "group_id", None)
        now_ms = shard.now.monotonic_ms
        for group_id, group in shard.groups.items():
            patience = self._groups.get(group_id)
            if patience is None:
                patience = self._groups[group_id] = GroupPatience(group, self._asked)
            if group_id == group_of_request:
                patience.hear(group, request, result, now_ms)
            early += patience.ended_early(group, step, now_ms)
            bound_ms = shard.overrides_of(group).rebalance_max_join_ms
            patience.follow(group, _initial_delay_ms(shard, group), bound_ms, now_ms)
        assert not early, early[0]

    def resumed(self, shard: ShardState, stopped_ms: int) -> None:
        """Begin again after a time in which the shard answered nothing."""
        for group_id, patience in self._groups.items():
            patience.resumed(shard.groups[group_id], stopped_ms, shard.now.monotonic_ms)

    def check(self, shard: ShardState, now_ms: int) -> None:
        """Raise AssertionError if something should have ended by now."""
        for group_id, patience in self._groups.items():
            patience.check(shard.groups[group_id], now_ms)


class GroupPatience:
    """The deadlines of one group."""

    def __init__(self, group: ClassicGroup, asked: Asked) -> None:
        self._asked = asked
        self._phase = (GroupState.EMPTY, group.generation_id)
        self._until_ms = 0
        """The time at which the phase must end, unless another limit ends it."""
        self._bound_ms: int | None = None
        """The limit of the whole join phase."""
        self._bound_at_ms = 0
        """The time at which this limit ends the phase. It is not before the time when the limit was
        set."""
        self._began_ms = 0
        self._from_ms = 0
        """Before this time the phase ends only if nobody is awaited any more."""
        self._is_first = False
        """True in a group's first join phase, which takes at least the initial delay."""
        self._sessions_ms: dict[str, int] = {}
        """The timeouts of the members after the last step."""
        self._unsynced: set[str] = set()
        """Members that joined this generation and have not synced. A static member's successor
        counts.
        """
        self._heard_ms: dict[str, int] = {}
        """The time when each member was last active: its last request, or the answer that it waited
        for."""
        self._waiting: set[str] = set()
        """Members whose join or sync was parked after the last step."""
        self._handed_out: dict[str, int] = {}
        """Member ids with which nobody has joined yet (KIP-394), each with the time of its removal.
        """

    def hear(self, group: ClassicGroup, request: object, result: object, now_ms: int) -> None:
        """Note a request. ``result`` is None if it was parked."""
        match request, result:
            case Heartbeat(), ErrorCode() if result in _HEARD:
                self._heard_ms[request.member_id] = now_ms
            case OffsetCommit(), _ if getattr(result, "error", None) is ErrorCode.NONE:
                self._heard_ms[request.member_id] = now_ms
            case SyncGroup(), _ if getattr(result, "error", ErrorCode.NONE) is ErrorCode.NONE:
                if member := group.members.get(request.member_id):
                    self._unsynced.discard(_name(member))
                if self._phase[0] is GroupState.COMPLETING_REBALANCE:
                    self._heard_ms[request.member_id] = now_ms
            case JoinGroup(), _ if request.new_member_id in group.pending_members:
                self._handed_out[request.new_member_id] = now_ms + request.session_timeout_ms
            case JoinGroup(), JoinGroupResult() | None if self._restarts_session(request, result):
                member_id = request.member_id or request.new_member_id
                timeouts = Timeouts(request.session_timeout_ms, request.rebalance_timeout_ms)
                self._asked[group.group_id, member_id] = timeouts

    def _restarts_session(self, join: JoinGroup, result: JoinGroupResult | None) -> bool:
        """Return True if the request restarts a session. A refused request does not. A join does
        not if the member gets its present generation again (docs/spec/joining.md#adding).
        """
        if result is None:
            return True
        is_told_again = join.member_id != "" and result.generation_id == self._phase[1]
        return result.error is ErrorCode.NONE and not is_told_again

    def _timeouts(self, group: ClassicGroup) -> dict[str, Timeouts]:
        return {member_id: self._asked[group.group_id, member_id] for member_id in group.members}

    def ended_early(self, group: ClassicGroup, step: Step, now_ms: int) -> list[str]:
        """Yield a failure for each session or phase that ended too early in this step, according to
        the events. Called before ``follow``.
        """
        told = []
        for event in step.events:
            if event.group_id != group.group_id:
                continue
            left_ms = self._from_ms - now_ms
            is_open = self._phase[0] is GroupState.PREPARING_REBALANCE
            lost = any(isinstance(other, MemberEvicted) for other in step.events)
            awaited = isinstance(event, RebalanceEnd) and (
                event.awaited or (self._is_first and is_open and not lost)
            )
            reason = event.reason if isinstance(event, MemberEvicted) else ""
            if left_ms > 0 and (awaited or reason in ("join_timeout", "sync_timeout")):
                told.append(f"{event}: {left_ms} ms before the phase may end")
            is_absent_one = reason == "join_timeout" and event.group_instance_id is not None
            if is_absent_one and (self._waiting or self._bound_ms is None):
                told.append(f"{event}: is static, and has until its session ends")
            if reason == "session_timeout" and event.member_id not in self._waiting:
                heard_ms = self._heard_ms.get(event.member_id, now_ms)
                left_ms = heard_ms + self._sessions_ms.get(event.member_id, 0) - now_ms
                if left_ms > 0:
                    told.append(f"{event}: {left_ms} ms before its session ends")
        return told

    def follow(
        self, group: ClassicGroup, initial_delay_ms: int, bound_ms: int | None, now_ms: int
    ) -> None:
        """Follow the group through a step. ``bound_ms`` is the most that a join phase may take."""
        members = group.members
        timeouts = self._timeouts(group)
        longest_ms = max((asked.rebalance_ms for asked in timeouts.values()), default=0)
        phase = (group.state, group.generation_id)
        if phase != self._phase:
            shortest_ms = min((asked.rebalance_ms for asked in timeouts.values()), default=0)
            is_first = self._phase[0] is GroupState.EMPTY
            self._phase = phase
            self._bound_ms = None
            if group.state is GroupState.PREPARING_REBALANCE:
                self._until_ms = now_ms + max(initial_delay_ms, longest_ms)
                self._began_ms = now_ms
                self._from_ms = now_ms + (initial_delay_ms if is_first else shortest_ms)
                self._is_first = is_first
            elif group.state is GroupState.COMPLETING_REBALANCE:
                self._until_ms = now_ms + longest_ms
                self._from_ms = now_ms + shortest_ms
                self._unsynced = {_name(member) for member in members.values()}
                self._heard_ms = dict.fromkeys(members, now_ms)
        if group.state is not GroupState.PREPARING_REBALANCE:
            bound_ms = None
        if bound_ms != self._bound_ms and bound_ms is not None:
            self._from_ms = min(self._from_ms, self._began_ms + bound_ms)
            self._bound_at_ms = max(self._began_ms + bound_ms, now_ms)
        self._bound_ms = bound_ms
        waiting = {m for m, member in members.items() if _waits(member)}
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and not waiting
            and all(member.group_instance_id is not None for member in members.values())
        ):
            # Static members that did not come back: they have until their sessions end
            # (docs/spec/joining.md#completing).
            self._until_ms = max(self._until_ms, now_ms + longest_ms)
        told = waiting | self._waiting
        self._heard_ms = {
            m: now_ms if m in told else self._heard_ms.get(m, now_ms) for m in members
        }
        self._waiting = waiting
        self._sessions_ms = {m: asked.session_ms for m, asked in timeouts.items()}
        self._handed_out = {
            m: at_ms for m, at_ms in self._handed_out.items() if m in group.pending_members
        }

    def resumed(self, group: ClassicGroup, stopped_ms: int, now_ms: int) -> None:
        """Begin all sessions and phases again after a stop. The stop does not count for the initial
        delay and the removal of ids.
        """
        longest_ms = max((t.rebalance_ms for t in self._timeouts(group).values()), default=0)
        self._until_ms = max(self._until_ms + stopped_ms, now_ms + longest_ms)
        self._began_ms += stopped_ms
        self._from_ms += stopped_ms
        self._bound_at_ms += stopped_ms
        self._heard_ms = dict.fromkeys(self._heard_ms, now_ms)
        self._handed_out = {m: at_ms + stopped_ms for m, at_ms in self._handed_out.items()}

    def check(self, group: ClassicGroup, now_ms: int) -> None:
        """Raise AssertionError if something should have ended by now."""
        where = f"{group.group_id} in {group.state}, generation {group.generation_id}"
        is_open = group.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
        bound_ms = self._until_ms if self._bound_ms is None else self._bound_at_ms
        late_ms = now_ms - min(self._until_ms, bound_ms)
        assert not is_open or late_ms <= LATE_MS, f"{where}: should be over since {late_ms} ms"
        missing = self._unsynced & {_name(member) for member in group.members.values()}
        assert not missing or late_ms <= LATE_MS, (
            f"{where}: {sorted(missing)} should have synced {late_ms} ms ago, and are members"
        )
        for member_id, heard_ms in self._heard_ms.items():
            silent_ms = 0 if member_id in self._waiting else now_ms - heard_ms
            assert silent_ms <= self._sessions_ms[member_id] + LATE_MS, (
                f"{where}: {member_id} is silent since {silent_ms} ms, and is a member"
            )
        for member_id, at_ms in self._handed_out.items():
            assert now_ms <= at_ms + LATE_MS, (
                f"{where}: {member_id} should have joined {now_ms - at_ms} ms ago, and is awaited"
            )


def _initial_delay_ms(shard: ShardState, group: ClassicGroup) -> int:
    told_ms = shard.overrides_of(group).initial_rebalance_delay_ms
    return shard.limits.initial_rebalance_delay_ms if told_ms is None else told_ms


def _name(member: ClassicMember) -> str:
    return member.group_instance_id or member.member_id


def _waits(member: ClassicMember) -> bool:
    return member.parked_join is not None or member.parked_sync is not None
