"""The table of the SQLite backend for records with a key of their own: topics, configs, ends.

It is written behind the row of the log that sets them, by a statement of its own: a crash between
the two, or a disk that is full, leaves the row alone. What is known of the fold is about groups, so
the next row would tell that all below it is folded. A load therefore writes what the table lacks.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from groupkeeper.coordinator.core.records import Record
from groupkeeper.storage.backends.sqlite import schema
from groupkeeper.storage.base import Batch, LeaseEpoch, ShardAppend, ShardId
from groupkeeper.storage.codec.records import WITH_OWN_KEY, encode_record, own_key

KeyedRow: TypeAlias = tuple[ShardId, str, bytes | None]
"""A row to write; without a record, to remove."""

_ROWS_PER_STATEMENT = 1_000

_Changes: TypeAlias = dict[tuple[ShardId, str], Record | None]


def keyed_changes(items: Sequence[ShardAppend]) -> list[KeyedRow]:
    """Find the last record of each key of its own; None where it was cleared.

    They are few, so they go into their table with the append itself and are never waited for.
    """
    changes: _Changes = {}
    for item in items:
        _note(changes, item.shard, item.batches)
    return [
        (shard, key, None if record is None else encode_record(record))
        for (shard, key), record in changes.items()
    ]


class LoadedKeys:
    """What a load has read of the table, and of the log above it."""

    def __init__(self) -> None:
        """Start with an empty table."""
        self._table: dict[tuple[ShardId, str], bytes] = {}
        self._changes: _Changes = {}

    def in_table(self, shard: ShardId, key: str, data: bytes) -> None:
        """A row of the table."""
        self._table[shard, key] = data

    def in_log(self, shard: ShardId, batches: Sequence[Batch]) -> None:
        """What the log says later."""
        _note(self._changes, shard, batches)

    def missing(self) -> list[KeyedRow]:
        """The rows by which the table falls short of the log."""
        found: list[KeyedRow] = []
        for (shard, key), record in self._changes.items():
            data = None if record is None else encode_record(record)
            if data != self._table.get((shard, key)):
                found.append((shard, key, data))
        return found


def write_keyed(writer: sqlite3.Connection, keyed: Sequence[KeyedRow], epoch: LeaseEpoch) -> None:
    """Write and remove rows, a thousand a statement; changes nothing under an older lease."""
    set_ = [row for row in keyed if row[2] is not None]
    cleared = [row[:2] for row in keyed if row[2] is None]
    for part in _parts(set_):
        writer.execute(schema.save_keyed(len(part)), (*itertools.chain(*part), epoch))
    for gone in _parts(cleared):
        writer.execute(schema.remove_keyed(len(gone)), (*itertools.chain(*gone), epoch))


def _note(changes: _Changes, shard: ShardId, batches: Sequence[Batch]) -> None:
    for batch in batches:
        for record in batch.records:
            if type(record) in WITH_OWN_KEY:
                key, is_set = own_key(record)
                changes[shard, key] = record if is_set else None


def _parts(rows: Sequence[tuple[object, ...]]) -> Iterator[Sequence[tuple[object, ...]]]:
    for start in range(0, len(rows), _ROWS_PER_STATEMENT):
        yield rows[start : start + _ROWS_PER_STATEMENT]
