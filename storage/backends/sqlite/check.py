"""Check a SQLite file in the background after an unclean end."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from groupkeeper.storage.backends.sqlite import tables
from groupkeeper.storage.job_thread import JobThread


class SqliteCheck:
    """Runs ``PRAGMA quick_check`` on a thread, with its own connection."""

    def __init__(self, path: Path, busy_timeout_s: float) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._connection: sqlite3.Connection | None = None

    async def run(self) -> str | None:
        """Run the check. Return one line that describes the fault of the file. Return None if it
        has no fault.
        """
        thread = JobThread("sqlite-check")
        try:
            return await thread.submit(self._check)
        finally:
            thread.stop()

    def interrupt(self) -> None:
        """Interrupt a running check. Its ``run`` then returns None."""
        if (connection := self._connection) is not None:
            with suppress(sqlite3.ProgrammingError):  # the check may have ended just before
                connection.interrupt()

    def _check(self) -> str | None:
        self._connection = connection = tables.connect_reader(self._path, self._busy_timeout_s)
        try:
            found = [text for (text,) in connection.execute("PRAGMA quick_check(5)").fetchall()]
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                return None  # the check was interrupted because the store is closing
            found = [str(error)]
        finally:
            self._connection = None
            connection.close()
        if found == ["ok"]:
            return None
        problems = "; ".join(" ".join(text.split()) for text in found)
        return (
            f"{self._path}: is damaged ({problems}); restore a copy of it, "
            f"and delete {self._path.name}-wal and {self._path.name}-shm"
        )
