"""The functions that a shard calls for a type of groups without a request: for example after a
load, at a deadline, or when topics change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from groupkeeper.coordinator.core.deadlines import DeadlineKind
from groupkeeper.coordinator.core.groups.census import Tally
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.work import Work, WorkOutcome


class Behaviour(NamedTuple):
    """The functions of one type of groups. They get only groups of this type."""

    create: Callable[[str, Tally], Group]
    """Return a new group with this id. The group updates the tally of its shard."""
    loaded: Callable[[ShardState, Any], None]
    """Rebuild the live state of a group from what is saved, and start its sessions."""
    resumed: Callable[[ShardState, Any, int], None]
    """Start the timers of a group again after a time in which its shard answered nothing. The last
    argument is the length of this time in ms.
    """
    overrides_changed: Callable[[ShardState, Any], None]
    """Apply the changed configs of a group to its timers."""
    topics_changed: Callable[[ShardState, Any], None]
    """Process changed topics. Called if the group is in ``Tally.subscribers`` for one of them."""
    due: dict[DeadlineKind, Callable[[ShardState, Any, str], None]]
    """The function for each kind of deadline. It is called with (shard, group, member id) when the
    deadline is reached."""
    removal_items: Callable[[Any, str], int] | None
    """Return an upper bound of the number of topics and partitions that the removal of this member
    examines. None if the number is not counted, because the size of the group's record limits it.
    """
    work_done: Callable[[ShardState, Any, Work, WorkOutcome], None]
    """Process the outcome of a computation. Since the computation began, the group may have
    changed, even its type."""
