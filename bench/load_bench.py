"""Measure how long a start reads a log that is not folded, as ``kill -9`` leaves it.

    python -m bench.load_bench [ROWS]

A row is one commit of one group, like an append on an idle machine. These are the smallest rows, so
a log has the largest number of them.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.storage_bench import IDENTITY, SHARDS, commit
from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.shard import Shard
from groupkeeper.coordinator.daemon.process import calm_collector
from groupkeeper.coordinator.runtime.loading import Slicer, load_records
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import Batch, ShardAppend

GROUPS = 100
LOADS = 7


async def write(storage: SqliteOffsetStorage, rows: int) -> None:
    """Write ``rows`` rows, none of them folded."""
    await storage.open(IDENTITY)
    leases = await storage.acquire(range(SHARDS), "bench")
    async for _ in storage.load(range(SHARDS)):
        pass
    await storage.on_writer(lambda connection: connection.execute("PRAGMA synchronous = OFF"))
    for number in range(rows):
        shard = number % SHARDS
        batch = Batch([commit(f"group-{number % GROUPS}", number)], [])
        await storage.append([ShardAppend(shard, leases[shard].epoch, [batch], lambda _: None)])


async def load(storage: SqliteOffsetStorage) -> tuple[float, float, float]:
    """Load as a start does. Return seconds, CPU seconds, and the longest turn of the loop."""
    await storage.acquire(range(SHARDS), "bench")
    shards = {n: Shard(n, CoreLimits(), TopicImage.any()) for n in range(SHARDS)}
    longest, is_over = 0.0, False

    async def watch() -> None:
        nonlocal longest
        before = time.perf_counter()
        while not is_over:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, before = max(longest, now - before), now

    watcher = asyncio.ensure_future(watch())
    await asyncio.sleep(0)
    start, start_cpu = time.perf_counter(), time.process_time()
    await load_records(storage, range(SHARDS), shards, Slicer(5.0))
    took, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    is_over = True
    await watcher
    return took, cpu, longest


async def main(directory: Path, rows: int) -> None:
    """Print the medians of several loads."""
    storage = SqliteOffsetStorage(directory / "load.db", fold_after=10**9)
    await write(storage, rows)
    loads = [await load(storage) for _ in range(LOADS)]
    await storage.close()
    took, cpu, longest = (statistics.median(values) for values in zip(*loads, strict=True))
    print(f"load {rows} rows: {took:.3f} s, {cpu:.3f} s of CPU, ", end="")
    print(f"longest turn of the loop {longest * 1e3:.0f} ms")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        calm_collector()  # as the daemon does before a load
        asyncio.run(main(Path(name), int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
