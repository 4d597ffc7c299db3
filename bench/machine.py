"""Measure the machine itself, so that figures of two days can be compared.

python -m bench.machine
"""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

LOOP = 1_000_000
PINGS = 1_000
WRITES = 100
PAGE = bytes(4096)
PING_LIMIT_S = 10.0


def speed(directory: Path) -> dict[str, float]:
    """Measure the processor, the loopback device and the disk of a directory."""
    return {
        "a loop of 1,000,000, CPU ms": loop_ms(),
        "loopback ping, p50 us": ping_us(),
        "fdatasync of 4 KB, p50 us": fdatasync_us(directory),
    }


def loop_ms() -> float:
    """Return the CPU time of a fixed loop."""
    began = time.thread_time()
    number = 0
    for step in range(LOOP):
        number ^= step
    return (time.thread_time() - began) * 1e3


def ping_us() -> float:
    """Return the median time of one byte to another process and back."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PING_LIMIT_S)
        child = os.fork()
        if child == 0:
            try:
                _answer(server)
            finally:
                os._exit(0)  # the child must never continue the work of its parent
        with socket.create_connection(server.getsockname(), PING_LIMIT_S) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def ping() -> None:
                peer.send(b"x")
                peer.recv(1)

            found = _p50_us(ping, PINGS)
        os.waitpid(child, 0)
    return found


def _answer(server: socket.socket) -> None:
    peer, _ = server.accept()
    peer.settimeout(PING_LIMIT_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while byte := peer.recv(1):
        peer.send(byte)


def fdatasync_us(directory: Path) -> float:
    """Return the median time of a write of one page that reaches the disk."""
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:

        def write() -> None:
            file.write(PAGE)
            os.fdatasync(file.fileno())

        return _p50_us(write, WRITES)


def _p50_us(call: Callable[[], None], count: int) -> float:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


if __name__ == "__main__":
    for what, figure in speed(Path.cwd()).items():
        print(f"{what:28} {figure:9.1f}")
