"""What the Kafka port counts: plain integers, incremented on the way, read by the metrics at a
scrape.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from enum import StrEnum
from typing import Final

from groupkeeper.coordinator.runtime.histogram import REQUEST_BOUNDS_S, Histogram
from groupkeeper.protocol.versions import ApiKey

FAST_S = REQUEST_BOUNDS_S[0]
"""Requests that took no longer are all but the whole of them: ``RequestTimes`` counts the others,
and takes these from the number of all requests.
"""

NOT_ANSWERED: Final = -1
"""What stands for the API key of a request that waits, or gets no answer."""


class RequestTimes:
    """How long requests took, by API key, from the beginning of each to its reply."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        """Begin at zero."""
        keys = range(max(ApiKey) + 2)  # the last one is that of NOT_ANSWERED, and means nothing
        self.seconds = [0.0 for _ in keys]
        """All of them together, by API key; whoever adds to it counts the bucket if need be."""
        self.buckets = [Histogram(REQUEST_BOUNDS_S).counts for _ in keys]
        """By API key: those that took longer than ``FAST_S``."""

    def add(self, key: int, took_s: float) -> None:
        """Count one request."""
        self.seconds[key] += took_s
        if took_s > FAST_S:
            self.count_slow(key, took_s)

    def count_slow(self, key: int, took_s: float) -> None:
        """Count one that took longer than ``FAST_S``, without its time."""
        self.buckets[key][bisect_left(REQUEST_BOUNDS_S, took_s)] += 1

    def histograms(self, requests: Counter[int]) -> dict[int, Histogram]:
        """Return the histogram of each API, given the number of its requests."""
        found: dict[int, Histogram] = {}
        for key, count in requests.items():
            histogram = found[key] = Histogram(REQUEST_BOUNDS_S)
            histogram.counts = self.buckets[key].copy()
            histogram.counts[0] = count - sum(histogram.counts)
            histogram.total = self.seconds[key]
        return found


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
        "times",
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
        self.requests: defaultdict[tuple[int, int, int], int] = defaultdict(int)
        """By (API key, version, first error of the answer): requests that were answered."""
        self.times = RequestTimes()
        self.closed: dict[str, int] = {reason.value: 0 for reason in CloseReason}
        """By reason: connections that we closed or did not take. Reasons are a closed set."""

    def request_times(self) -> dict[int, Histogram]:
        """Return how long the requests took that were answered, by API key."""
        counts: Counter[int] = Counter()
        for (key, _, _), count in self.requests.items():
            counts[key] += count
        return self.times.histograms(counts)

    def count_closed(self, reason: str) -> None:
        """Count a connection that we closed."""
        self.closed[reason] = self.closed.get(reason, 0) + 1
