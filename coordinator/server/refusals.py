"""Logs the connections that we close, at a limited rate: a flood of bad input must not flood the
log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import structlog

from groupkeeper.coordinator.runtime.line_limit import LineLimit
from groupkeeper.coordinator.server.stats import UPSTREAM_BAD_REPLY, UPSTREAM_LOST, CloseReason

WINDOW_S = 10.0
LINES_PER_WINDOW = 5
"""The largest number of lines for one reason in ``WINDOW_S``. Lines that are left out are counted,
and the next line has the count.
"""

LOGGED_CHARS = 249
"""In the log, a text of a peer, such as a group id, is cut to this length. It may have 32,767
characters.
"""

QUIET: frozenset[str] = frozenset({CloseReason.IDLE, CloseReason.SHUTDOWN})
"""Reasons that are no fault of the peer. They are counted, and logged only at debug level."""


_LIMITS: frozenset[str] = frozenset(CloseReason) - QUIET - {CloseReason.INTERNAL_ERROR}
"""Reasons that mean that the peer exceeded a limit.

A reason in none of these sets is an error of ours (``INTERNAL_ERROR``), or the label of a
``protocol.errors.ProtocolError``: the peer sent a bad request.
"""


_UPSTREAM: frozenset[str] = frozenset({UPSTREAM_LOST, UPSTREAM_BAD_REPLY})
"""Reasons that are the fault of the broker behind a connection (gateway mode)."""


class RefusalLog:
    """Writes one line per closed connection, up to a rate per reason."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` returns the seconds of a monotonic clock."""
        self._lines = LineLimit(clock, WINDOW_S, LINES_PER_WINDOW)
        self._log = structlog.get_logger("groupkeeper.server")

    def write(self, reason: str, peer: str, **detail: Any) -> None:
        """Log why the connection was closed, if the rate allows it."""
        if reason in QUIET:
            self._log.debug("connection_closed", reason=str(reason), peer=peer, **detail)
            return
        left_out = self._lines.allow(reason)
        if left_out is None:
            return
        for name, value in detail.items():
            if isinstance(value, str):
                detail[name] = value[:LOGGED_CHARS]
        if left_out:
            detail["left_out"] = left_out
        if reason == CloseReason.INTERNAL_ERROR:
            self._log.error("connection_closed_by_bug", reason=str(reason), peer=peer, **detail)
        elif reason in _UPSTREAM:
            self._log.warning("connection_closed_upstream", reason=reason, peer=peer, **detail)
        elif reason in _LIMITS:
            self._log.warning("connection_closed_at_limit", reason=str(reason), peer=peer, **detail)
        else:
            self._log.warning(
                "connection_closed_bad_request", reason=str(reason), peer=peer, **detail
            )

    def bug(self, peer: str, api_key: int, api_version: int, error: BaseException) -> None:
        """Log an exception that left a request without a reply. It is a bug of ours."""
        self._log.error(
            "reply_not_rendered",
            api_key=api_key,
            api_version=api_version,
            peer=peer,
            exc_info=error,
        )


class HttpRefusals:
    """Logs and counts the connections that the HTTP port closes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` returns the seconds of a monotonic clock."""
        self._lines = LineLimit(clock, WINDOW_S, LINES_PER_WINDOW)
        self._log = structlog.get_logger("groupkeeper.http")
        self._counts: Counter[str] = Counter()

    def __call__(self, reason: str, peer: str) -> None:
        """Count a connection, and log it if the rate allows it."""
        self._counts[reason] += 1
        left_out = self._lines.allow(reason)
        if left_out is not None:
            detail = {"left_out": left_out} if left_out else {}
            self._log.warning("http_closed_at_limit", reason=reason, peer=peer, **detail)

    def by_reason(self) -> dict[tuple[str, ...], float]:
        """Return the number of closed connections by reason, in the form that a metric needs."""
        return {(reason,): float(count) for reason, count in self._counts.items()}
