"""Sealing: events become segments, by size and age, beside the loop (``event_log.sealing_work``).

Order of what happens, each step durable before the next: the segment under a hidden name, its
name, the manifest, the store's note, the deletion of rows. A crash between any two leaves more than
is needed, never less; ``SealedRange.settle`` sets it right at start.
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
from groupkeeper.storage.event_log.segment_writer import SegmentWriter
from groupkeeper.storage.event_log.segments import SEGMENT_BYTES, Hook, Segment, no_hook

SEGMENT_MS: Final = 300_000
"""Five minutes: 288 files a day at most, and reports that are no older."""

FIRST_SEGMENT_MS: Final = 10_000
"""Age at which the first segment after a start is closed, if ``segment_ms`` is longer: who has just
started sees within seconds that the log works, and the first report has something to show."""

FOR_EVER: Final = -1

POLL_S: Final = 1.0
"""How often a store that seals looks for new events."""

CLOSE_S: Final = 1.0
"""What a clean end may take for sealing; what is not sealed by then stays in the store."""

TAKE_LINES: Final = 8
"""Lines between two looks at the clock: some 30 us."""

SLICE_S: Final = 0.0003
"""How long the thread holds on to the interpreter lock before it lets the loop have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealSettings:
    """What is sealed where, and for how long."""

    directory: Path
    segment_bytes: int = SEGMENT_BYTES
    """JSON after which a segment is closed; the row that reaches it is its last."""
    segment_ms: int = SEGMENT_MS
    """Age of a segment's first event at which it is closed; ``FIRST_SEGMENT_MS`` for the first."""
    retention_ms: int = FOR_EVER
    """The horizon of undo: whole days before it go; -1: none does."""

    def __post_init__(self) -> None:
        """Take a text for the directory too."""
        object.__setattr__(self, "directory", Path(self.directory))


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far sealing has come."""

    sealed_seq: int = 0
    """Up to where files hold the events."""
    sealed_row: int = 0
    """The last row whose events are all in files."""
    new_log_ids: frozenset[str] = frozenset()
    """The logs of this store that are in files, and that it had not noted when it was settled."""
    gone_log_ids: frozenset[str] = frozenset()
    """Those of which retention has left no file since."""
    segments_sealed: int = 0
    """Since the start."""
    segments_damaged: int = 0
    """Since the start: those that retention could not read."""
    open_since_ms: int | None = None
    """When the first event of the open segment was written; None where none is open."""
    cpu_s: float = 0.0
    """What a process of its own has used so far; 0 where it is a thread."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What settling found that somebody has to hear of; see ``event_log.settling.Settled``."""

    lost: tuple[int, int] | None
    put_aside: Sequence[str]


class Sealing(Protocol):
    """The work, wherever it is done. Calls block, and come one at a time."""

    @property
    def progress(self) -> Progress:
        """How far it has come; may be read beside a call."""

    def settle(self) -> Found:
        """Find out what is sealed, and go on from there. Comes first, and after each failure."""

    def step(self) -> bool:
        """Take rows for a while; tells whether there are more."""

    def retain(self) -> Sequence[Segment]:
        """Let go of what is beyond the horizon; returns what of it could not be read."""

    def finish(self, limit_s: float) -> None:
        """Seal all rows, or none beyond those that fit into the time."""

    def close(self) -> None:
        """End; what is not sealed stays in the store."""

    def abandon(self) -> None:
        """Do not wait for what is under way, if that can be helped; may be called beside it."""


class Pacer:
    """Shares the interpreter lock: after a slice of work, as long a pause.

    Python hands the lock over after 5 ms at the earliest, and that is what a heartbeat would wait
    for beside a thread that computes.
    """

    def __init__(
        self,
        timer: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Begin a slice now."""
        self._timer = timer
        self._sleep = sleep
        self._until = timer() + SLICE_S

    def tick(self) -> None:
        """Pause if the slice is over; called after each small piece of work."""
        if self._timer() >= self._until:
            self._sleep(SLICE_S)
            self._until = self._timer() + SLICE_S


class Sealer:
    """Makes segments of rows, in order. Everything runs on one thread."""

    def __init__(
        self,
        settings: SealSettings,
        clock: Callable[[], int],
        pacer: Pacer | None = None,
        hook: Hook = no_hook,
    ) -> None:
        """Touch nothing yet. ``clock`` tells the wall time in milliseconds."""
        self.settings = settings
        self.sealed_seq = 0
        """Up to where files hold the events."""
        self._clock = clock
        self._pacer = pacer or Pacer()
        self._hook = hook
        self._writer: SegmentWriter | None = None
        self._segment_ms = min(FIRST_SEGMENT_MS, settings.segment_ms)

    @property
    def taken_seq(self) -> int:
        """Up to where events were taken, sealed or not."""
        return self.sealed_seq if self._writer is None else self._writer.next_seq - 1

    @property
    def open_since_ms(self) -> int | None:
        """When the first event of the open segment was written; None where none is open."""
        return None if self._writer is None else self._writer.first_ts_ms

    def take(self, row: RowLines) -> list[Segment]:
        """Take the events of a row that has some; return the segments that were sealed for it."""
        sealed: list[Segment] = []
        writer = self._writer
        where = row.log_id, row.first_seq, row.ts_ms
        if writer is None or not writer.takes(*where):
            sealed += self.seal()
            writer = self._writer = SegmentWriter(self.settings.directory, *where, hook=self._hook)
        lines = iter(row.lines)
        while some := list(islice(lines, TAKE_LINES)):
            writer.add(some, row.ts_ms)
            self._pacer.tick()
        if writer.json_bytes >= self.settings.segment_bytes:
            sealed += self.seal()
        return sealed

    def seal_if_old(self) -> list[Segment]:
        """Seal the open segment if its first event is old enough."""
        since_ms = self.open_since_ms
        if since_ms is None or self._clock() - since_ms < self._segment_ms:
            return []
        return self.seal()

    def seal(self) -> list[Segment]:
        """Seal the open segment, if there is one."""
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
        """Let go of the open segment; what was taken of it has to be taken again."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.discard()
