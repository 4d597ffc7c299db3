"""Load a SQLite store: read the folded groups, then the rows of the log that are not folded.

To fold a group is to write its whole present state into its own row.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from groupkeeper.coordinator.core.records import OffsetsCommitted, Record
from groupkeeper.storage.backends.sqlite import tables
from groupkeeper.storage.backends.sqlite.fold import FoldMap, GroupKey, changes_of
from groupkeeper.storage.backends.sqlite.keyed import LoadedKeys
from groupkeeper.storage.backends.sqlite.packed import unpack
from groupkeeper.storage.backends.sqlite.stored_names import decode_name
from groupkeeper.storage.base import ShardId, StorageError, StoreRefused
from groupkeeper.storage.codec.records import (
    Payload,
    PayloadHead,
    decode_head,
    decode_payload,
    decode_record,
    decode_saved,
)

LOAD_CHUNK_ROWS = 256
LOAD_CHUNK_BYTES = 128 * 1024
"""The bytes that the thread reads and decodes in one job of one or two milliseconds. The loop can
run between two jobs. With a smaller limit, a load of 20,000 rows spent more time on starting jobs
than on reading rows."""

_T = TypeVar("_T")


class Run(Protocol):
    """A function that does work on the thread of a store, and returns the result of the work.

    Raises StorageError if SQLite fails.
    """

    async def __call__(self, work: Callable[[], _T], /) -> _T: ...


class LogEnd(NamedTuple):
    """The last row of the log, and the row up to which everything is folded."""

    row: int
    next_seq: int
    head: PayloadHead
    folded_row: int


def read_log_end(connection: sqlite3.Connection, path: Path) -> LogEnd:
    """Read the end of the log. Raises StoreRefused if its last row cannot be read."""
    ((row, next_seq, head, folded_row),) = connection.execute(
        'SELECT "row", first_seq + count, CAST(payload AS BLOB), folded_row FROM log, fold '
        'ORDER BY "row" DESC LIMIT 1'
    ).fetchall()
    try:
        decoded = decode_head(unpack(head))
    except StorageError as error:
        raise _unreadable(path, f"row {row} of table log", error) from error
    return LogEnd(row, next_seq, decoded, max(folded_row, decoded.folded_row))


def _unreadable(path: Path, where: str, error: StorageError) -> StoreRefused:
    """Return the error for a row that cannot be read.

    A retry would read the same row, and a load without it would lose acknowledged changes.
    """
    return StoreRefused(
        f"{path}: {where}: {error}; a newer groupkeeper wrote it, or it is damaged: "
        "run that version, or restore the last backup"
    )


def _text(name: bytes) -> str:
    return repr(name.decode(errors="replace"))


class SqliteLoad:
    """One load of a store, in one read transaction. After the end of ``read``, the attributes
    ``end``, ``fold`` and ``keys`` describe the store.
    """

    end: LogEnd

    def __init__(self, run: Run, path: Path, busy_timeout_s: float, fold: FoldMap) -> None:
        """Create a load that adds each unfolded row to ``fold``. ``fold`` must be new."""
        self._run = run
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self.fold = fold
        self.keys = LoadedKeys()
        self._cursors: list[sqlite3.Cursor] = []

    async def read(
        self, wanted: Collection[ShardId]
    ) -> AsyncGenerator[tuple[ShardId, Sequence[Record]], None]:
        """Yield the records of the wanted shards, in order within a shard."""
        reader = await self._run(partial(tables.connect_reader, self._path, self._busy_timeout_s))
        try:
            await self._run(partial(reader.execute, "BEGIN"))
            self.end = await self._run(partial(read_log_end, reader, self._path))
            async with aclosing(self._folded(reader)) as folded:
                async for shard, records in folded:
                    if shard in wanted:
                        yield shard, records
            rows = await self._select(reader, _SELECT_ROWS, self.end.folded_row)
            while chunk := await self._run(partial(_fetch_rows, rows, self._path)):
                for shard_records in self._by_shard(chunk, wanted).items():
                    yield shard_records
        finally:
            await self._close(reader)

    def _by_shard(
        self, chunk: Sequence[tuple[int, Payload]], wanted: Collection[ShardId]
    ) -> dict[ShardId, list[Record]]:
        """Process rows of the log: record in ``fold`` and ``keys`` what they change. Return the
        records of the wanted shards, by shard.
        """
        found: dict[ShardId, list[Record]] = {}
        for row, payload in chunk:
            if (only := _only_commit(payload)) is not None:
                shard, record = only
                self.fold.note_commit(row, shard, record.group_id)
                if shard in wanted:
                    found.setdefault(shard, []).append(record)
                continue
            self.fold.note(row, changes_of(payload.items))
            for item in payload.items:
                self.keys.in_log(item.shard, item.batches)
                if item.shard in wanted:
                    records = found.setdefault(item.shard, [])
                    for batch in item.batches:
                        records += batch.records
        return found

    async def _folded(
        self, reader: sqlite3.Connection
    ) -> AsyncGenerator[tuple[ShardId, Sequence[Record]], None]:
        for shard, name, data in await self._run(lambda: reader.execute(_SELECT_KEYED).fetchall()):
            key = decode_name(name)
            self.keys.in_table(shard, key, data)
            yield shard, [self._record(data, f"row {key!r} of table keyed")]
        groups = await self._select(reader, _SELECT_GROUPS)
        while chunk := await self._run(partial(_fetch_groups, groups, self._path)):
            for shard, rows in itertools.groupby(chunk, key=lambda row: row[0]):
                yield shard, [record for _, record in rows]
        self.fold.has_parts.update(await self._run(lambda: _read_keys(reader)))
        parts = await self._select(reader, _SELECT_PARTS)
        while part := await self._run(parts.fetchone):
            shard, data, group_id = part
            yield shard, [self._record(data, f"group {_text(group_id)} in table group_parts")]

    def _record(self, data: bytes, where: str) -> Record:
        try:
            return decode_record(data)
        except StorageError as error:
            raise _unreadable(self._path, where, error) from error

    async def _select(
        self, reader: sqlite3.Connection, query: str, *arguments: int
    ) -> sqlite3.Cursor:
        cursor = await self._run(partial(reader.execute, query, arguments))
        self._cursors.append(cursor)
        return cursor

    async def _close(self, reader: sqlite3.Connection) -> None:
        try:
            await self._run(partial(self._close_now, reader))
        except StorageError:
            self._close_now(reader)  # the storage was closed meanwhile: the thread has ended

    def _close_now(self, reader: sqlite3.Connection) -> None:
        """Close the connection, and its cursors too: the read transaction ends only with the last
        of them. If the load was cancelled, the traceback of the error keeps them for a while, and
        meanwhile no checkpoint could copy the whole WAL.
        """
        for cursor in self._cursors:
            cursor.close()
        reader.close()


def _only_commit(payload: Payload) -> tuple[ShardId, OffsetsCommitted] | None:
    """Return the shard and the commit of an append that has nothing else. A slow client makes such
    an append for each of its commits, and a log of them has the most rows.
    """
    if len(payload.items) == 1:
        item = payload.items[0]
        if len(item.batches) == 1:
            records = item.batches[0].records
            if len(records) == 1 and type(records[0]) is OffsetsCommitted:
                return item.shard, records[0]
    return None


_SELECT_KEYED = "SELECT shard, CAST(key AS BLOB), CAST(record AS BLOB) FROM keyed"

_SELECT_GROUPS = (
    "SELECT shard, CAST(state AS BLOB), CAST(group_id AS BLOB) FROM groups ORDER BY shard, group_id"
)

_SELECT_ROWS = 'SELECT "row", CAST(payload AS BLOB) FROM log WHERE "row" > ? ORDER BY "row"'

_SELECT_PARTS = """SELECT shard, CAST(p.state AS BLOB), CAST(group_id AS BLOB)
    FROM group_parts AS p JOIN groups USING (shard, group_id, part_set)
    ORDER BY shard, group_id, part"""


def _read_keys(reader: sqlite3.Connection) -> list[GroupKey]:
    found = reader.execute("SELECT DISTINCT shard, CAST(group_id AS BLOB) FROM group_parts")
    return [(shard, decode_name(name)) for shard, name in found]


def _fetch_rows(rows: sqlite3.Cursor, path: Path) -> list[tuple[int, Payload]]:
    """Read and decode the next rows of the log: many small rows, or one large row."""
    chunk: list[tuple[int, Payload]] = []
    left = LOAD_CHUNK_BYTES
    for number, value in rows:
        try:
            payload = unpack(value)
            chunk.append((number, decode_payload(payload)))
        except StorageError as error:
            raise _unreadable(path, f"row {number} of table log", error) from error
        left -= len(payload)
        if left <= 0 or len(chunk) == LOAD_CHUNK_ROWS:
            break
    return chunk


def _fetch_groups(groups: sqlite3.Cursor, path: Path) -> list[tuple[ShardId, Record]]:
    """Read and decode the next folded groups, as ``_fetch_rows`` does."""
    chunk: list[tuple[ShardId, Record]] = []
    left = LOAD_CHUNK_BYTES
    for shard, data, group_id in groups:
        decode_name(group_id)  # with a damaged name, the group's parts would not be found
        try:
            chunk.append((shard, decode_saved(data)))
        except StorageError as error:
            raise _unreadable(path, f"group {_text(group_id)} in table groups", error) from error
        left -= len(data)
        if left <= 0 or len(chunk) == LOAD_CHUNK_ROWS:
            break
    return chunk
