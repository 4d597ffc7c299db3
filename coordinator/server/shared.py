"""The services, limits and counters that all connections share, and the list of connections."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from groupkeeper.coordinator.server.budget import MemoryBudget
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.coordinator.server.loop_share import Turns
from groupkeeper.coordinator.server.refusals import RefusalLog
from groupkeeper.coordinator.server.stats import CloseReason, ServerStats
from groupkeeper.coordinator.server.watch import CallbackWatch

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.services import Services
    from groupkeeper.coordinator.handlers.session import Session


class Activity(NamedTuple):
    """The activity of a connection at the last sweep."""

    requests: int
    since_s: float
    """The time since which nothing has happened, by the clock of the loop."""


NEVER_SEEN: Final = Activity(-1, 0.0)


class Registered(Protocol):
    """The methods of a connection that its server calls."""

    session: Session
    requests: int
    """The number of requests that have begun."""

    @property
    def owes(self) -> int:
        """The number of requests that have begun and are not answered."""
        ...

    @property
    def is_closed(self) -> bool:
        """True if we closed it. Written bytes may still wait for the client to read them."""
        ...

    @property
    def waits_for_us(self) -> bool:
        """True if the client reads and waits for a reply."""
        ...

    def idle_reason(self) -> CloseReason:
        """Return the reason with which the connection is closed if it stays idle."""
        ...

    def stop_reading(self) -> None:
        """Begin no more requests."""
        ...

    def abort(self, reason: CloseReason) -> None:
        """Close at once, and drop the replies that are owed."""
        ...

    def force_close(self) -> None:
        """Close at once. Bytes that were written and not sent are dropped."""
        ...


class Shared:
    """The services, limits and counters of all connections."""

    def __init__(
        self,
        services: Services,
        limits: ServerLimits,
        stats: ServerStats,
        watch: CallbackWatch,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.services = services
        self.limits = limits
        self.stats = stats
        self.watch = watch
        self.loop = loop
        self.turns = Turns(loop, watch.read_s, limits.max_turn_s)
        self.refusals = RefusalLog(loop.time)
        self.budget = MemoryBudget(limits.max_buffered_bytes, stats, loop)
        self.connections: dict[Registered, Activity] = {}
        """The open connections, and the activity of each at the last sweep."""
        self._of_address: Counter[str] = Counter()

    def opened(self, connection: Registered) -> CloseReason | None:
        """Register the connection and return None. If it exceeds a limit, return the reason to
        refuse it.
        """
        stats, limits = self.stats, self.limits
        stats.connections_accepted += 1
        if len(self.connections) >= limits.max_connections:
            return CloseReason.TOO_MANY_CONNECTIONS
        address = connection.session.address
        if self._of_address[address] >= limits.max_connections_per_address:
            return CloseReason.TOO_MANY_CONNECTIONS_OF_ADDRESS
        self.connections[connection] = NEVER_SEEN
        self._of_address[address] += 1
        stats.connections_open = len(self.connections)
        return None

    def closed(self, connection: Registered) -> None:
        """Remove a connection that was closed. Does nothing for one that ``opened`` has refused."""
        if connection not in self.connections:
            return
        del self.connections[connection]
        address = connection.session.address
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]
        self.stats.connections_open = len(self.connections)
        if connection.session.on_end is not None:
            connection.session.on_end()
            connection.session.on_end = None

    def count_closed(self, session: Session, reason: str, **detail: Any) -> None:
        """Count and log a connection that we close."""
        self.stats.count_closed(reason)
        if session.software:
            detail["client_software"] = session.software
        self.refusals.write(reason, session.address, **detail)
