"""Reads the events of a shared store from outside, beside the process that uses it.

Nothing is written, and no life is begun.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from groupkeeper.storage.backends.journal.driver import JournalDriver, JournalEntry, LogSpan
from groupkeeper.storage.backends.journal.journal_rows import (
    JournalRows,
    SealNote,
    note_of,
)
from groupkeeper.storage.backends.journal.log_view import LogView, log_ends, view_of
from groupkeeper.storage.blocking_loop import BlockingLoop, LoopRunner
from groupkeeper.storage.event_log.several_logs import ONLY_LOG, Logs
from groupkeeper.storage.event_log.source import LogHead


def open_rows(new_driver: Callable[[], JournalDriver], end: LogHead | None = None) -> JournalRows:
    """Connect to a store, and return its rows. Raises StoreRefused if there is no store.

    If several nodes have used the store, the rows are those of the node that wrote last. With
    ``end`` they are those of the node with this last event, which must not use the store.
    """
    driver, run, close = _connect(new_driver)
    return JournalRows(driver, _StoreLook(driver, end), run, close)


def open_logs(new_driver: Callable[[], JournalDriver]) -> Logs:
    """Return the logs of a store that nobody uses: one for each node that has used it.

    The name of each is the id of its last log. Raises StoreRefused if there is no store.
    """
    driver, run, close = _connect(new_driver)
    try:
        ends = run(_StoreLook(driver).ends())
    finally:
        close()
    if len(ends) < 2:
        return {ONLY_LOG: partial(open_rows, new_driver)}
    return {str(end.log_id): partial(open_rows, new_driver, end) for end in ends}


def _connect(
    new_driver: Callable[[], JournalDriver],
) -> tuple[JournalDriver, LoopRunner, Callable[[], None]]:
    """Connect on a loop of a new thread. Return the driver, what runs its calls, and what closes
    both.
    """
    driver, loop = new_driver(), BlockingLoop("event-log-loop")

    def close() -> None:
        try:
            loop.run(driver.close())
        finally:
            loop.close()

    try:
        loop.run(driver.open_to_read())
    except BaseException:
        close()
        raise
    return driver, loop.run, close


class _StoreLook:
    """Looks at the events of the node that wrote last, or of the one with a given last event."""

    def __init__(self, driver: JournalDriver, end: LogHead | None = None) -> None:
        self._driver = driver
        self._end = end

    async def view(self) -> LogView:
        spans, entries = await self._events()
        ends = log_ends(spans, entries) if self._end is None else [self._end]
        head, last_seq = ends[-1] if ends else LogHead(None, 0)
        return view_of(spans, entries, head, last_seq + 1)

    async def ends(self) -> list[LogHead]:
        return log_ends(*await self._events())

    async def _events(self) -> tuple[Sequence[LogSpan], Sequence[JournalEntry]]:
        entries = await self._entries()  # first: a fold moves them into the event log
        return await self._driver.event_logs(), entries

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
        for note in notes:
            if note.store in view.logs or not note.log_ids.isdisjoint(view.logs):
                return note
        # Older versions did not name the store.
        left = [note for note in notes if note.log_dir and not note.store] or notes
        return left[0] if len(left) == 1 and self._end is None else SealNote()
