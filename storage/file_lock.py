"""Exclusive locks on files. The kernel releases a lock when its process ends, even if the process
is killed.

A lock is ``flock`` on a descriptor. Two rules of the kernel shape this file:

- A forked child shares the descriptor, and with it the lock. So the child closes the descriptor at
  once.
- If a process closes any descriptor of a file, it loses all its POSIX locks on this file. SQLite
  locks its database with POSIX locks. So while this process has a connection to a database, it
  closes no other descriptor of the database. Such a descriptor waits in ``_spare`` until the last
  connection is closed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import sqlite3
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from groupkeeper.storage.base import StorageError, StoreBusy, StoreRefused

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The errors of the operating system for a full disk and a used-up quota."""
FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""The errors of the operating system for a file that this user may not write."""
_FLOCK: Final = struct.Struct("hhqqi")
"""The type ``struct flock`` of Linux: type, whence, first byte, number of bytes, process."""
_HELD_ELSEWHERE: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})


class FileIdentity(NamedTuple):
    """Identifies a file independently of its name."""

    device: int
    inode: int


def identity_of(status: os.stat_result) -> FileIdentity:
    """Return the identity in a result of ``os.stat`` or ``os.fstat``."""
    return FileIdentity(status.st_dev, status.st_ino)


class LockHeld(Exception):
    """The lock is held by another process or by this one."""

    def __init__(self, holder: str, *, is_ours: bool) -> None:
        """``holder`` is the text in the locked file. ``is_ours`` is True if this process holds the
        lock.
        """
        super().__init__(holder)
        self.holder = holder
        self.is_ours = is_ours


class LockedFile:
    """An open file whose exclusive lock this process holds until ``release``."""

    def __init__(self, path: Path) -> None:
        """Open the file, or create it, and lock it without waiting.

        Raises LockHeld if it is locked, and OSError if it cannot be opened or locked.
        """
        with _mutex:
            self.status, self._fd = _open_and_lock(path)
            self.identity = identity_of(self.status)
            _held[self.identity] = self

    def write(self, text: str) -> None:
        """Replace the content of the file. Errors are ignored, because the content is only used for
        error messages.
        """
        data = text.encode()
        with suppress(OSError):
            # Write before truncating: on a full disk this needs no new block, unless the new text
            # is longer than the old one.
            os.pwrite(self._fd, data, 0)
            os.ftruncate(self._fd, len(data))

    @property
    def descriptor(self) -> int:
        """The open descriptor, to read and write the file. The caller does not close it."""
        return self._fd

    def release(self) -> None:
        """Release the lock. Does nothing the second time, and in a forked child."""
        with _mutex:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                del _held[self.identity]
                fcntl.flock(fd, fcntl.LOCK_UN)
                _close_unless_in_use(fd, self.identity)

    def forget(self) -> None:
        """Close the descriptor in a forked child. The parent keeps the lock."""
        fd, self._fd = self._fd, -1
        os.close(fd)


class FileLock:
    """The lock on ``<file>.lock``. This file contains the process id and host of the process that
    holds the lock, for error messages.
    """

    def __init__(self, path: Path) -> None:
        """Acquire the lock for ``path`` without waiting. Raises StoreRefused if it is held."""
        lock_path = path.with_name(path.name + ".lock")

        def whose(holder: str) -> str:
            return (
                "is in use by another groupkeeper "
                f"({_described(holder)}, which holds {lock_path.name})"
            )

        self._file = lock_for_store(lock_path, path, whose)
        self._file.write(f"{os.getpid()} {socket.gethostname()}\n")
        self.identity = self._file.identity

    def release(self) -> None:
        """Release the lock, and keep the file. If the file were deleted, another process could lock
        a new file of this name while a third process still holds the lock of the old file.
        """
        self._file.release()


def lock_for_store(path: Path, store: Path, whose: Callable[[str], str]) -> LockedFile:
    """Lock a file for a store.

    Raises StoreRefused if the lock is held, or if the file system has no locks. Raises StorageError
    if the file cannot be opened or locked, and its subclass StoreBusy if a retry may help.
    ``whose`` is called with the text in the locked file. It returns the part of the message that
    names the other process.
    """
    try:
        return LockedFile(path)
    except LockHeld as held:
        problem = "is in use by another coordinator of this process"
        if not held.is_ours:
            problem = whose(held.holder)
        raise StoreRefused(f"{store}: {problem}; stop it first, or use another file") from None
    except OSError as error:
        raise cannot_open(path, error) from error


def cannot_open(path: Path, error: OSError) -> StorageError:
    """Return the error for a file that cannot be opened or locked: StoreBusy if a retry may help,
    StoreRefused if the file system has no locks, otherwise StorageError.
    """
    if error.errno in FULL:
        return StoreBusy(f"{path}: cannot be made ({error.strerror}); make room")
    if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
        return StoreRefused(
            f"{path}: cannot be locked ({error.strerror}); "
            "use a local disk, not a network file system"
        )
    if error.errno in FORBIDDEN:
        return StorageError(
            f"{path}: cannot be opened ({error.strerror}); let this user write to it and to its "
            "directory, or name another file"
        )
    return StorageError(f"{path}: cannot be opened: {error.strerror}")


def _described(holder: str) -> str:
    pid, _, host = holder.partition(" ")
    if not pid:
        return "a process that left no name"
    if not host:
        return f"process {pid}"
    # In two containers both processes may have the id 1, because each container numbers its own
    # processes.
    own = pid == str(os.getpid()) and host == socket.gethostname()
    return f"process {pid} of host {host}" + (", in another container" if own else "")


# --- connections that read ------------------------------------------------------------------------


class ReadConnection(sqlite3.Connection):
    """A connection to SQLite. While it is open, no lock descriptor of its file is closed."""

    identity: FileIdentity | None = None

    def close(self) -> None:
        """Close the connection.

        If nothing else in this process uses the file, also close the descriptors that were kept
        open for it.
        """
        super().close()
        with _mutex:
            _readers.discard(self)
            if self.identity is not None:
                _close_spare(self.identity)


def connect_reading(path: Path, **options: Any) -> ReadConnection:
    """Open a read-only connection. Until it is closed, no lock descriptor of its file is closed."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, factory=ReadConnection, **options)
    with suppress(OSError), _mutex:
        connection.identity = identity_of(os.stat(path))
        _readers.add(connection)
    return connection


# --- the locks and connections of this process ----------------------------------------------------

_mutex = threading.Lock()
"""Held while one of the three collections below changes, and during a fork."""
_held: dict[FileIdentity, LockedFile] = {}
_readers: WeakSet[ReadConnection] = WeakSet()
_spare: dict[FileIdentity, list[int]] = {}
"""Maps a file to descriptors without a lock that cannot be closed yet, because this process uses
the file."""


def _open_and_lock(path: Path) -> tuple[os.stat_result, int]:
    with suppress(FileNotFoundError):
        if identity_of(os.stat(path)) in _held:  # checked before a descriptor exists
            raise LockHeld("", is_ours=True)
    fd = _spare_of(path)
    if fd is None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    status = os.fstat(fd)
    try:
        if identity_of(status) in _held:
            raise LockHeld("", is_ours=True)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = ""
        if error.errno in _HELD_ELSEWHERE:
            with suppress(OSError):
                holder = os.pread(fd, 300, 0).decode("utf-8", "replace").strip()
        _close_unless_in_use(fd, identity_of(status))
        if error.errno in _HELD_ELSEWHERE:
            raise LockHeld(holder, is_ours=False) from error
        raise
    except LockHeld:
        _close_unless_in_use(fd, identity_of(status))
        raise
    return status, fd


def _spare_of(
    path: Path, database: FileIdentity | None = None, flags: int = os.O_RDWR
) -> int | None:
    """Take a descriptor of this file that waits to be closed, and was opened with these flags.
    ``database`` is the identity under which it waits, if that is another file. Otherwise each retry
    of a start would add descriptors.
    """
    try:
        wanted = identity_of(os.stat(path))
    except OSError:
        return None
    waiting = _spare.get(database or wanted, [])
    for fd in waiting:
        access = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        if access == flags and identity_of(os.fstat(fd)) == wanted:
            waiting.remove(fd)
            return fd
    return None


def open_file(path: Path, database: FileIdentity, flags: int = os.O_RDWR) -> int:
    """Open a database, or SQLite's index of it. Close it with ``close_unless_in_use``."""
    with _mutex:
        fd = _spare_of(path, database, flags)
    return os.open(path, flags | os.O_CLOEXEC) if fd is None else fd


def is_locked_by_other(descriptor: int, first: int, count: int) -> bool:
    """Return True if another process has a POSIX lock on some of these bytes. Locks of this process
    do not count, and nothing is locked. Return False if the system cannot tell.
    """
    if sys.platform != "linux":
        return False
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, count, 0)
    try:
        found = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
    except OSError:
        return False
    return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)


def close_unless_in_use(fd: int, identity: FileIdentity) -> None:
    """Close a descriptor of a database or of SQLite's index of it. If this process uses the
    database (its identity), close the descriptor later.
    """
    with _mutex:
        _close_unless_in_use(fd, identity)


def _close_unless_in_use(fd: int, identity: FileIdentity) -> None:
    _spare.setdefault(identity, []).append(fd)
    _close_spare(identity)


def _close_spare(identity: FileIdentity) -> None:
    if identity in _held or any(reader.identity == identity for reader in _readers):
        return
    for fd in _spare.pop(identity, ()):
        os.close(fd)


def _forget_all() -> None:
    """Close the descriptors of all lock files in a forked child. The parent process keeps the
    locks.
    """
    for file in _held.values():
        file.forget()
    for fds in _spare.values():
        for fd in fds:
            os.close(fd)
    _held.clear()
    _spare.clear()
    _mutex.release()


os.register_at_fork(
    before=_mutex.acquire, after_in_parent=_mutex.release, after_in_child=_forget_all
)
