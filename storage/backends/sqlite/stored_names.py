"""Repair the names of groups, topics and configs in the tables with their saved state.

On a damaged page a name may no longer be UTF-8. Such a row would belong to no group, and its
content would be lost without an error. The record in the row also contains the name. So the row
gets that name again, and the load is repeated.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from groupkeeper.coordinator.core.records import SavedOffsets
from groupkeeper.storage.base import LeaseEpoch, StorageError, StoreRefused
from groupkeeper.storage.codec.records import decode_record, decode_saved, own_key


class DamagedName(StorageError):
    """A name is not UTF-8. A load raises this, and the names are then repaired."""


class _Names(NamedTuple):
    """One table, with its column of names and its column of records that contain the same names."""

    table: str
    name: str
    record: str
    of_record: Callable[[bytes], str]


def _group_of_part(data: bytes) -> str:
    record = decode_record(data)
    if not isinstance(record, SavedOffsets):
        raise StorageError(f"a part of a group holds a record of type {type(record).__name__}")
    return record.group_id


_TABLES: Final = (
    _Names("keyed", "key", "record", lambda data: own_key(decode_record(data))[0]),
    _Names("groups", "group_id", "state", lambda data: decode_saved(data).group_id),
    _Names("group_parts", "group_id", "state", _group_of_part),
)


def decode_name(data: bytes) -> str:
    """Decode a name. Raises DamagedName if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DamagedName(f"the name {data!r} is not UTF-8") from error


def repair_names(writer: sqlite3.Connection, path: Path, epoch: LeaseEpoch) -> str:
    """Give damaged rows the names in their records. Return a sentence that lists these names.

    Raises StoreRefused if a record cannot be read either.
    """
    repaired = [
        f"row {row} of table {names.table}: {problem}"
        for names in _TABLES
        for row, problem in _damaged(writer, names)
        if _is_repaired(writer, path, names, row, epoch)
    ]
    return (
        f"{path}: {'; '.join(repaired)}; each row got the name that its record holds, and the load "
        "is repeated. A page of the file was damaged: look at the disk"
    )


def _damaged(writer: sqlite3.Connection, names: _Names) -> list[tuple[int, DamagedName]]:
    found = []
    for row, name in writer.execute(
        f"SELECT rowid, CAST({names.name} AS BLOB) FROM {names.table}"  # noqa: S608 - our names
    ):
        try:
            decode_name(name)
        except DamagedName as problem:
            found.append((row, problem))
    return found


def _is_repaired(
    writer: sqlite3.Connection, path: Path, names: _Names, row: int, epoch: LeaseEpoch
) -> bool:
    """Give a row the name in its record. Return False if another process has the lease.

    If another row already has this name, delete the damaged row: the other row was written after
    the damage.
    """
    table, name, record, of_record = names
    ((data,),) = writer.execute(
        f"SELECT CAST({record} AS BLOB) FROM {table} WHERE rowid = ?",  # noqa: S608
        (row,),
    ).fetchall()
    try:
        named = of_record(data)
    except StorageError as error:
        raise StoreRefused(
            f"{path}: row {row} of table {table}: its name is not UTF-8, and {error}; the file is "
            "damaged: restore the last backup"
        ) from error
    is_ours = "rowid = ? AND (SELECT epoch FROM lease) = ?"
    changed = writer.execute(
        f"UPDATE OR IGNORE {table} SET {name} = ? WHERE {is_ours}",  # noqa: S608
        (named, row, epoch),
    )
    if changed.rowcount == 0:
        changed = writer.execute(f"DELETE FROM {table} WHERE {is_ours}", (row, epoch))  # noqa: S608
    return changed.rowcount == 1
