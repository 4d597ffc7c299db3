"""Checks the identity of clients, and the metadata that leaders get.

A request of a client that is not a member, or that was replaced, is refused. The leader gets the
metadata of each member's last join.
"""

from __future__ import annotations

from collections.abc import Mapping

from groupkeeper.coordinator.core.classic.group import ClassicGroup
from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.requests.membership import (
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    SyncGroup,
)
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit, OffsetCommitResult
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Step

_NOT_JUDGED = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Errors of partitions that do not exist. They do not depend on group and member."""
_TURNED_AWAY = frozenset({ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_MAX_SIZE_REACHED})
"""Errors of a join that is refused before its identity is checked."""


def check_identity(shard: ShardState, request: Request, result: Result | None) -> None:
    """Raise AssertionError if a client that is not a member, or was replaced, did not get an error.
    ``result`` is None if the request was parked.
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


def _identity(group: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    """Return the error that the current members require."""
    instances = {m.group_instance_id: m.member_id for m in group.members.values()}
    if instance_id is not None and instances.get(instance_id, member_id) != member_id:
        return ErrorCode.FENCED_INSTANCE_ID
    member = group.members.get(member_id)
    is_known = member is not None and instance_id in (None, member.group_instance_id)
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_MEMBER_ID


def _codes(result: Result | None) -> set[ErrorCode]:
    """Return all errors of an answer. Of a commit: those of partitions that exist."""
    if isinstance(result, ErrorCode):
        return {result}
    if isinstance(result, OffsetCommitResult) and result.topics is not None:
        return {code for _, _, parts in result.topics for _, code in parts} - _NOT_JUDGED
    return {getattr(result, "error", ErrorCode.NONE)}


class Sent:
    """The metadata of the last joins of one shard's members, since its load."""

    def __init__(self) -> None:
        self._metadata: dict[str, Mapping[str, bytes]] = {}
        """Member -> protocol -> metadata. No id is used twice in a world."""

    def joined(self, request: Request, result: Result | None) -> None:
        """Note a join. ``result`` is None if it was parked."""
        if isinstance(request, JoinGroup) and getattr(result, "error", 0) is ErrorCode.NONE:
            self._note(request, result.member_id)  # type: ignore[union-attr]
        elif isinstance(request, JoinGroup) and result is None:
            self._note(request, request.member_id or request.new_member_id)

    def _note(self, request: JoinGroup, member_id: str) -> None:
        self._metadata[member_id] = {p.name: p.metadata for p in request.protocols}

    def check(self, step: Step) -> None:
        """Raise AssertionError if the leader does not get the metadata that the members sent."""
        for reply in step.replies:
            result = reply.result
            for member in result.members if isinstance(result, JoinGroupResult) else ():
                sent = self._metadata.get(member.member_id, {})
                wanted = sent.get(result.protocol_name or "", member.metadata)
                assert member.metadata == wanted, (
                    f"{member.member_id} sent {wanted!r}, {result.member_id} is shown "
                    f"{member.metadata!r}"
                )
