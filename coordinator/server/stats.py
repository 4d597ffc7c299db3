"""What the Kafka port counts: plain integers, incremented on the way, read by the metrics at a
scrape.
"""

from __future__ import annotations

from enum import StrEnum


class CloseReason(StrEnum):
    """Why we closed a connection, or did not take it. What is wrong with bytes has the label of its
    ``protocol.errors.ProtocolError`` instead.
    """

    TOO_MANY_CONNECTIONS = "too_many_connections"
    TOO_MANY_CONNECTIONS_OF_ADDRESS = "too_many_connections_of_address"
    REPLY_TOO_LARGE = "reply_too_large"
    INCOMPLETE_FRAME = "incomplete_frame"
    """The rest of a request did not come within the idle time."""
    IDLE = "idle"
    NOT_READING = "not_reading"
    """The peer did not take its answers within the idle time."""
    MEMORY_BUDGET = "memory_budget"
    """All connections together held more than ``kafka.max_buffered_bytes``, and this one the most,
    or for the longest."""
    NO_DESCRIPTORS = "no_descriptors"
    """The process had no file descriptor left, so the system could not hand the connection over."""
    INTERNAL_ERROR = "internal_error"
    """A bug of ours; the log has the traceback."""
    SHUTDOWN = "shutdown"


class ServerStats:
    """Counters of one listener since it was made."""

    __slots__ = (
        "buffered_bytes",
        "bytes_in",
        "bytes_out",
        "closed",
        "connections_accepted",
        "connections_open",
        "reading_paused",
        "requests",
    )

    def __init__(self) -> None:
        """Begin at zero."""
        self.connections_open = 0
        self.connections_accepted = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.buffered_bytes = 0
        """Held for all connections now, by the memory budget."""
        self.reading_paused = 0
        """Times that a connection was read no further because of the memory budget."""
        self.requests: dict[tuple[int, int, int], int] = {}
        """By (API key, version, first error of the answer): requests that were answered."""
        self.closed: dict[str, int] = {reason.value: 0 for reason in CloseReason}
        """By reason: connections that we closed or did not take. Reasons are a closed set."""

    def count_closed(self, reason: str) -> None:
        """Count a connection that we closed."""
        self.closed[reason] = self.closed.get(reason, 0) + 1
