"""Measure stores that several processes share, beside their raw client with the same bytes.

    python -m bench.shared_storage [--appends 300] [--offsets 1000000]

Starts a PostgreSQL and a ZooKeeper of its own. The store and the raw client take turns, in one run.
SQLite on the same disk gives the CPU time to compare with.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import asyncpg
from kazoo.client import KazooClient

from bench.storage_bench import COMMITS, IDENTITY, PARTITIONS, SHARDS, Load
from groupkeeper.coordinator.core.records import SavedGroup, SavedOffset
from groupkeeper.storage.backends.journal.driver import Fold, Value
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.backends.postgres.driver import PostgresDriver
from groupkeeper.storage.backends.postgres.url import parse_url
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.codec.records import encode_saved
from groupkeeper.storage.open import open_storage
from tests.helpers.clients.real_zookeeper import RealZooKeeper
from tests.helpers.storage.real_postgres import RealPostgres

GOAL_RATIO = 1.5
GOAL_LOAD_S = 10.0
PORTION_GROUPS = 200


class Series:
    """The wall and CPU times of one kind of append."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.wall_s: list[float] = []
        self.cpu_s: list[float] = []

    async def measure(self, work: Callable[[], Awaitable[object]]) -> None:
        """Measure one append."""
        wall, cpu = time.perf_counter(), time.process_time()
        await work()
        self.wall_s.append(time.perf_counter() - wall)
        self.cpu_s.append(time.process_time() - cpu)

    @property
    def p50_ms(self) -> float:
        """The median."""
        return statistics.median(self.wall_s) * 1e3

    @property
    def commit_us(self) -> float:
        """CPU time of a commit, all threads of this process."""
        return statistics.median(self.cpu_s) / COMMITS * 1e6

    def __str__(self) -> str:
        p99 = statistics.quantiles(self.wall_s, n=100)[98] * 1e3
        return (
            f"{self.name:<34} p50 {self.p50_ms:6.2f} ms  p99 {p99:6.2f} ms  "
            f"CPU {self.commit_us:5.1f} us a commit"
        )


def a_store(server: RealPostgres, schema: str) -> JournalStorage:
    """Return a store in a schema of its own."""
    url = parse_url(f"{server.url}?schema={schema}")
    driver = PostgresDriver(url, append_timeout_ms=60_000, lease_ttl_ms=60_000)
    return JournalStorage(driver, node_id=1, name="bench", lease_ttl_ms=60_000)


async def measure_appends(server: RealPostgres, directory: Path, appends: int) -> None:
    """Let the three take turns. Folds run beside the appends of the store, as always."""
    postgres, sqlite = (
        Load(storage, groups=100)
        for storage in (a_store(server, "appends"), SqliteOffsetStorage(directory / "bench.db"))
    )
    for load in (postgres, sqlite):
        await load.start()
    raw = await asyncpg.connect(server.url)
    await raw.execute("CREATE TABLE raw (row bigint PRIMARY KEY, payload bytea NOT NULL)")
    await raw.execute("ALTER TABLE raw ALTER COLUMN payload SET STORAGE EXTERNAL")
    series = ours, theirs, file = (
        Series("PostgreSQL, an append of 64"),
        Series("asyncpg, the same bytes in one row"),
        Series("SQLite, an append of 64"),
    )
    for row in range(appends):
        items = postgres.items()
        await ours.measure(lambda items=items: postgres.storage.append(items))
        payload = postgres.storage._entries[-1].payload
        insert = partial(raw.execute, "INSERT INTO raw VALUES ($1, $2)", row, payload)
        await theirs.measure(insert)
        items = sqlite.items()
        await file.measure(lambda items=items: sqlite.storage.append(items))
    for each in series:
        print(each)
    ratio = ours.p50_ms / theirs.p50_ms
    print(f"p50 beside the raw client: {ratio:.2f} (goal {GOAL_RATIO})")
    print(f"CPU of a commit beside SQLite: {ours.commit_us / file.commit_us:.2f} (goal 1)")
    stats = postgres.storage.stats()
    trips = {key.partition(".")[2]: int(value) for key, value in stats.items() if "." in key}
    print(f"round trips: {trips}")
    await raw.close()
    await postgres.storage.close()
    await sqlite.storage.close()


async def measure_load(server: RealPostgres, offsets: int) -> None:
    """Measure the load of groups of ten partitions."""
    load = Load(a_store(server, "load"), groups=100)
    await load.start()
    driver, life_id = load.storage._driver, load.storage._life_id
    groups = offsets // PARTITIONS
    for first in range(0, groups, PORTION_GROUPS):
        values = [_value(number) for number in range(first, min(first + PORTION_GROUPS, groups))]
        await driver.fold(life_id, life_id, Fold(values, 0, []))
    began = time.perf_counter()
    count = await load.load()
    took = time.perf_counter() - began
    print(f"load of {count} groups with {offsets} offsets: {took:.1f} s (goal {GOAL_LOAD_S:.0f})")
    await load.storage.close()


def _value(number: int) -> Value:
    group_id = f"group-{number}"
    offset = SavedOffset(number, 0, "", 1_700_000_000_000, -1, "A" * 22)
    saved = SavedGroup(group_id, None, {"orders": dict.fromkeys(range(PARTITIONS), offset)})
    return Value(number % SHARDS, True, group_id, encode_saved(saved))


async def measure_zookeeper(directory: Path, appends: int) -> None:
    """Let the store and kazoo take turns. kazoo answers in a thread of its own."""
    server = RealZooKeeper(directory)
    server.start()
    client = KazooClient(server.servers)
    await asyncio.to_thread(client.start)
    load = Load(open_storage(f"zookeeper://{server.servers}/bench", append_timeout_ms=60_000), 100)
    try:
        await load.start()
        ours, theirs = Series("ZooKeeper, an append of 64"), Series("kazoo, the same bytes")
        for row in range(appends):
            items = load.items()
            await ours.measure(lambda items=items: load.storage.append(items))
            data = load.storage._entries[-1].payload
            create = partial(client.create, f"/raw-{row}", data)
            await theirs.measure(lambda create=create: asyncio.to_thread(create))
        print(ours, theirs, sep="\n")
        print(f"p50 beside the raw client: {ours.p50_ms / theirs.p50_ms:.2f} (goal {GOAL_RATIO})")
    finally:
        await load.storage.close()
        client.stop()
        server.stop()


async def measure(appends: int, offsets: int) -> None:
    """Measure one store after the other."""
    server = RealPostgres()
    try:
        with tempfile.TemporaryDirectory() as directory:
            await measure_appends(server, Path(directory), appends)
            await measure_load(server, offsets)
            await measure_zookeeper(Path(directory) / "zookeeper", appends)
    finally:
        server.end()


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--appends", type=int, default=300)
    parser.add_argument("--offsets", type=int, default=1_000_000)
    asked = parser.parse_args()
    assert IDENTITY.shards == SHARDS
    asyncio.run(measure(asked.appends, asked.offsets))


if __name__ == "__main__":
    main()
