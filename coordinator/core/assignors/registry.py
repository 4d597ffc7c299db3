"""The assignors that come with the coordinator, by name.

Third-party ones are looked up in ``coordinator/embed/assignor_plugins.py``: reading the installed
distributions is I/O, and the core does none.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from groupkeeper.coordinator.core.assignors.range import RangeAssignor
from groupkeeper.coordinator.core.assignors.roundrobin import RoundRobinAssignor
from groupkeeper.coordinator.core.assignors.sticky import StickyAssignor
from groupkeeper.coordinator.core.assignors.types import PartitionAssignor

ASSIGNORS: Final[Mapping[str, PartitionAssignor]] = MappingProxyType(
    {
        assignor.name: assignor
        for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor())
    }
)
"""They hold no state, so one of each serves every group."""


class UnknownAssignorError(LookupError):
    """No assignor has that name."""

    def __init__(self, name: str, known: Mapping[str, object]) -> None:
        """Name the ones that exist, for the caller has usually misspelt one of them."""
        super().__init__(f"no assignor is named {name!r}; there are {', '.join(sorted(known))}")
        self.name = name


def get_assignor(name: str) -> PartitionAssignor:
    """Return ``range``, ``roundrobin`` or ``sticky``; raise UnknownAssignorError for others."""
    try:
        return ASSIGNORS[name]
    except KeyError:
        raise UnknownAssignorError(name, ASSIGNORS) from None
