"""ApiVersions on the listener of a broker whose versions are not known yet.

The listener of a broker is a port of ours, through which clients reach that broker. It may be open
before the broker has answered in this run, so that clients that come back after a restart are not
refused. An answer without the broker's APIs would make these clients give up, so the answer waits
for the versions. If the versions do not come in time, the connections of the clients end, as if the
broker could not be reached.
"""

from __future__ import annotations

from collections.abc import Callable

from groupkeeper.coordinator.handlers import api_versions
from groupkeeper.coordinator.handlers.exchange import Exchange
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.server.stats import UPSTREAM_LOST
from groupkeeper.protocol.errors import ProtocolError


class AwaitedVersions:
    """Answers ApiVersions as soon as the versions of the broker are known."""

    def __init__(self, limit_s: float) -> None:
        """A request waits at most ``limit_s``. Then its connection ends."""
        self._limit_s = limit_s
        self._is_known = False
        self._waiting: dict[Exchange, tuple[Services, Callable[[], None]]] = {}
        """Waiting request -> its services, and the function that cancels its timer. The limits of
        connections limit their number."""

    def handle(self, exchange: Exchange, services: Services) -> None:
        """Answer an ApiVersions now, or when ``known`` is called, or refuse it after the limit."""
        if self._is_known:
            api_versions.handle(exchange, services)
            return
        cancel = exchange.channel.later(self._limit_s, lambda: self._give_up(exchange))
        self._waiting[exchange] = services, cancel
        exchange.on_closed = lambda: self._forget(exchange)

    def known(self) -> None:
        """Answer the waiting requests. Later requests are answered at once."""
        self._is_known = True
        for exchange, (services, _) in [*self._waiting.items()]:
            self._forget(exchange)
            try:
                api_versions.handle(exchange, services)
            except ProtocolError as error:
                exchange.channel.refused(exchange, error.reason)

    def _give_up(self, exchange: Exchange) -> None:
        self._forget(exchange)
        exchange.channel.refused(exchange, UPSTREAM_LOST)

    def _forget(self, exchange: Exchange) -> None:
        exchange.on_closed = None
        _, cancel = self._waiting.pop(exchange)
        cancel()
