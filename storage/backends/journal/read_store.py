"""Reads the events of a shared store from outside, beside the process that uses it.

Nothing is written, and no life is begun.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from groupkeeper.storage.backends.journal.driver import JournalDriver, JournalEntry
from groupkeeper.storage.backends.journal.journal_rows import (
    JournalRows,
    LoopRunner,
    SealNote,
    note_of,
)
from groupkeeper.storage.backends.journal.log_view import LogView, newest_end, view_of


def open_rows(new_driver: Callable[[], JournalDriver]) -> JournalRows:
    """Connect to a store, and return its rows. Raises StoreRefused if there is no store.

    If several nodes have used the store, the rows are those of the node that wrote last.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="event-log-loop", daemon=True)
    thread.start()
    run = LoopRunner(loop)

    def end() -> None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    driver = new_driver()

    def close() -> None:
        try:
            run(driver.close())
        finally:
            end()

    try:
        run(driver.open_to_read())
    except BaseException:
        close()
        raise
    return JournalRows(driver, _StoreLook(driver), run, close)


class _StoreLook:
    """Looks at the events of the node that wrote last."""

    def __init__(self, driver: JournalDriver) -> None:
        self._driver = driver

    async def view(self) -> LogView:
        entries = await self._entries()  # first: a fold moves them into the event log
        spans = await self._driver.event_logs()
        head, last_seq = newest_end(spans, entries)
        return view_of(spans, entries, head, last_seq + 1)

    async def _entries(self) -> list[JournalEntry]:
        ended = await self._driver.ended_lives()
        going_on = [life.life_id for life in await self._driver.lives()]
        return [
            entry
            for life_id in [*ended, *going_on]
            async for entry in self._driver.journal(life_id)
        ]

    async def newer(self, seq: int) -> LogView | None:
        return None

    async def note(self, view: LogView) -> SealNote:
        notes = [note_of(data) for data in (await self._driver.seal_notes()).values()]
        logs = {span.log_id for span in view.spans} | {entry.log_id for entry in view.entries}
        own = [note for note in notes if not note.log_ids.isdisjoint(logs)]
        if not own and len(notes) == 1:
            own = notes
        return own[0] if own else SealNote()
