"""The backends that the contract is held against."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from groupkeeper import read_events
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import OffsetStorage
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.sealing.storage import SealedStorage
from groupkeeper.storage.segment_lines import EventDict
from tests.helpers.clients.ecosystem import Unavailable
from tests.helpers.clients.real_consul import RealConsul
from tests.helpers.clients.real_zookeeper import RealZooKeeper
from tests.helpers.storage.fake_driver import FakeDriver, FakeServer
from tests.helpers.storage.real_postgres import RealPostgres, programs
from tests.helpers.storage.sqlite_bench import Bench
from tests.helpers.storage.storage_owner import Owner


class WallClock:
    """Tells the time that the test says it is."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class Store:
    """One store, which may be opened again and again."""

    make: Callable[[], OffsetStorage]
    events: Callable[[], list[EventDict]]
    clock: WallClock
    opened: list[OffsetStorage] = field(default_factory=list)

    async def owner(self) -> Owner:
        """Open the store (again) and load it."""
        self.opened.append(self.make())
        return await Owner(self.opened[-1]).start()

    async def restarted(self, owner: Owner) -> Owner:
        """Close the store and open it again."""
        await owner.storage.close()
        return await self.owner()


def sqlite_store(tmp_path: Path, fold_after: int) -> Store:
    path = tmp_path / "store.db"
    clock = WallClock()
    return Store(
        make=lambda: SqliteOffsetStorage(path, clock=clock, fold_after=fold_after),
        events=lambda: list(read_events(path)),
        clock=clock,
    )


def memory_store() -> Store:
    clock = WallClock()
    storage = MemoryOffsetStorage(clock=clock)
    return Store(make=lambda: storage, events=storage.events, clock=clock)


def sealed_memory_store(tmp_path: Path) -> Store:
    clock = WallClock()
    memory = MemoryOffsetStorage(clock=clock)
    settings = SealSettings(directory=tmp_path / "log", segment_bytes=1)
    storage = SealedStorage(memory, settings, clock=clock, poll_s=0.001)
    return Store(make=lambda: storage, events=memory.events, clock=clock)


def sealed_sqlite_store(tmp_path: Path) -> Store:
    """Each row is sealed, and deleted, as soon as may be."""
    path = tmp_path / "store.db"
    clock = WallClock()
    settings = SealSettings(directory=tmp_path / "log", segment_bytes=1)

    def make() -> SealedStorage:
        plain = SqliteOffsetStorage(path, clock=clock, fold_after=0)
        return SealedStorage(plain, settings, clock=clock, poll_s=0.001)

    return Store(make=make, events=lambda: list(read_events(path)), clock=clock)


def journal_store() -> Store:
    """A store that several processes share, over a fake server."""
    clock = WallClock()
    server = FakeServer()

    def make() -> JournalStorage:
        driver = FakeDriver(server)
        return JournalStorage(driver, node_id=1, name="test:1", lease_ttl_ms=200, clock=clock)

    return Store(make=make, events=server.events, clock=clock)


@pytest.fixture(scope="session")
def postgres() -> Iterator[RealPostgres]:
    """A PostgreSQL of our own."""
    pytest.importorskip("asyncpg")
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    server = RealPostgres()
    yield server
    server.end()


def postgres_store(server: RealPostgres, schema: str) -> Store:
    from groupkeeper.storage.backends.postgres.driver import PostgresDriver
    from groupkeeper.storage.backends.postgres.url import parse_url

    clock = WallClock()
    url = parse_url(f"{server.url}?schema={schema}")

    def make() -> JournalStorage:
        driver = PostgresDriver(url, append_timeout_ms=5_000, lease_ttl_ms=1_000)
        return JournalStorage(driver, node_id=1, name="test:1", lease_ttl_ms=1_000, clock=clock)

    return Store(make=make, events=lambda: server.events(schema), clock=clock)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealZooKeeper]:
    """A ZooKeeper of our own."""
    pytest.importorskip("kazoo")
    server = RealZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    yield server.start()
    server.stop()


def zookeeper_store(server: RealZooKeeper, chroot: str) -> Store:
    from groupkeeper.storage.backends.zookeeper.driver import ZooKeeperDriver
    from groupkeeper.storage.backends.zookeeper.url import parse_url
    from tests.helpers.storage.zookeeper_nodes import stored_events

    clock = WallClock()
    url = parse_url(f"zookeeper://{server.servers}{chroot}", {})

    def make() -> JournalStorage:
        driver = ZooKeeperDriver(url, append_timeout_ms=5_000, lease_ttl_ms=1_000)
        return JournalStorage(driver, node_id=1, name="test:1", lease_ttl_ms=1_000, clock=clock)

    def events() -> list[EventDict]:
        return stored_events(server.servers, f"{chroot}/groupkeeper")

    return Store(make=make, events=events, clock=clock)


@pytest.fixture(scope="session")
def consul(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealConsul]:
    """A Consul of our own."""
    pytest.importorskip("httpx2")
    server = RealConsul(tmp_path_factory.mktemp("consul"))
    try:
        server.start()
    except Unavailable as missing:
        pytest.skip(str(missing))
    yield server
    server.stop()


def consul_store(server: RealConsul, prefix: str) -> Store:
    from groupkeeper.storage.backends.consul.driver import ConsulDriver
    from groupkeeper.storage.backends.consul.url import parse_url
    from tests.helpers.storage.consul_keys import stored_events

    clock = WallClock()
    url = parse_url(f"consul://{server.address}/{prefix}", {})

    def make() -> JournalStorage:
        driver = ConsulDriver(url, append_timeout_ms=5_000, lease_ttl_ms=1_000)
        return JournalStorage(driver, node_id=1, name="test:1", lease_ttl_ms=1_000, clock=clock)

    return Store(make=make, events=lambda: stored_events(server.address, prefix), clock=clock)


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        "sqlite-folding-always",
        "memory-sealed",
        "sqlite-sealed",
        "journal",
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("zookeeper", marks=pytest.mark.zookeeper),
        pytest.param("consul", marks=pytest.mark.consul),
    ]
)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    match request.param:
        case "memory":
            store = memory_store()
        case "sqlite":
            store = sqlite_store(tmp_path, fold_after=50_000)
        case "memory-sealed":
            store = sealed_memory_store(tmp_path)
        case "postgres":
            server = request.getfixturevalue("postgres")
            store = postgres_store(server, f"s{uuid.uuid4().hex}")
        case "zookeeper":
            server = request.getfixturevalue("zookeeper")
            store = zookeeper_store(server, f"/s{uuid.uuid4().hex}")
        case "consul":
            server = request.getfixturevalue("consul")
            store = consul_store(server, f"s{uuid.uuid4().hex}")
        case "journal":
            store = journal_store()
        case "sqlite-sealed":
            store = sealed_sqlite_store(tmp_path)
        case _:
            store = sqlite_store(tmp_path, fold_after=0)
    yield store
    for storage in store.opened:
        await storage.close()


@pytest.fixture
def clock() -> WallClock:
    return WallClock()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "store.db")
    yield bench
    for owner in bench.owners:
        await owner.storage.close()
