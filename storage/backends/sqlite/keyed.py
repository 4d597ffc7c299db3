"""The table ``keyed`` of the SQLite backend, with the keyed records: topics, configs and ends of
partitions.

An append first writes its row of the log. A second statement then writes its keyed records into
this table. A crash or a full disk between the two leaves only the row. So a load writes the records
that the table lacks. Otherwise a later fold, which saves the state of groups, could declare that
row folded. The next load would then not read the row.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from groupkeeper.coordinator.core.records import Record
from groupkeeper.storage.backends.sqlite import tables
from groupkeeper.storage.base import Batch, LeaseEpoch, ShardId
from groupkeeper.storage.codec.records import WITH_OWN_KEY, encode_record, own_key

KeyedRow: TypeAlias = tuple[ShardId, str, bytes | None]
"""A row of the table to write. If its record is None, the row is deleted."""

_ROWS_PER_STATEMENT = 1_000

_Changes: TypeAlias = dict[tuple[ShardId, str], Record | None]


def keyed_changes(batches: Iterable[tuple[ShardId, Batch]]) -> list[KeyedRow]:
    """Return the last record of each key in an append, or None for a key that was cleared.
    ``batches`` may leave out batches without keyed records.

    Keyed records are few. So each append writes all of its keyed records, and no request waits for
    that.
    """
    changes: _Changes = {}
    for shard, batch in batches:
        _note(changes, shard, (batch,))
    return [
        (shard, key, None if record is None else encode_record(record))
        for (shard, key), record in changes.items()
    ]


class LoadedKeys:
    """Compares the keyed records in the table with those in the log, during a load."""

    def __init__(self) -> None:
        self._table: dict[tuple[ShardId, str], bytes] = {}
        self._changes: _Changes = {}

    def in_table(self, shard: ShardId, key: str, data: bytes) -> None:
        """Add a row of the table."""
        self._table[shard, key] = data

    def in_log(self, shard: ShardId, batches: Sequence[Batch]) -> None:
        """Add the records of a row of the log."""
        _note(self._changes, shard, batches)

    def missing(self) -> list[KeyedRow]:
        """Return the rows to write, so that the table has the same records as the log."""
        found: list[KeyedRow] = []
        for (shard, key), record in self._changes.items():
            data = None if record is None else encode_record(record)
            if data != self._table.get((shard, key)):
                found.append((shard, key, data))
        return found


def write_keyed(writer: sqlite3.Connection, keyed: Sequence[KeyedRow], epoch: LeaseEpoch) -> None:
    """Write and delete rows of the table, up to a thousand in each statement. Nothing changes if
    another process has a newer lease.
    """
    set_ = [row for row in keyed if row[2] is not None]
    cleared = [row[:2] for row in keyed if row[2] is None]
    for part in _parts(set_):
        writer.execute(tables.save_keyed(len(part)), (*itertools.chain(*part), epoch))
    for gone in _parts(cleared):
        writer.execute(tables.remove_keyed(len(gone)), (*itertools.chain(*gone), epoch))


def _note(changes: _Changes, shard: ShardId, batches: Sequence[Batch]) -> None:
    for batch in batches:
        for record in batch.records:
            if type(record) in WITH_OWN_KEY:
                key, is_set = own_key(record)
                changes[shard, key] = record if is_set else None


def _parts(rows: Sequence[tuple[object, ...]]) -> Iterator[Sequence[tuple[object, ...]]]:
    for start in range(0, len(rows), _ROWS_PER_STATEMENT):
        yield rows[start : start + _ROWS_PER_STATEMENT]
