"""Bugs in requests that name something twice, ask for several groups, or arrive faster than their
answers are read.

The table of ``breakages`` includes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from groupkeeper.coordinator.core.offsets import commit as offset_commit
from groupkeeper.coordinator.handlers.gather import Gather
from groupkeeper.coordinator.runtime.group_loading import GroupLoader
from groupkeeper.coordinator.runtime.recovery import Recovery
from groupkeeper.coordinator.server.connection import Connection

Patch = pytest.MonkeyPatch


def begins_what_is_not_taken(patch: Patch) -> None:
    """A connection begins requests although the client does not read its answers."""
    patch.setattr(Connection, "pause_writing", lambda self: None)


def two_entries_are_judged_apart(patch: Patch) -> None:
    """A commit that names a topic in two entries is treated as two commits of the same moment."""
    patch.setattr(offset_commit, "_TOPIC", id)


def lowered_ends_are_lost(patch: Patch) -> None:
    patch.setattr(offset_commit, "lowered_ends", lambda *_: [])


def groups_are_mixed_up(patch: Patch) -> None:
    """A request for several groups gets the offsets of the wrong groups."""
    took = Gather.took

    def reversed_order(self: Gather, index: int, result: Any) -> None:
        took(self, len(self._parts) - 1 - index, result)

    patch.setattr(Gather, "took", reversed_order)


def group_is_not_read(patch: Patch) -> None:
    """A store reads groups by name, but requests for a group go to a shard that has not read it."""

    async def nothing(*_: Any) -> bool:
        return True

    patch.setattr(GroupLoader, "_load", nothing)


def load_forgets_no_route(patch: Patch) -> None:
    """A group that a load left out is not read again when it is next named."""
    never = property(lambda _: lambda: None, lambda *_: None)
    patch.setattr(Recovery, "before_answers", never, raising=False)


UNREAD: Final = "generation 0 after|: live|: replaces|: -1 was read"

REQUESTS: Final[dict[str, tuple[Callable[[Patch], None], str]]] = {
    "requests that are begun for who takes no answer": (
        begins_what_is_not_taken,
        "begun for a client that took no answer",
    ),
    "two entries of a topic that are judged apart": (two_entries_are_judged_apart, ": replaces"),
    "an end that is lost when it is lowered": (lowered_ends_are_lost, "ends of"),
    "a group that is not read when it is named": (group_is_not_read, UNREAD),
    "a load that forgets no route": (load_forgets_no_route, UNREAD),
    "groups of a request that are mixed up": (groups_are_mixed_up, "asked for|was read"),
}
"""As ``breakages.BREAKAGES``."""
