"""The rows of a SQLite store's event log: found by seq, read, noted as sealed, trimmed.

Rows and seqs both only grow, so a row is found by its seq in a few steps and nothing is scanned.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from groupkeeper.storage.codec.records import Payload, PayloadHead, decode_head, decode_payload

TRIM_ROWS = 32
"""Rows that one statement deletes: an append that comes meanwhile waits for no more."""


_TRIM = """DELETE FROM log WHERE "row" IN (
        SELECT "row" FROM log, sealed
        WHERE "row" <= ? AND first_seq + count - 1 <= sealed_seq
        AND "row" < (SELECT max("row") FROM log)
        ORDER BY "row" LIMIT ?
    )"""


class LogRow(NamedTuple):
    """One append."""

    row: int
    first_seq: int
    events: int
    data: bytes

    @property
    def last_seq(self) -> int:
        """The seq of its last event; one below the first where it has none."""
        return self.first_seq + self.events - 1

    def payload(self) -> Payload:
        """Decode it."""
        return decode_payload(self.data)


class LogNote(NamedTuple):
    """What a store has noted of sealing."""

    sealed_seq: int
    log_ids: frozenset[str]
    """Every log of this store that was ever sealed."""
    log_dir: str | None
    """Where the files were at the last start, as an absolute path."""


def read_rows(connection: sqlite3.Connection, after_row: int, limit: int) -> list[LogRow]:
    """Read so many rows above one, at once: no transaction stays open."""
    rows = connection.execute(
        'SELECT "row", first_seq, count, CAST(payload AS BLOB) FROM log WHERE "row" > ? '
        'ORDER BY "row" LIMIT ?',
        (after_row, limit),
    ).fetchall()
    return [LogRow(*row) for row in rows]


def iterate_rows(
    connection: sqlite3.Connection, after_seq: int, containing: bytes = b""
) -> Iterator[LogRow]:
    """Read the rows that hold events above a seq, as one moment shows them.

    Rows without the bytes given are left out.
    """
    rows = connection.execute(
        'SELECT "row", first_seq, count, CAST(payload AS BLOB) FROM log WHERE "row" >= ? '
        'AND count > 0 ORDER BY "row"',
        (row_of(connection, after_seq + 1),),
    )
    for row, first, count, data in rows:
        if first + count - 1 > after_seq and containing in data:
            yield LogRow(row, first, count, data)


def first_seq(connection: sqlite3.Connection) -> int:
    """The seq of the first event that is in the rows, or would be the next."""
    ((seq,),) = connection.execute('SELECT first_seq FROM log ORDER BY "row" LIMIT 1').fetchall()
    return int(seq)


def last_row(connection: sqlite3.Connection) -> tuple[int, int]:
    """The newest row, which is never deleted, and the last seq."""
    ((row, last_seq),) = connection.execute(
        'SELECT "row", first_seq + count - 1 FROM log ORDER BY "row" DESC LIMIT 1'
    ).fetchall()
    return int(row), int(last_seq)


def row_of(connection: sqlite3.Connection, seq: int) -> int:
    """The last row that begins at or below a seq: the one that holds it, if any does."""
    ((low,),) = connection.execute('SELECT "row" FROM log ORDER BY "row" LIMIT 1').fetchall()
    high, _ = last_row(connection)
    while low < high:
        middle = (low + high + 1) // 2
        ((row, first),) = connection.execute(
            'SELECT "row", first_seq FROM log WHERE "row" <= ? ORDER BY "row" DESC LIMIT 1',
            (middle,),
        ).fetchall()
        if first <= seq:
            low = middle
        else:
            high = row - 1
    return int(low)


def log_id_at(connection: sqlite3.Connection, seq: int) -> str | None:
    """The log that an event in the rows belongs to; None where its row has gone."""
    ((first, last, data),) = connection.execute(
        'SELECT first_seq, first_seq + count - 1, CAST(payload AS BLOB) FROM log WHERE "row" <= ? '
        'ORDER BY "row" DESC LIMIT 1',
        (row_of(connection, seq),),
    ).fetchall()
    return decode_head(data).log_id if first <= seq <= last else None


def read_head(connection: sqlite3.Connection) -> PayloadHead:
    """The head of the newest row."""
    ((data,),) = connection.execute(
        'SELECT CAST(payload AS BLOB) FROM log ORDER BY "row" DESC LIMIT 1'
    ).fetchall()
    return decode_head(data)


def last_log_id(connection: sqlite3.Connection) -> str | None:
    """The log of the last event; None before the first, and where no row has events any more."""
    found = connection.execute(
        'SELECT CAST(payload AS BLOB) FROM log WHERE count > 0 ORDER BY "row" DESC LIMIT 1'
    ).fetchall()
    return decode_head(found[0][0]).log_id if found else None


# --- what the writer does for sealing -------------------------------------------------------------


def read_note(connection: sqlite3.Connection) -> LogNote:
    """Read what was noted of sealing; nothing, for a store that was made before there was any."""
    ((has_note,),) = connection.execute(
        "SELECT count(*) FROM sqlite_schema WHERE name = 'sealed_logs'"
    ).fetchall()
    if not has_note:
        return LogNote(0, frozenset(), None)
    ((sealed_seq,),) = connection.execute("SELECT sealed_seq FROM sealed").fetchall()
    log_ids = connection.execute("SELECT log_id FROM sealed_logs").fetchall()
    log_dir = connection.execute("SELECT value FROM store WHERE key = 'log_dir'").fetchone()
    return LogNote(
        int(sealed_seq),
        frozenset(log_id for (log_id,) in log_ids),
        None if log_dir is None else str(log_dir[0]),
    )


def note_sealed(
    connection: sqlite3.Connection,
    sealed_seq: int,
    log_ids: Collection[str],
    gone: Collection[str] = (),
) -> None:
    """Note up to where files hold the events, and in which logs; forget logs that are gone.

    Does not wait for the disk: a note that a power cut takes back is found out again at start.
    """
    with _without_waiting(connection):
        for log_id in log_ids:
            connection.execute("INSERT OR IGNORE INTO sealed_logs VALUES (?)", (log_id,))
        for log_id in gone:
            connection.execute("DELETE FROM sealed_logs WHERE log_id = ?", (log_id,))
        connection.execute(
            "UPDATE sealed SET sealed_seq = ? WHERE sealed_seq <> ?", (sealed_seq, sealed_seq)
        )


def note_directory(connection: sqlite3.Connection, log_dir: str) -> None:
    """Note where the files are, for readers that know the store alone."""
    if read_note(connection).log_dir != log_dir:
        connection.execute("INSERT OR REPLACE INTO store VALUES ('log_dir', ?)", (log_dir,))


def trim(connection: sqlite3.Connection, folded_row: int) -> int:
    """Delete the oldest rows that are folded and sealed, never the newest; return how many.

    What is sealed is what the store has noted. Does not wait for the disk: a deletion that a power
    cut takes back is done again.
    """
    with _without_waiting(connection):
        return connection.execute(_TRIM, (folded_row, TRIM_ROWS)).rowcount


@contextmanager
def _without_waiting(connection: sqlite3.Connection) -> Iterator[None]:
    """Let what is written meanwhile become durable with the next append, and not by itself: the
    append behind it would wait as well. Order is kept: the log of SQLite is synced as a whole.
    """
    connection.execute("PRAGMA synchronous = NORMAL")
    try:
        yield
    finally:
        connection.execute("PRAGMA synchronous = FULL")
