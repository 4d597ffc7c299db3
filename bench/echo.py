"""Send every byte back: the least that a server on uvloop can do with a request.

    python -m bench.echo

It prints its port, and ends when its standard input is closed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import uvloop


class Echo(asyncio.Protocol):
    """Writes what it reads."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the function that writes."""
        self._write: Callable[[bytes], None] = transport.write  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Write it back."""
        self._write(data)


async def main() -> None:
    """Serve until the standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0, backlog=1_000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main())
