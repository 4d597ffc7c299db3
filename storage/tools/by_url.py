"""Tools for the store of a URL (as in the setting ``storage.url``): check it, repair it, move it,
and write its events into files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from groupkeeper.storage.base import StoreIdentity, StoreRefused
from groupkeeper.storage.open import (
    JOURNALS,
    KAFKA,
    MEMORY,
    SQLITE,
    journal_driver,
    kafka_place,
    log_store,
    open_storage,
    scheme_of,
    url_error,
    without_password,
)

if TYPE_CHECKING:
    from groupkeeper.storage.tools.check import StoreReport
    from groupkeeper.storage.tools.kept_events import KeptEvents
    from groupkeeper.storage.tools.landing import Landed
    from groupkeeper.storage.tools.move import Moved, MoveTarget


async def check_store(
    url: str,
    identity: StoreIdentity,
    *,
    append_timeout_ms: int,
    lease_ttl_ms: int,
    password: str | None = None,
    measures_writes: bool = False,
) -> StoreReport:
    """Read the whole store of a URL, and measure its speed. Raises StorageError if the store cannot
    be opened. See ``storage.tools.check``. ``lease_ttl_ms`` is ``cluster.lease_ttl_ms`` of the
    daemons.
    """
    from groupkeeper.storage.tools import check

    if problem := url_error(url):
        raise StoreRefused(problem)
    if url.startswith(SQLITE):
        return await check.check_sqlite(Path(url.removeprefix(SQLITE)))
    if scheme_of(url) == KAFKA:
        from groupkeeper.storage.tools.check_kafka_topic import check_kafka_topic

        return await check_kafka_topic(
            kafka_place(url, password),
            identity,
            append_timeout_ms=append_timeout_ms,
            lease_ttl_ms=lease_ttl_ms,
            measures_writes=measures_writes,
        )
    if scheme_of(url) not in JOURNALS:
        raise StoreRefused(f"storage.url: a {scheme_of(url)} store cannot be checked")
    driver = journal_driver(url, append_timeout_ms, lease_ttl_ms, password)
    return await check.check_journal(
        driver, identity, lease_ttl_ms=lease_ttl_ms, measures_writes=measures_writes
    )


async def repair_store(
    url: str,
    identity: StoreIdentity,
    *,
    append_timeout_ms: int,
    lease_ttl_ms: int,
    password: str | None = None,
    applies: bool,
) -> list[str]:
    """Return the faults in the store of a URL, a line each. If ``applies``, also mend them.
    ``lease_ttl_ms`` is ``cluster.lease_ttl_ms`` of the daemons: with a shorter time, a repair could
    treat a daemon that has just started as dead.

    If a process that used the store was killed, wait for ``lease_ttl_ms``, until that process
    counts as dead. Raises StoreRefused if a process uses the store, or if the store has no journal.
    """
    from groupkeeper.storage.tools.repair import repair

    if problem := url_error(url):
        raise StoreRefused(problem)
    if scheme_of(url) not in JOURNALS:
        raise StoreRefused(
            f"storage.url: there is nothing to repair in a {scheme_of(url)} store: interrupted "
            "writes leave nothing behind that a start does not remove"
        )
    driver = journal_driver(url, append_timeout_ms, lease_ttl_ms, password)
    return await repair(driver, identity, applies=applies, lease_ttl_ms=lease_ttl_ms)


async def move_store(  # noqa: PLR0913 - each is a setting
    source: str,
    target: str,
    identity: StoreIdentity,
    *,
    append_timeout_ms: int,
    lease_ttl_ms: int,
    node_id: int = 1,
    password: str | None = None,
    target_password: str | None = None,
    progress: Callable[[int, int], None],
) -> Moved:
    """Copy the groups from the store of one URL to the store of another.

    ``password`` belongs to the user of the source, ``target_password`` to that of the target.
    ``node_id`` is that of the process that has used the source. ``lease_ttl_ms`` is
    ``cluster.lease_ttl_ms`` of the daemons: with a shorter time, a move could treat a running
    daemon as dead. ``progress`` is called with the number of values copied so far, and the number
    of all values to copy.

    Raises StoreRefused if a URL has no backend, or if a process uses one of the stores.
    """
    from groupkeeper.storage.tools.move import move

    _refuse_urls(source, target)
    storage = open_storage(
        source,
        append_timeout_ms=append_timeout_ms,
        lease_ttl_ms=lease_ttl_ms,
        node_id=node_id,
        password=password,
    )
    opening = _opening(target, identity, (append_timeout_ms, lease_ttl_ms), target_password)
    return await move(storage, opening, identity, progress=progress)


def keep_events_of(
    url: str, log_dir: Path, password: str | None = None
) -> Mapping[str, KeptEvents]:
    """Write the events that are only in the store into files. Blocks.

    Return the name of each log, with the place where its events are now. In PostgreSQL, ZooKeeper
    and Consul each node has its own log, in topics of Kafka each shard. Return an empty mapping if
    no event of a store in topics was ever in a file, or if no other process can read the store.
    Raises StorageError if the store cannot be read, and OSError if a file cannot be written.
    """
    from groupkeeper.storage.tools.kept_events import keep_events

    try:
        store = log_store(url, password)
        if not store.has_files:
            return {}
    except StoreRefused:
        return {}
    return {name: keep_events(open_rows, log_dir) for name, open_rows in store.logs().items()}


def land_events_of(
    store: str | Path,
    directory: Path,
    progress: Callable[[str, int], object],
    password: str | None = None,
) -> Landed:
    """Write the events of a store that are in no file in ``directory`` yet. ``store`` is a path or
    a URL, and ``password`` belongs to its user, as for ``log_store``. See
    ``storage.tools.landing``.
    """
    from groupkeeper.storage.tools.landing import land_events

    return land_events(log_store(store, password), directory, progress)


def _refuse_urls(source: str, target: str) -> None:
    """Raise StoreRefused if nothing can move between these URLs."""
    for option, url in (("--from", source), ("--to", target)):
        if problem := url_error(url):
            raise StoreRefused(f"{option}: {problem.removeprefix('storage.url: ')}")
        if url == MEMORY:
            raise StoreRefused(f"{option}: memory: ends with its process; name another store")
    if source == target:
        raise StoreRefused("--to: is the store to move from; name another store")
    if source.startswith(SQLITE) and not Path(source.removeprefix(SQLITE)).exists():
        raise StoreRefused(f"--from: {source.removeprefix(SQLITE)}: there is no such file")


def _opening(
    url: str, identity: StoreIdentity, times_ms: tuple[int, int], password: str | None
) -> AbstractAsyncContextManager[MoveTarget]:
    """Return a context that opens the target of a move. ``times_ms`` are the append timeout and the
    time to live of leases.
    """
    from groupkeeper.storage.tools.move_targets import journal_target, storage_target

    if scheme_of(url) in JOURNALS:
        driver = journal_driver(url, *times_ms, password)
        return journal_target(driver, identity, times_ms[1])
    storage = open_storage(
        url, append_timeout_ms=times_ms[0], lease_ttl_ms=times_ms[1], password=password
    )
    return storage_target(storage, without_password(url), identity)
