"""The time stamps of an event log (pure but for the clock that it is given)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from storage.event_codec import Stamp

STEP_BACK_MS = 10_000
"""A clock that falls further behind the log than this starts a new log: clamping that long would
give the events of a whole night the same instant."""


def wall_clock_ms() -> int:
    """Read the machine's wall clock."""
    return time.time_ns() // 1_000_000


def mint_log_id() -> str:
    """Make up the name of a new log."""
    return uuid.uuid4().hex


class LogClock:
    """Stamps appends so that ``ts_ms`` never decreases within a log (design 3)."""

    def __init__(
        self,
        clock: Callable[[], int] = wall_clock_ms,
        new_log_id: Callable[[], str] = mint_log_id,
    ) -> None:
        """Start a log of its own; ``resume`` continues another."""
        self._clock = clock
        self._new_log_id = new_log_id
        self._log_id = new_log_id()
        self._ts_ms = clock()

    def resume(self, log_id: str, ts_ms: int) -> None:
        """Go on after the last durable append."""
        self._log_id = log_id
        self._ts_ms = ts_ms

    def stamp(self) -> Stamp:
        """Stamp an append that is about to be written."""
        clock_ms = self._clock()
        if clock_ms < self._ts_ms - STEP_BACK_MS:
            self._log_id = self._new_log_id()
            self._ts_ms = clock_ms
        self._ts_ms = max(self._ts_ms, clock_ms)
        return Stamp(self._log_id, self._ts_ms, clock_ms)
