"""uvicorn on the daemon's own loop, with the daemon's own signal handlers."""

from __future__ import annotations

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


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the daemon. uvicorn would end the process before the daemon has
        drained.
        """
        yield


def make_server(app: ASGIApp, gate: Gate) -> uvicorn.Server:
    """Return a server of the application. ``gate`` limits its connections."""
    return _Server(
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
