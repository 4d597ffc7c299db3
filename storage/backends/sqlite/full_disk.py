"""Whether SQLite failed because the disk is full, which it tells under several names.

A write that finds no room is SQLITE_FULL. But a write-ahead log or its index that cannot be made is
SQLITE_CANTOPEN or SQLITE_IOERR, and so is a sync that finds no room for what was written before.
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

_BUSY_CODES: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL)
"""Primary result codes of what goes by without us."""
_MAYBE_FULL_CODES: Final = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)

_DAMAGED_CODES: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Primary result codes of what trying again does not mend."""

PROBE_BYTES: Final = 256 * 1024
"""More than what a start makes: an index of 32 KB, and a write-ahead log of some pages."""


def explained(work: Callable[[], _T], path: Path) -> _T:
    """Do it; what SQLite raises becomes StoreBusy where trying again helps, StoreRefused where a
    person has to mend the file, else StorageError.

    Blocks: it may have to try whether there is room.
    """
    try:
        return work()
    except sqlite3.Error as error:
        # errors of Python's own module have no code
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _BUSY_CODES:
            raise StoreBusy(f"{path}: {error}") from error
        if code in _MAYBE_FULL_CODES and is_full(path.parent):
            raise StoreBusy(f"{path}: {error}: the disk is full; make room") from error
        if code in _DAMAGED_CODES:
            raise StoreRefused(f"{path}: {error}; restore the last backup") from error
        raise StorageError(f"{path}: {error}") from error


def is_full(directory: Path) -> bool:
    """Tell whether a file of a few pages finds no room, or the quota does not allow it."""
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as probe:
            written = probe.write(bytes(PROBE_BYTES))
            os.fsync(probe.fileno())
    except OSError as error:
        return error.errno in FULL
    return written < PROBE_BYTES
