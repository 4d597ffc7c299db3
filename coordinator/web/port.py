"""The HTTP port of the daemon. Clients can connect at once, and uvicorn is imported later.

uvicorn and Starlette take 50 ms of processor time to import. After a crash every group waits for
the start, so the import waits until the daemon is ready, or until somebody connects.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    import socket

    from groupkeeper.coordinator.web.gate import Gate, Refuse
    from groupkeeper.coordinator.web.reports import Reports
    from groupkeeper.coordinator.web.server import HttpServer

RETRY_S: Final = 5.0
"""The wait after a failed start. The reason may be a lack of file descriptors."""
STOP_LIMIT_S: Final = 2.0
"""The longest time that a stop waits for running scrapes."""

_log = structlog.get_logger(__name__)


class HttpPort:
    """Serves the pages on a socket that listens already."""

    def __init__(
        self,
        listener: socket.socket,
        reports: Reports,
        *,
        max_connections: int,
        request_timeout_ms: int,
        refuse: Refuse,
    ) -> None:
        """Answer nothing before ``start``. ``refuse`` is called for each peer that is closed."""
        self._listener = listener
        self._reports = reports
        self._max_connections = max_connections
        self._request_timeout_ms = request_timeout_ms
        self._refuse = refuse
        self._loop = asyncio.get_running_loop()
        self._beginning: asyncio.Task[None] | None = None
        self._gate: Gate | None = None
        self._server: HttpServer | None = None
        self._serving: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return 0 if self._gate is None else len(self._gate)

    def start(self) -> None:
        """Begin to wait for the first client. When it connects, begin to serve."""
        self._loop.add_reader(self._listener.fileno(), self.serve)

    def serve(self) -> None:
        """Start to serve. Does nothing if the server was already started."""
        if self._beginning is None:
            self._loop.remove_reader(self._listener.fileno())
            self._beginning = self._loop.create_task(self._begin(), name="http port")

    async def stop(self) -> None:
        """Wait at most ``STOP_LIMIT_S`` for running answers, and then close the port."""
        self._loop.remove_reader(self._listener.fileno())
        if self._beginning is not None:
            self._beginning.cancel()
        if self._server is None or self._serving is None:
            self._listener.close()
            return
        self._server.stop()
        done, _ = await asyncio.wait([self._serving], timeout=STOP_LIMIT_S)
        if not done:
            self._serving.cancel()
            await asyncio.wait([self._serving])

    async def _begin(self) -> None:
        while self._server is None:
            try:
                self._gate, self._server = await asyncio.to_thread(self._make_server)
            except Exception:  # noqa: BLE001 - whatever fails here, groups are served
                _log.exception("http_port_failed", retry_s=RETRY_S)
                await asyncio.sleep(RETRY_S)
        # connections are accepted from here on, even before the task first runs
        self._listener.listen(self._server.config.backlog)
        serving = self._server.serve(sockets=[self._listener])
        self._serving = self._loop.create_task(serving, name="http server")

    def _make_server(self) -> tuple[Gate, HttpServer]:
        from groupkeeper.coordinator.web.gate import Gate
        from groupkeeper.coordinator.web.pages import make_pages
        from groupkeeper.coordinator.web.server import make_server

        gate = Gate(self._max_connections, self._request_timeout_ms / 1000, self._refuse)
        return gate, make_server(make_pages(self._reports), gate)
