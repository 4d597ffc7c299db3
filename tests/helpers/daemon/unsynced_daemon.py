"""The normal daemon on a disk that fails to sync the next append after a file appears. The variable
``FAIL_SYNC_FILE`` names the file.
"""

from __future__ import annotations

import functools
import os
import sqlite3
from pathlib import Path
from typing import Any

import groupkeeper.storage.backends.sqlite.store
from groupkeeper.__main__ import main
from groupkeeper.storage.backends.sqlite import tables as sqlite_tables
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from tests.helpers.storage.writer_connection import connecting


class UnsyncedConnection(sqlite3.Connection):
    """Fails an append as SQLite does when ``fdatasync`` returns EIO."""

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        if statement == sqlite_tables.APPEND and Path(os.environ["FAIL_SYNC_FILE"]).exists():
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return super().execute(statement, *arguments)


if __name__ == "__main__":
    groupkeeper.storage.backends.sqlite.store.SqliteOffsetStorage = functools.partial(  # type: ignore[misc,assignment]
        SqliteOffsetStorage, connect=connecting(UnsyncedConnection)
    )
    main()
