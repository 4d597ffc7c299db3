"""The counters and request times of the Kafka port, read when metrics are scraped."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from enum import StrEnum
from typing import Final

from groupkeeper.coordinator.runtime.stats import REQUEST_BOUNDS_S, Histogram

FAST_S: Final = 0.0005  # a literal, because mypyc looks up anything else at each use
"""Most requests take at most this time. ``RequestTimes`` has buckets only for slower ones. The
number of fast requests is the number of all requests minus the number of slower ones.
"""
assert REQUEST_BOUNDS_S[0] == FAST_S

API_KEYS: Final = 128
"""The number of API keys that are counted. Kafka 4.3 has 93."""

NOT_ANSWERED: Final = -1
"""Used instead of an API key if a request waits or gets no answer."""


class RequestTimes:
    """The time of requests by API key, from the start of each to its reply."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        keys = range(API_KEYS + 1)  # the last entry is for NOT_ANSWERED and is not shown
        self.seconds = [0.0 for _ in keys]
        """The total time by API key. Code that adds the time of a slow request here must also call
        ``count_slow``.
        """
        self.buckets = [Histogram(REQUEST_BOUNDS_S).counts for _ in keys]
        """Maps an API key to the number of requests that took longer than ``FAST_S``, in the
        buckets of ``REQUEST_BOUNDS_S``."""

    def add(self, key: int, took_s: float) -> None:
        self.seconds[key] += took_s
        if took_s > FAST_S:
            self.count_slow(key, took_s)

    def count_slow(self, key: int, took_s: float) -> None:
        """Count a request that took longer than ``FAST_S``, but not its time."""
        self.buckets[key][bisect_left(REQUEST_BOUNDS_S, took_s)] += 1

    def histograms(self, requests: Counter[int]) -> dict[int, Histogram]:
        """Return the histogram of each API. ``requests`` has the numbers of requests."""
        found: dict[int, Histogram] = {}
        for key, count in requests.items():
            histogram = found[key] = Histogram(REQUEST_BOUNDS_S)
            histogram.counts = self.buckets[key].copy()
            histogram.counts[0] = count - sum(histogram.counts)
            histogram.total = self.seconds[key]
        return found


class CloseReason(StrEnum):
    """The reasons why we close or refuse a connection. Malformed bytes have the label of their
    ``protocol.errors.ProtocolError`` instead.
    """

    TOO_MANY_CONNECTIONS = "too_many_connections"
    TOO_MANY_CONNECTIONS_OF_ADDRESS = "too_many_connections_of_address"
    REPLY_TOO_LARGE = "reply_too_large"
    INCOMPLETE_FRAME = "incomplete_frame"
    """The rest of a request did not arrive within the idle time."""
    IDLE = "idle"
    NOT_READING = "not_reading"
    """The peer did not read its replies within the idle time."""
    MEMORY_BUDGET = "memory_budget"
    """All connections together held more than ``kafka.max_buffered_bytes``, and this one held the
    most or waited the longest.
    """
    INTERNAL_ERROR = "internal_error"
    """A bug of ours. The log has the traceback."""
    SHUTDOWN = "shutdown"


UPSTREAM_LOST: Final = "upstream_lost"
"""Gateway mode: the broker behind this connection cannot be reached, or it closed its connection
while it owed a reply. Not in ``CloseReason``: without a gateway it is not shown."""
UPSTREAM_BAD_REPLY: Final = "upstream_bad_reply"
"""Gateway mode: the broker sent bytes that are no reply to the request."""


class AnswerCount:
    """The number of answered requests of one API, version and first error."""

    __slots__ = ("count", "error", "key", "version")

    def __init__(self, key: int, version: int, error: int) -> None:
        self.key = key
        self.version = version
        self.error = error
        self.count = 0


class AnswerCounts(dict[tuple[int, int, int], AnswerCount]):
    """(API key, version, first error of the answer) -> the counter of such answers.

    A connection keeps the counter of its last answer, because the next one is nearly always of the
    same kind.
    """

    def __missing__(self, kind: tuple[int, int, int]) -> AnswerCount:
        count = self[kind] = AnswerCount(*kind)
        return count


class ServerStats:
    """The counters of one server since its start."""

    __slots__ = (
        "answers",
        "buffered_bytes",
        "bytes_in",
        "bytes_out",
        "closed",
        "connections_accepted",
        "connections_open",
        "reading_paused",
        "times",
    )

    def __init__(self) -> None:
        self.connections_open = 0
        self.connections_accepted = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.buffered_bytes = 0
        """Bytes that all connections hold now, by the memory budget."""
        self.reading_paused = 0
        """The number of times that a connection was paused because of the memory budget."""
        self.answers = AnswerCounts()
        self.times = RequestTimes()
        self.closed: dict[str, int] = {reason.value: 0 for reason in CloseReason}
        """Connections that we closed or refused, by reason. Only our code defines reasons."""

    @property
    def requests(self) -> dict[tuple[int, int, int], int]:
        """Answered requests, by (API key, version, first error of the answer)."""
        return {kind: answers.count for kind, answers in self.answers.items()}

    def request_times(self) -> dict[int, Histogram]:
        """Return the times of the answered requests by API key."""
        counts: Counter[int] = Counter()
        for (key, _, _), count in self.requests.items():
            counts[key] += count
        return self.times.histograms(counts)

    def count_closed(self, reason: str) -> None:
        """Count a connection that we closed."""
        self.closed[reason] = self.closed.get(reason, 0) + 1
