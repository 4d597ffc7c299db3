"""Measure the commit of the only client, beside a sync of the disk and a request without a write.

    python -m bench.lone_commit [--rounds 5] [--python /usr/bin/python3]

A round has three parts, each a series of single operations, one after the other:

- a commit of ten partitions to the real daemon, compiled, on SQLite;
- a fetch of one offset over the same connection: the way through loopback and the loop;
- a write of one page at the end of a file, and its ``fdatasync``, on the disk of the store.

The parts alternate in small portions, so that other load on the machine affects all of them. The
goal is a median commit of at most 1.2 times the sum of the other two medians.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.log_cost import cpu_s
from bench.sealing_bench import PARTITIONS, commit_frame
from bench.sides import ROOT, groupkeeper
from tests.helpers.wire.raw_client import encode_request

PORTION = 25
"""So many operations of one kind are measured before the next kind has its turn."""
PORTIONS = 40
GROUP = "lone"
ANSWER_LIMIT_S = 30
PAGE_BYTES = 4_096 + 24
"""The size of a page and its header in the write-ahead log: what a small append writes."""
GOAL = 1.2


class Lone:
    """The only connection to the daemon."""

    def __init__(self, port: int) -> None:
        """Connect, and commit once to create the group."""
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_LIMIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._commit = commit_frame(GROUP)
        topics = [{"name": "orders", "partition_indexes": [0]}]
        values = {"group_id": GROUP, "topics": topics}
        self._fetch = encode_request("offset_fetch", 7, values, 1, "bench")
        self.commit()

    def commit(self) -> None:
        """Commit ten partitions."""
        self._call(self._commit)

    def fetch(self) -> None:
        """Fetch one offset, which writes nothing."""
        self._call(self._fetch)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _call(self, frame: bytes) -> None:
        self._socket.sendall(frame)
        received = b""
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            more = self._socket.recv(65_536)
            if not more:
                raise SystemExit("the daemon closed the connection")
            received += more


class Disk:
    """A file beside the store, written as a write-ahead log is."""

    def __init__(self, path: Path) -> None:
        """Create the file."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._page = os.urandom(PAGE_BYTES)
        self._at = 0

    def sync(self) -> None:
        """Write one page at the end, and wait for the disk."""
        os.pwrite(self._fd, self._page, self._at)
        self._at += PAGE_BYTES
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def portion(call: Callable[[], None]) -> list[float]:
    """Return the microseconds of each of ``PORTION`` calls."""
    took = []
    for _ in range(PORTION):
        start = time.perf_counter()
        call()
        took.append((time.perf_counter() - start) * 1e6)
    return took


def measure(python: str) -> tuple[float, float, float, float]:
    """Return the medians of a commit, a fetch and a sync, and the CPU time of a commit, all in
    microseconds.
    """
    (ROOT / "var").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "var") as directory:
        daemon = groupkeeper(Path(directory), python, {"orders": PARTITIONS})
        daemon.start()
        lone = Lone(daemon.port)
        disk = Disk(Path(directory) / "beside")
        took: dict[str, list[float]] = {"commit": [], "fetch": [], "sync": []}
        commits_cpu_s = 0.0
        try:
            for _ in range(PORTIONS):
                before_s = cpu_s(daemon.pid)
                took["commit"] += portion(lone.commit)
                commits_cpu_s += cpu_s(daemon.pid) - before_s
                took["fetch"] += portion(lone.fetch)
                took["sync"] += portion(disk.sync)
        finally:
            lone.close()
            disk.close()
            daemon.stop()
    commit, fetch, sync = (statistics.median(took[name]) for name in took)
    return commit, fetch, sync, commits_cpu_s / PORTION / PORTIONS * 1e6


def main() -> int:
    """Measure, and compare the medians of each round. Return 1 if the goal is missed."""
    parser = argparse.ArgumentParser(prog="bench.lone_commit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the daemon")
    chosen = parser.parse_args()
    ratios: list[float] = []
    for number in range(1, chosen.rounds + 1):
        commit, fetch, sync, cpu_us = measure(chosen.python)
        ratios.append(commit / (fetch + sync))
        print(
            f"round {number}: commit p50 {commit:.0f} us, fetch {fetch:.0f} us, fdatasync "
            f"{sync:.0f} us: {ratios[-1]:.2f} times their sum; {cpu_us:.0f} us of CPU a commit",
            flush=True,
        )
    ratio = statistics.median(ratios)
    print(f"a lone commit takes {ratio:.2f} times a sync and a way through the loop; goal {GOAL}")
    return 0 if ratio <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
