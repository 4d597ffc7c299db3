"""The assignors that come with the coordinator, by name.

``coordinator/embed/assignor_plugins.py`` finds third-party assignors: it reads the installed
distributions, which the core must not do (no I/O).
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
"""Name -> assignor. Assignors have no state, so all groups share these instances."""


class UnknownAssignorError(LookupError):
    """No assignor has this name."""

    def __init__(self, name: str, known: Mapping[str, object]) -> None:
        super().__init__(f"no assignor is named {name!r}; known are {', '.join(sorted(known))}")
        self.name = name
