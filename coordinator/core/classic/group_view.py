"""ReadGroup: the whole state of one group, for embedding hosts. It is not a Kafka API."""

from __future__ import annotations

from groupkeeper.coordinator.core.classic.group import ClassicGroup
from groupkeeper.coordinator.core.classic.member import ClassicMember
from groupkeeper.coordinator.core.dispatch import handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.requests.admin import (
    GroupView,
    MemberView,
    ReadGroup,
    ReadGroupResult,
)
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Ticket


@handles(ReadGroup, GroupType.CLASSIC)
def read_group(
    shard: ShardState, group: ClassicGroup | None, request: ReadGroup, ticket: Ticket
) -> None:
    """Answer with a copy of the group's state, or with GROUP_ID_NOT_FOUND."""
    if group is None:
        result = ReadGroupResult(ErrorCode.GROUP_ID_NOT_FOUND)
    else:
        result = ReadGroupResult(ErrorCode.NONE, _view(group, shard.now))
    shard.reply(ticket, result)


def _view(group: ClassicGroup, now: Now) -> GroupView:
    return GroupView(
        group.group_id,
        group.state,
        group.protocol_type,
        group.protocol_name,
        group.leader_id,
        group.generation_id,
        group.state_timestamp_ms,
        tuple(_member_view(group, member, now) for member in group.members.values()),
    )


def _member_view(group: ClassicGroup, member: ClassicMember, now: Now) -> MemberView:
    return MemberView(
        member.member_id,
        member.group_instance_id,
        member.client,
        member.metadata(group.protocol_name),
        member.assignment,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.parked_join is not None,
        member.member_id in group.pending_sync,
        _last_heard_ms(member, now),
        member.join_time_ms,
    )


def _last_heard_ms(member: ClassicMember, now: Now) -> int | None:
    """Return when the current session started (wall-clock ms); None if no session runs."""
    if member.session.at is None:
        return None
    begun_ms = member.session.at - member.session_length_ms
    heard_ms = now.wall_ms - (now.monotonic_ms - begun_ms)
    # The two clocks round differently, and no member sends anything before it joins.
    return heard_ms if member.join_time_ms is None else max(heard_ms, member.join_time_ms)
