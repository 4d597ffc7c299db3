"""Faults of ours in requests that name something twice, ask for several groups, or come faster than
their answers are taken.

Of the same kind as ``breakages``, which has them in its table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from coordinator.core import offset_commit
from coordinator.handlers.gather import Gather
from coordinator.server.connection import Connection

Patch = pytest.MonkeyPatch


def begins_what_is_not_taken(patch: Patch) -> None:
    """A connection goes on for a client that takes no answer."""
    patch.setattr(Connection, "pause_writing", lambda self: None)


def two_entries_are_judged_apart(patch: Patch) -> None:
    """A commit that names a topic in two entries is judged as two commits of the same moment."""
    patch.setattr(offset_commit, "_TOPIC", id)


def lowered_ends_are_lost(patch: Patch) -> None:
    patch.setattr(offset_commit, "lowered_ends", lambda *_: [])


def groups_are_mixed_up(patch: Patch) -> None:
    """Of several groups in one request, each is told what is stored of another."""
    took = Gather.took

    def reversed_order(self: Gather, index: int, result: Any) -> None:
        took(self, len(self._parts) - 1 - index, result)

    patch.setattr(Gather, "took", reversed_order)


REQUESTS: Final[dict[str, tuple[Callable[[Patch], None], str]]] = {
    "requests that are begun for who takes no answer": (
        begins_what_is_not_taken,
        "begun for a client that took no answer",
    ),
    "two entries of a topic that are judged apart": (two_entries_are_judged_apart, ": replaces"),
    "an end that is lost when it is lowered": (lowered_ends_are_lost, "ends of"),
    "groups of a request that are mixed up": (groups_are_mixed_up, "asked for|was read"),
}
"""As ``breakages.BREAKAGES``."""
