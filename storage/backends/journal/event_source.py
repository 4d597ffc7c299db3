"""The events of an open store with a journal, as sealing reads them (``event_log.source``). To seal
events is to move them into files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from groupkeeper.storage.backends.journal.driver import JournalDriver, JournalEnd, JournalEntry
from groupkeeper.storage.backends.journal.journal_rows import (
    JournalRows,
    SealNote,
    note_of,
    shared_name,
)
from groupkeeper.storage.backends.journal.log_view import LogView, view_of
from groupkeeper.storage.base import StorageError
from groupkeeper.storage.blocking_loop import LoopRunner
from groupkeeper.storage.event_log.log_clock import LogClock, LogReason
from groupkeeper.storage.event_log.source import Address, LogHead
from groupkeeper.storage.event_log.store_names import StoreName


class OwnJournal(Protocol):
    """The facts about the journal of this process that ``JournalEvents`` reads."""

    def life_id(self) -> str | None:
        """Return the id of our registration with the store; None if it has ended."""

    def entries(self) -> Sequence[JournalEntry]:
        """Return the entries that may still be in the journal."""

    def end(self) -> JournalEnd:
        """Return the position of the last durable event."""

    def generation(self) -> int:
        """Return a number that changes if the store has lost events."""


class JournalEvents:
    """The events of this process in an open store. A thread of this process moves them into files
    (seals them).
    """

    address: Address | None = None

    def __init__(
        self, driver: JournalDriver, node_id: int, own: OwnJournal, clock: LogClock
    ) -> None:
        self.clock = clock
        self._driver = driver
        self._node_id = node_id
        self._own = own
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop on which the store was opened."""
        self._note: SealNote | None = None
        """The note of this node in the store; None until it is read."""
        self._sealed_seq = 0
        self._trimmed = 0, 0
        """Two seqs at the last ``trim`` that found nothing to delete: the last sealed event, and
        the first event that was still in the journal."""

    def open_rows(self) -> JournalRows:
        run = LoopRunner(_running_loop(self._loop))
        return JournalRows(self._driver, _OwnLook(self, self._own.generation()), run)

    def opened(self) -> None:
        """Remember the loop on which the store was opened, and forget what was read before."""
        self._loop = asyncio.get_running_loop()
        self._note = None
        self._sealed_seq, self._trimmed = 0, (0, 0)

    async def head(self) -> LogHead:
        end = self._own.end()
        return LogHead(end.log_id, end.next_seq - 1)

    async def view(self) -> LogView:
        """Return the events of this node. Read the entries before the event log, because a fold
        moves events from the entries to the event log.
        """
        entries = [*self._own.entries()]
        end = self._own.end()
        spans = await self._driver.event_logs()
        return view_of(spans, entries, end.log_id, end.next_seq)

    def newer(self, seq: int) -> LogView | None:
        """Return only the events of the journal entries, if they include all events above ``seq``.
        Return None otherwise: the caller then needs ``view``. Raises StorageError if the store has
        lost the event ``seq``.
        """
        end = self._own.end()
        if seq >= end.next_seq:
            raise StorageError(f"{self._driver.name}: has lost event {seq}")
        entries = [entry for entry in self._own.entries() if entry.event_count]
        first_seq = entries[0].first_seq if entries else end.next_seq
        return LogView([], entries, end.next_seq) if seq + 1 >= first_seq else None

    def generation(self) -> int:
        return self._own.generation()

    async def note(self) -> SealNote:
        if self._note is None:
            stored = (await self._driver.seal_notes()).get(self._node_id)
            self._note = SealNote() if stored is None else note_of(stored)
        return self._note

    async def note_place(self, log_dir: str) -> None:
        note = await self.note()
        if note.log_dir != log_dir:
            await self._write(replace(note, log_dir=log_dir), self._life_id())

    async def note_sealed(self, seq: int, new: Collection[str], gone: Collection[str]) -> None:
        note = await self.note()
        log_ids = (note.log_ids | {*new}) - {*gone}
        if (log_ids, seq) != (note.log_ids, note.sealed_seq):
            await self._write(replace(note, log_ids=log_ids, sealed_seq=seq), self._life_id())
        self._sealed_seq = seq

    async def begin_log(self, life_id: str, end: JournalEnd, reason: LogReason) -> None:
        """Begin the log of a life, after the last log of its node. Record the name of the store for
        this node (``SealNote``): the name that other nodes have recorded, or a new one. Only one
        process uses the store at a time, so two nodes cannot choose two names.
        """
        note = await self.note()
        self.clock.begin(end.log_id, end.ts_ms or None, reason, store=note.store)
        shared = shared_name(await self._driver.seal_notes()) or self.clock.store
        self.clock.store = str(StoreName(shared, str(self._node_id)))
        if note.store != self.clock.store:
            await self._write(replace(note, store=self.clock.store), life_id)

    async def _write(self, note: SealNote, life_id: str) -> None:
        await self._driver.write_seal_note(life_id, self._node_id, msgspec.json.encode(note))
        self._note = note

    async def trim(self, sealed_row: int) -> int:
        """Delete the oldest events that are in files, if the store has room for few events. Return
        how many stored values were deleted.

        Only events of logs that are recorded as sealed (``SealNote.log_ids``) are deleted. If the
        store was set back to an older state, a new log uses the same seqs again. The events of the
        new log may be in no file yet.
        """
        sealed_seq, entries = self._sealed_seq, self._own.entries()
        folded_to = entries[0].first_seq if entries else self._own.end().next_seq
        trimmed_seq, trimmed_to = self._trimmed
        was_all_folded = trimmed_to == folded_to or trimmed_to > sealed_seq
        if self._driver.keeps_events or (trimmed_seq == sealed_seq and was_all_folded):
            return 0
        view, note = await self.view(), await self.note()
        sealed = {
            span.log_id: min(span.last_seq, sealed_seq)
            for span in view.spans
            if span.log_id in note.log_ids
        }
        deleted = await self._driver.trim_events(self._life_id(), sealed)
        if not deleted:
            self._trimmed = sealed_seq, folded_to
        return deleted

    def _life_id(self) -> str:
        life_id = self._own.life_id()
        if life_id is None:
            raise StorageError(f"{self._driver.name}: the life of this process has ended")
        return life_id


class _OwnLook:
    """Reads the events of this process. ``view`` and ``newer`` raise StorageError after the store
    has lost events.
    """

    def __init__(self, events: JournalEvents, generation: int) -> None:
        self._events = events
        self._generation = generation

    async def view(self) -> LogView:
        self._check()
        return await self._events.view()

    async def newer(self, seq: int) -> LogView | None:
        self._check()
        return self._events.newer(seq)

    async def note(self, view: LogView) -> SealNote:
        return await self._events.note()

    def _check(self) -> None:
        if self._generation != self._events.generation():
            raise StorageError("the store was set back: its files of events are read again")


def _running_loop(loop: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    if loop is None:
        raise StorageError("the store is not open")
    return loop
