"""The pages of the HTTP port, as a Starlette application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request

    from groupkeeper.coordinator.web.reports import Reports


def make_pages(reports: Reports) -> Starlette:
    """Return the application, which shows these reports."""

    async def metrics(_: Request) -> Response:
        page = await reports.metrics()
        # imported here, so that a start does not wait for it; the rendering has imported it already
        from prometheus_client import CONTENT_TYPE_LATEST

        return Response(page, media_type=CONTENT_TYPE_LATEST)

    async def healthz(_: Request) -> Response:
        # an answer alone shows that the event loop runs
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        reason = reports.not_ready()
        if reason is None:
            state = reports.state()
            return PlainTextResponse(f"ready\n{state}\n" if state else "ready\n")
        return PlainTextResponse(f"not ready: {reason}\n", status_code=503)

    routes = [
        Route("/metrics", metrics),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
    ]
    if (upstream := reports.upstream) is not None:

        async def upstream_page(_: Request) -> Response:
            return Response(await upstream(), media_type="application/json")

        routes.append(Route("/upstream", upstream_page))
    return Starlette(routes=routes)
