"""Serves our part of a request that we and a broker answer together (``splitting``)."""

from __future__ import annotations

from collections.abc import Callable

from groupkeeper.coordinator.handlers.exchange import Exchange
from groupkeeper.coordinator.handlers.routes import Routes
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.handlers.session import Session
from groupkeeper.protocol.frames import read_request_header
from groupkeeper.protocol.last_requests import LastRequests


class PartChannel:
    """Stands for the client's connection while our part of a request is served. The reply to the
    part goes to ``done``, and not to the client.
    """

    def __init__(self, whole: Exchange, done: Callable[[bytes], None]) -> None:
        self._whole = whole
        self._done = done
        self.session: Session = whole.channel.session

    def answered(self, exchange: Exchange) -> None:
        assert exchange.reply is not None
        if not self._whole.is_detached:
            self._done(exchange.reply)

    def failed(self, exchange: Exchange, error: BaseException) -> None:
        self._whole.channel.failed(self._whole, error)

    def refused(self, exchange: Exchange, reason: str) -> None:
        self._whole.channel.refused(self._whole, reason)

    def end(self, reason: str, error: str) -> None:
        self._whole.channel.end(reason, error)

    def grew(self, exchange: Exchange, size_bytes: int) -> None:
        self._whole.channel.grew(self._whole, size_bytes)

    def local_address(self) -> tuple[str, int]:
        return self._whole.channel.local_address()

    def later(self, delay_s: float, call: Callable[[], None]) -> Callable[[], None]:
        return self._whole.channel.later(delay_s, call)


def serve_part(
    whole: Exchange,
    frame: bytes,
    routes: Routes,
    services: Services,
    done: Callable[[bytes], None],
) -> None:
    """Serve our part of the request ``whole``. ``frame`` is this part, and ``done`` gets its reply.

    Raises ProtocolError if the part cannot be read.
    """
    header = read_request_header(frame)
    exchange = Exchange(
        PartChannel(whole, done),
        header.api_key,
        header.api_version,
        header.correlation_id,
        whole.client,
        frame,
        header.body_offset,
        LastRequests(),
    )
    routes[exchange.key, exchange.version](exchange, services)
