"""A TCP proxy in the loop of a test, which can close its connections or hold back bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Self


class CuttingProxy:
    """Forwards connections from a free loopback port to ``target_port``. Its methods begin
    faults.
    """

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._passes = asyncio.Event()
        self._answers_pass = asyncio.Event()
        self._refuses = False
        self._ignores = 0
        self._answers: Iterator[int] | None = None

    async def __aenter__(self) -> Self:
        self._passes.set()
        self._answers_pass.set()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Close every connection. New connections are forwarded."""
        for writer in self._writers:
            writer.close()

    def lose_answers(self, after: Iterator[int] | None) -> None:
        """Close each new connection after a number of answers. ``after`` yields this number for
        each connection. None ends this.
        """
        self._answers = after

    def refuse(self, refuses: bool = True) -> None:
        """Close every connection, and each new one at once. False ends this."""
        self._refuses = refuses
        if refuses:
            self.cut()

    def ignore(self, connections: int = 1) -> None:
        """Accept the next connections, and never send anything on them."""
        self._ignores = connections

    def swallow(self, swallows: bool = True) -> None:
        """Hold all bytes back without closing connections, as a broken network does."""
        if swallows:
            self._passes.clear()
        else:
            self._passes.set()

    def swallow_answers(self, swallows: bool = True) -> None:
        """Pass requests, and hold all answers back."""
        if swallows:
            self._answers_pass.clear()
        else:
            self._answers_pass.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.close()
            return
        if self._ignores:
            self._ignores -= 1
            self._writers.add(writer)
            return
        try:
            behind = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.close()
            return
        both = {writer, behind[1]}
        self._writers |= both
        self._tasks |= {
            asyncio.create_task(self._forward(reader, behind[1], self._passes, None)),
            asyncio.create_task(
                self._forward(
                    behind[0],
                    writer,
                    self._answers_pass,
                    next(self._answers) if self._answers else None,
                )
            ),
        }

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        passes: asyncio.Event,
        most: int | None,
    ) -> None:
        passed = 0
        try:
            while data := await reader.read(65536):
                await self._passes.wait()
                await passes.wait()
                if passed == most:
                    break
                passed += 1
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
            self._writers.discard(writer)
