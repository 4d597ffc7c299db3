"""Reads and writes folded values as rows of PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from groupkeeper.storage.backends.journal.driver import Value
from groupkeeper.storage.backends.postgres import tables
from groupkeeper.storage.backends.postgres.names import escaped, key_of, unescaped


def value_of(row: asyncpg.Record, is_group: bool) -> Value:
    """Return the folded value in a row."""
    return Value(row["shard"], is_group, unescaped(row["name"]), row["state"].encode())


async def write_values(connection: asyncpg.Connection, values: Sequence[Value]) -> None:
    """Save values, and remove those without data."""
    for is_group, save, remove in (
        (True, tables.SAVE_GROUPS, tables.REMOVE_GROUPS),
        (False, tables.SAVE_KEYED, tables.REMOVE_KEYED),
    ):
        there = [each for each in values if each.is_group is is_group and each.data is not None]
        gone = [each for each in values if each.is_group is is_group and each.data is None]
        if there:
            await connection.execute(
                save,
                [value.shard for value in there],
                [key_of(value.key) for value in there],
                [escaped(value.key) for value in there],
                [(value.data or b"").decode() for value in there],
            )
        if gone:
            await connection.execute(
                remove, [value.shard for value in gone], [key_of(value.key) for value in gone]
            )
