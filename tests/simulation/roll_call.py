"""Who is a member, told from one step to the next: who goes is told of once, who is told of has
gone, and no answer that says so goes out ahead of what it rests on.
"""

from __future__ import annotations

from collections import Counter

from coordinator.core.errors import ErrorCode
from coordinator.core.events import MemberEvicted, MemberJoin, MemberLeave
from coordinator.core.requests import LeaveGroupResult, Request, Result
from coordinator.core.state import ShardState
from coordinator.core.step import Step


class RollCall:
    """The members of one shard's groups, in one life, as of its last step."""

    def __init__(self) -> None:
        self._members: set[tuple[str, str]] = set()
        """(group, member id)."""

    def took(self, shard: ShardState, step: Step) -> None:
        """Follow a step; raises AssertionError where its events do not tell who went in it."""
        here = {(group.group_id, m) for group in shard.groups.values() for m in group.members}
        gone = Counter(self._members - here)
        self._members = here
        told: Counter[tuple[str, str]] = Counter()
        for event in step.events:
            if isinstance(event, MemberLeave | MemberEvicted):
                told[event.group, event.member_id] += 1
            elif isinstance(event, MemberJoin) and event.replaces is not None:
                told[event.group, event.replaces] += 1
        assert gone == told, f"went: {dict(gone)}, told to have gone: {dict(told)}"


def check_left(shard: ShardState, request: Request, result: Result | None) -> None:
    """Raise AssertionError where a LeaveGroup was told of success, and its member stays."""
    group = shard.groups.get(getattr(request, "group_id", ""))
    if group is None or not isinstance(result, LeaveGroupResult):
        return
    for left in result.members:
        stays = left.member_id in group.members or left.group_instance_id in group.static_members
        assert left.error is not ErrorCode.NONE or not stays, f"{left}: said to have left, stays"


def check_waits(step: Step) -> None:
    """Raise AssertionError where an answer that a crash may not take back waits for nothing: only
    the good answers to heartbeats may.
    """
    for reply in step.replies:
        may_hurry = reply.result in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        assert reply.waits or may_hurry, f"does not wait for its records: {reply.result}"
