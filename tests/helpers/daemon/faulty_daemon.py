"""The normal daemon over a store that fails in a way that a file names.

The variable ``FAULT_FILE`` names the file. It contains one of ``FAULTS``, or does not exist:

fail       every statement of the writer that uses the disk fails, as on a full or broken disk
hang       an append never returns
full       the store cannot be opened, as on a full disk
stubborn   the close of the store never ends, and ignores its cancellation
"""

from __future__ import annotations

import asyncio
import functools
import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import groupkeeper.storage.backends.sqlite.store
from groupkeeper.__main__ import main
from groupkeeper.storage.backends.sqlite import tables as sqlite_tables
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import StoreBusy, StoreIdentity
from tests.helpers.storage.writer_connection import connecting

FAULTS = ("fail", "full", "hang", "stubborn")


def fault() -> str:
    """Return the present content of the file; "" if it does not exist."""
    file = Path(os.environ["FAULT_FILE"])
    try:
        name = file.read_text()
    except FileNotFoundError:
        return ""
    assert name in FAULTS
    return name


class FaultyConnection(sqlite3.Connection):
    """The writer's connection."""

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        """Run a statement, fail or hang."""
        match fault():
            # A connection that cannot sync again is given up, and the daemon ends.
            case "fail" if not statement.startswith("PRAGMA synchronous"):
                raise sqlite3.OperationalError("disk I/O error")
            case "hang" if statement == sqlite_tables.APPEND:
                threading.Event().wait()
        return super().execute(statement, *arguments)


class FaultyStorage(SqliteOffsetStorage):
    """SQLite that may refuse to be opened or closed."""

    async def open(self, identity: StoreIdentity) -> None:
        """Open the store. Raises StoreBusy for the fault ``full``."""
        if fault() == "full":
            raise StoreBusy("groupkeeper.db: the disk is full; make room")
        await super().open(identity)

    async def close(self) -> None:
        """Close the store when the fault ``stubborn`` is over."""
        while fault() == "stubborn":
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        await super().close()


if __name__ == "__main__":
    # The constructor accepts a replacement. Only the class that the app imports by name is patched,
    # and only here. `storage.open` imports it when it opens a store.
    groupkeeper.storage.backends.sqlite.store.SqliteOffsetStorage = functools.partial(  # type: ignore[misc,assignment]
        FaultyStorage, connect=connecting(FaultyConnection)
    )
    main()
