"""Peers that send nothing, or take nothing, or never end what they began: hundreds of them."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

SILENT = 300
"""More than ``http.max_connections``, so that health has to get past them."""
HOARDERS = 60
FRAME_BYTES = 8_388_000
SENT_BYTES = 4_000_000
"""Of each frame: all together are three times the budget of the soak's daemon."""
BUDGET_BYTES = 67_108_864
SLACK_MB = 64
"""What one turn of the loop, the allocator and the work beside may add to the budget."""


class HostilePeers:
    """Opens them in a thread of its own: the daemon reads the hoarders as slowly as it likes."""

    def __init__(self, kafka_port: int, http_port: int) -> None:
        self._kafka_port, self._http_port = kafka_port, http_port
        self._sockets: list[socket.socket] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hostile peers", daemon=True)

    def come(self) -> None:
        self._thread.start()

    def go(self) -> None:
        self._ended.set()
        self._thread.join()
        for each in self._sockets:
            each.close()

    def _run(self) -> None:
        for _ in range(SILENT):
            self._connect(self._http_port)
        frame = struct.pack(">i", FRAME_BYTES) + bytes(SENT_BYTES)
        for _ in range(HOARDERS):
            if self._ended.is_set():
                return
            hoarder = self._connect(self._kafka_port)
            if hoarder is not None:
                with suppress(OSError):  # read no further, or closed: that is what is wanted
                    hoarder.sendall(frame)

    def _connect(self, port: int) -> socket.socket | None:
        with suppress(OSError):
            found = socket.create_connection(("127.0.0.1", port), timeout=0.5)
            self._sockets.append(found)
            return found
        return None
