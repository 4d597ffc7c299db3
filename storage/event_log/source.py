"""The interface through which sealing and readers access the events of a backend.

They see rows, and do not know the backend. A row holds the events of one append. The numbers of
rows and seqs only grow, and a row never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from groupkeeper.storage.base import OffsetStorage, StorageError
from groupkeeper.storage.event_log.lines import RowLines
from groupkeeper.storage.event_log.log_clock import LogClock
from groupkeeper.storage.segment_lines import EventDict


class EventsMoved(StorageError):
    """Events were moved into files, or deleted, while they were read. A second read finds them in
    files, or finds that they were deleted.
    """


class LogNote(NamedTuple):
    """The facts that a store has recorded about sealing, which moves its events into files."""

    log_ids: frozenset[str]
    """The ids of all logs of this store that were ever moved into files."""
    log_dir: str | None
    """The absolute path of the directory of the files at the last start; None if unknown."""
    store: str = ""
    """The name of the store, which all its logs share; "" if no version has named it yet."""
    sealed_seq: int = 0
    """The seq of the last event that was moved into a file; 0 if it is unknown. The record is not
    always durable, so after a crash this may be an earlier seq.
    """
    begin_seq: int = 1
    """The seq of the first event that sealing could find. Earlier ones had been deleted when it was
    turned on.
    """


class LogEnds(NamedTuple):
    """The sequence numbers (seqs) of the first and the last event that is still in a row of the
    store.
    """

    first_seq: int
    """The seq of the first event in a row. If no row has any, the seq of the next event."""
    last_seq: int
    """The seq of the last event in a row. If no row has any, ``first_seq - 1``."""


class LogHead(NamedTuple):
    """The position of the last event of a store."""

    log_id: str | None
    """The log of the last event. None before the first event, and if no row has events any more."""
    last_seq: int


class EventRow(Protocol):
    """The events of one append. There may be none."""

    @property
    def row(self) -> int:
        """The number of the row, which increases with each append."""

    @property
    def first_seq(self) -> int:
        """The seq of the row's first event, or of the next event if the row has none."""

    @property
    def last_seq(self) -> int:
        """The seq of the row's last event; ``first_seq - 1`` if the row has none."""

    def lines(self) -> RowLines:
        """Render the events of the row as lines of a segment."""

    def events(self, since_ms: int = 0) -> Iterator[EventDict]:
        """Yield the events of the row; none if the row is older than ``since_ms``."""


class EventRows(Protocol):
    """The rows of a store, which another thread or process may write at the same time.

    Calls block, and must not overlap. They raise StorageError if a row cannot be read.
    """

    def hold(self) -> None:
        """Keep the present view for this reader: later writes and deletions do not change what it
        reads. But if the store is on a server, ``rows`` raises EventsMoved for deleted events.
        """

    def note(self) -> LogNote:
        """Return what the store has recorded about sealing."""

    def ends(self) -> LogEnds:
        """Return the first and the last seq of the rows."""

    def log_id_at(self, seq: int) -> str | None:
        """Return the id of the log that an event belongs to; None if the event's row is deleted."""

    def rows(self, after_seq: int, containing: bytes = b"") -> Iterator[EventRow]:
        """Yield the rows with events above ``after_seq``, in order.

        The first row may also have earlier events. Rows without events may be yielded too. With
        ``containing``, rows whose events do not contain these bytes may be left out.
        """

    def close(self) -> None:
        """Close the connection to the store."""


OpenRows: TypeAlias = Callable[[], EventRows]
"""Opens the rows of one store. Raises StoreRefused if there is no store."""


class Address(msgspec.Struct, frozen=True):
    """The address of a store's rows, for another process."""

    url: str
    """The argument of ``storage.open.rows_of``."""
    lock: Path
    """The path of the sealing process's lock."""


class EventSource(Protocol):
    """The events of an open store, for sealing."""

    clock: LogClock
    """Gives each append its time and its log."""
    address: Address | None
    """Where another process can read the rows; None if no other process can."""

    def open_rows(self) -> EventRows:
        """Open the rows for the calling thread."""

    async def head(self) -> LogHead:
        """Return the log and the seq of the last event."""

    async def note_place(self, log_dir: str) -> None:
        """Record the directory of the files, for readers that know only the store."""

    async def note_sealed(self, seq: int, new: Collection[str], gone: Collection[str]) -> None:
        """Record in the store that the events up to ``seq`` are in files. Add the logs ``new`` to
        the recorded logs (``LogNote.log_ids``), and remove the logs ``gone``.

        The write need not be durable: at start, ``settle`` finds out again what was lost.
        """

    async def trim(self, sealed_row: int) -> int:
        """Delete some of the oldest rows, up to ``sealed_row``. Return their number.

        It deletes only rows that are recorded as sealed and that no load needs. The deletion need
        not be durable.
        """


@runtime_checkable
class SeveralLogs(Protocol):
    """Optional part of ``EventSource``, for a store with several logs that are all sealed here."""

    def open_logs(self) -> Mapping[str, OpenRows]:
        """Return for each log, by its name, the function that opens its rows. Blocks."""

    def last_seqs(self) -> Mapping[str, int]:
        """Return the seq of the last durable event of each log, as far as this process knows it. A
        thread calls this, and the store is not asked. Raises StorageError if this process must not
        seal.
        """

    def sealed(self, notes: Mapping[str, LogNote]) -> None:
        """Remember how far each log is sealed, for the next ``note_sealed``."""

    def rows_of(self, group_id: str) -> OpenRows:
        """Return the function that opens the rows of the log that has the events of a group."""


@runtime_checkable
class SealableStorage(OffsetStorage, Protocol):
    """A storage that gives access to its events."""

    def event_source(self) -> EventSource:
        """Return the object that reads the events, and deletes them when they are sealed."""
