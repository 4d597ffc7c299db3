"""The files of a SQLite store while it is open: whose they are, and that they stay what they were.

The database file is locked as well as ``<database>.lock``: the one has many names (hard links, bind
mounts), the other may be removed. Either lock alone would let two processes write one database.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from groupkeeper.storage.base import StorageError, StoreRefused
from groupkeeper.storage.file_lock import (
    FileIdentity,
    FileLock,
    LockedFile,
    identity_of,
    lock_for_store,
)

CHECK_EVERY_S: Final = 1.0
"""How long an append may go by what the last check of the files has found."""

_MOUNTS: Final = Path("/proc/self/mountinfo")


class StoreFiles:
    """The locks of a store, and the watch over its files."""

    def __init__(self, path: Path) -> None:
        """Lock the store. Raises StoreRefused where another process has it, under any name, and
        where the database has a second name; StoreBusy where the disk is full.
        """
        self._path = path
        self._wal = path.with_name(path.name + "-wal")
        self._lost = ""
        """What has happened to the files; once it is set, nothing is written any more."""
        self._checked_s = time.monotonic()
        self._lock = FileLock(path)
        try:
            _refuse_lone_wal(path, self._wal)
            self._database = _lock_database(path)
        except BaseException:
            self._lock.release()
            raise
        self._found: dict[Path, FileIdentity] = {
            path: self._database.identity,
            path.with_name(path.name + ".lock"): self._lock.identity,
        }

    def watch_wal(self) -> None:
        """Watch what SQLite has made beside the database as well: it stays until the close."""
        for path in (self._wal, self._path.with_name(self._path.name + "-shm")):
            self._found[path] = identity_of(os.stat(path))

    @property
    def is_lost(self) -> bool:
        """A file was found to be another one, so the store is not closed as a sound one."""
        return bool(self._lost)

    def refuse_if_lost(self) -> None:
        """Raise StoreRefused if any earlier check found that a file was replaced."""
        if self._lost:
            raise StoreRefused(self._lost)

    def check_after_a_second(self, writer: sqlite3.Connection) -> None:
        """Check, unless that was done within the last second."""
        if time.monotonic() - self._checked_s >= CHECK_EVERY_S:
            self.check(writer)

    def check(self, writer: sqlite3.Connection) -> None:
        """Raise StoreRefused if a file is not the one that was opened; later calls raise too."""
        self.refuse_if_lost()
        self._checked_s = time.monotonic()
        for path, identity in self._found.items():
            what = _difference(path, identity)
            if what:
                self._lost = (
                    f"{path}: was {what} while this process used it. Nothing is acknowledged any "
                    f"more. Stop this process, put back {self._path.name} and, if it is there, "
                    f"{self._wal.name}, then start again"
                )
                # What was acknowledged may be in the write-ahead log alone, which may not be where
                # the database is: from now on the database has it, wherever it was moved to.
                with suppress(sqlite3.Error, OSError):
                    writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                    if path == self._wal:
                        self._set_aside_wal()
                raise StoreRefused(self._lost)

    def _set_aside_wal(self) -> None:
        """Rename a write-ahead log that took the place of ours: the next start would apply it, and
        it may be a copy that is older than the database.
        """
        aside = self._wal.with_name(self._wal.name + ".replaced")
        with suppress(FileNotFoundError):  # ours was moved, and nothing is in its place
            os.rename(self._wal, aside)
            self._lost += f"; what was found as {self._wal.name} is {aside.name} from now on"

    def release(self) -> None:
        """Give the locks back, after the last connection that writes was closed."""
        self._database.release()
        self._lock.release()


def _difference(path: Path, identity: FileIdentity) -> str:
    try:
        found = identity_of(os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return "moved or deleted"
    except OSError as error:
        raise StorageError(f"{path}: cannot be looked at: {error.strerror}") from error
    return "" if found == identity else "replaced by another file"


def _refuse_lone_wal(path: Path, wal: Path) -> None:
    """Raise StoreRefused for a write-ahead log without its database: SQLite would delete it, and
    what was acknowledged with it.
    """
    with suppress(FileNotFoundError):
        if os.stat(path).st_size:
            return
    with suppress(FileNotFoundError):
        if os.stat(wal).st_size:
            raise StoreRefused(
                f"{path}: is missing or empty, but its write-ahead log {wal.name} is there: the "
                f"database was moved or deleted. Put it back; to begin with an empty store, "
                f"delete {wal.name}"
            )


def _lock_database(path: Path) -> LockedFile:
    database = lock_for_store(
        path,
        path,
        lambda _: (
            "is in use by another process, under another name or with another .lock file "
            f"(fuser {path} names it)"
        ),
    )
    try:
        _refuse_second_name(path, database.status)
    except BaseException:
        database.release()
        raise
    return database


def _refuse_second_name(path: Path, status: os.stat_result) -> None:
    """Raise StoreRefused where the database can be reached by another name: the write-ahead log has
    its name from the database, so each would have one of its own.
    """
    if status.st_nlink > 1:
        raise StoreRefused(
            f"{path}: has {status.st_nlink} names (hard links), and each would have a write-ahead "
            f"log of its own; delete the others (find -samefile {path} lists them)"
        )
    if _is_mounted(path):
        raise StoreRefused(
            f"{path}: is a mount of a single file, and its write-ahead log would stay outside of "
            "it; mount its directory"
        )


def _is_mounted(path: Path) -> bool:
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return False  # a system without it
    wanted = os.fsencode(path)
    for byte in b"\\ \t\n":  # as the kernel writes them; the backslash first
        wanted = wanted.replace(bytes([byte]), b"\\%03o" % byte)
    return any(line.split()[4:5] == [wanted] for line in lines)
