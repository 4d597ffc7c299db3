"""From the setting ``storage.url`` to a backend, which is imported when it is named."""

from __future__ import annotations

from collections.abc import Callable

from groupkeeper.storage.base import OffsetStorage, StoreRefused
from groupkeeper.storage.event_log.clock import wall_clock_ms
from groupkeeper.storage.event_log.sealing import SealSettings

_SQLITE = "sqlite:///"
_NOT_YET = ("postgresql", "zookeeper", "consul", "kafka")


def open_storage(
    url: str,
    *,
    append_timeout_ms: int,
    clock: Callable[[], int] = wall_clock_ms,
    seal: SealSettings | None = None,
    seal_in_process: bool = True,
) -> OffsetStorage:
    """Make the backend that the URL names; it still has to be opened. ``seal`` says what becomes of
    its events; without it they stay in the store. Not ``seal_in_process``: a store on disk has them
    sealed by a process of its own.

    ``sqlite:///PATH`` is relative to the working directory, ``sqlite:////PATH`` is absolute. Raises
    StoreRefused, in one line, for a URL that names none.
    """
    if url == "memory:":
        if seal is not None:
            from groupkeeper.storage.backends.sealed_memory import SealedMemoryStorage

            return SealedMemoryStorage(seal, clock=clock)
        from groupkeeper.storage.backends.memory import MemoryOffsetStorage

        return MemoryOffsetStorage(clock=clock)
    if url.startswith(_SQLITE) and len(url) > len(_SQLITE):
        path = url[len(_SQLITE) :]
        if seal is not None:
            from groupkeeper.storage.backends.sqlite.sealed import SealedSqliteStorage

            return SealedSqliteStorage(
                path,
                seal,
                in_process=seal_in_process,
                append_timeout_ms=append_timeout_ms,
                clock=clock,
            )
        from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage

        return SqliteOffsetStorage(path, append_timeout_ms=append_timeout_ms, clock=clock)
    raise StoreRefused(url_error(url))


def url_error(url: str) -> str | None:
    """Say why no backend has this URL; None where one has."""
    if url == "memory:" or (url.startswith(_SQLITE) and len(url) > len(_SQLITE)):
        return None
    known = "use sqlite:///PATH or memory:"
    scheme = url.partition(":")[0]
    if scheme in _NOT_YET:
        return f"storage.url: {scheme} storage does not exist yet; {known}"
    return f"storage.url: {url!r} names no storage; {known}"
