"""An exclusive lock on a file, held by a process until it ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from storage.base import StorageError, StoreRefused


class FileLock:
    """``flock`` on ``<file>.lock``, with the holder's pid in it for whoever is refused."""

    def __init__(self, path: Path) -> None:
        """Take the lock for ``path`` at once. Raises StoreRefused while another process has it."""
        lock_path = path.with_name(path.name + ".lock")
        try:
            self._fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(f"{lock_path}: cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            whose = (
                f"is in use by another groupkeeper (process {holder}, which holds {lock_path.name})"
            )
            if holder == str(os.getpid()):
                whose = "is in use by another coordinator of this process"
            raise StoreRefused(f"{path}: {whose}; stop it first, or use another file") from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Give the lock back. The file stays: to remove it would let two processes hold it."""
        os.ftruncate(self._fd, 0)
        os.close(self._fd)
