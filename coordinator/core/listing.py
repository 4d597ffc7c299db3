"""ListGroups (docs/spec/administration.md#list-groups)."""

from __future__ import annotations

from collections.abc import Collection

from groupkeeper.coordinator.core.dispatch import handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.requests.admin import ListGroups, ListGroupsResult
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Ticket

MAX_LISTED = 2_000
"""The largest number of groups in one reply. Listing them blocks the event loop for 1 ms, and
encoding the reply blocks it for another 1 ms.
"""


@handles(ListGroups)
def list_groups(
    shard: ShardState, _group: Group | None, request: ListGroups, ticket: Ticket
) -> None:
    """Examine at most ``MAX_LISTED`` groups of this shard, and list those that pass the filters. If
    none passes, the answer is an empty list, not an error.

    The ids of groups that were not examined are in ``left``. The caller asks for them next
    (``among``).
    """
    among: Collection[str] = shard.groups if request.among is None else request.among
    left: tuple[str, ...] = ()
    if len(among) > MAX_LISTED:
        names = tuple(among)
        among, left = names[:MAX_LISTED], names[MAX_LISTED:]
    groups = tuple(
        group.listed()
        for group in [shard.groups[name] for name in among if name in shard.groups]
        if (not request.states or group.state_name().lower() in request.states)
        and (not request.types or group.group_type in request.types)
    )
    shard.reply(ticket, ListGroupsResult(ErrorCode.NONE, groups, left=left))
