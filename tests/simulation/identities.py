"""For whom a request speaks, and what members are said to bring: nobody passes for a member who is
none, who was replaced is told so, and the leader is shown what each member sent last.
"""

from __future__ import annotations

from collections.abc import Mapping

from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.requests import (
    GroupState,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    OffsetCommit,
    OffsetCommitResult,
    Request,
    SyncGroup,
)
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Step

_NOT_JUDGED = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Of partitions that there are not: neither group nor member is looked at."""
_TURNED_AWAY = frozenset({ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_MAX_SIZE_REACHED})
"""A join that is not asked who it is."""


def check_identity(shard: ShardState, request: Request, result: Result | None) -> None:
    """Raise AssertionError where somebody who is no member, or no longer who it says it is, was not
    told so; ``result`` is None where the request was parked.
    """
    if not isinstance(request, Heartbeat | SyncGroup | OffsetCommit | JoinGroup):
        return
    group = shard.groups.get(request.group_id)
    if group is None or (isinstance(request, JoinGroup) and not request.member_id):
        return
    if isinstance(request, OffsetCommit) and group.state is GroupState.EMPTY:
        return  # whoever it says it is (docs/spec/offsets.md#who-may-commit)
    wanted = _identity(group, request.member_id, request.group_instance_id)
    told = _codes(result)
    if isinstance(request, JoinGroup) and told & _TURNED_AWAY:
        return
    assert wanted is ErrorCode.NONE or told <= {wanted}, (
        f"{request.member_id} as {request.group_instance_id}: is answered "
        f"{sorted(code.name for code in told)}, is {wanted.name}"
    )


def _identity(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """By the members that there are."""
    instances = {m.group_instance_id: m.member_id for m in group.members.values()}
    if instance_id is not None and instances.get(instance_id, member_id) != member_id:
        return ErrorCode.FENCED_INSTANCE_ID
    member = group.members.get(member_id)
    is_known = member is not None and instance_id in (None, member.group_instance_id)
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_MEMBER_ID


def _codes(result: Result | None) -> set[ErrorCode]:
    """All that an answer says; of a commit, of the partitions that there are."""
    if isinstance(result, ErrorCode):
        return {result}
    if isinstance(result, OffsetCommitResult) and result.topics is not None:
        return {code for _, _, parts in result.topics for _, code in parts} - _NOT_JUDGED
    return {getattr(result, "error", ErrorCode.NONE)}


class Sent:
    """What the members of one shard sent with their last joins, in one life."""

    def __init__(self) -> None:
        self._metadata: dict[str, Mapping[str, bytes]] = {}
        """Member -> protocol -> metadata; ids are never given twice in a world."""

    def joined(self, request: Request, result: Result | None) -> None:
        """A join came; ``result`` is None where it was parked."""
        if isinstance(request, JoinGroup) and getattr(result, "error", 0) is ErrorCode.NONE:
            self._take(request, result.member_id)  # type: ignore[union-attr]
        elif isinstance(request, JoinGroup) and result is None:
            self._take(request, request.member_id or request.new_member_id)

    def _take(self, request: JoinGroup, member_id: str) -> None:
        self._metadata[member_id] = {p.name: p.metadata for p in request.protocols}

    def check(self, step: Step) -> None:
        """Raise AssertionError where a leader is shown something else."""
        for reply in step.replies:
            result = reply.result
            for member in result.members if isinstance(result, JoinGroupResult) else ():
                sent = self._metadata.get(member.member_id, {})
                wanted = sent.get(result.protocol_name or "", member.metadata)
                assert member.metadata == wanted, (
                    f"{member.member_id} sent {wanted!r}, {result.member_id} is shown "
                    f"{member.metadata!r}"
                )
