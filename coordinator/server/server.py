"""The Kafka port: accepts connections on one or more listeners, and closes idle connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

from groupkeeper.coordinator.server import idle
from groupkeeper.coordinator.server.connection import Connection
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.coordinator.server.listener import PLAINTEXT, Listener
from groupkeeper.coordinator.server.shared import Registered, Shared
from groupkeeper.coordinator.server.stats import CloseReason, ServerStats
from groupkeeper.coordinator.server.watch import CallbackWatch

if TYPE_CHECKING:
    import socket

    from groupkeeper.coordinator.handlers.services import Services

BACKLOG = 1024
"""The connections that the kernel queues until we accept them. Linux limits this to
net.core.somaxconn."""

SWEEPS_AN_IDLE_TIME = 10
"""How many sweeps (checks for idle connections) run in one idle time. So an idle connection is
closed at most a tenth of the idle time too late.
"""

WAIT_STEP_S = 0.01
"""The interval at which a drain checks whether everything was answered."""


MakeConnection: TypeAlias = Callable[[Shared, Listener], Registered]
"""Makes the protocol of an accepted connection."""


class KafkaServer:
    """All listeners, and the connections that they accepted."""

    def __init__(
        self,
        services: Services,
        limits: ServerLimits,
        stats: ServerStats | None = None,
        watch: CallbackWatch | None = None,
        make_connection: MakeConnection = Connection,
    ) -> None:
        """Create the server inside the running loop. It listens after ``start``."""
        self._make_connection = make_connection
        self.loop = asyncio.get_running_loop()
        self.shared = Shared(
            services, limits, stats or ServerStats(), watch or CallbackWatch(), self.loop
        )
        self.services = services
        self.limits = limits
        self.stats = self.shared.stats
        self.budget = self.shared.budget
        self.connections = self.shared.connections
        self.listeners: list[Listener] = []
        self._accepting: dict[str, asyncio.Server] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(
        self,
        sock: socket.socket,
        listener: Listener = PLAINTEXT,
        make_connection: MakeConnection | None = None,
    ) -> None:
        """Listen on a bound socket, which the server owns from then on. Called once per listener.

        ``make_connection`` replaces the server's own function for the connections of this listener.
        """
        make = partial(make_connection or self._make_connection, self.shared, listener)
        accepting = await self.loop.create_server(
            cast("Callable[[], asyncio.Protocol]", make), sock=sock, backlog=BACKLOG
        )
        self.listeners.append(listener)
        self._accepting[listener.name] = accepting
        if self._sweeper is None:
            self._sweep()

    def end(self, listener: Listener) -> None:
        """Accept no more connections on a listener. Its open connections stay."""
        self.listeners.remove(listener)
        self._accepting.pop(listener.name).close()

    @property
    def owed(self) -> int:
        """The number of requests of all connections that have begun and are not answered."""
        return sum(connection.owes for connection in self.connections)

    # --- Shutting down ----------------------------------------------------------------------------

    def stop_accepting(self) -> None:
        """Accept no more connections, and begin no more requests on the open ones."""
        for accepting in self._accepting.values():
            accepting.close()
        for connection in tuple(self.connections):
            connection.stop_reading()

    async def wait_answered(self, timeout_s: float) -> bool:
        """Wait until every request is answered. Return False on a timeout."""
        end = self.loop.time() + timeout_s
        while self.owed:
            if self.loop.time() >= end:
                return False
            await asyncio.sleep(WAIT_STEP_S)
        return True

    def close_all(self) -> None:
        """Close every connection. Written bytes are still sent."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in tuple(self.connections):
            connection.abort(CloseReason.SHUTDOWN)
        self.budget.stop()

    # --- Idle connections -------------------------------------------------------------------------

    def _sweep(self) -> None:
        idle_s = self.limits.connections_max_idle_ms / 1000
        self.sweep(self.loop.time(), idle_s)
        self._sweeper = self.loop.call_later(idle_s / SWEEPS_AN_IDLE_TIME, self._sweep)

    def sweep(self, now_s: float, idle_s: float) -> None:
        """Close every connection that has been idle for too long."""
        idle.sweep(self.connections, now_s, idle_s)
