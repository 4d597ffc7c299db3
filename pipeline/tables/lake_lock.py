"""A lock on a folder of tables, so that only one process writes them. The system releases it when
the process ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from groupkeeper.storage.file_lock import LockedFile, LockHeld

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
    # the file is never removed, because otherwise two processes could hold it
    lock = _acquire(folder)
    try:
        yield
    finally:
        lock.release()


def local_folder(root: str) -> Path | None:
    """Return the local folder of the tables. Return None for any other address."""
    if "://" not in root and not root.startswith("file:"):
        return Path(root)
    address = urlsplit(root)
    return Path(unquote(address.path)) if address.scheme == "file" else None


def _acquire(folder: Path) -> LockedFile:
    try:
        lock = LockedFile(folder / LOCK)
    except LockHeld as held:
        holder = str(os.getpid()) if held.is_ours else held.holder or "unknown"
        raise TablesBusy(
            f"{folder}: another job writes these tables (process {holder}); nothing was done. Run "
            "this again when it has ended"
        ) from None
    lock.write(f"{os.getpid()}\n")
    return lock
