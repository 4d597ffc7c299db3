"""Finds out whether SQLite failed because the disk is full. SQLite reports this with several codes.

A write fails with SQLITE_FULL. If SQLite cannot create the write-ahead log or its index, the code
is SQLITE_CANTOPEN or SQLITE_IOERR. One of these codes is also returned if a sync finds no room for
earlier writes.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from groupkeeper.storage.base import StorageError, StoreBusy, StoreRefused
from groupkeeper.storage.file_lock import FULL

_T = TypeVar("_T")

_MAYBE_FULL_CODES: Final = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
"""Primary result codes whose cause may be a full disk."""

_LOCKED_CODES: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL)
"""Primary result codes of a lock that another process holds. SQLITE_PROTOCOL: it holds the lock of
the index of the WAL, so SQLite could not build the index."""

_DAMAGED_CODES: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Primary result codes of failures that retries cannot end."""

PROBE_BYTES: Final = 256 * 1024
"""The size of the test file. A start writes less: an index of 32 KB, and some pages of the WAL."""


def explained(work: Callable[[], _T], path: Path) -> _T:
    """Call ``work`` and return its result. It blocks: after an error it may write a file to find
    out whether the disk is full.

    An error of SQLite is raised as StoreBusy if a retry may help, and as StoreRefused if an
    operator must repair the file. Any other error is raised as StorageError.
    """
    try:
        return work()
    except sqlite3.Error as error:
        # errors that Python's sqlite3 module raises itself have no code
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _LOCKED_CODES:
            raise StoreBusy(f"{path}: {error}") from error
        if code == sqlite3.SQLITE_FULL or (code in _MAYBE_FULL_CODES and is_full(path.parent)):
            raise StoreBusy(f"{path}: the disk is full; make room ({error})") from error
        if is_damage(error):
            raise StoreRefused(
                f"{path}: {error}; restore the last backup: delete {path.name}-wal and "
                f"{path.name}-shm, which belong to the damaged file, and put the copy in its place"
            ) from error
        if code == sqlite3.SQLITE_READONLY:
            raise StorageError(
                f"{path}: {error}; let this user write to it and to its directory"
            ) from error
        raise StorageError(f"{path}: {error}") from error


def is_damage(error: sqlite3.Error) -> bool:
    """Return True for an error of SQLite that says that the file is damaged."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED_CODES


def is_full(directory: Path) -> bool:
    """Return True if the disk, or the user's quota, has no room for a file of a few pages."""
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as probe:
            written = probe.write(bytes(PROBE_BYTES))
            os.fsync(probe.fileno())
    except OSError as error:
        return error.errno in FULL
    return written < PROBE_BYTES
