"""The memory that the server holds for one connection. The budget of all connections counts it."""

from __future__ import annotations

from typing import Final

from groupkeeper.protocol.frames import FrameSplitter

GRAIN_BYTES: Final = 4_096
"""Smaller changes in the memory of a connection are not reported to the budget. Every connection is
expected to need this much anyway, and a report of each change would slow down every commit.
"""
OWED_GRAIN_BYTES = 16_384
"""Like ``GRAIN_BYTES``, for requests that wait for their answer (pipelined commits). A change
is reported if it exceeds this plus a quarter of their bytes.
"""
CALL_BYTES = 1_024
"""The memory of a waiting request without its bytes: exchange, ticket, the core's request."""
FRAME_BYTES = 64
"""The memory of a frame without its bytes."""
DECODED_FACTOR = 16
MAX_DECODED_BYTES = 4_194_304
"""The largest number of bytes that count for one decoded request. A partition takes 18 bytes in a
frame and up to 300 in memory. The limit on the elements of a frame (kafka.max_request_elements)
limits this too."""

UNCOUNTED_BYTES: Final = 1_024
REQUEST_BYTES: Final = 256
"""The cost of a waiting request is not counted if its bytes, plus ``REQUEST_BYTES`` for each
waiting request, are at most ``UNCOUNTED_BYTES``. A member's commit nearly always waits alone.
"""


def cost_bytes(frame_bytes: int) -> int:
    """Return the memory of a waiting request. The estimate is too high rather than too low."""
    return CALL_BYTES + frame_bytes + min(DECODED_FACTOR * frame_bytes, MAX_DECODED_BYTES)


class ConnectionMemory:
    """Counts the bytes that the server holds for one connection."""

    __slots__ = (
        "_backlog",
        "_requests_seen",
        "_splitter",
        "backlog_bytes",
        "owed_bytes",
        "report_above",
        "report_below",
        "reported_bytes",
        "stalled_ticks",
        "stored_bytes",
        "unsent_bytes",
    )

    def __init__(self, splitter: FrameSplitter, backlog: list[bytes]) -> None:
        """``splitter`` has the bytes of an incomplete frame, ``backlog`` the frames that have not
        begun.
        """
        self._splitter = splitter
        self._backlog = backlog
        self.backlog_bytes = 0
        self.owed_bytes = 0
        """Bytes of requests that wait for their answer."""
        self.stored_bytes = 0
        """Bytes of replies that wait for an earlier reply."""
        self.unsent_bytes = 0
        """Bytes written since the client stopped reading."""
        self.reported_bytes = 0
        """The last report to the budget."""
        self.report_above = OWED_GRAIN_BYTES
        """The connection reports to the budget if it owes more than this, or less than
        ``report_below``."""
        self.report_below = 0
        self.stalled_ticks = 0
        """For how many ticks the connection has waited for its client. The budget counts them."""
        self._requests_seen = -1

    def forget_frames(self) -> None:
        """Drop the frames that have not begun."""
        self._backlog.clear()
        self.backlog_bytes = 0

    def report(self, is_closed: bool) -> int | None:
        """Return the bytes that are used now. Return None if they differ little from the last
        report.
        """
        owed = self.owed_bytes
        self.report_above = owed + (owed >> 2) + OWED_GRAIN_BYTES
        self.report_below = owed - (owed >> 2) - OWED_GRAIN_BYTES
        held = self.unsent_bytes
        if not is_closed:
            held += self.backlog_bytes + FRAME_BYTES * len(self._backlog) + self.stored_bytes
            held += self._splitter.waiting_bytes + owed
        if held < GRAIN_BYTES:
            held = 0
        change = held - self.reported_bytes
        if change > GRAIN_BYTES or change < -GRAIN_BYTES or (change and not held):
            return held
        return None

    def waits_for_client(self, requests: int, owes: int) -> bool:
        """Return True if the memory stays in use until the client sends the rest of a frame or
        reads its replies. False if a request has begun since the last call.
        """
        if self._requests_seen != requests:
            self._requests_seen = requests
            return False
        return self.unsent_bytes > 0 or (self._splitter.waiting_bytes > 0 and not owes)
