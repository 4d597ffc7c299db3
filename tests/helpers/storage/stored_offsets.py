"""Read the offsets of a SQLite store from its file alone: the fold, then the log above it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from groupkeeper.coordinator.core.records import (
    GroupRemoved,
    OffsetsCommitted,
    OffsetsRemoved,
    SavedGroup,
)
from groupkeeper.storage.backends.sqlite.packed import unpack
from groupkeeper.storage.codec.records import decode_head, decode_payload, decode_saved


def stored_offsets(database: Path) -> dict[tuple[str, str, int], int]:
    """Return the offsets by group, topic and partition. Uses the codecs, but not the storage."""
    connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
    try:
        connection.execute("BEGIN")
        found: dict[tuple[str, str, int], int] = {}
        for (state,) in connection.execute("SELECT CAST(state AS BLOB) FROM groups"):
            _apply(found, decode_saved(state))
        ((folded_row,),) = connection.execute("SELECT folded_row FROM fold").fetchall()
        ((newest,),) = connection.execute(
            'SELECT CAST(payload AS BLOB) FROM log ORDER BY "row" DESC LIMIT 1'
        ).fetchall()
        folded_row = max(folded_row, decode_head(unpack(newest)).folded_row)
        for (payload,) in connection.execute(
            'SELECT CAST(payload AS BLOB) FROM log WHERE "row" > ? ORDER BY "row"', (folded_row,)
        ):
            for item in decode_payload(unpack(payload)).items:
                for batch in item.batches:
                    for record in batch.records:
                        _apply(found, record)
        return found
    finally:
        connection.close()


def _apply(found: dict[tuple[str, str, int], int], record: object) -> None:
    match record:
        case SavedGroup(group_id=group, offsets=offsets):
            _clear(found, group)
            for topic, partitions in offsets.items():
                for partition, saved in partitions.items():
                    found[(group, topic, partition)] = saved.offset
        case OffsetsCommitted(group_id=group, topics=topics):
            for committed in topics:
                for partition, offset, *_ in committed.partitions:
                    found[(group, committed.topic, partition)] = offset
        case OffsetsRemoved(group_id=group, partitions=partitions):
            for topic, partition in partitions:
                found.pop((group, topic, partition), None)
        case GroupRemoved(group_id=group):
            _clear(found, group)


def _clear(found: dict[tuple[str, str, int], int], group: str) -> None:
    for key in [key for key in found if key[0] == group]:
        del found[key]
