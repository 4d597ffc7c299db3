"""uvicorn on the daemon's own loop and with the daemon's own signals."""

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
"""A scrape that takes longer than this does not hold up the end of the process."""

BACKLOG = 128
MAX_CONNECTIONS = 200
REQUEST_TIMEOUT_MS = 10_000
"""Defaults of ``[http]`` in the config."""


def _say_nothing(_reason: str, _peer: str) -> None:
    pass


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the daemon: uvicorn would end the process before it has drained."""
        yield


class WebServer:
    """Serves an application on a socket that is bound already, so that a port in use shows
    early."""

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        *,
        max_connections: int = MAX_CONNECTIONS,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        refuse: Refuse = _say_nothing,
    ) -> None:
        """Prepare; nothing is answered before ``start``. ``refuse`` hears of each peer that is
        closed, with the reason.
        """
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
                # not limit_concurrency: it answers 503 to health as well
                backlog=BACKLOG,
            )
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to answer; from here on nobody is refused, even before the task first runs."""
        self._listener.listen(BACKLOG)
        self._task = asyncio.create_task(
            self._server.serve(sockets=[self._listener]), name="http server"
        )

    async def stop(self) -> None:
        """Let running answers finish, for a moment, and close."""
        if self._task is None:
            self._listener.close()
            return
        self._server.should_exit = True
        done, _ = await asyncio.wait([self._task], timeout=STOP_LIMIT_S)
        if not done:
            self._task.cancel()
            await asyncio.wait([self._task])
