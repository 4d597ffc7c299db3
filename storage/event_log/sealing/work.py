"""The work of sealing outside the event loop: write rows into files (segments), delete old files.

It reads rows and writes files, and never writes into the store. In an embedded coordinator it runs
on a thread. A daemon runs it in a separate process (``storage.event_log.sealing.process``). Calls
never overlap.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from groupkeeper.storage.event_log.sealing.retention import LogRetention
from groupkeeper.storage.event_log.sealing.sealer import (
    Found,
    Pacer,
    Progress,
    Sealer,
    SealSettings,
)
from groupkeeper.storage.event_log.sealing.settling import Settled, settle
from groupkeeper.storage.event_log.segments import Hook, Segment
from groupkeeper.storage.event_log.source import EventRow, EventRows, OpenRows

STEP_S: Final = 0.1
"""How long a step works before it reports its progress to the event loop."""


class SealingWork:
    """Does the work of sealing in the thread that calls its methods."""

    def __init__(
        self,
        open_rows: OpenRows,
        settings: SealSettings,
        clock: Callable[[], int],
        pacer: Pacer,
        hook: Hook,
    ) -> None:
        self._settings = settings
        self._open_rows = open_rows
        self._sealer = Sealer(settings, clock, pacer, hook)
        self._retention = LogRetention(settings, clock, hook, pacer)
        self._rows: EventRows | None = None
        self._settled: Settled | None = None
        self._log_ids: set[str] = set()
        self._new_log_ids: frozenset[str] = frozenset()
        self._gone_log_ids: frozenset[str] = frozenset()
        self._row, self._last_seq = 0, 0
        """The last row that was read, and its last seq. Its events are in a segment, sealed or
        open."""
        self._sealed_row = 0
        """The last row whose events are all in sealed segments."""
        self._segments_sealed = 0
        self._segments_damaged = 0

    @property
    def progress(self) -> Progress:
        return Progress(
            sealed_seq=self._sealer.sealed_seq,
            sealed_row=self._sealed_row,
            new_log_ids=self._new_log_ids,
            gone_log_ids=self._gone_log_ids,
            segments_sealed=self._segments_sealed,
            segments_damaged=self._segments_damaged,
            open_since_ms=self._sealer.open_since_ms,
        )

    @property
    def log_ids(self) -> frozenset[str]:
        """The logs of the store that are in files, as far as the store still knows them."""
        return frozenset(self._log_ids)

    def settle(self) -> Found:
        self._sealer.discard()
        if self._rows is not None:
            self._rows.close()
        self._rows = self._open_rows()
        self._settled = settled = settle(self._rows, self._settings.directory, self._settings.store)
        self._log_ids = set(settled.log_ids)
        self._new_log_ids = settled.new_log_ids
        self._gone_log_ids = frozenset()
        self._sealer.store = self._retention.store = settled.store
        self._sealer.sealed_seq = settled.sealed_seq
        self._last_seq = settled.sealed_seq
        row = next(self._rows.rows(self._last_seq), None)
        self._row = 0 if row is None else row.row - (row.last_seq > self._last_seq)
        self._sealed_row = self._row
        return Found(lost=settled.lost, put_aside=settled.put_aside)

    def step(self, limit_s: float = STEP_S) -> bool:
        until = time.monotonic() + limit_s
        assert self._rows is not None, "not settled"
        for row in self._rows.rows(self._last_seq):
            self._take(row)
            if time.monotonic() >= until:
                return True
        self.rest()
        return False

    @property
    def read_seq(self) -> int:
        """The seq of the last event that was read; after ``settle``, of the last sealed one."""
        return self._last_seq

    @property
    def begin_seq(self) -> int:
        """The seq of the first event that sealing could find (``LogNote.begin_seq``)."""
        return 1 if self._settled is None else self._settled.begin_seq

    def rest(self) -> None:
        """Seal the open segment if it is old enough. Read no rows."""
        if self._sealer.seal_if_old():
            self._has_sealed(self._row)

    def retain(self) -> Sequence[Segment]:
        assert self._settled is not None, "not settled"
        later = (segment.last_seq for segment in self._settled.later)
        damaged = self._retention.run(self._log_ids, max(self._sealer.sealed_seq, *later, 0))
        gone = self._retention.gone_log_ids
        self._log_ids -= gone
        self._new_log_ids -= gone
        self._gone_log_ids |= gone
        self._segments_damaged += len(damaged)
        return damaged

    def finish(self, limit_s: float) -> None:
        until = time.monotonic() + limit_s
        if self._settled is None:
            self.settle()  # the shutdown began before the first settle
        while self.step():
            if time.monotonic() >= until:
                self._sealer.discard()
                return
        self.seal()

    def seal(self) -> None:
        """Seal the open segment, if there is one. Read no rows."""
        if self._sealer.seal():
            self._has_sealed(self._row)

    def close(self) -> None:
        """Close the rows and discard the open segment."""
        self._sealer.discard()
        if self._rows is not None:
            self._rows.close()

    def abandon(self) -> None:
        """Do nothing, because a thread cannot be ended from outside."""

    def _take(self, row: EventRow) -> None:
        before = self._row
        if row.last_seq > self._sealer.taken_seq and row.first_seq <= row.last_seq:
            assert self._settled is not None
            lines = row.lines()
            if self._settled.held(lines.log_id, row.first_seq) is not None:
                if self._sealer.seal():
                    self._has_sealed(before)
                self._sealer.sealed_seq = row.last_seq
            else:
                for segment in self._sealer.take(lines):
                    is_whole = segment.last_seq == row.last_seq
                    self._has_sealed(row.row if is_whole else before)
                if lines.log_id not in self._log_ids:
                    self._log_ids.add(lines.log_id)
                    self._new_log_ids |= {lines.log_id}
        self._row, self._last_seq = row.row, row.last_seq
        if self._sealer.taken_seq == self._sealer.sealed_seq:
            self._sealed_row = row.row

    def _has_sealed(self, row: int) -> None:
        self._segments_sealed += 1
        self._sealed_row = row
