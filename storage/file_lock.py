"""Exclusive locks on files, held by a process until it ends, however it ends.

A lock is ``flock`` on a descriptor. Two rules of the kernel shape this file:

- A forked child shares the descriptor, and with it the lock. So the child closes it at once.
- Closing any descriptor of a file drops all POSIX locks that the process has on it, and SQLite
  locks its database by those. So no descriptor of a database is closed while this process has a
  connection to it: it waits in ``_spare`` for the last one to close.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from groupkeeper.storage.base import StorageError, StoreBusy, StoreRefused

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What a full disk is called, or a used-up quota."""
FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""What a file is that this user may not write."""
_HELD_ELSEWHERE: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})


class FileIdentity(NamedTuple):
    """What a file is, whatever its name."""

    device: int
    inode: int


def identity_of(status: os.stat_result) -> FileIdentity:
    """Return what ``os.stat`` or ``os.fstat`` has described."""
    return FileIdentity(status.st_dev, status.st_ino)


class LockHeld(Exception):
    """The lock is taken."""

    def __init__(self, holder: str, *, is_ours: bool) -> None:
        """``holder`` is what the file says, ``is_ours`` that this very process holds it."""
        super().__init__(holder)
        self.holder = holder
        self.is_ours = is_ours


class LockedFile:
    """A file under ``flock``. Raises LockHeld, or OSError where it cannot be opened or locked."""

    def __init__(self, path: Path) -> None:
        """Open the file, make it if there is none, and lock it, without waiting."""
        with _mutex:
            self.status, self._fd = _open_and_lock(path)
            self.identity = identity_of(self.status)
            _held[self.identity] = self

    def write(self, text: str) -> None:
        """Replace what is in it. A disk without room is no reason to fail: it is for people."""
        data = text.encode()
        with suppress(OSError):
            # In this order the block that an earlier holder has left is enough.
            os.pwrite(self._fd, data, 0)
            os.ftruncate(self._fd, len(data))

    def release(self) -> None:
        """Give the lock back. Does nothing the second time, and in a forked child."""
        with _mutex:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                del _held[self.identity]
                fcntl.flock(fd, fcntl.LOCK_UN)
                _close_unless_in_use(fd, self.identity)

    def forget(self) -> None:
        """Close the descriptor and leave the lock to whoever shares it."""
        fd, self._fd = self._fd, -1
        os.close(fd)


class FileLock:
    """The lock on ``<file>.lock``, with the holder's pid and host in it for whoever is refused."""

    def __init__(self, path: Path) -> None:
        """Take the lock for ``path`` at once. Raises StoreRefused while another process has it."""
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
        """Give the lock back. The file stays: to remove it would let two processes hold it."""
        self._file.release()


def lock_for_store(path: Path, store: Path, whose: Callable[[str], str]) -> LockedFile:
    """Lock a file for a store. Raises StoreRefused where the lock is taken; ``whose`` says that
    another process has it, given what the file says of that one.
    """
    try:
        return LockedFile(path)
    except LockHeld as held:
        told = "is in use by another coordinator of this process"
        if not held.is_ours:
            told = whose(held.holder)
        raise StoreRefused(f"{store}: {told}; stop it first, or use another file") from None
    except OSError as error:
        raise cannot_open(path, error) from error


def cannot_open(path: Path, error: OSError) -> StorageError:
    """Say that a file of the store cannot be opened or locked, and whether that goes by."""
    if error.errno in FULL:
        return StoreBusy(f"{path}: cannot be made ({error.strerror}); make room")
    if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
        return StoreRefused(
            f"{path}: cannot be locked ({error.strerror}); use a local disk, "
            "a network file system is not one"
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
    # In containers both may be process 1, each in a numbering of its own.
    own = pid == str(os.getpid()) and host == socket.gethostname()
    return f"process {pid} of host {host}" + (", in another container" if own else "")


# --- connections that read ------------------------------------------------------------------------


class ReadConnection(sqlite3.Connection):
    """A connection of SQLite whose locks are kept until it closes."""

    identity: FileIdentity | None = None

    def close(self) -> None:
        """Close it, and what had to wait for that."""
        super().close()
        with _mutex:
            _readers.discard(self)
            if self.identity is not None:
                _close_spare(self.identity)


def connect_reading(path: Path, **options: Any) -> ReadConnection:
    """Open a connection that cannot write."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, factory=ReadConnection, **options)
    with suppress(OSError), _mutex:
        connection.identity = identity_of(os.stat(path))
        _readers.add(connection)
    return connection


# --- what this process has ------------------------------------------------------------------------

_mutex = threading.Lock()
"""Held while any of these change, and during a fork."""
_held: dict[FileIdentity, LockedFile] = {}
_readers: WeakSet[ReadConnection] = WeakSet()
_spare: dict[FileIdentity, list[int]] = {}
"""Descriptors without a lock that cannot be closed yet."""


def _open_and_lock(path: Path) -> tuple[os.stat_result, int]:
    with suppress(FileNotFoundError):
        if identity_of(os.stat(path)) in _held:  # told before a descriptor is there to be closed
            raise LockHeld("", is_ours=True)
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


def _close_unless_in_use(fd: int, identity: FileIdentity) -> None:
    _spare.setdefault(identity, []).append(fd)
    _close_spare(identity)


def _close_spare(identity: FileIdentity) -> None:
    if identity in _held or any(reader.identity == identity for reader in _readers):
        return
    for fd in _spare.pop(identity, ()):
        os.close(fd)


def _forget_all() -> None:
    """Run in a forked child: the locks are its parent's."""
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
