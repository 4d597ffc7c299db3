"""Measure the load of a million offsets at a start, after a clean stop and after ``kill -9``.

    python -m bench.load_offsets_bench [OFFSETS]

It prints the time, the CPU of the process, and the longest turn of the loop in CPU time of its
thread, for few large groups and for many small ones.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from bench.server_bench import plain_commit
from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.daemon.process import calm_collector
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage

OFFSETS = 1_000_000
OFFSETS_A_GROUP = (1_000, 100, 10)
AT_ONCE = 20


def coordinator(directory: Path) -> GroupCoordinator:
    """Return a coordinator on the store of a directory."""
    topics = Topics([ConfiguredTopic("orders", max(OFFSETS_A_GROUP))])
    return GroupCoordinator(
        SqliteOffsetStorage(directory / "groupkeeper.db"), CoordinatorConfig(), topics
    )


async def fill(directory: Path, killed: Path, groups: int, each: int) -> None:
    """Commit all offsets. Copy the store to ``killed`` before the coordinator stops."""
    filled = coordinator(directory)
    await filled.start()
    rows: list[tuple[int, int, int, str | None]] = [(n, 1_000_000, -1, "") for n in range(each)]
    for first in range(0, groups, AT_ONCE):
        names = [f"group-{n}" for n in range(first, min(groups, first + AT_ONCE))]
        commits = (filled.ask(plain_commit(name, "orders", rows)) for name in names)
        await asyncio.gather(*commits)
    shutil.copytree(directory, killed)
    await filled.stop()


async def load(directory: Path) -> tuple[float, float, float, int]:
    """Start. Return seconds, CPU seconds, the longest turn of the loop in CPU seconds, and the
    number of offsets.
    """
    started = coordinator(directory)
    longest, is_over = 0.0, False

    async def watch() -> None:
        nonlocal longest
        before = time.thread_time()
        while not is_over:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, before = max(longest, now - before), now

    watcher = asyncio.ensure_future(watch())
    await asyncio.sleep(0)
    began, began_cpu = time.perf_counter(), time.process_time()
    await started.start()
    took, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    is_over = True
    await watcher
    offsets = started.offset_count()
    await started.stop()
    return took, cpu, longest, offsets


def main() -> None:
    """Print two lines for each size of a group: after a clean stop, and after ``kill -9``."""
    offsets = int(sys.argv[1]) if len(sys.argv) > 1 else OFFSETS
    calm_collector()  # as the daemon does
    for each in OFFSETS_A_GROUP:
        with tempfile.TemporaryDirectory() as name:
            stopped, killed = Path(name) / "stopped", Path(name) / "killed"
            stopped.mkdir()
            uvloop.run(fill(stopped, killed, offsets // each, each))
            for what, directory in (("a clean stop", stopped), ("kill -9", killed)):
                took, cpu, longest, found = uvloop.run(load(directory))
                assert found == offsets, found
                print(
                    f"{offsets:,} offsets, {each:5,} a group, after {what:12}: {took:.2f} s, "
                    f"{cpu:.2f} s of CPU, longest turn {longest * 1e3:.1f} ms",
                    flush=True,
                )


if __name__ == "__main__":
    main()
