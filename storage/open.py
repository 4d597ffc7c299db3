"""Create the backend for the setting ``storage.url``. Only that backend is imported."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from groupkeeper.storage.base import OffsetStorage, StoreRefused
from groupkeeper.storage.event_log.log_clock import wall_clock_ms
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.source import OpenRows, SealableStorage
from groupkeeper.storage.segment_lines import EventDict

if TYPE_CHECKING:
    from groupkeeper.storage.event_log.reader import Asked

_MEMORY = "memory:"
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
    """Create the backend of a URL. The caller still has to open it.

    ``seal`` has the settings of sealing; without it all events stay in the store. With
    ``seal_in_process`` a thread of this process seals. Otherwise a separate process seals a store
    on disk.

    ``sqlite:///PATH`` is relative to the working directory, ``sqlite:////PATH`` is absolute. Raises
    StoreRefused with a message of one line if the URL has no backend.
    """
    store = _store(url, append_timeout_ms, clock)
    if seal is None:
        return store
    from groupkeeper.storage.event_log.sealing.storage import SealedStorage

    return SealedStorage(store, seal, clock=clock, in_process=seal_in_process)


def _store(url: str, append_timeout_ms: int, clock: Callable[[], int]) -> SealableStorage:
    if problem := url_error(url):
        raise StoreRefused(problem)
    if url == _MEMORY:
        from groupkeeper.storage.backends.memory import MemoryOffsetStorage

        return MemoryOffsetStorage(clock=clock)
    from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage

    path = url.removeprefix(_SQLITE)
    return SqliteOffsetStorage(path, append_timeout_ms=append_timeout_ms, clock=clock)


def rows_of(store: str | Path) -> OpenRows:
    """Return a function that opens the rows of a store, even while another process uses the store.

    ``store`` is a path, or a URL as in ``storage.url``. Raises StoreRefused for a URL whose rows no
    other process can read.
    """
    url = f"{_SQLITE}{store}" if isinstance(store, Path) or ":" not in store else store
    if problem := url_error(url):
        raise StoreRefused(problem)
    if url == _MEMORY:
        raise StoreRefused(f"{url} keeps no log that can be read from here")
    from groupkeeper.storage.backends.sqlite.rows import SqliteRows

    return partial(SqliteRows, Path(url.removeprefix(_SQLITE)))


def read_events(
    store: str | Path, after_seq: int = 0, **asked: Unpack[Asked]
) -> Generator[EventDict, None, None]:
    """Yield the events of a store above a seq, oldest first, from one consistent view. Blocks.

    Any process of the same user may call this at any time. ``storage.event_log.reader.read_events``
    describes the other arguments and the errors.
    """
    from groupkeeper.storage.event_log import reader

    return reader.read_events(rows_of(store), after_seq, **asked)


def url_error(url: str) -> str | None:
    """Return why a URL has no backend. Return None if it has one."""
    if url == _MEMORY or (url.startswith(_SQLITE) and len(url) > len(_SQLITE)):
        return None
    known = "use sqlite:///PATH or memory:"
    scheme = url.partition(":")[0]
    if scheme in _NOT_YET:
        return f"storage.url: {scheme} storage does not exist yet; {known}"
    return f"storage.url: {url!r} names no storage; {known}"
