"""A group and its members for a host: a copy, made at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from groupkeeper.coordinator.core.classic.group import CONSUMER
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.requests.admin import GroupView, MemberView
from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    ConsumerProtocolError,
    decode_assignment,
    decode_subscription,
)


class MemberState(StrEnum):
    """The state of a member in its group. It is derived from the state of the group, and from the
    member's parked request.
    """

    JOINING = "Joining"
    """The member's JoinGroup waits for the end of the join phase, or the member's
    ConsumerGroupHeartbeat waits for an assignment."""
    AWAITING_SYNC = "AwaitingSync"
    """The generation is complete, but the leader's assignments or the member's own SyncGroup are
    missing."""
    RECONCILING = "Reconciling"
    """In a consumer group: the member has not reached its target assignment."""
    STABLE = "Stable"
    LEAVING = "Leaving"
    """A rebalance waits for the member. If the member does not join again, it is removed when the
    rebalance ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """One member of a group. Times are wall-clock milliseconds."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    state: MemberState
    subscription: list[str]
    """The subscribed topics; empty if the bytes are not a consumer's."""
    assignment: ConsumerAssignment | None
    """The member's partitions; None if there is no assignment, or if its bytes are not a
    consumer's."""
    owned_partitions: dict[str, list[int]]
    """The partitions, by topic, that the member said it owned when it joined."""
    protocol_metadata: bytes
    last_heartbeat_ms: int | None
    """The last time that the member sent something; None if no heartbeat is expected of it."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    join_time_ms: int | None
    """None if the member joined before the coordinator was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """One group. Times are wall-clock milliseconds."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol_name: str
    """The assignor of this generation."""
    leader_id: str
    generation_id: int
    members: dict[str, MemberMetadata]
    state_timestamp_ms: int
    """When the group entered its state; -1 if that is unknown."""
    rebalance_timeout_ms: int
    """The longest rebalance timeout of the members; 0 without members."""
    session_timeout_ms: int
    """The longest session timeout of the members; 0 without members."""


_STATES: Final = {
    GroupState.EMPTY: MemberState.LEAVING,
    GroupState.PREPARING_REBALANCE: MemberState.LEAVING,
    GroupState.COMPLETING_REBALANCE: MemberState.AWAITING_SYNC,
    GroupState.STABLE: MemberState.STABLE,
    GroupState.DEAD: MemberState.LEAVING,
    GroupState.ASSIGNING: MemberState.STABLE,
    GroupState.RECONCILING: MemberState.STABLE,
}
"""The state of a member whose request is not parked. Members of consumer groups may also be
``RECONCILING``.
"""
_CONSUMER_STATES: Final = (GroupState.ASSIGNING, GroupState.RECONCILING)


def group_metadata(view: GroupView) -> GroupMetadata:
    """Return a copy of a group of the core."""
    members = view.members
    is_consumer = view.protocol_type == CONSUMER
    return GroupMetadata(
        group_id=view.group_id,
        state=view.state,
        protocol_type=view.protocol_type or "",
        protocol_name=view.protocol_name or "",
        leader_id=view.leader_id or "",
        generation_id=view.generation_id,
        members={m.member_id: _member(view.state, m, is_consumer) for m in members},
        state_timestamp_ms=view.state_timestamp_ms,
        rebalance_timeout_ms=max((m.rebalance_timeout_ms for m in members), default=0),
        session_timeout_ms=max((m.session_timeout_ms for m in members), default=0),
    )


def _member(state: GroupState, view: MemberView, is_consumer: bool) -> MemberMetadata:
    topics, owned = _subscription(view.metadata) if is_consumer else ([], {})
    return MemberMetadata(
        member_id=view.member_id,
        group_instance_id=view.group_instance_id,
        client_id=view.client.client_id,
        client_host=view.client.client_host,
        state=_state(state, view),
        subscription=topics,
        assignment=_assignment(view.assignment) if is_consumer else None,
        owned_partitions=owned,
        protocol_metadata=view.metadata,
        last_heartbeat_ms=view.last_heard_ms,
        session_timeout_ms=view.session_timeout_ms,
        rebalance_timeout_ms=view.rebalance_timeout_ms,
        join_time_ms=view.join_time_ms,
    )


def _state(state: GroupState, view: MemberView) -> MemberState:
    if view.is_joining:
        return MemberState.JOINING
    if view.is_syncing and state in _CONSUMER_STATES:
        return MemberState.RECONCILING
    return _STATES[state]


def _subscription(data: bytes) -> tuple[list[str], dict[str, list[int]]]:
    try:
        subscription = decode_subscription(data)
    except ConsumerProtocolError:
        return [], {}
    return subscription.topics, subscription.owned_partitions


def _assignment(data: bytes) -> ConsumerAssignment | None:
    try:
        return decode_assignment(data) if data else None
    except ConsumerProtocolError:
        return None
