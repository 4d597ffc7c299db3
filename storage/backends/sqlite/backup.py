"""Copy a SQLite store while a daemon uses it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from groupkeeper.storage.backends.sqlite.complete import mark_complete, refuse_stale_wal
from groupkeeper.storage.backends.sqlite.tables import connect_reader, refuse_other
from groupkeeper.storage.base import StorageError, StoreRefused
from groupkeeper.storage.sync import sync_path

BUSY_TIMEOUT_S: Final = 5.0
PORTION_PAGES: Final = 4_096


def back_up(path: Path, copy: Path) -> int:
    """Write a consistent copy of a store, and return its size in bytes. The daemon may run during
    this.

    ``copy`` must not exist. It appears when it is complete and on disk. Raises StoreRefused if
    ``path`` is not a store or ``copy`` exists. Raises StorageError if a file cannot be read or
    written, or if the copy is damaged.
    """
    if not path.is_file():
        raise StoreRefused(f"{path}: there is no such file")
    if copy.exists():
        raise StoreRefused(f"{copy}: exists already; name a new file")
    part = copy.with_name(copy.name + ".part")
    try:
        refuse_stale_wal(path)
        part.unlink(missing_ok=True)
        with closing(connect_reader(path, BUSY_TIMEOUT_S)) as source:
            if refuse_other(source, path):
                raise StoreRefused(f"{path}: is empty")
            source.execute("BEGIN")  # the copy is the state of this moment
            source.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
            with closing(sqlite3.connect(part)) as target:
                source.backup(target, pages=PORTION_PAGES)
                found = target.execute("PRAGMA quick_check(1)").fetchall()
        if found != [("ok",)]:
            raise StorageError(f"{path}: its copy is damaged: {found[0][0]}")
        descriptor = os.open(part, os.O_RDWR | os.O_CLOEXEC)
        try:
            mark_complete(descriptor)
        finally:
            os.close(descriptor)
        sync_path(part)
        part.rename(copy)
        sync_path(copy.absolute().parent)
    except (OSError, sqlite3.Error) as error:
        raise StorageError(f"{copy}: the copy failed: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    return copy.stat().st_size
