"""The descriptions of a consumer group: for ConsumerGroupDescribe, for DescribeGroups, and for
hosts.

See docs/spec/consumer-groups.md#describe.
"""

from __future__ import annotations

from collections.abc import Mapping

from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.member import ConsumerGroupMember, owned_partitions
from groupkeeper.coordinator.core.consumer.reconciliation import ReconciliationState
from groupkeeper.coordinator.core.consumer_records import Partitions
from groupkeeper.coordinator.core.dispatch import handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.requests.admin import (
    DescribeGroup,
    DescribeGroupResult,
    GroupView,
    MemberView,
    ReadGroup,
    ReadGroupResult,
)
from groupkeeper.coordinator.core.requests.consumer import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResult,
    DescribedConsumerMember,
)
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Ticket
from groupkeeper.coordinator.core.waiting import AwaitedMember, Waiting
from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)

_VERSION = 0
"""The version of the consumer protocol in which a host gets subscriptions and assignments."""


@handles(ConsumerGroupDescribe)
def describe_consumer_group(
    shard: ShardState, group: Group | None, request: ConsumerGroupDescribe, ticket: Ticket
) -> None:
    """Describe one group. If the group is absent or has another type, the error is
    GROUP_ID_NOT_FOUND.
    """
    if request.group_id == "":
        result = ConsumerGroupDescribeResult(ErrorCode.INVALID_GROUP_ID)
    elif isinstance(group, ConsumerGroup):
        result = ConsumerGroupDescribeResult(
            ErrorCode.NONE,
            group.group_id,
            None,
            group.state.value,
            group.epochs.group,
            group.epochs.target,
            group.assignor(shard.limits.consumer_assignors[0]),
            tuple([_described(shard, member) for member in group.members.values()]),
            _waiting(group, shard.now) if request.with_waiting else None,
        )
    else:
        what = "not found." if group is None else "is not a consumer group."
        message = f"Group {request.group_id} {what}"
        result = ConsumerGroupDescribeResult(
            ErrorCode.GROUP_ID_NOT_FOUND, request.group_id, message
        )
    shard.reply(ticket, result)


def _described(shard: ShardState, member: ConsumerGroupMember) -> DescribedConsumerMember:
    fields = member.fields
    return DescribedConsumerMember(
        member.member_id,
        member.group_instance_id,
        fields.rack_id,
        member.current.epoch,
        fields.client_id,
        fields.client_host,
        fields.subscribed_topic_names,
        fields.subscribed_topic_regex or "",
        _named(shard, owned_partitions(member.current)),
        _named(shard, member.target),
        fields.classic is not None,
    )


def _waiting(group: ConsumerGroup, now: Now) -> Waiting | None:
    """Return the members that keep the group from being Stable, since when and until when. None if
    the group waits for no member.
    """
    if group.state is not GroupState.RECONCILING:
        return None  # an Assigning group waits for a target, not for a member
    awaited = [m for m in group.members.values() if _is_awaited(m, group.epochs.target)]
    if not awaited:
        return None
    started_ms = group.rebalance_started_ms
    return Waiting(
        tuple(
            [AwaitedMember(m.member_id, m.client.client_id, m.client.client_host) for m in awaited]
        ),
        # After a load the start of the rebalance is not known, so the time of the target is used.
        group.epochs.computed_ms if started_ms is None else now.wall_at(started_ms),
        now.wall_at(max([_evicted_at(m, now) for m in awaited])),
        (),
    )


def _is_awaited(member: ConsumerGroupMember, target_epoch: int) -> bool:
    """Return True if the member has to act: to move to the epoch of the target, or to give up
    partitions. A member that only waits for partitions of others is not awaited.
    """
    follows = member.epoch == target_epoch
    return not follows or member.current.state == ReconciliationState.UNREVOKED_PARTITIONS


def _evicted_at(member: ConsumerGroupMember, now: Now) -> int:
    """Return when the member is evicted if it does not act (monotonic ms)."""
    bounds = [member.rebalance.at, member.join_phase.at, member.sync_phase.at]
    given = [at for at in bounds if at is not None]
    if given:
        return min(given)
    return now.monotonic_ms if member.session.at is None else member.session.at


def _named(
    shard: ShardState, partitions: Partitions | Mapping[str, list[int]]
) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """Return (topic id, name, sorted partitions) for each topic. Deleted topics are left out."""
    by_id = shard.image.by_id
    return tuple(
        [
            (topic, by_id[topic].name, tuple(sorted(numbers)))
            for topic, numbers in partitions.items()
            if topic in by_id
        ]
    )


@handles(DescribeGroup, GroupType.CONSUMER)
def describe_group(
    shard: ShardState, _group: ConsumerGroup, request: DescribeGroup, ticket: Ticket
) -> None:
    """Answer DescribeGroups, which is only for classic groups, as if the group did not exist
    (docs/spec/edge-cases.md#edge-105).
    """
    message = f"Group {request.group_id} is not a classic group."
    error = ErrorCode.GROUP_ID_NOT_FOUND
    shard.reply(ticket, DescribeGroupResult(error, request.group_id, message=message))


@handles(ReadGroup, GroupType.CONSUMER)
def read_group(shard: ShardState, group: ConsumerGroup, _: ReadGroup, ticket: Ticket) -> None:
    """Answer with a copy of the group's state, with subscriptions and assignments as bytes of the
    consumer protocol.
    """
    view = GroupView(
        group.group_id,
        group.state,
        "consumer",
        group.assignor(shard.limits.consumer_assignors[0]),
        None,
        group.epochs.group,
        group.epochs.computed_ms,
        tuple([_view(shard, group, member) for member in group.members.values()]),
    )
    shard.reply(ticket, ReadGroupResult(ErrorCode.NONE, view))


def _view(shard: ShardState, group: ConsumerGroup, member: ConsumerGroupMember) -> MemberView:
    heard_ms: int | None = None
    if member.session.at is not None:
        begun_ms = member.session.at - member.session_length_ms
        heard_ms = shard.now.wall_at(begun_ms)
    topics = sorted(group.subscriptions.topics_of(member.subscription))
    owned = _named(shard, owned_partitions(member.current))
    assigned = {name: [*numbers] for _, name, numbers in owned}
    return MemberView(
        member.member_id,
        member.group_instance_id,
        member.client,
        encode_subscription(Subscription(_VERSION, topics)),
        encode_assignment(ConsumerAssignment(_VERSION, assigned)),
        member.session_timeout_ms,
        member.fields.rebalance_timeout_ms,
        member.parked is not None,
        not member.is_settled(group.epochs.target),
        heard_ms,
        None,
    )
