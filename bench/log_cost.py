"""Measure what the event log costs a commit: the daemon's CPU time with and without it, by turns.

    python -m bench.log_cost [rounds]

This uses the real daemon on SQLite with its defaults. 64 connections send the next commit of ten
partitions as soon as the last one is answered. Under this load sealing is the largest share,
because many commits share an append and a wake-up. All threads of the daemon count, and the process
that seals for it.

The daemon needs the row of a commit with or without events. So the comparison only switches off the
later work: reading rows, writing files, deleting rows.

Exits with 1 if the log needs more than 15 % of a commit.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

from bench.sealing_bench import PARTITIONS, commit_frame
from tests.helpers.daemon.daemon import Daemon

CONNECTIONS = 64
GROUPS = 16
RUN_S = 10.0
IDLE_CPU_S = 0.02
"""A daemon without work uses less than this in a second."""
MAX_SHARE = 0.15


class Run(NamedTuple):
    """One run of the daemon."""

    commits: int
    cpu_us: float
    """CPU time of a commit, in the daemon and the process that seals."""
    sealing_us: float
    """CPU time of a commit in the process that seals only."""


class Client(asyncio.Protocol):
    """One connection that always has one commit in flight."""

    def __init__(self, frame: bytes) -> None:
        self.answers = 0
        self._frame = frame
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first commit."""
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.write(self._frame)

    def data_received(self, data: bytes) -> None:
        """Send the next commit. An answer is one small TCP segment on loopback."""
        self.answers += 1
        self._transport.write(self._frame)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


def cpu_s(pid: int) -> float:
    """Return the CPU time of all threads of a process."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def children_cpu_s(pid: int) -> float:
    """Return the CPU time of the child processes of a process."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return sum(cpu_s(int(child)) for file in files for child in file.read_text().split())


async def load(port: int, pid: int) -> Run:
    """Commit for some time, then wait for the rest of the sealing. Both count."""
    loop = asyncio.get_running_loop()
    frames = [commit_frame(f"group-{number % GROUPS}") for number in range(CONNECTIONS)]
    before_s, sealing_before_s = cpu_s(pid), children_cpu_s(pid)
    clients = [
        (await loop.create_connection(partial(Client, frame), "127.0.0.1", port))[1]
        for frame in frames
    ]
    await asyncio.sleep(RUN_S)
    for client in clients:
        client.close()
    used_s = still_s = 0.0
    while used_s - still_s > IDLE_CPU_S or not still_s:
        still_s = used_s
        await asyncio.sleep(1)
        used_s = cpu_s(pid) + children_cpu_s(pid)
    commits = sum(client.answers for client in clients)
    sealing_s = children_cpu_s(pid) - sealing_before_s
    total_s = cpu_s(pid) - before_s + sealing_s
    return Run(commits, total_s / commits * 1e6, sealing_s / commits * 1e6)


def measure(sealing: str) -> Run:
    """Run the daemon once. ``sealing`` is the value of ``log.sealing``."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        daemon = Daemon(
            Path(directory), topics={"orders": PARTITIONS}, settings={"log.sealing": sealing}
        )
        daemon.start()
        try:
            return uvloop.run(load(int(daemon.bootstrap.rpartition(":")[2]), daemon.pid))
        finally:
            daemon.stop()


def main() -> int:
    """Measure with and without sealing by turns, and compare neighbouring runs. Return the exit
    code.
    """
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    shares: list[float] = []
    found: dict[str, list[float]] = {"off": [], "auto": []}
    sealing_us: list[float] = []
    for turn in range(rounds):
        for sealing in ("off", "auto") if turn % 2 == 0 else ("auto", "off"):
            run = measure(sealing)
            found[sealing].append(run.cpu_us)
            if sealing == "auto":
                sealing_us.append(run.sealing_us)
            print(f"round {turn + 1}, sealing {sealing}: {run.cpu_us:.1f} us of CPU a commit, "
                  f"{run.commits / RUN_S:,.0f} commits/s", flush=True)  # fmt: skip
        shares.append(1 - found["off"][-1] / found["auto"][-1])
    share = statistics.median(shares)
    print(
        f"log: a commit of {PARTITIONS} partitions takes {statistics.median(found['off']):.1f} us "
        f"of CPU without sealing and {statistics.median(found['auto']):.1f} us with it, "
        f"{statistics.median(sealing_us):.1f} us of that in the process that seals; the log is "
        f"{share:.0%} of it (median of {rounds} pairs; the goal is less than {MAX_SHARE:.0%})"
    )
    return 0 if share < MAX_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
