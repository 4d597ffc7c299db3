"""Converts saved values of groups and records to rows of PostgreSQL, and back."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Sequence
from typing import Final

import asyncpg

from groupkeeper.storage.backends.journal.driver import LoggedEvent, Value
from groupkeeper.storage.backends.journal.logged_events import logged_event
from groupkeeper.storage.backends.postgres import tables
from groupkeeper.storage.backends.postgres.names import escaped, key_of, unescaped
from groupkeeper.storage.base import ShardId

PIECE_BYTES: Final = 1024 * 1024
"""A group with more bytes is sent in pieces of this size."""


def value_of(row: asyncpg.Record, is_group: bool) -> Value:
    """Return the saved value in a row."""
    return Value(row["shard"], is_group, unescaped(row["name"]), row["state"].encode())


def logged_of(row: asyncpg.Record) -> LoggedEvent:
    """Return the event in a row."""
    return logged_event(row["event"].encode())


def ranges_of(shards: Collection[ShardId]) -> list[tuple[ShardId, ShardId]]:
    """Return the shards as ranges, each with its first and its last shard."""
    ranges: list[tuple[ShardId, ShardId]] = []
    for shard in sorted(shards):
        if ranges and ranges[-1][1] == shard - 1:
            ranges[-1] = ranges[-1][0], shard
        else:
            ranges.append((shard, shard))
    return ranges


async def _write_in_pieces(connection: asyncpg.Connection, groups: Sequence[Value]) -> None:
    """Save large groups, and send them in pieces. One argument of tens of megabytes would hold the
    loop for hundreds of milliseconds.
    """
    await connection.execute(tables.STAGE)
    for group in groups:
        data = group.data or b""
        cut = (data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))
        # A cut may split a character. The incremental decoder joins its bytes.
        for number, piece in enumerate(codecs.iterdecode(cut, "utf-8")):
            await connection.execute(tables.STAGE_PIECE, number, piece)
        name = key_of(group.key), escaped(group.key)
        await connection.execute(tables.SAVE_STAGED, group.shard, *name)
        await connection.execute(tables.CLEAR_STAGE)


async def write_values(connection: asyncpg.Connection, values: Sequence[Value]) -> None:
    """Save values. A value without data is deleted."""
    for is_group, save, remove in (
        (True, tables.SAVE_GROUPS, tables.REMOVE_GROUPS),
        (False, tables.SAVE_KEYED, tables.REMOVE_KEYED),
    ):
        there = [each for each in values if each.is_group is is_group and each.data is not None]
        gone = [each for each in values if each.is_group is is_group and each.data is None]
        large = [each for each in there if is_group and len(each.data or b"") > PIECE_BYTES]
        if large and await connection.fetchval(tables.MAY_STAGE):
            await _write_in_pieces(connection, large)
            there = [each for each in there if each not in large]
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
