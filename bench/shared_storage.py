"""Measure stores that several processes share, beside their raw client with the same bytes.

    python -m bench.shared_storage [--appends 300] [--offsets 1000000]

Starts a PostgreSQL, a ZooKeeper, a Consul and a Kafka of its own. The store and the raw client take
turns, in one run. SQLite on the same disk gives the CPU time to compare with.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from functools import partial
from pathlib import Path

import asyncpg

from bench.append_series import GOAL_RATIO, Series
from bench.kafka_topic import measure_kafka
from bench.key_stores import measure_consul, measure_zookeeper
from bench.storage_bench import IDENTITY, PARTITIONS, SHARDS, Load
from groupkeeper.coordinator.core.records import SavedGroup, SavedOffset
from groupkeeper.storage.backends.journal.driver import Fold, Value
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.backends.postgres.driver import PostgresDriver
from groupkeeper.storage.backends.postgres.url import parse_url
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.codec.records import encode_saved
from tests.helpers.storage.real_postgres import RealPostgres

GOAL_LOAD_S = 10.0
PORTION_GROUPS = 200
OTHERS = {"zookeeper": measure_zookeeper, "consul": measure_consul, "kafka": measure_kafka}


def a_store(server: RealPostgres, schema: str) -> JournalStorage:
    """Return a store in a schema of its own."""
    url = parse_url(f"{server.url}?schema={schema}")
    driver = PostgresDriver(url, append_timeout_ms=60_000, lease_ttl_ms=60_000)
    return JournalStorage(driver, node_id=1, name="bench", lease_ttl_ms=60_000)


async def measure_appends(server: RealPostgres, directory: Path, appends: int) -> None:
    """Let the store, asyncpg and SQLite take turns. The store also folds during its appends, as it
    always does.
    """
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
        payload = postgres.storage._journal.entries[-1].payload
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


async def measure(appends: int, offsets: int) -> None:
    """Measure one store after the other."""
    server = RealPostgres()
    try:
        with tempfile.TemporaryDirectory() as directory:
            await measure_appends(server, Path(directory), appends)
            await measure_load(server, offsets)
            for name, measure_other in OTHERS.items():
                await measure_other(Path(directory) / name, appends)
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
