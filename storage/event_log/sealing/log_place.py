"""Checks that ``log.dir`` is still the directory in which the coordinator began to seal."""

from __future__ import annotations

import os
from pathlib import Path

from groupkeeper.storage.base import StorageError
from groupkeeper.storage.file_lock import FileIdentity, identity_of


class LogDirMoved(StorageError):
    """The directory was moved, deleted or replaced. Sealing stops, so that rows stay in the store,
    and no segment is written into another directory.
    """


class LogPlace:
    """The directory of the segments, as it was when sealing began.

    If the directory is moved and put back while the process runs, sealing reads the files again and
    continues. This differs from a database that was moved, which stays refused.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._identity = identity_of(os.stat(directory))

    def check(self) -> None:
        """Raise LogDirMoved if the directory is missing, or is another one."""
        found: FileIdentity | None
        try:
            found = identity_of(os.stat(self._directory))
        except (FileNotFoundError, NotADirectoryError):
            found = None
        if found == self._identity:
            return
        what = "moved or deleted" if found is None else "replaced by another directory"
        raise LogDirMoved(
            f"log.dir: {self._directory}: was {what} while this process used it. New events stay "
            "in the store until the directory is put back. A restart uses the directory it finds"
        )
