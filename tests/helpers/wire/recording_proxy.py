"""A TCP proxy that keeps the frames that it passes, to test what clients and brokers have sent.

The broker behind it must advertise the proxy's address, so that clients stay on this side. While
the broker is away, the proxy resets each new connection.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection
from typing import NamedTuple


class Frame(NamedTuple):
    """One frame, without its length."""

    api_key: int
    api_version: int
    direction: str
    """``request`` or ``response``. A response has the key and version of its request."""
    data: bytes
    at_ns: int
    """The wall time when the proxy had received the frame and had not passed it on yet."""
    connection: int


CUT = -1.0
"""A result of ``hold``: do not pass the frame on, and close the connection."""


def at_once(_: Frame) -> float:
    return 0


class RecordingProxy:
    """Listens on a loopback address and forwards to a port of 127.0.0.1, in its own thread."""

    def __init__(
        self,
        port: int,
        target_port: int,
        host: str = "127.0.0.1",
        only: Collection[int] | None = None,
    ) -> None:
        """Keep the frames of the API keys in ``only``, or all."""
        self.frames: list[Frame] = []
        self.hold: Callable[[Frame], float] = at_once
        """Called in the thread of the proxy for each frame that is kept. Returns how many seconds
        the frame, and those behind it, wait before they are passed on; or CUT."""
        self._only = only
        self._connections = itertools.count()
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
        """Return the frames since the last call."""
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
        try:
            broker_reader, broker_writer = await asyncio.open_connection(
                "127.0.0.1", self._target_port
            )
        except OSError:
            _reset(client_writer)
            return
        asked: dict[int, tuple[int, int]] = {}
        is_answered = False
        connection = next(self._connections)

        def keep(api: tuple[int, int], direction: str, data: bytes) -> float:
            if self._only is not None and api[0] not in self._only:
                return 0
            frame = Frame(*api, direction, data, time.time_ns(), connection)
            self.frames.append(frame)
            return self.hold(frame)

        def request(data: bytes) -> float:
            api_key, api_version, correlation_id = struct.unpack_from(">hhi", data)
            asked[correlation_id] = (api_key, api_version)
            return keep((api_key, api_version), "request", data)

        def response(data: bytes) -> float:
            nonlocal is_answered
            is_answered = True
            (correlation_id,) = struct.unpack_from(">i", data)
            return keep(asked.pop(correlation_id), "response", data)

        await asyncio.wait(
            [
                asyncio.ensure_future(_forward(client_reader, broker_writer, request)),
                asyncio.ensure_future(_forward(broker_reader, client_writer, response)),
            ],
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not is_answered:
            _reset(client_writer)
        client_writer.close()
        broker_writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with RST, like a port on which nobody listens. If a connection ends
    normally before the first answer, franz-go assumes that the peer speaks TLS, and does not retry.
    """
    if writer.is_closing():
        return
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, saw: Callable[[bytes], float]
) -> None:
    try:
        while True:
            head = await reader.readexactly(4)
            data = await reader.readexactly(struct.unpack(">i", head)[0])
            hold_s = saw(data)
            if hold_s == CUT:
                return
            if hold_s:
                await asyncio.sleep(hold_s)
            writer.write(head + data)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
