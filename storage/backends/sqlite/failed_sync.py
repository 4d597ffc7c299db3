"""Handles a disk that fails to sync: ends the use of the store, and repairs it at the next start.

After a failed fsync, Linux counts the pages as written. The next fsync succeeds although they are
not on disk, and reads return them only until the kernel needs their memory. So after a failed sync
this process writes nothing more, and keeps the write-ahead log (WAL). The next start makes SQLite
copy the whole WAL into the database again (docs/decisions/0043-failed-sync.md).
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

from groupkeeper.storage.backends.sqlite.tables import SyncIsOff, connect_reader
from groupkeeper.storage.base import StoreBusy
from groupkeeper.storage.file_lock import (
    FileIdentity,
    ReadConnection,
    cannot_open,
    close_unless_in_use,
    identity_of,
    open_file,
)

_FAILED_SYNC: Final = frozenset({sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC})

_left_open: Final[list[sqlite3.Connection]] = []
"""Connections that stay open until the process ends: usually one for each file."""

_INDEX_HEADER_BYTES: Final = 96
"""The two copies of the header of SQLite's index of the WAL (https://sqlite.org/walformat.html)."""
_WRITE_LOCK_BYTE: Final = 120
"""The byte of the index that a process locks while it writes to the WAL, or builds the index."""


def is_failed_sync(error: BaseException | None) -> bool:
    """Return True for an error of SQLite that says that the disk failed to sync, or that this
    connection does not sync any more.
    """
    return isinstance(error, SyncIsOff) or (
        getattr(error, "sqlite_errorcode", None) in _FAILED_SYNC
    )


def close_without_checkpoint(writer: sqlite3.Connection, path: Path) -> None:
    """Close the writer's connection, and keep the WAL.

    When the last connection is closed, SQLite copies the WAL into the database and deletes it. So a
    read-only connection stays open until the process ends. ``close`` alone would not be enough: the
    writer is really closed when the last cursor is gone, and the traceback of an error may have it.

    A start that waits for room calls this at each retry, so one such connection is enough.
    """
    try:
        if _is_kept_open(path):
            writer.close()
            return
        reader = connect_reader(path, 0)
        reader.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
        _left_open.append(reader)
        writer.close()
    except sqlite3.Error:
        _left_open.append(writer)


def _is_kept_open(path: Path) -> bool:
    """Return True if one of our readers has this file open, and has read it with its WAL."""
    try:
        identity = identity_of(os.stat(path))
    except OSError:
        return False
    return any(
        isinstance(left, ReadConnection) and left.identity == identity for left in _left_open
    )


def read_wal_from_disk(path: Path, identity: FileIdentity) -> None:
    """Make SQLite read the WAL from the disk when it opens the database. ``identity`` is that of
    the database.

    Call this before this process opens the database. Raises StoreBusy if another process writes to
    it, and StorageError if a file cannot be read or written.
    """
    wal, index = (path.with_name(path.name + ending) for ending in ("-wal", "-shm"))
    try:
        with suppress(FileNotFoundError):
            _drop_from_cache(wal)
        with suppress(FileNotFoundError):
            _invalidate_index(index, identity)
    except BlockingIOError as error:
        raise StoreBusy(f"{path}: database is locked by another process") from error
    except OSError as error:
        raise cannot_open(wal, error) from error


def _drop_from_cache(wal: Path) -> None:
    """Let the kernel forget its copy of the WAL. The copy may have pages that never reached the
    disk, after which nothing may be appended.
    """
    descriptor = os.open(wal, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _invalidate_index(index: Path, identity: FileIdentity) -> None:
    """Make SQLite build its index of the WAL again.

    Otherwise it uses an index that another process (``log tail``, a backup) has open. The index may
    say that a page was copied into the database, although it never reached the disk.
    """
    descriptor = open_file(index, identity)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _WRITE_LOCK_BYTE)
        os.pwrite(descriptor, bytes(_INDEX_HEADER_BYTES), 0)
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, _WRITE_LOCK_BYTE)
    finally:
        close_unless_in_use(descriptor, identity)
