"""Folds the journal of a process that has ended, before its shards become free.

A *life* is the registration of a process with the store. It has a journal: one entry for each
append.

To fold a journal is to write the present values of the groups and records that its entries change,
and to delete these entries. So a load reads only saved values, and no journal of another process.
Several processes may fold the same journal at the same time, and each of them may stop in between.
They all compute the same values, and the driver refuses a fold after the shards were freed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from groupkeeper.coordinator.core.records import SavedGroup
from groupkeeper.storage.backends.journal.driver import (
    Fold,
    JournalDriver,
    JournalEntry,
    LoggedEvent,
    Value,
)
from groupkeeper.storage.backends.journal.unfolded import Unfolded
from groupkeeper.storage.base import ShardId, StorageError
from groupkeeper.storage.codec.records import decode_payload, decode_saved
from groupkeeper.storage.event_log.lines import row_lines
from groupkeeper.storage.keyed import KeyedRecords

PORTION_ENTRIES: Final = 50
"""The largest number of journal entries that one fold deletes. An entry may have many events."""

PORTION_BYTES: Final = 4 * 1024 * 1024
"""A fold gets no further journal entry once its entries have this number of bytes. All of them are
in memory at the same time."""


async def fold_ended(driver: JournalDriver, life_id: str, ended: str) -> None:
    """Fold the journal of the life ``ended``, and free its shards. ``life_id`` is our own life."""
    portion: list[JournalEntry] = []
    size = 0
    async for entry in driver.journal(ended):
        portion.append(entry)
        size += len(entry.payload)
        if len(portion) == PORTION_ENTRIES or size >= PORTION_BYTES:
            await driver.fold(life_id, ended, await _fold_of(driver, portion))
            portion, size = [], 0
    if portion:
        await driver.fold(life_id, ended, await _fold_of(driver, portion))
    await driver.free(life_id, ended)


async def _fold_of(driver: JournalDriver, entries: Sequence[JournalEntry]) -> Fold:
    """Return the fold of some journal entries: the entries applied to the saved values of the
    groups that they change.
    """
    unfolded = Unfolded()
    shards: dict[ShardId, KeyedRecords] = {}
    payloads = [decode_payload(entry.payload) for entry in entries]
    for entry, payload in zip(entries, payloads, strict=True):
        unfolded.note(entry.row, payload.items)
        for item in payload.items:
            shards.setdefault(item.shard, KeyedRecords())
    for value in await driver.read_groups(unfolded.groups()):
        if value.data is not None:
            shards[value.shard].apply(_saved(value.key, value.data))
    for payload in payloads:
        for item in payload.items:
            for batch in item.batches:
                for record in batch.records:
                    shards[item.shard].apply(record)
    saved = {shard: keyed.saved for shard, keyed in shards.items()}
    values: list[Value] = []
    while unfolded.has_changes:
        values += await unfolded.take(saved, entries[-1].row).encoded()
    return Fold(values, entries[-1].row, await event_rows(entries))


def _saved(group_id: str, data: bytes) -> SavedGroup:
    try:
        return decode_saved(data)
    except StorageError as error:
        raise StorageError(f"the value of group {group_id!r} cannot be read: {error}") from error


async def event_rows(entries: Sequence[JournalEntry]) -> list[LoggedEvent]:
    """Return the events of entries that a fold deletes from the journal, as lines for the event
    log.

    Other tasks run after each entry. A full journal has thousands of events, which would block the
    loop for 30 ms and more.
    """
    rows = []
    for entry in entries:
        found = row_lines(entry.first_seq, entry.payload)
        for seq, line in enumerate(found.lines, entry.first_seq):
            rows.append(LoggedEvent(found.log_id, seq, found.ts_ms, line))
        await asyncio.sleep(0)
    return rows
