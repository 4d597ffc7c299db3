"""ListGroups and DescribeGroups (spec 11.1 and 11.2)."""

from __future__ import annotations

from coordinator.core.errors import ErrorCode
from coordinator.core.group import Group
from coordinator.core.requests import (
    DescribedMember,
    DescribeGroup,
    DescribeGroupResult,
    GroupState,
    ListedGroup,
    ListGroups,
    ListGroupsResult,
)
from coordinator.core.state import ShardState
from coordinator.core.step import Ticket

CLASSIC = "classic"
"""The type of a group whose members agree among themselves (JoinGroup, SyncGroup)."""


def list_groups(shard: ShardState, request: ListGroups, ticket: Ticket) -> None:
    """List this shard's groups; filters that match nothing are no error."""
    groups = tuple(
        ListedGroup(group.group_id, group.protocol_type or "", group.state, CLASSIC)
        for group in shard.groups.values()
        if (not request.states or group.state.lower() in request.states)
        and (not request.types or CLASSIC in request.types)
    )
    shard.reply(ticket, ListGroupsResult(ErrorCode.NONE, groups))


def describe_group(shard: ShardState, request: DescribeGroup, ticket: Ticket) -> None:
    """Describe one group; an absent one is Dead and GROUP_ID_NOT_FOUND."""
    group = shard.groups.get(request.group_id)
    if group is None:
        message = f"Group {request.group_id} not found."
        result = DescribeGroupResult(
            ErrorCode.GROUP_ID_NOT_FOUND, request.group_id, message=message
        )
    else:
        result = _description(group)
    shard.reply(ticket, result)


def _description(group: Group) -> DescribeGroupResult:
    # Metadata and the protocol are shown only where they mean something: in a Stable group.
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
    )
