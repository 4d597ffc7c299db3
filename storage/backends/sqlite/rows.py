"""Read the event log of a SQLite store, from any process of the same user, at any time.

The log has a row for each append. The row of an event is found by a binary search for the event's
sequence number.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from groupkeeper.storage.backends.sqlite.complete import refuse_stale_wal
from groupkeeper.storage.backends.sqlite.packed import unpack
from groupkeeper.storage.backends.sqlite.tables import connect_reader, refuse_other
from groupkeeper.storage.base import StorageError, StoreRefused
from groupkeeper.storage.codec.records import decode_head, decode_payload, payload_events
from groupkeeper.storage.event_log.lines import RowLines, row_lines
from groupkeeper.storage.event_log.source import LogEnds, LogNote
from groupkeeper.storage.segment_lines import EventDict

READ_ROWS: Final = 8
"""The number of rows that one query reads. Between two queries no transaction is open, except after
``hold``."""

_BUSY_TIMEOUT_S: Final = 5.0
_CACHE_KIB: Final = 256
"""The largest amount of memory for pages. Rows are read once and in order, so no page is read
again. SQLite's default is 2 MB."""


class SqliteRow(NamedTuple):
    """The events of one append."""

    row: int
    first_seq: int
    last_seq: int
    payload: bytes

    def lines(self) -> RowLines:
        return row_lines(self.first_seq, self.payload)

    def events(self, since_ms: int = 0) -> Iterator[EventDict]:
        payload = decode_payload(self.payload)
        if payload.ts_ms >= since_ms:
            yield from payload_events(self.first_seq, payload)


class SqliteRows:
    """The rows of one store, read on their own connection."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises StoreRefused if it is not a store."""
        if path.is_dir():
            raise StoreRefused(f"{path}: is a directory, and not the SQLite file of a store")
        if not path.exists():
            raise StoreRefused(f"{path}: there is no such file")
        try:
            refuse_stale_wal(path)
            self._connection = connect_reader(path, _BUSY_TIMEOUT_S)
            try:
                is_empty = refuse_other(self._connection, path)
                self._connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            except BaseException:
                self._connection.close()
                raise
        except (OSError, sqlite3.Error) as error:
            raise StorageError(str(error)) from error
        if is_empty:
            self._connection.close()
            raise StoreRefused(f"{path}: is empty, no daemon has written to it yet")
        self._last: SqliteRow | None = None
        """The row that was read last. A reader that continues after it does not search again."""

    def hold(self) -> None:
        self._fetch("BEGIN")

    def close(self) -> None:
        self._connection.close()

    def note(self) -> LogNote:
        # a store from before sealing has no such table until a newer version opens it
        if not self._fetch("SELECT 1 FROM sqlite_schema WHERE name = 'sealed_logs'"):
            return LogNote(frozenset(), None)
        log_ids = self._fetch("SELECT log_id FROM sealed_logs")
        noted = dict(self._fetch("SELECT key, value FROM store WHERE key LIKE 'log_%'"))
        ((sealed_seq,),) = self._fetch("SELECT sealed_seq FROM sealed")
        return LogNote(
            frozenset(log_id for (log_id,) in log_ids),
            noted.get("log_dir"),
            noted.get("log_store", ""),
            sealed_seq,
        )

    def ends(self) -> LogEnds:
        ((first,),) = self._fetch('SELECT first_seq FROM log ORDER BY "row" LIMIT 1')
        _, last = self._newest()
        return LogEnds(first, last)

    def log_id_at(self, seq: int) -> str | None:
        ((first, last, value),) = self._fetch(
            "SELECT first_seq, first_seq + count - 1, CAST(payload AS BLOB) FROM log "
            'WHERE "row" <= ? ORDER BY "row" DESC LIMIT 1',
            self._row_of(seq),
        )
        return decode_head(unpack(value)).log_id if first <= seq <= last else None

    def rows(self, after_seq: int, containing: bytes = b"") -> Iterator[SqliteRow]:
        last = self._last
        if last is not None and last.last_seq == after_seq:
            at = last.row
        else:
            at = self._row_of(after_seq + 1) - 1
        while found := self._fetch(
            'SELECT "row", first_seq, first_seq + count - 1, CAST(payload AS BLOB) FROM log '
            'WHERE "row" > ? ORDER BY "row" LIMIT ?',
            at,
            READ_ROWS,
        ):
            for number, first, last, value in found:
                self._last = row = SqliteRow(number, first, last, unpack(value))
                if containing in row.payload:
                    yield row
            at = row.row

    def _newest(self) -> tuple[int, int]:
        """Return the number of the newest row, and the last seq. The newest row is never
        deleted.
        """
        ((row, last_seq),) = self._fetch(
            'SELECT "row", first_seq + count - 1 FROM log ORDER BY "row" DESC LIMIT 1'
        )
        return row, last_seq

    def _row_of(self, seq: int) -> int:
        """Return the number of the row that contains an event. If no row contains it, return the
        last row that begins before it. ``seq`` is the event's sequence number.
        """
        ((low,),) = self._fetch('SELECT "row" FROM log ORDER BY "row" LIMIT 1')
        high, _ = self._newest()
        while low < high:
            middle = (low + high + 1) // 2
            ((row, first),) = self._fetch(
                'SELECT "row", first_seq FROM log WHERE "row" <= ? ORDER BY "row" DESC LIMIT 1',
                middle,
            )
            if first <= seq:
                low = middle
            else:
                high = row - 1
        return int(low)

    def _fetch(self, statement: str, *arguments: int) -> list[Any]:
        try:
            return self._connection.execute(statement, arguments).fetchall()
        except sqlite3.Error as error:
            raise StorageError(str(error)) from error
