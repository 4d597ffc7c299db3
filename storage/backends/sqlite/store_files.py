"""Locks the files of an open SQLite store, and checks that nobody replaces them.

Both the database file and ``<database>.lock`` are locked. The database may have several names (hard
links, bind mounts), and the lock file may be deleted. With only one of the locks, two processes
could write one database.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from groupkeeper.storage.backends.sqlite import complete
from groupkeeper.storage.backends.sqlite.cut_log import is_cut
from groupkeeper.storage.backends.sqlite.failed_sync import read_wal_from_disk
from groupkeeper.storage.backends.sqlite.tables import MIGRATIONS, file_bytes, refuse_newer_version
from groupkeeper.storage.base import StorageError, StoreBusy, StoreGivenUp, StoreRefused
from groupkeeper.storage.file_lock import (
    FULL,
    FileIdentity,
    FileLock,
    LockedFile,
    cannot_open,
    close_unless_in_use,
    identity_of,
    is_locked_by_other,
    lock_for_store,
    open_file,
)
from groupkeeper.storage.sync import sync_path

CHECK_EVERY_S: Final = 1.0
"""An append checks the files if the last check or the last append is at least this time ago."""

_LOCKS_OF_DATABASE: Final = (0x40000000, 512)
"""The first byte and the number of the bytes that SQLite locks in a database. A connection with a
write-ahead log has a lock there as long as it is open (https://sqlite.org/walformat.html)."""
_LOCKS_OF_INDEX: Final = (120, 9)
"""The same for SQLite's index of the write-ahead log."""

_MOUNTS: Final = Path("/proc/self/mountinfo")

_log = structlog.get_logger(__name__)


def check_directory(path: Path) -> None:
    """Raise StorageError if the directory of a database is missing, if this user may not look into
    the directories above it, or if the database is a symbolic link to itself.
    """
    try:
        if not path.parent.is_dir():  # a missing directory is no error here
            raise StorageError(f"{path}: the directory does not exist")
        with suppress(FileNotFoundError):
            os.stat(path)
    except OSError as error:
        raise cannot_open(path, error) from error


class StoreFiles:
    """The locks of a store, and the checks that its files are not replaced."""

    def __init__(self, path: Path, name: Path | None = None) -> None:
        """Lock the store. ``name`` is the name in the settings: it or a directory above it may be a
        symbolic link, and ``path`` may not.

        Raises StoreRefused if another process uses it under any name, or if the database has a
        second name. Raises StoreBusy if the disk is full.
        """
        self._path = path
        self._name = name or path
        self._wal = path.with_name(path.name + "-wal")
        self._index = path.with_name(path.name + "-shm")
        self._lost = ""
        """The message of the first failed check, sync or checkpoint; "" until then. After it
        nothing is written any more."""
        self._has_failed_sync = False
        self._checked_s = self._appended_s = time.monotonic()
        self._lock = FileLock(path)
        try:
            _refuse_lone_wal(path, self._wal)
            self._database = _lock_database(path)
            self.found_wal = self._wal.exists()
            """True if an earlier process has left a write-ahead log."""
        except BaseException:
            self._lock.release()
            raise
        self._found: dict[Path, FileIdentity] = {
            path: self._database.identity,
            self._name: self._database.identity,
            path.with_name(path.name + ".lock"): self._lock.identity,
        }
        self._bytes = self._database.status.st_size
        """The largest known size of the database. Only a VACUUM shrinks it, and we execute none."""
        self._has_other_content = self._is_log_cut = False

    def begin(self) -> None:
        """Rename a write-ahead log that belongs to another file of this name, and remove the mark
        that the database is complete (``complete``).

        Call this before SQLite opens the database. It may block for a sync. Raises StorageError,
        and its subclass StoreBusy while another process uses that log.
        """
        descriptor = self._database.descriptor
        try:
            os.fsync(descriptor)
            is_complete = complete.is_complete(descriptor)
            if is_complete:
                version = complete.schema_version(descriptor) - complete.COMPLETE
                refuse_newer_version(version, self._path, len(MIGRATIONS))
            is_stale = is_complete and file_bytes(self._wal) > 0
            self._refuse_user_of_other_file(is_stale)
            if is_stale:
                aside = complete.unused_name(self._wal, ".stale")
                os.rename(self._wal, aside)
                self._sync_directory()  # before the mark is removed
                _log.warning("wal_set_aside", path=str(self._wal), renamed_to=aside.name)
            complete.unmark(descriptor)
        except OSError as error:
            raise cannot_open(Path(error.filename or self._path), error) from error

    def _refuse_user_of_other_file(self, is_stale: bool) -> None:
        """Raise StoreBusy if another process, like a shell of an operator, still uses the files of
        a database that this one has replaced. ``is_stale`` is True if the write-ahead log belongs
        to that database.

        Such a process would continue to use SQLite's index, and the log that is renamed. When it
        ends, it would copy that log into this database, and delete the log of this process.
        """
        uses_file = is_locked_by_other(self._database.descriptor, *_LOCKS_OF_DATABASE)
        uses_index = False
        with suppress(FileNotFoundError):
            index = open_file(self._index, self._database.identity)
            try:
                uses_index = is_locked_by_other(index, *_LOCKS_OF_INDEX)
            finally:
                close_unless_in_use(index, self._database.identity)
        # SQLite locks the database before its index, and longer.
        if (is_stale and (uses_file or uses_index)) or (uses_index and not uses_file):
            raise StoreBusy(
                f"{self._path}: has replaced a database that another process still uses "
                f"(fuser {self._wal} {self._index} names it). End that process. If you have "
                "restored a copy, put it in its place again then: at its end, that process may "
                "write to it"
            )

    def mark_complete(self) -> None:
        """Mark the database as complete if it has no write-ahead log any more. Call this after the
        writer's connection was closed.
        """
        with suppress(OSError):  # without the mark, the next start does what it does after a kill
            if not file_bytes(self._wal):
                complete.mark_complete(self._database.descriptor)

    def read_wal_from_disk(self) -> None:
        """Make SQLite read the write-ahead log from the disk. It may block for a sync."""
        read_wal_from_disk(self._path, self._database.identity)

    def watch_wal(self) -> None:
        """Also check the WAL and its index, which SQLite has created next to the database.

        Sync their directory, because SQLite ignores it if that fails. Raises StorageError.
        """
        self._sync_directory()
        for path in (self._wal, self._index):
            self._found[path] = identity_of(os.stat(path))

    def _sync_directory(self) -> None:
        try:
            sync_path(self._path.parent)
        except OSError as error:  # some file systems cannot sync a directory
            if error.errno == errno.EIO or error.errno in FULL:
                raise cannot_open(self._path.parent, error) from error

    @property
    def is_lost(self) -> bool:
        """True if a file was moved or replaced, if the database is damaged, or if a sync failed.
        ``close`` then keeps the mark that the store is running, so the next start checks the file.
        """
        return bool(self._lost)

    def refuse_if_lost(self) -> None:
        """Raise StoreRefused if an earlier check found a moved or replaced file, and its subclass
        StoreGivenUp if a sync has failed.
        """
        if self._lost:
            raise (StoreGivenUp if self._has_failed_sync else StoreRefused)(self._lost)

    def sync_failed(self, error: Exception) -> None:
        """Refuse everything from now on, because the disk failed to sync."""
        self._has_failed_sync = True
        self._lost = (
            f"{self._path}: the disk failed to sync ({error}), so it is unknown what is on it. "
            "Nothing is acknowledged any more. Look at the disk, and start again: the start copies "
            f"{self._wal.name} into the database once more. Do not delete this file"
        )

    def give_up(self, problem: str) -> None:
        """Refuse everything from now on, unless there is an earlier reason for it."""
        self._lost = self._lost or problem

    def check_before_append(self, writer: sqlite3.Connection) -> None:
        """Call ``check``, unless there was both a check and an append within the last second.

        An idle store is more likely to be moved. So the first append after a pause always checks.
        """
        now_s = time.monotonic()
        relied_on_s = min(self._checked_s, self._appended_s)
        self._appended_s = now_s
        if now_s - relied_on_s >= CHECK_EVERY_S:
            self.check(writer)

    def check(self, writer: sqlite3.Connection) -> None:
        """Raise StoreRefused if a file was moved, replaced or overwritten since it was opened. All
        later calls raise too. ``writer`` is the writer's connection.
        """
        self.refuse_if_lost()
        self._checked_s = time.monotonic()
        for path, identity in self._found.items():
            what = _difference(path, identity)
            if not what and path == self._path:
                self.check_content()
            if what:
                self._lost = (
                    f"{path}: was {what} while this process used it. Nothing is acknowledged any "
                    f"more. Stop this process, {self._what_to_do(path)}, then start again"
                )
                # Some acknowledged changes may be only in the write-ahead log, and the moved
                # database may be without it. So the changes are copied into the database first.
                with suppress(sqlite3.Error, OSError):
                    writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                    if path == self._wal:
                        self._set_aside_wal()
                raise StoreRefused(self._lost)

    def refuse_overwritten(self) -> None:
        """Raise StoreRefused, now and later, because another database was copied over this one, or
        the write-ahead log was cut.
        """
        what = f"{self._wal}: was cut" if self._is_log_cut else f"{self._path}: was overwritten"
        self.give_up(
            f"{what} while this process used it. Nothing is acknowledged any more. Stop this "
            f"process, put a backup in the place of {self._path.name}, delete {self._wal.name}, "
            "then start again"
        )
        self.refuse_if_lost()

    def check_content(self) -> None:
        """Raise StoreRefused, now and later, if another file was copied over the database.

        Call this also before a checkpoint, which would mix the two files.
        """
        if self.has_other_content():
            self.refuse_overwritten()

    def has_other_content(self) -> bool:
        """Return True if somebody copied another file over the database (it has become shorter, or
        has the mark of a complete file, which a start removes), or has cut the write-ahead log.
        """
        descriptor, known = self._database.descriptor, self._bytes
        with suppress(OSError):  # the next check finds out why
            self._bytes = os.fstat(descriptor).st_size
            if self._bytes < known or complete.is_complete(descriptor):
                self._has_other_content = True
            if is_cut(self._wal, self._found.get(self._wal), self._index, self._database.identity):
                self._has_other_content = self._is_log_cut = True
        return self._has_other_content

    def _what_to_do(self, path: Path) -> str:
        if path == self._name != self._path:
            return f"let it lead to {self._path} again"
        if path == self._path:
            return f"put back {path.name} and, if it is there, {self._wal.name}"
        if path == self._wal:
            return f"put back {path.name} if you have it"
        # The database holds every change, and a start creates the lock and SQLite's index again.
        return (
            f"make sure that no other process uses {self._path.name} (it is in its place; "
            f"{path.name} need not be put back, a start creates it again)"
        )

    def _set_aside_wal(self) -> None:
        """Rename a write-ahead log that another process wrote.

        Otherwise the next start would apply this log, although it may be older than the database.
        """
        aside = self._wal.with_name(self._wal.name + ".replaced")
        with suppress(FileNotFoundError):  # our own was moved, and no other file has its name
            os.rename(self._wal, aside)
            self._lost += f"; the file found as {self._wal.name} was renamed to {aside.name}"

    def release(self) -> None:
        """Release the locks. Close the writer's connection first."""
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
    """Raise StoreRefused if there is a write-ahead log without its database.

    SQLite would delete the log, and with it acknowledged changes.
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
        for ending in ("-wal", "-shm"):
            _refuse_shared_log(path.with_name(path.name + ending))
    except BaseException:
        database.release()
        raise
    return database


def _refuse_second_name(path: Path, status: os.stat_result) -> None:
    """Raise StoreRefused if the database has a second name.

    SQLite derives the name of the write-ahead log from that of the database. So each name would
    have its own write-ahead log.
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


def _refuse_shared_log(path: Path) -> None:
    """Raise StoreRefused if the write-ahead log, or its index, has a second name.

    Two databases could then write to the same log. A backup that links unchanged files makes such a
    second name: the backup has a new copy of the database, and a link to the present log.
    """
    with suppress(FileNotFoundError):
        names = os.stat(path).st_nlink
        if names > 1:
            raise StoreRefused(
                f"{path}: has {names} names (hard links), so another database may use it; make it "
                f"a file of its own (cp -p {path} {path}.own && mv {path}.own {path})"
            )
        if _is_mounted(path):
            raise StoreRefused(
                f"{path}: is a mount of a single file, so another database may use it; mount its "
                "directory"
            )


def _is_mounted(path: Path) -> bool:
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return False  # a system without this file
    wanted = os.fsencode(path)
    for byte in b"\\ \t\n":  # decode the kernel's escapes, the backslash first
        wanted = wanted.replace(bytes([byte]), b"\\%03o" % byte)
    return any(line.split()[4:5] == [wanted] for line in lines)
