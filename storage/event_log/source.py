"""The door of the event log: what a backend that keeps events gives to whoever seals or reads them.

Sealing and reading know no backend: they see rows. A row is what one append wrote. Rows and seqs
both only grow, and what a row says never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from groupkeeper.storage.base import OffsetStorage
from groupkeeper.storage.event_log.clock import LogClock
from groupkeeper.storage.event_log.lines import RowLines
from groupkeeper.storage.segment_lines import EventDict


class LogNote(NamedTuple):
    """What a store has noted of sealing."""

    log_ids: frozenset[str]
    """Every log of this store that was ever sealed."""
    log_dir: str | None
    """Where the files were at the last start, as an absolute path."""


class LogEnds(NamedTuple):
    """From where to where the rows go."""

    first_seq: int
    """The first event that is in them, or would be the next."""
    last_seq: int
    """The last event; one below the first where no row has any."""


class LogHead(NamedTuple):
    """The last event of a store."""

    log_id: str | None
    """None before the first, and where no row has events any more."""
    last_seq: int


class EventRow(Protocol):
    """The events of one append; none, where it had none."""

    @property
    def row(self) -> int:
        """Its number, which grows with each append."""

    @property
    def first_seq(self) -> int:
        """The seq of its first event, or of the next one where it has none."""

    @property
    def last_seq(self) -> int:
        """The seq of its last event; one below the first where it has none."""

    def lines(self) -> RowLines:
        """Render the events as lines of a segment."""

    def events(self, since_ms: int = 0) -> Iterator[EventDict]:
        """Render the events; none of them if they are older than a moment."""


class EventRows(Protocol):
    """The rows of a store, beside whoever writes them. Calls block, and come one at a time. They
    raise StorageError for what cannot be read.
    """

    def hold(self) -> None:
        """Show what stands now, and go on showing it, whatever is written or deleted meanwhile."""

    def note(self) -> LogNote:
        """Tell what the store has noted of sealing."""

    def ends(self) -> LogEnds:
        """Tell where the rows begin and end."""

    def log_id_at(self, seq: int) -> str | None:
        """Tell the log that an event belongs to; None where its row has gone."""

    def rows(self, after_seq: int, containing: bytes = b"") -> Iterator[EventRow]:
        """Yield the rows above a seq, in order. The first of them may begin below it, or have no
        event. Rows that surely lack the bytes given may be left out.
        """

    def close(self) -> None:
        """Let go of the store."""


OpenRows: TypeAlias = Callable[[], EventRows]
"""Opens the rows of one store. Raises StoreRefused for what is no store."""


class Address(msgspec.Struct, frozen=True):
    """Where another process finds the rows of a store."""

    url: str
    """What ``storage.open.rows_of`` takes."""
    lock: Path
    """What the process that seals has locked meanwhile."""


class EventSource(Protocol):
    """The events of a store that is open, for whoever seals them."""

    clock: LogClock
    """Stamps the appends."""
    address: Address | None
    """None: no other process can read the rows."""

    def open_rows(self) -> EventRows:
        """Open the rows, for the thread that asks."""

    async def head(self) -> LogHead:
        """Tell the last event."""

    async def note_place(self, log_dir: str) -> None:
        """Note where the files are, for readers that know the store alone."""

    async def note_sealed(self, seq: int, new: Collection[str], gone: Collection[str]) -> None:
        """Note up to where files hold the events, and in which logs; forget logs that are gone.
        It need not be durable: a note that is lost is found out again at start.
        """

    async def trim(self, sealed_row: int) -> int:
        """Delete some of the oldest rows that are noted as sealed and that no load needs; returns
        how many. ``sealed_row`` is the last one that may go. It need not be durable.
        """


class SealableStorage(OffsetStorage, Protocol):
    """A storage with a door to its events."""

    def event_source(self) -> EventSource:
        """Return the door."""
