"""ApiVersions on a listener while no broker has answered in this run.

Listeners are open before that, so that clients that come back after a restart are not refused. An
answer without the APIs of brokers would make clients give up: a transactional producer of
librdkafka fails for good. So the answer waits for the versions. If they do not come in time, the
listener of a broker ends the connections, as if the broker could not be reached. Our own node
answers for itself, because groups go on without the upstream.
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

    def __init__(self, limit_s: float, *, answers_late: bool = False) -> None:
        """A request waits at most ``limit_s``. Then its connection ends. If ``answers_late`` is
        True, it is answered instead, and all later requests are answered at once.
        """
        self._limit_s = limit_s
        self._answers_late = answers_late
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
        if self._answers_late:
            self.known()
            return
        self._forget(exchange)
        exchange.channel.refused(exchange, UPSTREAM_LOST)

    def _forget(self, exchange: Exchange) -> None:
        exchange.on_closed = None
        _, cancel = self._waiting.pop(exchange)
        cancel()
