"""Sealing: writes events into files (segments), by size and age, outside the event loop.

Each step is durable before the next one begins:

1. Write the segment under a hidden name.
2. Rename it to its name.
3. Add its line to the manifest.
4. Record in the store up to which event the log is sealed.
5. Delete the rows.

So a crash between two steps never loses an event. At the next start, ``settling`` finishes the
interrupted steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

import msgspec

from groupkeeper.storage.event_log import manifest
from groupkeeper.storage.event_log.lines import RowLines
from groupkeeper.storage.event_log.sealing.segment_writer import SegmentWriter
from groupkeeper.storage.event_log.segments import SEGMENT_BYTES, Hook, Segment, no_hook

SEGMENT_MS: Final = 300_000
"""The default of ``segment_ms``: five minutes. So age alone closes at most 288 files a day, and
reports are at most five minutes old."""

FIRST_SEGMENT_MS: Final = 10_000
"""Age at which the first segment after a start is closed, if ``segment_ms`` is longer. A new user
then sees within seconds that the log works, and the first report is not empty."""

FOR_EVER: Final = -1

POLL_S: Final = 1.0
"""Pause between two checks for new events."""

CLOSE_S: Final = 1.0
"""Time limit for sealing at a clean shutdown. Events that are not sealed when it ends stay in the
store."""

TAKE_LINES: Final = 8
"""The number of lines between two readings of the clock: about 30 us of work."""

SLICE_S: Final = 0.0003
"""How long the thread works before it pauses and other threads can run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealSettings:
    """Where segments are written, how large they become, and how long they are kept."""

    directory: Path
    segment_bytes: int = SEGMENT_BYTES
    """A segment is closed when its JSON reaches this size. The row that reaches it is the segment's
    last.
    """
    segment_ms: int = SEGMENT_MS
    """A segment is closed when its first event has this age. For the first one see
    ``FIRST_SEGMENT_MS``.
    """
    retention_ms: int = FOR_EVER
    """How long events are kept. Whole days that are older are deleted. -1: no day is deleted."""
    store: str = ""
    """The name of the store for the manifest, if the store does not record its own."""

    def __post_init__(self) -> None:
        """Convert the directory to a Path if it is a string."""
        object.__setattr__(self, "directory", Path(self.directory))


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The state of sealing, for the deletion of rows and for metrics."""

    sealed_seq: int = 0
    """All events up to this seq are in files, or retention has deleted them."""
    sealed_row: int = 0
    """The last row whose events are all in files."""
    new_log_ids: frozenset[str] = frozenset()
    """The logs of this store that are in files but not yet recorded in the store."""
    gone_log_ids: frozenset[str] = frozenset()
    """The logs of this store whose last file was deleted by retention."""
    segments_sealed: int = 0
    """Sealed segments since the start."""
    segments_damaged: int = 0
    """Segments since the start that retention could not read."""
    open_since_ms: int | None = None
    """When the first event of the open segment was written; None if no segment is open."""
    cpu_s: float = 0.0
    """CPU time of the process that seals; 0 if a thread seals."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of ``settle`` that are logged. ``event_log.sealing.settling.Settled`` explains
    them.
    """

    lost: tuple[int, int] | None
    put_aside: Sequence[str]


class Sealing(Protocol):
    """Seals events: moves them from rows of the store into files, on a thread or in a process.

    Every call blocks. Make one call at a time; only ``progress`` and ``abandon`` may be used during
    another call.
    """

    @property
    def progress(self) -> Progress:
        """The present state of sealing. It may be read while another method runs."""

    def settle(self) -> Found:
        """Find out which events are sealed. Call it first, and again after each failure."""

    def step(self) -> bool:
        """Seal rows for a short time. Return True if more rows can be sealed now."""

    def retain(self) -> Sequence[Segment]:
        """Delete segments that are older than the retention time. Return those that could not be
        read.
        """

    def finish(self, limit_s: float) -> None:
        """Seal all rows, if the time suffices. Otherwise discard the open segment."""

    def close(self) -> None:
        """End the work. Events that are not sealed yet stay in the store."""

    def abandon(self) -> None:
        """Stop a running call, if that is possible. May be called while another method runs."""


class Pacer:
    """Lets other threads have the interpreter lock: after each ``SLICE_S`` of work, it pauses for
    the same time.

    Without these pauses, Python would switch threads only after 5 ms, and a heartbeat would wait
    for that.
    """

    def __init__(
        self,
        timer: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timer = timer
        self._sleep = sleep
        self._until = timer() + SLICE_S

    def tick(self) -> None:
        """Pause if ``SLICE_S`` have passed. Call this after each small piece of work."""
        if self._timer() >= self._until:
            self._sleep(SLICE_S)
            self._until = self._timer() + SLICE_S


class Sealer:
    """Writes rows of the store into segments, in order. One thread makes all calls."""

    def __init__(
        self,
        settings: SealSettings,
        clock: Callable[[], int],
        pacer: Pacer | None = None,
        hook: Hook = no_hook,
    ) -> None:
        """Create the sealer without writing. ``clock`` returns the wall time in milliseconds."""
        self.settings = settings
        self.sealed_seq = 0
        """The sequence number of the last event that is in a file."""
        self.store = ""
        """The name of the store, for the manifest."""
        self._clock = clock
        self._pacer = pacer or Pacer()
        self._hook = hook
        self._writer: SegmentWriter | None = None
        self._segment_ms = min(FIRST_SEGMENT_MS, settings.segment_ms)

    @property
    def taken_seq(self) -> int:
        """The sequence number of the last event that was written into a segment, finished or
        open.
        """
        return self.sealed_seq if self._writer is None else self._writer.next_seq - 1

    @property
    def open_since_ms(self) -> int | None:
        """When the first event of the open segment was written; None if no segment is open."""
        return None if self._writer is None else self._writer.first_ts_ms

    def take(self, row: RowLines) -> list[Segment]:
        """Write the events of a row, which has at least one event. Return the segments that were
        sealed.
        """
        sealed: list[Segment] = []
        writer = self._writer
        where = row.log_id, row.first_seq, row.ts_ms
        if writer is None or not writer.takes(*where):
            sealed += self.seal()
            writer = self._writer = SegmentWriter(
                self.settings.directory, *where, store=self.store, hook=self._hook
            )
        lines = iter(row.lines)
        while some := list(islice(lines, TAKE_LINES)):
            writer.add(some, row.ts_ms)
            self._pacer.tick()
        if writer.json_bytes >= self.settings.segment_bytes:
            sealed += self.seal()
        return sealed

    def seal_if_old(self) -> list[Segment]:
        """Seal the open segment if its first event is old enough. Return the sealed segment, or
        nothing.
        """
        since_ms = self.open_since_ms
        if since_ms is None or self._clock() - since_ms < self._segment_ms:
            return []
        return self.seal()

    def seal(self) -> list[Segment]:
        """Seal the open segment, if there is one. Return it, or nothing."""
        if self._writer is None:
            return []
        segment = self._writer.seal()
        manifest.add(self.settings.directory, [segment])
        self._hook("listed")
        self._writer = None
        self._segment_ms = self.settings.segment_ms
        self.sealed_seq = segment.last_seq
        return [segment]

    def discard(self) -> None:
        """Discard the open segment. Its events have to be written again."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.discard()
