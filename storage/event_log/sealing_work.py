"""What sealing does beside the loop: rows of a SQLite store become segments, the old ones go.

It reads the store and writes files; it never writes into the store. It runs on a thread of the
process that commits (a coordinator in other people's hands), or in a process of its own
(``storage.event_log.sealing_process``, the daemon), one call at a time.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from groupkeeper.storage.backends.sqlite import log as sqlite_log
from groupkeeper.storage.backends.sqlite.schema import connect_reader
from groupkeeper.storage.event_log.lines import row_lines
from groupkeeper.storage.event_log.retention import LogRetention
from groupkeeper.storage.event_log.sealing import Found, Pacer, Progress, Sealer, SealSettings
from groupkeeper.storage.event_log.segments import Hook, Segment
from groupkeeper.storage.event_log.settling import Settled, settle

READ_ROWS: Final = 8
STEP_S: Final = 0.1
"""How long a step works before the loop hears of what it did."""
_BUSY_TIMEOUT_S: Final = 5.0


class SealingWork:
    """The work itself."""

    def __init__(
        self,
        path: Path,
        settings: SealSettings,
        clock: Callable[[], int],
        pacer: Pacer,
        hook: Hook,
    ) -> None:
        """Touch nothing yet."""
        self._settings = settings
        self._path = path
        self._sealer = Sealer(settings, clock, pacer, hook)
        self._retention = LogRetention(settings, clock, hook, pacer)
        self._reader: sqlite3.Connection | None = None
        self._settled: Settled | None = None
        self._log_ids: set[str] = set()
        self._new_log_ids: frozenset[str] = frozenset()
        self._gone_log_ids: frozenset[str] = frozenset()
        self._row = 0
        """The last row that was taken."""
        self._sealed_row = 0
        self._segments_sealed = 0
        self._segments_damaged = 0

    @property
    def progress(self) -> Progress:
        """How far it has come."""
        return Progress(
            sealed_seq=self._sealer.sealed_seq,
            sealed_row=self._sealed_row,
            new_log_ids=self._new_log_ids,
            gone_log_ids=self._gone_log_ids,
            segments_sealed=self._segments_sealed,
            segments_damaged=self._segments_damaged,
            open_since_ms=self._sealer.open_since_ms,
        )

    def settle(self) -> Found:
        """Find out what is sealed, and go on from there."""
        self._settings.directory.mkdir(parents=True, exist_ok=True)
        self._sealer.discard()
        if self._reader is None:
            self._reader = connect_reader(self._path, _BUSY_TIMEOUT_S)
        self._settled = settled = settle(self._reader, self._settings.directory)
        self._log_ids = set(settled.log_ids)
        self._new_log_ids = settled.new_log_ids
        self._gone_log_ids = frozenset()
        self._sealer.sealed_seq = settled.sealed_seq
        self._row = sqlite_log.row_of(self._reader, settled.sealed_seq + 1) - 1
        self._sealed_row = self._row
        return Found(lost=settled.lost, put_aside=settled.put_aside)

    def step(self) -> bool:
        """Take rows for a while; tells whether there are more."""
        until = time.monotonic() + STEP_S
        assert self._reader is not None, "not settled"
        while rows := sqlite_log.read_rows(self._reader, self._row, READ_ROWS):
            for row in rows:
                self._take(row)
            if time.monotonic() >= until:
                return True
        if self._sealer.seal_if_old():
            self._has_sealed(self._row)
        return False

    def retain(self) -> Sequence[Segment]:
        """Let go of what is beyond the horizon; returns what of it could not be read."""
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
        """Seal all rows, or none beyond those that fit into the time."""
        until = time.monotonic() + limit_s
        if self._settled is None:
            self.settle()  # the end came before the beginning was done
        while self.step():
            if time.monotonic() >= until:
                self._sealer.discard()
                return
        if self._sealer.seal():
            self._has_sealed(self._row)

    def close(self) -> None:
        """Let go of the connection, and of what is not sealed."""
        self._sealer.discard()
        if self._reader is not None:
            self._reader.close()

    def abandon(self) -> None:
        """A thread cannot be ended: whatever it is at, it finishes or ends with the process."""

    def _take(self, row: sqlite_log.LogRow) -> None:
        before = self._row
        if row.events and row.last_seq > self._sealer.taken_seq:
            assert self._settled is not None
            lines = row_lines(row.first_seq, row.data)
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
        self._row = row.row
        if self._sealer.taken_seq == self._sealer.sealed_seq:
            self._sealed_row = row.row

    def _has_sealed(self, row: int) -> None:
        self._segments_sealed += 1
        self._sealed_row = row
