"""uvicorn on the daemon's own loop, with the daemon's own signal handlers."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import uvicorn

from groupkeeper.coordinator.web.gate import Gate, LimitScrapes, behind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp

BACKLOG = 128
CHEAP = frozenset({"/healthz", "/readyz"})
"""The pages that are always answered. All other pages count as scrapes, whose number is limited. We
do not compare paths with "/metrics", because the router treats "/metrics" and a line feed as the
same page.
"""


TICK_S = 1.0
"""The interval at which the date in the headers of replies is set."""


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers, and without its ten turns of the loop a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopped = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the daemon. uvicorn would end the process before the daemon has
        drained.
        """
        yield

    async def main_loop(self) -> None:
        """Return after ``stop``. Until then, set the date once a second.

        uvicorn looks ten times a second whether it should end. These were half of the turns that
        the loop of an idle daemon has.
        """
        while not await self.on_tick(0):  # a tick with this number sets the date
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), TICK_S)

    def stop(self) -> None:
        """Close the port, and let ``serve`` end when the running answers are sent."""
        self.should_exit = True
        self._stopped.set()


def make_server(app: ASGIApp, gate: Gate) -> HttpServer:
    """Return a server of the application. ``gate`` limits its connections."""
    return HttpServer(
        uvicorn.Config(
            LimitScrapes(app, CHEAP, gate),
            http=behind(gate),
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
