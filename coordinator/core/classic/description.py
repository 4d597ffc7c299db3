"""DescribeGroups (docs/spec/administration.md#describe-groups)."""

from __future__ import annotations

from contextlib import suppress

from groupkeeper.coordinator.core.classic.group import CONSUMER, ClassicGroup
from groupkeeper.coordinator.core.classic.member import ClassicMember
from groupkeeper.coordinator.core.dispatch import handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.requests.admin import (
    DescribedMember,
    DescribeGroup,
    DescribeGroupResult,
)
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Ticket
from groupkeeper.coordinator.core.waiting import AwaitedMember, Waiting
from groupkeeper.protocol.consumer_protocol import ConsumerProtocolError, subscribed_topics

MAX_TOPICS_READ = 2_000
"""The largest number of topic names that are read from the subscriptions of a group. Equal
subscriptions are read once.

Reading them takes 0.5 ms of the event loop. The reply has room for fewer names.
"""


@handles(DescribeGroup, GroupType.CLASSIC)
def describe_group(
    shard: ShardState, group: ClassicGroup | None, request: DescribeGroup, ticket: Ticket
) -> None:
    """Describe a classic group. An absent group is Dead, with GROUP_ID_NOT_FOUND."""
    if group is None:
        message = f"Group {request.group_id} not found."
        result = DescribeGroupResult(
            ErrorCode.GROUP_ID_NOT_FOUND, request.group_id, message=message
        )
    else:
        waiting = _waiting(group, shard.now) if request.with_waiting else None
        result = _description(group, waiting)
    shard.reply(ticket, result)


def _description(group: ClassicGroup, waiting: Waiting | None) -> DescribeGroupResult:
    # Metadata and protocol are meaningful only in a Stable group.
    is_stable = group.state is GroupState.STABLE
    return DescribeGroupResult(
        ErrorCode.NONE,
        group.group_id,
        group.state,
        group.protocol_type or "",
        (group.protocol_name or "") if is_stable else "",
        tuple(
            DescribedMember(
                m.member_id,
                m.group_instance_id,
                m.client.client_id,
                m.client.client_host,
                m.metadata(group.protocol_name) if is_stable else b"",
                m.assignment,
            )
            for m in group.members.values()
        ),
        waiting=waiting,
    )


def _waiting(group: ClassicGroup, now: Now) -> Waiting:
    """Return the members that the group waits for, since when and until when, and its topics."""
    awaited: list[ClassicMember] = []
    handed_out: list[str] = []
    until_at: int | None = None
    if group.state is GroupState.PREPARING_REBALANCE:
        awaited = [m for m in group.members.values() if m.parked_join is None]
        handed_out = list(group.pending_members)
        until_at = group.join_phase.at
    elif group.pending_sync:
        awaited = [group.members[member_id] for member_id in sorted(group.pending_sync)]
        until_at = group.sync_phase.at
    return Waiting(
        tuple(
            [AwaitedMember(m.member_id, m.client.client_id, m.client.client_host) for m in awaited]
            + [AwaitedMember(member_id, "", "") for member_id in handed_out]
        ),
        None if until_at is None else group.state_timestamp_ms,
        None if until_at is None else now.wall_at(until_at),
        _topics(group),
    )


def _topics(group: ClassicGroup) -> tuple[str, ...]:
    if group.protocol_type != CONSUMER:
        return ()
    found: set[str] = set()
    seen: set[bytes] = set()
    left = MAX_TOPICS_READ
    for member in group.members.values():
        metadata = member.protocols[0].metadata if member.protocols else b""
        if metadata in seen:
            continue
        seen.add(metadata)
        if left <= 0:
            break
        left -= 1
        with suppress(ConsumerProtocolError):
            topics = subscribed_topics(metadata, left)
            left -= len(topics)
            found.update(topics)
    return tuple(sorted(found))
