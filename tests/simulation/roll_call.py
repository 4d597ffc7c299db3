"""Follows members and generations from step to step.

A member that leaves has exactly one event. The answer to its LeaveGroup waits for the record. Each
join phase that ends makes the next generation.
"""

from __future__ import annotations

from collections import Counter

from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberEvicted, MemberJoin, MemberLeave, RebalanceEnd
from groupkeeper.coordinator.core.requests.membership import Heartbeat, LeaveGroupResult
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Step

_GOOD_NEWS = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
"""The answers to heartbeats of members."""


class RollCall:
    """The members of one shard's groups after its last step, since its load."""

    def __init__(self) -> None:
        self._members: set[tuple[str, str]] = set()
        """(group, member id)."""
        self._generations: dict[str, int] = {}

    def after_step(self, shard: ShardState, step: Step) -> None:
        """Follow a step. Raises AssertionError if its events do not report exactly the members that
        left.
        """
        here = {(group.group_id, m) for group in shard.groups.values() for m in group.members}
        gone = Counter(self._members - here)
        self._members = here
        told: Counter[tuple[str, str]] = Counter()
        for event in step.events:
            if isinstance(event, MemberLeave | MemberEvicted):
                told[event.group_id, event.member_id] += 1
            elif isinstance(event, MemberJoin) and event.replaces is not None:
                told[event.group_id, event.replaces] += 1
        assert gone == told, f"went: {dict(gone)}, told to have gone: {dict(told)}"

    def number(self, shard: ShardState, step: Step) -> None:
        """Follow the generations through a step. Raises AssertionError if one is used again, or
        left out.
        """
        was = self._generations
        self._generations = {group_id: g.generation_id for group_id, g in shard.groups.items()}
        for event in step.events:
            if isinstance(event, RebalanceEnd):
                before = was.get(event.group_id, 0)
                assert event.generation_id == before + 1, f"{event}: after generation {before}"
                was[event.group_id] = event.generation_id
        for group_id, number in self._generations.items():
            before = was.get(group_id, number)
            assert number == before, f"{group_id}: generation {number}, was {before}"


def check_left(shard: ShardState, request: Request, result: Result | None) -> None:
    """Raise AssertionError if a LeaveGroup succeeded and its member is still there."""
    group = shard.groups.get(request.group_id or "")
    if group is None or not isinstance(result, LeaveGroupResult):
        return
    for left in result.members:
        stays = left.member_id in group.members or left.group_instance_id in group.static_members
        assert left.error is not ErrorCode.NONE or not stays, f"{left}: said to have left, stays"


def check_goes_on(shard: ShardState, request: Request, result: Result | None) -> None:
    """Raise AssertionError if a client got an answer for members, but is not a member, or names
    another generation. It would keep partitions that other members own now.
    """
    if not isinstance(request, Heartbeat) or result not in _GOOD_NEWS:
        return
    group = shard.groups.get(request.group_id)
    told = (request.member_id, request.generation_id, request.group_instance_id)
    known = None
    if group is not None and (member := group.members.get(request.member_id)):
        instance_id = request.group_instance_id and member.group_instance_id  # if it names it
        known = (member.member_id, group.generation_id, instance_id)
    assert told == known, f"{told} is told to go on, is {known}"


def check_waits(step: Step) -> None:
    """Raise AssertionError if an answer does not wait for the store although it must. Only the
    answers in ``_GOOD_NEWS`` need not wait.
    """
    for reply in step.replies:
        may_hurry = reply.result in _GOOD_NEWS
        assert reply.waits or may_hurry, f"does not wait for its records: {reply.result}"
