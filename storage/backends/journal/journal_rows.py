"""The events of a shared store as rows, for sealing and for readers (``event_log.source``).

Rows are read in a thread, and the calls of the driver run on an event loop of another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

import msgspec

from groupkeeper.storage.backends.journal.driver import JournalDriver
from groupkeeper.storage.backends.journal.log_view import (
    JournalRow,
    LogView,
    rows_of_entry,
    rows_of_events,
)
from groupkeeper.storage.base import StorageError
from groupkeeper.storage.blocking_loop import RunsCalls
from groupkeeper.storage.event_log.source import EventsMoved, LogEnds, LogNote
from groupkeeper.storage.event_log.store_names import parse_store_name


class SealNote(msgspec.Struct, frozen=True):
    """A node's record in the store about its log and its files of events."""

    log_ids: frozenset[str] = frozenset()
    """The ids of the logs that have files."""
    log_dir: str | None = None
    store: str = ""
    """The name of the store, followed by the id of the node (``event_log.store_names``)."""
    sealed_seq: int = 0
    """The seq of the last event that is in a file. 0 if an older version wrote the note."""

    def as_log_note(self) -> LogNote:
        return LogNote(self.log_ids, self.log_dir, self.store, self.sealed_seq)


_decode_note: Final = msgspec.json.Decoder(SealNote).decode


def note_of(data: bytes) -> SealNote:
    """Decode a ``SealNote``. Raises StorageError if it cannot be read."""
    try:
        return _decode_note(data)
    except msgspec.DecodeError as error:
        raise StorageError(f"the note about files of events cannot be read: {error}") from error


def shared_name(notes: Mapping[int, bytes]) -> str:
    """Return the store's name that its nodes share; "" if none has recorded one. ``notes`` has the
    stored ``SealNote`` of each node.

    Up to 0.2.0.dev9 each node had its own name. For such a store, the name of the node with the
    lowest id counts.
    """
    names = (parse_store_name(note_of(notes[node_id]).store).store for node_id in sorted(notes))
    return next(filter(None, names), "")


class LogLook(Protocol):
    """Reads the events of one node."""

    async def view(self) -> LogView:
        """Return the events at this moment."""

    async def newer(self, seq: int) -> LogView | None:
        """Return all events above ``seq``, perhaps with earlier ones, if this needs no call of the
        store. Return None otherwise: the caller then needs ``view``. Raises StorageError if the
        store has lost the event ``seq``.
        """

    async def note(self, view: LogView) -> SealNote:
        """Return what the node has recorded about its files."""


class JournalRows:
    """The events of one node, as rows."""

    def __init__(
        self,
        driver: JournalDriver,
        look: LogLook,
        run: RunsCalls,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        """``end`` is called by ``close``."""
        self._driver = driver
        self._look = look
        self._run = run
        self._end = end
        self._view: LogView | None = None
        self._is_held = False

    def hold(self) -> None:
        self._present()
        self._is_held = True

    def close(self) -> None:
        self._end()

    def note(self) -> LogNote:
        return self._run(self._look.note(self._present())).as_log_note()

    def ends(self) -> LogEnds:
        view = self._present()
        return LogEnds(view.first_seq, view.next_seq - 1)

    def log_id_at(self, seq: int) -> str | None:
        view = self._view
        if view is None or seq >= view.next_seq:
            view = self._present()
        return view.log_id_at(seq)

    def rows(self, after_seq: int, containing: bytes = b"") -> Iterator[JournalRow]:
        for row in self._rows(after_seq):
            if not containing or any(containing in each.line[1] for each in row.logged):
                yield row

    def _rows(self, after_seq: int) -> Iterator[JournalRow]:
        view = self._view if self._is_held else self._run(self._look.newer(after_seq))
        view = view or self._present()
        done_seq = after_seq
        for span in view.spans:
            done_seq = max(done_seq, span.first_seq - 1)
            while done_seq < span.last_seq:
                found = self._run(self._driver.events(span.log_id, done_seq))
                events = [event for event in found if event.seq <= span.last_seq]
                if not events or events[0].seq != done_seq + 1:
                    raise EventsMoved(
                        f"{self._driver.name}: event {done_seq + 1} was moved to a file or deleted "
                        "while it was read: read again"
                    )
                yield from rows_of_events(events)
                done_seq = events[-1].seq
        for entry in view.entries:
            for row in rows_of_entry(entry, done_seq):
                yield row
                done_seq = row.last_seq

    def _present(self) -> LogView:
        if self._view is None or not self._is_held:
            self._view = self._run(self._look.view())
        return self._view
