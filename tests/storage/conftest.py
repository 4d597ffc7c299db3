"""The backends that the contract is held against."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from groupkeeper import read_events
from groupkeeper.storage.backends.journal.read_store import NodeLogs
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.backends.kafka_topic.store import KafkaTopicStorage
from groupkeeper.storage.backends.kafka_topic.url import parse_url
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import OffsetStorage
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.sealing.storage import SealedStorage
from groupkeeper.storage.event_log.several_logs import read_logs
from groupkeeper.storage.segment_lines import EventDict
from tests.helpers.clients.ecosystem import Unavailable
from tests.helpers.clients.real_consul import RealConsul
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.clients.real_zookeeper import RealZooKeeper
from tests.helpers.storage.fake_driver import FakeDriver, FakeServer
from tests.helpers.storage.fake_kafka import FakeAdmin, FakeKafka, FakeLink
from tests.helpers.storage.kafka_access import KafkaAccess
from tests.helpers.storage.kafka_topic_site import STORE_SETTINGS, KafkaTopicSite
from tests.helpers.storage.real_postgres import RealPostgres, programs
from tests.helpers.storage.sqlite_bench import Bench
from tests.helpers.storage.storage_owner import IDENTITY, Owner

SERVERS = ("postgres", "zookeeper", "consul", "kafka_topic")
"""The marks of the tests that need a server."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print for each server how its tests ended, with those that were skipped."""
    for server in SERVERS:
        counts = {
            outcome: sum(
                server in report.keywords and "tests/storage/" in report.nodeid
                for report in terminalreporter.getreports(outcome)
            )
            for outcome in ("passed", "failed", "error", "skipped")
        }
        if any(counts.values()):
            shown = [f"{count} {outcome}" for outcome, count in counts.items() if count]
            terminalreporter.write_line(f"{server}: {', '.join(shown)}")


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
    has_log_a_shard: bool = False
    """True: each shard has a log of its own. Otherwise the store has one."""
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


def sealed_journal_store(tmp_path: Path) -> Store:
    """A store over a fake server that deletes each event when it is in a file."""
    clock = WallClock()
    server = FakeServer()
    settings = SealSettings(directory=tmp_path / "log", segment_bytes=1)

    def make() -> SealedStorage:
        driver = FakeDriver(server)
        plain = JournalStorage(driver, node_id=1, name="test:1", lease_ttl_ms=200, clock=clock)
        return SealedStorage(plain, settings, clock=clock, poll_s=0.001)

    def events() -> list[EventDict]:
        return [*read_logs(NodeLogs(lambda: FakeDriver(server)).logs())]

    return Store(make=make, events=events, clock=clock)


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


@pytest.fixture(scope="session")
def kafka_access(tmp_path_factory: pytest.TempPathFactory) -> KafkaAccess:
    """The listeners of our Kafka for SASL and TLS."""
    return KafkaAccess(tmp_path_factory.mktemp("access"))


@pytest.fixture(scope="session")
def kafka(
    tmp_path_factory: pytest.TempPathFactory, kafka_access: KafkaAccess
) -> Iterator[RealKafka]:
    """An Apache Kafka of our own."""
    server = RealKafka(tmp_path_factory.mktemp("kafka"), {}, STORE_SETTINGS)
    server.settings |= kafka_access.settings(server.port)
    try:
        yield server.start()
    finally:
        server.stop()


def fake_kafka_store() -> Store:
    """A store in topics of a fake cluster."""
    clock, cluster = WallClock(), FakeKafka()
    url = parse_url("kafka://127.0.0.1:1/store", {})

    def make() -> KafkaTopicStorage:
        return KafkaTopicStorage(
            url,
            node_id=1,
            name="test:1",
            append_timeout_ms=1_000,
            lease_ttl_ms=200,
            clock=clock,
            connect=lambda *_: FakeLink(cluster),  # type: ignore[arg-type, return-value]
            admin=FakeAdmin,  # type: ignore[arg-type]
        )

    return Store(
        make=make,
        events=lambda: cluster.events(url.events_topic, IDENTITY.shards + 1),
        clock=clock,
        has_log_a_shard=True,
    )


def kafka_store(server: RealKafka, topic: str) -> Store:
    site = KafkaTopicSite(server, topic)
    clock = WallClock()
    return Store(
        make=lambda: site.storage(ttl_ms=1_000, clock=clock),
        events=site.events,
        clock=clock,
        has_log_a_shard=True,
    )


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        "sqlite-folding-always",
        "memory-sealed",
        "sqlite-sealed",
        "journal",
        "journal-sealed",
        "fake-kafka-topic",
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("zookeeper", marks=pytest.mark.zookeeper),
        pytest.param("consul", marks=pytest.mark.consul),
        pytest.param("kafka-topic", marks=pytest.mark.kafka_topic),
    ]
)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    match request.param:
        case "postgres":
            server = request.getfixturevalue("postgres")
            store = postgres_store(server, f"s{uuid.uuid4().hex}")
        case "zookeeper":
            server = request.getfixturevalue("zookeeper")
            store = zookeeper_store(server, f"/s{uuid.uuid4().hex}")
        case "consul":
            server = request.getfixturevalue("consul")
            store = consul_store(server, f"s{uuid.uuid4().hex}")
        case "kafka-topic":
            store = kafka_store(request.getfixturevalue("kafka"), f"s{uuid.uuid4().hex}")
        case name:
            store = WITHOUT_SERVER[name](tmp_path)
    yield store
    for storage in store.opened:
        await storage.close()


WITHOUT_SERVER: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: memory_store(),
    "sqlite": lambda path: sqlite_store(path, fold_after=50_000),
    "sqlite-folding-always": lambda path: sqlite_store(path, fold_after=0),
    "memory-sealed": sealed_memory_store,
    "sqlite-sealed": sealed_sqlite_store,
    "journal": lambda _: journal_store(),
    "journal-sealed": sealed_journal_store,
    "fake-kafka-topic": lambda _: fake_kafka_store(),
}


@pytest.fixture
def clock() -> WallClock:
    return WallClock()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "store.db")
    yield bench
    for owner in bench.owners:
        await owner.storage.close()
