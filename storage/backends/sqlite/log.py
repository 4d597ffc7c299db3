"""The events of an open SQLite store, as sealing reads them. To seal events is to move them into
files.

This module also records which events are sealed, and deletes rows of the log that are sealed and
that no load needs (folded rows). Both run on the writer's thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, Protocol, TypeVar

from groupkeeper.storage.backends.sqlite.load import read_log_end
from groupkeeper.storage.backends.sqlite.packed import unpack
from groupkeeper.storage.backends.sqlite.rows import SqliteRows
from groupkeeper.storage.backends.sqlite.tables import without_sync
from groupkeeper.storage.codec.records import decode_head
from groupkeeper.storage.event_log.log_clock import LogClock
from groupkeeper.storage.event_log.source import Address, LogHead

TRIM_ROWS: Final = 32
"""The largest number of rows that one statement deletes. An append waits for at most one such
statement."""


_TRIM: Final = """DELETE FROM log WHERE "row" IN (
        SELECT "row" FROM log, sealed
        WHERE "row" <= ? AND first_seq + count - 1 <= sealed_seq
        AND "row" < (SELECT max("row") FROM log)
        ORDER BY "row" LIMIT ?
    )"""

_T = TypeVar("_T")


class OnWriter(Protocol):
    """A function that does short work on the writer's thread with its connection, and returns the
    result of the work.
    """

    async def __call__(self, work: Callable[[sqlite3.Connection], _T], /) -> _T: ...


class SqliteEvents:
    """The events of an open SQLite store, for sealing (``event_log.source.EventSource``)."""

    def __init__(
        self,
        path: Path,
        on_writer: OnWriter,
        clock: LogClock,
        known_folded_row: Callable[[], int],
    ) -> None:
        """Create the source without opening it.

        ``known_folded_row`` is called on the loop. It returns the row up to which everything is
        folded. It may return a lower number: rows are then deleted later.
        """
        self.clock = clock
        self.address: Address | None = Address(
            f"sqlite:///{path}", path.with_name(f"{path.name}.sealing")
        )
        self._path = path
        self._on_writer = on_writer
        self._known_folded_row = known_folded_row
        self._first_row = 0
        """All rows below this one are deleted."""

    def open_rows(self) -> SqliteRows:
        return SqliteRows(self._path)

    async def head(self) -> LogHead:
        return await self._on_writer(
            lambda c: LogHead(last_log_id(c), read_log_end(c, self._path).next_seq - 1)
        )

    async def note_place(self, log_dir: str) -> None:
        await self._on_writer(lambda c: _note(c, "log_dir", log_dir))

    async def note_sealed(self, seq: int, new: Collection[str], gone: Collection[str]) -> None:
        await self._on_writer(lambda c: _note_sealed(c, seq, new, gone))

    async def trim(self, sealed_row: int) -> int:
        """Delete the oldest rows that are folded and recorded as sealed, never the newest row.
        Return how many were deleted: at most TRIM_ROWS in one call."""
        if self._first_row > min(sealed_row, self._known_folded_row()):
            return 0
        deleted, folded_row = await self._on_writer(self._trim)
        if deleted < TRIM_ROWS:
            self._first_row = min(sealed_row, folded_row) + 1
        return deleted

    def _trim(self, connection: sqlite3.Connection) -> tuple[int, int]:
        folded_row = read_log_end(connection, self._path).folded_row
        with without_sync(connection):
            return connection.execute(_TRIM, (folded_row, TRIM_ROWS)).rowcount, folded_row


def last_log_id(connection: sqlite3.Connection) -> str | None:
    """Return the log id of the last event. Return None if no row has events."""
    found = connection.execute(
        'SELECT CAST(payload AS BLOB) FROM log WHERE count > 0 ORDER BY "row" DESC LIMIT 1'
    ).fetchall()
    return decode_head(unpack(found[0][0])).log_id if found else None


def begin_log(connection: sqlite3.Connection, clock: LogClock, ts_ms: int) -> None:
    """Begin a log after the last event, which was at ``ts_ms``, and record the store's name."""
    noted = connection.execute("SELECT value FROM store WHERE key = 'log_store'").fetchall()
    name = str(noted[0][0]) if noted else ""
    clock.begin(after=last_log_id(connection), ts_ms=ts_ms, store=name)
    _note(connection, "log_store", clock.store)


def _note(connection: sqlite3.Connection, key: str, value: str) -> None:
    noted = connection.execute("SELECT value FROM store WHERE key = ?", (key,)).fetchall()
    if noted != [(value,)]:
        connection.execute("INSERT OR REPLACE INTO store VALUES (?, ?)", (key, value))


def _note_sealed(
    connection: sqlite3.Connection, seq: int, new: Collection[str], gone: Collection[str]
) -> None:
    with without_sync(connection):
        for log_id in new:
            connection.execute("INSERT OR IGNORE INTO sealed_logs VALUES (?)", (log_id,))
        for log_id in gone:
            connection.execute("DELETE FROM sealed_logs WHERE log_id = ?", (log_id,))
        connection.execute("UPDATE sealed SET sealed_seq = ? WHERE sealed_seq <> ?", (seq, seq))
