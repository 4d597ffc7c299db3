"""A proxy in front of a server, which can hold back bytes, like a network that fails silently."""

from __future__ import annotations

import asyncio


class CutProxy:
    """Passes bytes in both directions until it is cut."""

    def __init__(self, port: int, own_port: int = 0) -> None:
        """``port`` is that of the server. ``own_port`` 0 means any free port."""
        self.port = own_port
        self.is_open = {"there": asyncio.Event(), "back": asyncio.Event()}
        self.heal()
        self._target = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    def cut(self, *ways: str) -> None:
        """Hold back the bytes in these directions: "there" (to the server) and "back"."""
        for way in ways:
            self.is_open[way].clear()

    def heal(self) -> None:
        """Pass all bytes again, also those that were held back."""
        for gate in self.is_open.values():
            gate.set()

    def break_all(self) -> None:
        """Reset all connections. New ones are accepted."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, server_writer]
        for way, source, target in (
            ("there", reader, server_writer),
            ("back", server_reader, writer),
        ):
            task = asyncio.ensure_future(self._pass_on(way, source, target))
            self._tasks.add(task)

    async def _pass_on(
        self, way: str, source: asyncio.StreamReader, target: asyncio.StreamWriter
    ) -> None:
        try:
            while data := await source.read(65_536):
                await self.is_open[way].wait()
                target.write(data)
                await target.drain()
        except ConnectionError:
            pass
        target.transport.abort()
