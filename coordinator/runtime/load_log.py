"""Logs why shards are not loaded, at a limited rate.

A store may be unreachable for hours, and each of its lanes (queues of appends) is tried again every
few seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from groupkeeper.coordinator.runtime.line_limit import LineLimit

if TYPE_CHECKING:
    from groupkeeper.coordinator.runtime.clock import Clock

log = structlog.get_logger(__name__)

LINES: Final = 5
WINDOW_S: Final = 60.0
"""In a window of this length, at most ``LINES`` lines have the same event and reason."""


class LoadLog:
    """Writes the log lines of one process about loads."""

    def __init__(self, clock: Clock) -> None:
        self._lines = LineLimit(lambda: clock.now().monotonic_ms / 1000, WINDOW_S, LINES)

    def failed(self, reason: str, retry_ms: int) -> None:
        left_out = self._lines.allow(f"failed {reason}")
        if left_out is not None:
            log.error("load_failed", error=reason, retry_ms=retry_ms, left_out=left_out)

    def refused(self, reason: str, retry_ms: int) -> None:
        left_out = self._lines.allow(f"refused {reason}")
        if left_out is not None:
            log.error("load_refused", error=reason, retry_ms=retry_ms, left_out=left_out)

    def held_by_another(self, shards: int) -> None:
        """Log that another process holds the leases of some shards. ``shards`` is the number of
        these shards.
        """
        left_out = self._lines.allow("leases_held_by_another")
        if left_out is not None:
            log.warning("leases_held_by_another", shards=shards, left_out=left_out)
