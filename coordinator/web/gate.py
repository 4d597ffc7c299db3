"""Limits of the HTTP port: how many peers may be connected, and for how long.

Health checks can always connect: a new connection beyond the cap is accepted, and the connection
that has been silent longest is closed. Each request has a time limit for its whole head, counted
from its first byte, or from the start of the connection. The answer has a time limit too, which
ends when the peer has read it. Scrapes have their own limit, since they cost memory and time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeAlias

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

MAX_SCRAPES = 8
"""Scrapes that may run or be sent at the same time; Prometheus needs one."""

TOO_MANY_CONNECTIONS = "too_many_connections"
REQUEST_TIMEOUT = "request_timeout"
RESPONSE_TIMEOUT = "response_timeout"
TOO_MANY_SCRAPES = "too_many_scrapes"


Refuse: TypeAlias = Callable[[str, str], None]
"""(reason, peer): called for each peer that is refused or closed, to log and count it."""


class Gate:
    """All connections of the HTTP port, and the cap on their number."""

    def __init__(self, max_connections: int, request_timeout_s: float, refuse: Refuse) -> None:
        self.max_connections = max_connections
        self.request_timeout_s = request_timeout_s
        self.refuse = refuse
        self._silent: dict[GatedProtocol, None] = {}
        self._busy: dict[GatedProtocol, None] = {}
        """Connections that are being answered, the one that has been busy longest first."""
        self.sending: set[GatedProtocol] = set()
        """Connections whose peer reads the answer more slowly than it is written."""

    def __len__(self) -> int:
        return len(self._silent) + len(self._busy)

    def enter(self, protocol: GatedProtocol) -> None:
        """Accept a connection.

        Beyond the cap, close the one that has been silent longest. If none is silent, close the one
        that has been busy longest.
        """
        if len(self) >= self.max_connections:
            oldest = next(iter(self._silent or self._busy))
            oldest.close_for(TOO_MANY_CONNECTIONS)
        self._silent[protocol] = None

    def moved(self, protocol: GatedProtocol, *, is_busy: bool) -> None:
        """Count the connection as busy, or as silent from now on."""
        self._silent.pop(protocol, None)
        self._busy.pop(protocol, None)
        (self._busy if is_busy else self._silent)[protocol] = None

    def leave(self, protocol: GatedProtocol) -> None:
        """Remove a connection."""
        self._silent.pop(protocol, None)
        self._busy.pop(protocol, None)
        self.sending.discard(protocol)


class GatedProtocol(H11Protocol):
    """One connection of uvicorn that a gate limits. ``behind`` returns a subclass with a gate."""

    gate: Gate
    _limit: asyncio.TimerHandle | None = None
    _is_busy = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection; the time limit of the first request begins here."""
        super().connection_made(transport)
        self.gate.enter(self)
        self._limit_to(REQUEST_TIMEOUT)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gate.leave(self)
        self._unlimit()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process the bytes. A head sent byte by byte gets no more time than any other."""
        super().data_received(data)
        self._count_state()
        if self._limit is None and not self.transport.is_closing():
            self._limit_to(REQUEST_TIMEOUT)

    def on_response_complete(self) -> None:
        """Count the connection as busy or silent. uvicorn has already begun the next request, if
        one waits.
        """
        super().on_response_complete()
        self._count_state()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.gate.sending.add(self)
        self._count_state()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.gate.sending.discard(self)
        self._count_state()

    def _count_state(self) -> None:
        """Count the connection as busy until its peer has read the answer, and then as silent."""
        if self.transport.is_closing():
            return
        is_made = self.cycle is None or self.cycle.response_complete
        is_busy = not is_made or self in self.gate.sending
        if is_busy and not self._is_busy:
            self._limit_to(RESPONSE_TIMEOUT)
        elif not is_busy and self._is_busy:
            self._unlimit()
        if is_busy != self._is_busy:
            self._is_busy = is_busy
            self.gate.moved(self, is_busy=is_busy)

    def close_for(self, reason: str) -> None:
        """Close at once, even if the peer has not read everything."""
        self.gate.leave(self)
        self._unlimit()
        self.gate.refuse(reason, self.client[0] if self.client else "unknown")
        self.transport.abort()

    def _limit_to(self, reason: str) -> None:
        self._unlimit()
        self._limit = self.loop.call_later(self.gate.request_timeout_s, self.close_for, reason)

    def _unlimit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None


def behind(gate: Gate) -> type[asyncio.Protocol]:
    """Return a protocol class for uvicorn. The gate limits the connections of this class."""
    return type("GatedProtocol", (GatedProtocol,), {"gate": gate})


class LimitScrapes:
    """Answers 503 if too many scrapes run at the same time. The ``cheap`` pages have no limit."""

    def __init__(self, app: ASGIApp, cheap: Collection[str], gate: Gate) -> None:
        self._app = app
        self._cheap = cheap
        self._gate = gate
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._cheap:
            await self._app(scope, receive, send)
        elif self._running + len(self._gate.sending) >= MAX_SCRAPES:
            client: Any = scope.get("client")
            self._gate.refuse(TOO_MANY_SCRAPES, client[0] if client else "unknown")
            await _refuse(send)
        else:
            self._running += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._running -= 1


async def _refuse(send: Send) -> None:
    text = b"too many scrapes at the same time\n"
    head = [(b"content-type", b"text/plain; charset=utf-8"), (b"retry-after", b"1")]
    head.append((b"content-length", str(len(text)).encode()))
    await send({"type": "http.response.start", "status": 503, "headers": head})
    await send({"type": "http.response.body", "body": text})
