"""The rows of a SQLite store's event log, read from any process of the same user, at any time.

A row is found by its seq in a few steps, and nothing is scanned.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from groupkeeper.storage.backends.sqlite.schema import connect_reader, refuse_other
from groupkeeper.storage.base import StorageError, StoreRefused
from groupkeeper.storage.codec.records import decode_head, decode_payload, payload_events
from groupkeeper.storage.event_log.lines import RowLines, row_lines
from groupkeeper.storage.event_log.source import LogEnds, LogNote
from groupkeeper.storage.segment_lines import EventDict

READ_ROWS: Final = 8
"""Rows that are read at once: unless they are held, no transaction stays open."""

_BUSY_TIMEOUT_S: Final = 5.0


class SqliteRow(NamedTuple):
    """One append."""

    row: int
    first_seq: int
    event_count: int
    data: bytes

    @property
    def last_seq(self) -> int:
        """The seq of its last event; one below the first where it has none."""
        return self.first_seq + self.event_count - 1

    def lines(self) -> RowLines:
        """Render the events as lines of a segment."""
        return row_lines(self.first_seq, self.data)

    def events(self, since_ms: int = 0) -> Iterator[EventDict]:
        """Render the events; none of them if they are older than a moment."""
        payload = decode_payload(self.data)
        if payload.ts_ms >= since_ms:
            yield from payload_events(self.first_seq, payload)


class SqliteRows:
    """The rows of one store, on a connection of its own."""

    def __init__(self, path: Path) -> None:
        """Open it. Raises StoreRefused: SQLite's own words for what is no store help nobody."""
        if path.is_dir():
            raise StoreRefused(f"{path}: is a directory, and not the SQLite file of a store")
        if not path.exists():
            raise StoreRefused(f"{path}: there is no such file")
        with _told():
            self._connection = connect_reader(path, _BUSY_TIMEOUT_S)
            try:
                if refuse_other(self._connection, path):
                    raise StoreRefused(f"{path}: is empty, no daemon has written to it yet")
            except BaseException:
                self._connection.close()
                raise
        self._last_seq, self._last_row = -1, -1
        """Where the row that was read last ends: whoever goes on there finds the next at once."""

    def hold(self) -> None:
        """Show what stands now, and go on showing it."""
        self._fetch("BEGIN")

    def close(self) -> None:
        """Let go of the store."""
        self._connection.close()

    def note(self) -> LogNote:
        """Tell what the store has noted of sealing."""
        with _told():
            return read_note(self._connection)

    def ends(self) -> LogEnds:
        """Tell where the rows begin and end."""
        ((first,),) = self._fetch('SELECT first_seq FROM log ORDER BY "row" LIMIT 1')
        _, last = self._newest()
        return LogEnds(first, last)

    def log_id_at(self, seq: int) -> str | None:
        """Tell the log that an event belongs to; None where its row has gone."""
        ((first, last, data),) = self._fetch(
            "SELECT first_seq, first_seq + count - 1, CAST(payload AS BLOB) FROM log "
            'WHERE "row" <= ? ORDER BY "row" DESC LIMIT 1',
            self._row_of(seq),
        )
        return decode_head(data).log_id if first <= seq <= last else None

    def rows(self, after_seq: int, containing: bytes = b"") -> Iterator[SqliteRow]:
        """Yield the rows above a seq, in order, but those without the bytes given."""
        goes_on = after_seq == self._last_seq
        at = self._last_row if goes_on else self._row_of(after_seq + 1) - 1
        while found := self._fetch(
            'SELECT "row", first_seq, count, CAST(payload AS BLOB) FROM log WHERE "row" > ? '
            'ORDER BY "row" LIMIT ?',
            at,
            READ_ROWS,
        ):
            for row in map(SqliteRow._make, found):
                at = row.row
                self._last_seq, self._last_row = row.last_seq, at
                if containing in row.data:
                    yield row

    def _newest(self) -> tuple[int, int]:
        """The newest row, which is never deleted, and the last seq."""
        ((row, last_seq),) = self._fetch(
            'SELECT "row", first_seq + count - 1 FROM log ORDER BY "row" DESC LIMIT 1'
        )
        return row, last_seq

    def _row_of(self, seq: int) -> int:
        """The last row that begins at or below a seq: the one that holds it, if any does."""
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
        with _told():
            return self._connection.execute(statement, arguments).fetchall()


def read_note(connection: sqlite3.Connection) -> LogNote:
    """Read what was noted of sealing; nothing, for a store that was made before there was any."""
    ((has_note,),) = connection.execute(
        "SELECT count(*) FROM sqlite_schema WHERE name = 'sealed_logs'"
    ).fetchall()
    if not has_note:
        return LogNote(frozenset(), None)
    log_ids = connection.execute("SELECT log_id FROM sealed_logs").fetchall()
    log_dir = connection.execute("SELECT value FROM store WHERE key = 'log_dir'").fetchone()
    return LogNote(
        frozenset(log_id for (log_id,) in log_ids),
        None if log_dir is None else str(log_dir[0]),
    )


@contextmanager
def _told() -> Iterator[None]:
    """Raise what SQLite says as what a storage does."""
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(str(error)) from error
