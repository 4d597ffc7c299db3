"""A TCP server on the loop of a test, which leaves no connection behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from groupkeeper.coordinator.handlers.services import Endpoint

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[Endpoint]:
    """Call ``serve`` for each connection. The connection is closed when ``serve`` returns.

    At the end, all connections are closed. The end of a connection ends ``serve`` silently.
    """
    open_ones: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones[asyncio.current_task()] = writer
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await serve(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        del open_ones[asyncio.current_task()]

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield Endpoint(*server.sockets[0].getsockname()[:2])
    finally:
        server.close()
        while open_ones:
            for writer in open_ones.values():
                writer.close()
            await asyncio.wait([task for task in open_ones if task is not None])
