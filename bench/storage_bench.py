"""Measure storage: encoding, appends with an idle and with a busy loop, and a load.

    python -m bench.storage_bench [DIRECTORY]

The comparison is SQLite used in a simple way: a transaction with one upsert a partition.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from bench.figures import Figure
from groupkeeper.coordinator.core.records import (
    CommittedTopic,
    OffsetsCommitted,
)
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import Batch, OffsetStorage, ShardAppend, StoreIdentity
from groupkeeper.storage.codec.events import Stamp
from groupkeeper.storage.codec.records import decode_payload, encode_payload
from groupkeeper.storage.keyed import KeyedRecords

COMMITS = 64
PARTITIONS = 10
SHARDS = 8
APPENDS = 1_000
GROUPS = 10_000
IDENTITY = StoreIdentity("bench", SHARDS)


def commit(group_id: str, offset: int) -> OffsetsCommitted:
    """Return a consumer's commit. Its partitions have different offsets, as those of users have."""
    newest = [offset * 977 + n * 131_071 for n in range(PARTITIONS)]
    rows = [(n, at, at - 977, 0, "") for n, at in enumerate(newest)]
    return OffsetsCommitted(
        group_id=group_id,
        generation_id=5,
        member_id=f"consumer-1-{'0' * 36}",
        group_instance_id=None,
        client_id="consumer-1",
        client_host="/127.0.0.1",
        principal="User:ANONYMOUS",
        commit_time_ms=1_700_000_000_000,
        expire_time_ms=-1,
        topics=[CommittedTopic("orders", "A" * 22, rows)],
    )


class Load:
    """Appends of commits over 8 shards. The fold gets the states after these commits."""

    def __init__(self, storage: OffsetStorage, groups: int, commits: int = COMMITS) -> None:
        """Use ``groups`` groups in each shard, and ``commits`` commits in each append."""
        self.storage = storage
        self.keyed = [KeyedRecords() for _ in range(SHARDS)]
        self.groups = groups
        self._portion = commits // SHARDS
        self.epoch = 0
        self._next = 0

    async def start(self) -> int:
        """Open and load the store. Return the number of records."""
        await self.storage.open(IDENTITY)
        return await self.load()

    async def load(self) -> int:
        """Acquire the leases and load. Return the number of records."""
        leases = await self.storage.acquire(range(SHARDS), "bench")
        self.epoch = leases[0].epoch
        count = 0
        async for shard, records in self.storage.load(range(SHARDS)):
            for record in records:
                self.keyed[shard].apply(record)
            count += len(records)
        return count

    def items(self) -> list[ShardAppend]:
        """Return the items of the next append. The groups take turns."""
        items = []
        first, self._next = self._next, self._next + self._portion
        for shard in range(SHARDS):
            batches = []
            for number in range(first, self._next):
                record = commit(f"group-{shard}-{number % self.groups}", number)
                self.keyed[shard].apply(record)
                batches.append(Batch([record], []))
            items.append(ShardAppend(shard, self.epoch, batches, self.keyed[shard].saved))
        return items

    async def append(self) -> float:
        """Do one append. Return its time in seconds, without the creation of the records."""
        items = self.items()
        start = time.perf_counter()
        assert not await self.storage.append(items)
        return time.perf_counter() - start


def cost_of(work: Callable[[], object], times: int = 300) -> float:
    """Return the seconds of a call, the best of three runs."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(times):
            work()
        best = min(best, (time.perf_counter() - start) / times)
    return best


def report(name: str, took: list[float]) -> None:
    """Print the rate and percentiles of a series of appends."""
    took.sort()
    p50, p99 = took[len(took) // 2] * 1e3, took[int(len(took) * 0.99)] * 1e3
    rate = len(took) / sum(took)
    print(f"{name:<44} {rate:8.0f} appends/s  p50 {p50:6.2f} ms  p99 {p99:6.2f} ms")


async def saturate(stop: asyncio.Event) -> None:
    """Keep the loop busy in turns of about a quarter of a millisecond."""
    while not stop.is_set():
        end = time.perf_counter() + 0.00025
        while time.perf_counter() < end:
            pass
        await asyncio.sleep(0)


async def bench_appends(name: str, storage: OffsetStorage, *, busy: bool) -> None:
    """Measure appends one after the other."""
    load = Load(storage, groups=100)
    await load.start()
    stop = asyncio.Event()
    spinner = asyncio.ensure_future(saturate(stop)) if busy else None
    report(name, [await load.append() for _ in range(APPENDS)])
    stop.set()
    if spinner is not None:
        await spinner
    await storage.close()


async def bench_load(path: Path, *, folded: bool) -> None:
    """Measure a load of 10,000 groups of 10 offsets."""
    load = Load(SqliteOffsetStorage(path), groups=GROUPS // SHARDS)
    await load.start()
    for _ in range(GROUPS // COMMITS + 1):
        await load.append()
    while folded and load.storage.unfolded():
        nothing = [ShardAppend(n, load.epoch, [], load.keyed[n].saved) for n in range(SHARDS)]
        await load.storage.append(nothing)
    start = time.perf_counter()
    records = await load.load()
    took = time.perf_counter() - start
    kind = "folded" if folded else "from the log"
    print(f"load, {records} groups of {PARTITIONS} offsets, {kind:<13} {took:6.2f} s")
    await load.storage.close()


def bench_codec() -> None:
    """Measure how long the loop encodes and decodes a commit."""
    items = Load(MemoryOffsetStorage(), 100).items()
    encode = partial(encode_payload, Stamp("0" * 32, 1, 1), 0, items)
    size = len(encode()) / COMMITS
    decode = partial(decode_payload, encode())
    print(f"encode a commit of {PARTITIONS}: {cost_of(encode) / COMMITS * 1e6:.2f} us, ", end="")
    print(f"{size:.0f} bytes; decode: {cost_of(decode) / COMMITS * 1e6:.2f} us")


async def figures(directory: Path) -> AsyncIterator[Figure]:
    """Measure one commit of an append of 64, including the writer's thread."""
    items = Load(MemoryOffsetStorage(), 100).items()
    encode = partial(encode_payload, Stamp("0" * 32, 1, 1), 0, items)
    what = f"encode a commit x{PARTITIONS}"
    yield Figure("storage", what, cost_of(encode) / COMMITS * 1e6, f"{len(encode()) // COMMITS} B")
    for name, storage in (
        ("memory", MemoryOffsetStorage()),
        ("sqlite", SqliteOffsetStorage(directory / "micro.db", fold_after=10**9)),
        ("sqlite, folding", SqliteOffsetStorage(directory / "fold.db", fold_after=0)),
    ):
        load = Load(storage, groups=100)
        await load.start()
        took = []
        for _ in range(200):
            made = load.items()
            begin = time.process_time()
            await storage.append(made)
            took.append(time.process_time() - begin)
        what = f"append a commit x{PARTITIONS}, {name}"
        yield Figure("storage", what, min(took) / COMMITS * 1e6)
        await storage.close()


def bench_upserts(path: Path) -> None:
    """Measure the comparison: BEGIN, an upsert a partition, COMMIT."""
    sql = "INSERT INTO offsets VALUES (?,?,?,?) ON CONFLICT DO UPDATE SET value = excluded.value"
    took = []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(
            "CREATE TABLE offsets (grp, topic, part, value, PRIMARY KEY (grp, topic, part))"
        )
        for number in range(200):
            rows = [
                (f"group-{number * COMMITS + each}", "orders", part, number)
                for each in range(COMMITS)
                for part in range(PARTITIONS)
            ]
            start = time.perf_counter()
            connection.execute("BEGIN")
            connection.executemany(sql, rows)
            connection.execute("COMMIT")
            took.append(time.perf_counter() - start)
    report("peer: upserts of 640 rows, no loop beside", took)


async def main(directory: Path) -> None:
    """Run all benchmarks."""
    bench_codec()
    await bench_appends("memory", MemoryOffsetStorage(), busy=False)
    for busy in (False, True):
        beside = "saturated loop" if busy else "idle loop"
        for fold_after, folding in ((10**9, "not folding"), (0, "folding 8 groups each")):
            name = f"sqlite, {beside}, {folding}"
            path = directory / f"{busy}-{fold_after}.db"
            await bench_appends(name, SqliteOffsetStorage(path, fold_after=fold_after), busy=busy)
    bench_upserts(directory / "peer.db")
    for folded in (True, False):
        await bench_load(directory / f"load-{folded}.db", folded=folded)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        asyncio.run(main(Path(name)))
