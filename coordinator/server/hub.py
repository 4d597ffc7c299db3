"""What all connections of the Kafka port share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.services import Services
    from groupkeeper.coordinator.server.budget import MemoryBudget
    from groupkeeper.coordinator.server.connection import Connection
    from groupkeeper.coordinator.server.limits import ServerLimits
    from groupkeeper.coordinator.server.refusals import RefusalLog
    from groupkeeper.coordinator.server.stats import CloseReason, ServerStats
    from groupkeeper.coordinator.server.turns import Turns
    from groupkeeper.coordinator.server.watch import CallbackWatch


class Hub(Protocol):
    """What all connections share."""

    services: Services
    limits: ServerLimits
    budget: MemoryBudget
    stats: ServerStats
    refusals: RefusalLog
    loop: asyncio.AbstractEventLoop
    watch: CallbackWatch
    turns: Turns

    def opened(self, connection: Connection) -> CloseReason | None:
        """Take the connection in, or say why not."""
        ...

    def closed(self, connection: Connection) -> None:
        """Forget the connection."""
        ...
