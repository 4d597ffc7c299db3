"""Create the backend for the setting ``storage.url``. Only that backend is imported.

An installed package may add backends, by an entry point of the group ``groupkeeper.storage``
(docs/how-to/add-a-backend.md#packages).

This file is long because each backend has a few lines here that import it.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack
from urllib.parse import urlsplit

from groupkeeper.storage.base import OffsetStorage, StorageError, StoreRefused
from groupkeeper.storage.event_log.log_clock import wall_clock_ms
from groupkeeper.storage.event_log.sealing.sealer import FOR_EVER, SealSettings
from groupkeeper.storage.event_log.source import OpenRows, SealableStorage
from groupkeeper.storage.installing import how_to_install
from groupkeeper.storage.leases.lives import DEFAULT_LEASE_TTL_MS
from groupkeeper.storage.segment_lines import EventDict

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from groupkeeper.storage.backends.journal.driver import JournalDriver
    from groupkeeper.storage.backends.kafka_topic.url import KafkaTopicUrl
    from groupkeeper.storage.event_log.reader import Asked
    from groupkeeper.storage.event_log.several_logs import LogStore

ENTRY_POINTS: Final = "groupkeeper.storage"
"""The group of entry points by which other packages add backends. The name of an entry point is the
scheme of its URLs. Its function is called with the URL, ``append_timeout_ms`` and ``clock``. It
returns an OffsetStorage."""

MEMORY: Final = "memory:"
"""The URL of a store in memory. Its content is lost when the process ends."""
SQLITE: Final = "sqlite:///"
"""The beginning of the URL of a SQLite file."""
_POSTGRES = ("postgresql", "postgres")
_ZOOKEEPER = "zookeeper"
_CONSUL = "consul"
KAFKA: Final = "kafka"
"""The scheme of a store in topics of Kafka."""
_NO_DATABASE = "storage.url: use postgresql://USER@HOST/DATABASE?schema=SCHEMA"
JOURNALS: Final = (*_POSTGRES, _ZOOKEEPER, _CONSUL)
"""The schemes of stores with a journal (``storage.backends.journal``)."""
READ_TIMEOUT_MS: Final = 10_000
"""The time limit of a call that reads events. A reader may wait longer than a commit."""
_MASKED_PARAMETER: Final = r"(?i)(?<=[?&])(\w*(?:pass|pwd|token|secret)\w*=)[^&#]*"
_BACKENDS: Final = "groupkeeper.storage.backends"
_IMPORTED_FIRST: Final = {
    **dict.fromkeys(_POSTGRES, (f"{_BACKENDS}.postgres.driver", f"{_BACKENDS}.journal.store")),
    _ZOOKEEPER: (f"{_BACKENDS}.zookeeper.driver", f"{_BACKENDS}.journal.store"),
    _CONSUL: (f"{_BACKENDS}.consul.driver", f"{_BACKENDS}.journal.store", "httpcore2"),
    KAFKA: (f"{_BACKENDS}.kafka_topic.store",),
}
"""Maps a scheme to the modules that ``import_backend`` imports. They import the libraries that a
store on a server needs."""
_OURS = ("memory", "sqlite", *JOURNALS, KAFKA)
"""The schemes of our own backends. No package can replace them."""


def open_storage(  # noqa: PLR0913 - each is a setting
    url: str,
    *,
    append_timeout_ms: int,
    clock: Callable[[], int] = wall_clock_ms,
    seal: SealSettings | None = None,
    seal_in_process: bool = True,
    seal_if_possible: bool = False,
    node_id: int = 1,
    lease_ttl_ms: int = DEFAULT_LEASE_TTL_MS,
    password: str | None = None,
) -> OffsetStorage:
    """Create the backend of a URL. The caller still has to open it.

    ``append_timeout_ms`` limits each append. ``clock`` returns wall-clock milliseconds.

    To seal is to move old events from the store into files. ``seal`` has the settings for this.
    Without it, all events stay in the store. With ``seal_in_process`` a thread of this process
    seals. Otherwise a separate process seals a store on disk.

    Only a store that gives access to its events (``SealableStorage``) can be sealed. Any other
    store is refused, unless ``seal_if_possible`` is True. Then its events stay in the store. With
    ``seal_if_possible`` the events of PostgreSQL and Kafka stay there, where users can query them.

    ``node_id`` and ``lease_ttl_ms`` are for stores on a server: the id of this process, and the
    time after which another process may end its leases. ``password`` belongs to the user in the
    URL. Without it, the password comes from the environment or from the URL.

    ``sqlite:///PATH`` is relative to the working directory, ``sqlite:////PATH`` is absolute. Raises
    StoreRefused with a message of one line if the URL has no backend.
    """
    if problem := url_error(url):
        raise StoreRefused(problem)
    keeps_events = False
    if scheme_of(url) in JOURNALS:
        driver = journal_driver(url, append_timeout_ms, lease_ttl_ms, password)
        keeps_events = driver.keeps_events
        kept_ms = FOR_EVER if seal is None else seal.retention_ms
        store = _journal_store(driver, clock, node_id, lease_ttl_ms, kept_ms)
    elif scheme_of(url) == KAFKA:
        kept_ms = FOR_EVER if seal is None else seal.retention_ms
        place = kafka_place(url, password)
        keeps_events = True
        store = _kafka_store(place, clock, append_timeout_ms, lease_ttl_ms, node_id, kept_ms)
    else:
        store = _store(url, append_timeout_ms, clock)
    if seal is None or (seal_if_possible and keeps_events):
        return store
    from groupkeeper.storage.event_log.sealing.storage import SealedStorage

    if not isinstance(store, SealableStorage):
        if seal_if_possible:
            return store
        raise StoreRefused(
            f"storage.url: the events of {scheme_of(url)} storage cannot be sealed: set "
            'log.sealing to "auto"'
        )
    return SealedStorage(store, seal, clock=clock, in_process=seal_in_process)


def _store(url: str, append_timeout_ms: int, clock: Callable[[], int]) -> OffsetStorage:
    if added := _entry_points(url):
        return _added_store(added[0], url, append_timeout_ms, clock)
    if url == MEMORY:
        from groupkeeper.storage.backends.memory import MemoryOffsetStorage

        return MemoryOffsetStorage(clock=clock)
    from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage

    path = url.removeprefix(SQLITE)
    return SqliteOffsetStorage(path, append_timeout_ms=append_timeout_ms, clock=clock)


def import_backend(url: str) -> None:
    """Import the libraries of the backend of a URL. This takes up to 0.2 s, so a process calls it
    before its loop runs. A missing library is ignored here, and ``open_storage`` reports it.
    """
    for module in _IMPORTED_FIRST.get(scheme_of(url), ()):
        with suppress(ImportError):
            import_module(module)


def journal_driver(
    url: str, append_timeout_ms: int, lease_ttl_ms: int, password: str | None = None
) -> JournalDriver:
    """Return the driver of a store with a journal, without a connection. Raises StoreRefused if a
    setting is not valid, or if a package is not installed.
    """
    if scheme_of(url) == _ZOOKEEPER:
        _require("kazoo", _ZOOKEEPER)
        from groupkeeper.storage.backends.zookeeper import url as zookeeper_url
        from groupkeeper.storage.backends.zookeeper.driver import ZooKeeperDriver

        try:
            own = {} if password is None else {zookeeper_url.PASSWORD_VARIABLE: password}
            place = zookeeper_url.parse_url(url, {**os.environ, **own})
            return ZooKeeperDriver(
                place, append_timeout_ms=append_timeout_ms, lease_ttl_ms=lease_ttl_ms
            )
        except ValueError as error:  # a setting of the connection is not valid
            raise StoreRefused(f"storage.url: {error}") from error
    if scheme_of(url) == _CONSUL:
        return _consul_driver(url, append_timeout_ms, lease_ttl_ms, password)
    _require("asyncpg", "postgres")
    from groupkeeper.storage.backends.postgres.driver import PostgresDriver
    from groupkeeper.storage.backends.postgres.url import parse_url

    return PostgresDriver(
        parse_url(url, password), append_timeout_ms=append_timeout_ms, lease_ttl_ms=lease_ttl_ms
    )


def _consul_driver(
    url: str, append_timeout_ms: int, lease_ttl_ms: int, token: str | None
) -> JournalDriver:
    _require("httpx2", _CONSUL)
    from groupkeeper.storage.backends.consul import url as consul_url
    from groupkeeper.storage.backends.consul.driver import ConsulDriver

    own = {} if token is None else {consul_url.TOKEN_VARIABLE: token}
    try:
        place = consul_url.parse_url(url, {**os.environ, **own})
        return ConsulDriver(place, append_timeout_ms=append_timeout_ms, lease_ttl_ms=lease_ttl_ms)
    except ValueError as error:  # a setting of the connection is not valid
        raise StoreRefused(f"storage.url: {error}") from error


def _require(package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise StoreRefused(f"storage.url: {package} is not installed; run: {how_to_install(extra)}")


def _journal_store(
    driver: JournalDriver, clock: Callable[[], int], node_id: int, lease_ttl_ms: int, kept_ms: int
) -> OffsetStorage:
    """Return a store on a server. Its events stay there for ``kept_ms``, if there is room."""
    from groupkeeper.storage.backends.journal.store import JournalStorage

    return JournalStorage(
        driver,
        node_id=node_id,
        name=_process_name(),
        lease_ttl_ms=lease_ttl_ms,
        retention_ms=kept_ms,
        clock=clock,
    )


def kafka_place(url: str, password: str | None) -> KafkaTopicUrl:
    """Return the address of a store in topics. Raises StoreRefused if its password is missing."""
    from groupkeeper.storage.backends.kafka_topic import url as kafka_url

    given = {} if password is None else {kafka_url.PASSWORD_VARIABLE: password}
    try:
        return kafka_url.parse_url(url, {**os.environ, **given})
    except ValueError as error:  # the password is missing
        raise StoreRefused(f"storage.url: {error}") from error


def _kafka_store(
    place: KafkaTopicUrl,
    clock: Callable[[], int],
    append_timeout_ms: int,
    lease_ttl_ms: int,
    node_id: int,
    kept_ms: int,
) -> OffsetStorage:
    """Return a store in topics of Kafka. Its events stay there for ``kept_ms``."""
    from groupkeeper.storage.backends.kafka_topic.store import KafkaTopicStorage

    return KafkaTopicStorage(
        place,
        node_id=node_id,
        name=_process_name(),
        append_timeout_ms=append_timeout_ms,
        lease_ttl_ms=lease_ttl_ms,
        retention_ms=kept_ms,
        clock=clock,
    )


def _process_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _added_store(
    added: EntryPoint, url: str, append_timeout_ms: int, clock: Callable[[], int]
) -> OffsetStorage:
    """Call the function of another package, and return its store.

    Raises StoreRefused if the function returns no store. A StorageError of the function is raised
    unchanged, any other error as StoreRefused.
    """
    try:
        store = added.load()(url, append_timeout_ms=append_timeout_ms, clock=clock)
    except StorageError:
        raise
    except Exception as error:  # the other package may raise anything
        raise StoreRefused(
            f"storage.url: {scheme_of(url)} storage, which {added.value} adds, fails: {error!r}"
        ) from error
    if not isinstance(store, OffsetStorage):
        raise StoreRefused(
            f"storage.url: {added.value} returned a {type(store).__name__}, which is no "
            "OffsetStorage (groupkeeper.storage.base)"
        )
    return store


def log_store(
    store: str | Path, password: str | None = None, group_id: str | None = None
) -> LogStore:
    """Return an object that reads the event logs of a store. It does not connect yet.

    Other processes may use the store. With ``group_id``, a store in topics returns only the log
    that may have events of this group.

    ``store`` is a path, or a URL as in ``storage.url``. ``password`` belongs to the user in the
    URL, as for ``open_storage``. Raises StoreRefused for a URL whose events no other process can
    read.
    """
    if isinstance(store, str) and scheme_of(store) in (*JOURNALS, KAFKA):
        if problem := url_error(store):
            raise StoreRefused(problem)
        if scheme_of(store) == KAFKA:
            from groupkeeper.storage.backends.kafka_topic.log_rows import TopicLogs

            return TopicLogs(kafka_place(store, password), READ_TIMEOUT_MS, group_id)
        from groupkeeper.storage.backends.journal.read_store import NodeLogs

        return NodeLogs(
            partial(journal_driver, store, READ_TIMEOUT_MS, DEFAULT_LEASE_TTL_MS, password)
        )
    from groupkeeper.storage.event_log.several_logs import OneLog

    return OneLog(rows_of(store, password))


def rows_of(store: str | Path, password: str | None = None) -> OpenRows:
    """Return a function that opens the event log of a SQLite file, as rows. ``store`` and
    ``password`` are as for ``log_store``. Raises StoreRefused for any other store.
    """
    url = f"{SQLITE}{store}" if isinstance(store, Path) or ":" not in store else store
    if problem := url_error(url):
        raise StoreRefused(problem)
    if not url.startswith(SQLITE):
        raise StoreRefused(f"{scheme_of(url)}: keeps no log that can be read from here")
    from groupkeeper.storage.backends.sqlite.rows import SqliteRows

    return partial(SqliteRows, Path(url.removeprefix(SQLITE)))


def read_events(
    store: str | Path,
    after_seq: int | Mapping[str, int] = 0,
    password: str | None = None,
    **asked: Unpack[Asked],
) -> Generator[EventDict, None, None]:
    """Yield the events of a store above a sequence number, oldest first. Events that are written
    after the call has begun may be missing. Blocks.

    Some stores have several logs, each with sequence numbers of its own. In PostgreSQL, ZooKeeper
    and Consul each node has a log: ``after_seq`` is then ``{"1": 17, "2": 3}``, by node id. In
    topics of Kafka each shard has a log, and one more has the name ``cluster``: ``{"0": 17,
    "cluster": 3}``. If there is only one log to read, one number is enough. This is so if only one
    node has used the store. In topics of Kafka it is so if ``group_id`` is given, because then only
    the log of that group's shard is read. Raises ValueError if one number is not enough.

    Any process of the same user may call this at any time. ``store`` and ``password`` are as for
    ``log_store``. ``storage.event_log.reader.read_events`` describes the other arguments and the
    errors.
    """
    from groupkeeper.storage.event_log.several_logs import read_logs

    logs = log_store(store, password, asked.get("group_id")).logs()
    if isinstance(after_seq, int):
        if after_seq and len(logs) > 1:
            names = ", ".join(logs)
            raise ValueError(f"after_seq: this store has a number for each of {names}: name them")
        after_seq = dict.fromkeys(logs, after_seq)
    return read_logs(logs, after_seq, **asked)


def url_error(url: str) -> str | None:
    """Return the reason why a URL has no backend; None if it has one."""
    if url == MEMORY or (url.startswith(SQLITE) and _names_file(url.removeprefix(SQLITE))):
        return None
    if scheme_of(url) in _POSTGRES:
        return _postgres_error(url)
    if scheme_of(url) == _ZOOKEEPER:
        return _zookeeper_error(url)
    if scheme_of(url) == _CONSUL:
        return _consul_error(url)
    if scheme_of(url) == KAFKA:
        return _kafka_error(url)
    added = _entry_points(url)
    if len(added) == 1:
        return None
    if added:
        names = ", ".join(sorted(each.value for each in added))
        return f"storage.url: several packages add {scheme_of(url)} storage ({names}): remove one"
    known = (
        "use sqlite:///PATH, postgresql://HOST/DATABASE, zookeeper://HOST:PORT, "
        "consul://HOST:PORT, kafka://HOST:PORT/TOPIC or memory:"
    )
    return f"storage.url: {_without_user(url)!r} names no storage; {known}"


def _names_file(path: str) -> bool:
    return bool(Path(path).name) and "\0" not in path


def without_password(url: str) -> str:
    """Return a URL for messages, with *** instead of its password."""
    shown = re.sub(_MASKED_PARAMETER, r"\1***", url)
    head, at, rest = shown.partition("://")[2].rpartition("@")
    user, colon, _ = head.partition(":")
    return f"{scheme_of(url)}://{user}:***@{rest}" if at and colon else shown


def _without_user(url: str) -> str:
    """Return a URL of unknown form for messages. Everything before an @ may be a password."""
    shown = re.sub(_MASKED_PARAMETER, r"\1***", url)
    scheme, colon, rest = shown.partition(":")
    user, at, place = rest.rpartition("@")
    slashes = "//" if user.startswith("//") else ""
    return f"{scheme}{colon}{slashes}***@{place}" if at else shown


def _postgres_error(url: str) -> str | None:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        return f"storage.url: {error}"
    return None if "://" in url and parts.path.strip("/") else _NO_DATABASE


def _zookeeper_error(url: str) -> str | None:
    from groupkeeper.storage.backends.zookeeper.url import parse_url  # late: rarely needed

    try:
        parse_url(url, os.environ)
    except ValueError as error:
        return f"storage.url: {error}"
    return None


def _consul_error(url: str) -> str | None:
    from groupkeeper.storage.backends.consul.url import parse_url  # late: rarely needed

    try:
        parse_url(url, os.environ)
    except ValueError as error:
        return f"storage.url: {error}"
    return None


def _kafka_error(url: str) -> str | None:
    from groupkeeper.storage.backends.kafka_topic import url as kafka_url  # late: rarely needed

    try:
        # the password may come later, from storage.password_file
        kafka_url.parse_url(url, {kafka_url.PASSWORD_VARIABLE: "any"})
    except ValueError as error:
        return f"storage.url: {error}"
    return None


def scheme_of(url: str) -> str:
    """Return the part of a URL before its first colon."""
    return url.partition(":")[0]


def _entry_points(url: str) -> list[EntryPoint]:
    """Return the entry points of other packages for the scheme of a URL."""
    scheme = scheme_of(url)
    if ":" not in url or scheme in _OURS:
        return []
    # The process that seals needs no entry points, and this module would take 2 MiB of its memory.
    from importlib.metadata import entry_points

    return list(entry_points(group=ENTRY_POINTS, name=scheme))
