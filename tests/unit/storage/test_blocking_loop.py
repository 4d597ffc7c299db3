"""The event loop of another thread."""

from __future__ import annotations

import asyncio
import socket
import threading

from groupkeeper.storage.blocking_loop import BlockingLoop


def test_a_loop_that_ends_leaves_no_socket_open() -> None:
    """A library may close its connection some turns after its call has returned."""
    loop = BlockingLoop("of a test")
    begun, closes = threading.Event(), threading.Event()

    async def connect() -> socket.socket:
        _, writer = await asyncio.open_connection(*listening.getsockname())
        turning = asyncio.get_running_loop()

        def wait_and_close() -> None:
            begun.set()
            closes.wait(10)
            turning.call_soon(turning.call_soon, writer.close)

        turning.call_later(0.01, wait_and_close)
        found: socket.socket = writer.get_extra_info("socket")
        return found

    with socket.create_server(("127.0.0.1", 0)) as listening:
        connection = loop.run(connect())
        begun.wait(10)
        threading.Timer(0.1, closes.set).start()  # the close below has begun by then
        loop.close()
        assert connection.fileno() == -1
