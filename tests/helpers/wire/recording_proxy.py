"""A TCP proxy that keeps the frames that pass, to capture wire vectors from real clients.

The broker behind it must advertise the proxy's address, so that clients stay on this side.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable
from typing import NamedTuple


class Frame(NamedTuple):
    """One frame, without its length."""

    api_key: int
    api_version: int
    direction: str
    """``request`` or ``response``; a response has the key and version of its request."""
    data: bytes


class RecordingProxy:
    """Listens on a loopback address and forwards to a port of 127.0.0.1, in its own thread."""

    def __init__(self, port: int, target_port: int, host: str = "127.0.0.1") -> None:
        self.frames: list[Frame] = []
        self._host = host
        self._port = port
        self._target_port = target_port
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """Close the port and every connection."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def take(self) -> list[Frame]:
        """The frames since the last call."""
        taken, self.frames = self.frames, []
        return taken

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._connected, self._host, self._port)
        )
        self._started.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            self._loop.run_until_complete(asyncio.wait([task]))
        self._loop.close()

    async def _connected(
        self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter
    ) -> None:
        broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        asked: dict[int, tuple[int, int]] = {}

        def request(data: bytes) -> None:
            api_key, api_version, correlation_id = struct.unpack_from(">hhi", data)
            asked[correlation_id] = (api_key, api_version)
            self.frames.append(Frame(api_key, api_version, "request", data))

        def response(data: bytes) -> None:
            (correlation_id,) = struct.unpack_from(">i", data)
            self.frames.append(Frame(*asked.pop(correlation_id), "response", data))

        await asyncio.wait(
            [
                asyncio.ensure_future(_forward(client_reader, broker_writer, request)),
                asyncio.ensure_future(_forward(broker_reader, client_writer, response)),
            ],
            return_when=asyncio.FIRST_COMPLETED,
        )
        client_writer.close()
        broker_writer.close()


async def _forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, saw: Callable[[bytes], None]
) -> None:
    try:
        while True:
            head = await reader.readexactly(4)
            data = await reader.readexactly(struct.unpack(">i", head)[0])
            saw(data)
            writer.write(head + data)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
