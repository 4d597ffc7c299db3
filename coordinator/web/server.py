"""uvicorn on the daemon's own loop, with the daemon's own signal handlers."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import uvicorn

from groupkeeper.coordinator.web.gate import Gate, LimitScrapes, Refuse, behind

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from starlette.types import ASGIApp

STOP_LIMIT_S = 2.0
"""A scrape that takes longer than this does not delay the end of the process."""

BACKLOG = 128
MAX_CONNECTIONS = 200
REQUEST_TIMEOUT_MS = 10_000
"""The defaults of ``[http]`` in the config."""


def _say_nothing(_reason: str, _peer: str) -> None:
    pass


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the daemon, since uvicorn would end the process before it has
        drained.
        """
        yield


class WebServer:
    """Serves an application on a bound socket, so that a port in use is found early."""

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        *,
        max_connections: int = MAX_CONNECTIONS,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        refuse: Refuse = _say_nothing,
    ) -> None:
        """Answer nothing before ``start``. ``refuse`` is called for each peer that is closed."""
        self._listener = listener
        self.gate = Gate(max_connections, request_timeout_ms / 1000, refuse)
        self._server = _Server(
            uvicorn.Config(
                LimitScrapes(app, "/metrics", self.gate),
                http=behind(self.gate),
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=1,
                # not limit_concurrency, which also answers health checks with 503
                backlog=BACKLOG,
            )
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to answer. Connections are accepted at once, even before the task first runs."""
        self._listener.listen(BACKLOG)
        self._task = asyncio.create_task(
            self._server.serve(sockets=[self._listener]), name="http server"
        )

    async def stop(self) -> None:
        """Give running answers a moment to finish, and close."""
        if self._task is None:
            self._listener.close()
            return
        self._server.should_exit = True
        done, _ = await asyncio.wait([self._task], timeout=STOP_LIMIT_S)
        if not done:
            self._task.cancel()
            await asyncio.wait([self._task])
