"""The time stamps of an event log, and the beginning of new logs (pure except for its clock).

Each start begins a new log, so no two events ever have the same log id and sequence number (seq).
This holds even if a store is replaced by an older copy of itself: a start comes before the next
append (docs/decisions/0015-log-identity.md).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from enum import StrEnum

from groupkeeper.coordinator.core.events import LogStarted
from groupkeeper.storage.codec.events import Stamp
from groupkeeper.storage.event_log.segment_digest import LOG_ID_VERSION

STEP_BACK_MS = 10_000
"""If the clock is further behind the log than this, a new log begins. Time stamps never decrease
within a log. So without this limit, all events would get the same time stamp until the clock has
caught up."""


class LogReason(StrEnum):
    """The reason why a log began. A log is a part of the event log with its own id."""

    START = "start"
    CLOCK_SET_BACK = "clock_set_back"
    OLDER_STORE = "older_store"


def wall_clock_ms() -> int:
    """Return the time of the machine's wall clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def mint_log_id() -> str:
    """Return a random id for a new log, whose segments carry digests (``segment_digest``)."""
    return uuid.UUID(int=uuid.uuid4().int & ~(0xF << 76) | LOG_ID_VERSION << 76).hex


class LogClock:
    """Stamps appends so that ``ts_ms`` never decreases within a log (docs/design.md#log-clock)."""

    def __init__(
        self,
        clock: Callable[[], int] = wall_clock_ms,
        new_log_id: Callable[[], str] = mint_log_id,
    ) -> None:
        self._clock = clock
        self._new_log_id = new_log_id
        self._durable_log_id: str | None = None
        """The log of the last durable event."""
        self._minted: set[str] = set()
        """The ids of the logs that this object has begun, from the last call of ``begin`` on."""
        self._ts_ms = clock()
        self._mint(LogReason.START)
        self.store = self._log_id
        """The name of the store, which all its logs share."""

    def begin(
        self,
        after: str | None,
        ts_ms: int | None = None,
        reason: LogReason = LogReason.START,
        *,
        store: str | None = None,
    ) -> None:
        """Begin a new log after the log ``after``, whose last durable append was at ``ts_ms``.

        The name of the store depends on ``store``, the name that the store has recorded:

        - None: the name does not change.
        - A name: it stays the name of the store.
        - "", for a store without a recorded name: the name is now the id of the log ``after``.

        If ``store`` is not None and ``after`` is None, the name is the id of the new log.
        """
        self._durable_log_id = after
        self._minted.clear()
        self._ts_ms = self._ts_ms if ts_ms is None else ts_ms
        self._mint(reason)
        if store is not None:
            self.store = self._log_id if after is None else store or after

    def resume(self, log_id: str, ts_ms: int) -> None:
        """Continue after the last durable append, which was at ``ts_ms`` in the log ``log_id``.
        Stamps that were not written are dropped. If this object did not begin the log, the next
        append begins a new one.
        """
        self._ts_ms = ts_ms
        if log_id in self._minted:
            self._durable_log_id = self._log_id = log_id

    def stamp(self) -> Stamp:
        """Return the stamp for the next append. Begin a new log if the clock is more than
        ``STEP_BACK_MS`` behind the log."""
        clock_ms = self._clock()
        if clock_ms < self._ts_ms - STEP_BACK_MS:
            self._mint(LogReason.CLOCK_SET_BACK)
            self._ts_ms = clock_ms
        self._ts_ms = max(self._ts_ms, clock_ms)
        return Stamp(self._log_id, self._ts_ms, clock_ms)

    def started(self, last_seq: int) -> LogStarted | None:
        """Return the ``log_started`` event for the next append. Return None if the append begins no
        new log.

        Also returns None for the first log of a store: it begins with seq 1 and has no predecessor.
        """
        if self._log_id == self._durable_log_id or not last_seq:
            return None
        return LogStarted(
            previous_log_id=self._durable_log_id,
            previous_seq=last_seq,
            reason=self._reason,
            store=self.store,
        )

    def written(self) -> None:
        """Record that the last stamped append is durable."""
        self._durable_log_id = self._log_id

    def _mint(self, reason: LogReason) -> None:
        self._log_id = self._new_log_id()
        self._minted.add(self._log_id)
        self._reason = reason
