"""Members that leave a consumer group, or are removed from it.

See docs/spec/consumer-groups.md#leave and #fencing.
"""

from __future__ import annotations

from collections.abc import Sequence

from groupkeeper.coordinator.core.consumer import (
    assignment_events,
    rebalance,
    static_members,
)
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.member import ConsumerGroupMember
from groupkeeper.coordinator.core.consumer_records import ConsumerMemberRemoved, ResolvedPattern
from groupkeeper.coordinator.core.dispatch import handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberEvicted, MemberLeave
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.requests.consumer import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from groupkeeper.coordinator.core.requests.membership import EndSession
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Ticket


def leave(
    shard: ShardState, group: ConsumerGroup, request: ConsumerGroupHeartbeat, ticket: Ticket
) -> None:
    """Handle a heartbeat with which a member leaves: for ever, or for a short time
    (``STATIC_LEAVE_EPOCH``). The caller has checked the sender.
    """
    member = group.members[request.member_id]
    epoch = request.member_epoch
    shard.event(MemberLeave(**group.event_fields(member, request.client)))
    if epoch == STATIC_LEAVE_EPOCH:
        answer_parked(shard, member, ErrorCode.UNKNOWN_MEMBER_ID)
        static_members.leave_for_now(shard, group, member)
    else:
        assert epoch == LEAVE_EPOCH, "the caller has checked the epoch"
        remove(shard, group, [member], "member_leave")
    result = ConsumerGroupHeartbeatResult(
        ErrorCode.NONE, member_id=request.member_id, member_epoch=epoch
    )
    shard.reply(ticket, result)


def remove(
    shard: ShardState, group: ConsumerGroup, members: Sequence[ConsumerGroupMember], reason: str
) -> None:
    """Remove members and begin one new epoch. If only classic members are left, the group may be
    converted to a classic group instead.
    """
    for member in members:
        for deadline in member.deadlines():
            shard.deadlines.clear(deadline)
        answer_parked(shard, member, ErrorCode.UNKNOWN_MEMBER_ID)
        assignment_events.add_all_lost(shard, group, member, reason)
        shard.record(ConsumerMemberRemoved(group.group_id, member.member_id))
        forget_pattern(shard, group, member.subscription.pattern)
    if not shard.members_removed(group):
        rebalance.bump(shard, group, reason, members[0].member_id)


def removal_items(group: ConsumerGroup, member_id: str) -> int:
    """Return an upper bound of the number of topics and partitions that the removal of a member
    examines. These are the topics and partitions of the member. If no other member has its
    subscription, they are also all topics of the group.
    """
    member = group.members.get(member_id)
    if member is None:
        return 0
    items, subscriptions = 0, group.subscriptions
    for partitions in (member.current.assigned, member.current.revoking):
        items += len(partitions) + sum(map(len, partitions.values()))
    if subscriptions.is_shared(member.subscription):
        return items
    return items + len(member.subscription.names) + subscriptions.name_count


def forget_pattern(shard: ShardState, group: ConsumerGroup, pattern: str | None) -> None:
    """Forget the topics of a pattern if no member has the pattern."""
    subscriptions = group.subscriptions
    if pattern in subscriptions.resolved and not subscriptions.pattern_count(pattern):
        shard.record(ResolvedPattern(group.group_id, pattern, None))
        if not subscriptions.resolved:
            group.last_resolution_ms = None


def answer_parked(shard: ShardState, member: ConsumerGroupMember, error: ErrorCode) -> None:
    """Answer the parked heartbeat of a member with an error, if there is one."""
    ticket, member.parked = member.parked, None
    if ticket is not None:
        shard.reply(ticket, ConsumerGroupHeartbeatResult(error))


def evict(
    shard: ShardState, group: ConsumerGroup, member: ConsumerGroupMember, reason: str
) -> None:
    """Remove a member, and add the event ``member_evicted`` with the reason."""
    shard.event(MemberEvicted(**group.event_fields(member, member.client), reason=reason))
    remove(shard, group, [member], reason)


# --- deadlines ---


def session_due(shard: ShardState, group: ConsumerGroup, member_id: str) -> None:
    """Evict a member that was silent for its session timeout.

    A member whose heartbeat is parked stays, because the answer to the heartbeat restarts its
    session.
    """
    member = group.members.get(member_id)
    if member is not None and member.parked is None:
        evict(shard, group, member, "session_timeout")


def rebalance_due(shard: ShardState, group: ConsumerGroup, member_id: str) -> None:
    """Evict a member that has not given up partitions in time."""
    _lose(shard, group, member_id, "rebalance_timeout")


def join_due(shard: ShardState, group: ConsumerGroup, member_id: str) -> None:
    """Evict a classic member that has not joined again in time."""
    _lose(shard, group, member_id, "join_timeout")


def sync_due(shard: ShardState, group: ConsumerGroup, member_id: str) -> None:
    """Evict a classic member that has not sent its SyncGroup in time."""
    _lose(shard, group, member_id, "sync_timeout")


def _lose(shard: ShardState, group: ConsumerGroup, member_id: str, reason: str) -> None:
    member = group.members.get(member_id)
    if member is not None:
        evict(shard, group, member, reason)


@handles(EndSession, GroupType.CONSUMER)
def end_session(
    shard: ShardState, group: ConsumerGroup, request: EndSession, ticket: Ticket
) -> None:
    """Evict a member at once. Only tests of clients send this request."""
    member = group.members.get(request.member_id)
    if member is None:
        shard.reply(ticket, ErrorCode.UNKNOWN_MEMBER_ID)
        return
    shard.reply(ticket, ErrorCode.NONE)
    evict(shard, group, member, "session_timeout")
