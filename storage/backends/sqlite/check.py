"""Looking a SQLite file over after an unclean end, beside the work."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from groupkeeper.storage.backends.sqlite import schema
from groupkeeper.storage.job_thread import JobThread


class SqliteCheck:
    """``PRAGMA quick_check`` on a connection and a thread of its own."""

    def __init__(self, path: Path, busy_timeout_s: float) -> None:
        """Open nothing yet."""
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._connection: sqlite3.Connection | None = None

    async def run(self) -> str | None:
        """Return a line on what is wrong with the file, or None."""
        thread = JobThread("sqlite-check")
        try:
            return await thread.submit(self._check)
        finally:
            thread.stop()

    def interrupt(self) -> None:
        """End a check that is running, as one that found nothing."""
        if (connection := self._connection) is not None:
            with suppress(sqlite3.ProgrammingError):  # it may end by itself at this moment
                connection.interrupt()

    def _check(self) -> str | None:
        self._connection = connection = schema.connect_reader(self._path, self._busy_timeout_s)
        try:
            found = [text for (text,) in connection.execute("PRAGMA quick_check(5)").fetchall()]
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                return None  # closed meanwhile
            found = [str(error)]
        finally:
            self._connection = None
            connection.close()
        if found == ["ok"]:
            return None
        problems = "; ".join(" ".join(text.split()) for text in found)
        return f"{self._path}: is damaged ({problems}); restore a copy of it"
