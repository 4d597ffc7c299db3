"""The events of entries that leave the journal."""

from __future__ import annotations

import asyncio

from groupkeeper.storage.backends.journal.driver import JournalEntry
from groupkeeper.storage.backends.journal.succession import event_rows
from groupkeeper.storage.base import Batch, ShardAppend
from groupkeeper.storage.codec.events import Stamp
from groupkeeper.storage.codec.records import encode_payload
from tests.helpers.core.records import commit


async def test_the_loop_turns_after_each_entry_whose_events_are_rendered():
    """A full journal has thousands of events. Rendered at once, they would stop every client."""
    turns_before = []

    def an_entry(row):
        batch = Batch([commit("g", row)], [])
        items = [ShardAppend(0, 1, [batch], lambda _: None)]
        payload = encode_payload(Stamp("log", 1, 1), 0, items)
        return JournalEntry(row, row, 1, "log", 1, payload)

    async def turn():
        for number in range(100):
            turns_before.append(number)
            await asyncio.sleep(0)

    turning = asyncio.create_task(turn())
    rows = await event_rows([an_entry(row) for row in (1, 2, 3)])
    assert len(turns_before) >= 3
    turning.cancel()
    assert [row.seq for row in rows] == [1, 2, 3]
