"""A lock on a folder of tables, so that only one process writes them. The operating system releases
the lock when the process ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

LOCK: Final = "_lock"
"""The file in the tables' folder; Spark ignores names that begin with an underscore."""


class TablesBusy(Exception):
    """Another process writes these tables. The message is one line."""


@contextmanager
def only_writer(root: str) -> Iterator[None]:
    """Hold the lock of the tables below ``root``. Raises TablesBusy while another process has it.

    There is a lock only for a folder of this machine. Any other address has none, so the user must
    run one job at a time there. Raises OSError if the folder cannot be created or written.
    """
    folder = local_folder(root)
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    # The file is closed when this process ends. It is never removed, because otherwise two
    # processes could each lock a file of this name.
    fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    owner = os.getpid()
    try:
        _take(fd, folder)
        yield
    finally:
        # A forked child shares the lock. Without the unlock, the child would keep the lock.
        if os.getpid() == owner:
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def local_folder(root: str) -> Path | None:
    """Return the local folder of the tables. Return None for any other address."""
    if "://" not in root and not root.startswith("file:"):
        return Path(root)
    address = urlsplit(root)
    return Path(unquote(address.path)) if address.scheme == "file" else None


def _take(fd: int, folder: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
        raise TablesBusy(
            f"{folder}: another job writes these tables (process {holder}); nothing was done. Run "
            "this again when it has ended"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
