"""The counters and histograms of the runtime: plain numbers, which ``daemon.metrics`` reads and
shows.

They are not in ``daemon.metrics``, because the library of that module imports an HTTP server. The
runtime also runs in the tests of other projects (``testkit``), which must not import a server.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from groupkeeper.coordinator.core.events import (
    AssignmentFailed,
    Event,
    GroupConverted,
    MemberEvicted,
    MemberJoin,
    OffsetExpired,
    PatternRefused,
    RebalanceEnd,
    RebalanceStart,
    TargetAssignment,
)

LATENCY_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
REQUEST_BOUNDS_S = (*LATENCY_BOUNDS_S, 10.0, 30.0, 60.0, 300.0)
REBALANCE_BOUNDS_S = (0.01, 0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
LAG_BOUNDS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
CALLBACK_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
BATCH_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)


class Histogram:
    """Counts of values in buckets, and the sum of the values."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Start empty, with one bucket for each bound and one for larger values."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def copy(self) -> Histogram:
        """Return a copy for another thread."""
        copied = Histogram(self.bounds)
        copied.counts[:] = self.counts
        copied.total = self.total
        return copied

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(slots=True)
class Stats:
    """Counters of one process since its start."""

    append_seconds: Histogram = field(default_factory=lambda: Histogram(LATENCY_BOUNDS_S))
    """The time from the start of each append until it was durable."""
    append_requests: Histogram = field(default_factory=lambda: Histogram(BATCH_BOUNDS))
    """The number of requests and timers with records in each durable append."""
    appends_failed: int = 0
    """Appends that failed, timed out, or were refused because another process had a newer lease."""
    loads: int = 0
    """Loads that succeeded, including the first one."""
    lapses: int = 0
    """The number of times that the shards were suspended because the store did not confirm their
    leases."""
    loads_failed: int = 0
    load_ms_last: int = 0
    commits_accepted: int = 0
    commits_rejected: int = 0
    """OffsetCommits that were refused as a whole, by the group or because its shard was
    unavailable.
    """
    rebalances: dict[str, int] = field(default_factory=dict)
    """Rebalances that began, by reason: join phases of classic groups, and new epochs of consumer
    groups."""
    rebalance_seconds: Histogram = field(default_factory=lambda: Histogram(REBALANCE_BOUNDS_S))
    """The duration of each rebalance. In a classic group it ends with the new generation, in a
    consumer group when all members have their targets."""
    targets: dict[str, int] = field(default_factory=dict)
    """Target assignments that consumer groups got, by assignor."""
    targets_failed: dict[str, int] = field(default_factory=dict)
    """Target assignments that could not be computed or stored, by reason."""
    patterns_refused: int = 0
    """Patterns of consumer groups that could not be used, counted at each try."""
    conversions: dict[str, int] = field(default_factory=dict)
    """Groups that changed their type, by the new type."""
    members_evicted: dict[str, int] = field(default_factory=dict)
    """Members that the coordinator removed, by reason."""
    offsets_expired: int = 0
    refused_loading: int = 0
    """Requests to a LOADING shard."""
    refused_overload: int = 0
    """Requests refused because too much waited for storage."""
    events_dropped: int = 0
    """Dropped events of requests and timers that changed nothing in the store. They were dropped
    because too many waited for an append, or because their shard was dropped."""
    bugs: int = 0
    """Exceptions inside the core. Each one reloaded its shard."""
    tickets_failed: int = 0
    """Answers whose receiver (ticket) raised an exception."""

    def count_events(self, events: Iterable[Event]) -> None:
        """Update the counters that are made from events: evictions, rebalances, targets, ..."""
        for event in events:
            if isinstance(event, MemberEvicted):
                _count(self.members_evicted, event.reason)
            elif isinstance(event, RebalanceStart):
                _count(self.rebalances, event.reason)
            elif isinstance(event, RebalanceEnd):
                self.rebalance_seconds.observe(event.duration_ms / 1000)
            elif isinstance(event, TargetAssignment):
                _count(self.targets, event.assignor)
            elif isinstance(event, AssignmentFailed):
                _count(self.targets_failed, event.reason)
            elif isinstance(event, PatternRefused):
                self.patterns_refused += event.count
            elif isinstance(event, GroupConverted):
                _count(self.conversions, event.to_type)
            elif isinstance(event, OffsetExpired):
                self.offsets_expired += sum(len(topic.partitions) for topic in event.topics)


def names_length(event: Event) -> int:
    """Return the total length, in characters, of the names that clients have chosen in an event.
    Each may be up to 32,767 bytes long. Reasons do not count, because they are cut to a short
    length.
    """
    length = len(event.group_id) + len(event.member_id) + len(event.group_instance_id or "")
    if type(event) is MemberJoin:
        length += sum([len(protocol) for protocol in event.protocols])
    return length + len(event.client_id)


def _count(counts: dict[str, int], key: str) -> None:
    """Add one to the count of a key. There are few keys: reasons and types come from the core, and
    assignors from the config.
    """
    counts[key] = counts.get(key, 0) + 1
