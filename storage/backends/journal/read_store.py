"""Reads the events of a shared store while other processes use it.

Each node that has used the store has its own log, under the id of the node. Reading writes nothing,
and does not register this process with the store.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from groupkeeper.storage.backends.journal.driver import JournalDriver, JournalEnd, JournalEntry
from groupkeeper.storage.backends.journal.journal_rows import JournalRows, SealNote, note_of
from groupkeeper.storage.backends.journal.log_view import LogView, view_of, without_holes
from groupkeeper.storage.blocking_loop import SharedLoop
from groupkeeper.storage.event_log.several_logs import Logs

_NO_END = JournalEnd(None, 1, 0)


class NodeLogs:
    """The logs of one store, over one connection."""

    has_files = True
    is_shared = True

    def __init__(self, new_driver: Callable[[], JournalDriver]) -> None:
        self._new_driver = new_driver
        self._driver: JournalDriver | None = None
        self._loop = SharedLoop(self._connect, self._disconnect)

    def logs(self) -> Logs:
        """Return the log of each node that has written events, by the id of the node. A log whose
        events are all deleted is included.

        Raises StoreRefused if there is no store.
        """
        with self.kept_open():
            ends = self._loop.run(self._ends())
        return {
            str(node_id): partial(self.open_rows, node_id)
            for node_id, end in sorted(ends.items())
            if end.log_id is not None
        }

    def store_name(self, log: str) -> str:
        return ""

    def kept_open(self) -> AbstractContextManager[None]:
        return self._loop.kept_open()

    def open_rows(self, node_id: int) -> JournalRows:
        """Open the log of one node. Raises StoreRefused if there is no store."""
        self._loop.enter()
        driver, loop = self._own(), self._loop
        return JournalRows(driver, _NodeLook(driver, node_id), loop.run, loop.leave)

    def _own(self) -> JournalDriver:
        assert self._driver is not None, "not open"
        return self._driver

    async def _ends(self) -> dict[int, JournalEnd]:
        return {**await self._own().ends()}

    async def _connect(self) -> None:
        self._driver = self._new_driver()
        await self._driver.open_to_read()

    async def _disconnect(self) -> None:
        await self._own().close()


class _NodeLook:
    """Reads the events of one node."""

    def __init__(self, driver: JournalDriver, node_id: int) -> None:
        self._driver = driver
        self._node_id = node_id

    async def view(self) -> LogView:
        """Return the events. Read the end of the log first, so that all events up to it are found.
        Read the entries before the event log, because a fold moves events from the entries to the
        event log.
        """
        end = (await self._driver.ends()).get(self._node_id, _NO_END)
        entries = await self._entries()
        spans = await self._driver.event_logs()
        return without_holes(view_of(spans, entries, end.log_id, end.next_seq))

    async def _entries(self) -> list[JournalEntry]:
        going_on = [life.life_id for life in await self._driver.lives()]
        ended = await self._driver.ended_lives()  # later: a life may end during this
        return [
            entry
            for life_id in dict.fromkeys([*ended, *going_on])
            async for entry in self._driver.journal(life_id)
        ]

    async def newer(self, seq: int) -> LogView | None:
        return None

    async def note(self, view: LogView) -> SealNote:
        data = (await self._driver.seal_notes()).get(self._node_id)
        return SealNote() if data is None else note_of(data)
