"""The counters of the runtime: plain numbers, read when metrics are scraped."""

from __future__ import annotations

from dataclasses import dataclass, field

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.runtime.histogram import (
    BATCH_BOUNDS,
    LATENCY_BOUNDS_S,
    REBALANCE_BOUNDS_S,
    Histogram,
)


@dataclass(slots=True)
class Stats:
    """Counters of one process since its start."""

    append_seconds: Histogram = field(default_factory=lambda: Histogram(LATENCY_BOUNDS_S))
    """Time of each append, until it was durable."""
    append_requests: Histogram = field(default_factory=lambda: Histogram(BATCH_BOUNDS))
    """Steps with records in each durable append."""
    appends_failed: int = 0
    """Appends that failed, timed out or were fenced."""
    loads: int = 0
    """Loads that succeeded, the first one included."""
    loads_failed: int = 0
    load_ms_last: int = 0
    commits_accepted: int = 0
    commits_rejected: int = 0
    """OffsetCommits that were refused as a whole, by the group or because its shard was
    unavailable.
    """
    rebalances: dict[str, int] = field(default_factory=dict)
    """Join phases that began, by reason."""
    rebalance_seconds: Histogram = field(default_factory=lambda: Histogram(REBALANCE_BOUNDS_S))
    """Time of each join phase, from its beginning to its new generation."""
    members_evicted: dict[str, int] = field(default_factory=dict)
    """By reason."""
    offsets_expired: int = 0
    refused_loading: int = 0
    """Requests to a LOADING shard."""
    refused_overload: int = 0
    """Requests refused because too much waited for storage."""
    events_dropped: int = 0
    """Events without records that were dropped: too many waited, or their shard was dropped."""
    bugs: int = 0
    """Exceptions inside the core. Each one reloaded its shard."""
    tickets_failed: int = 0
    """Tickets that raised in ``resolve``."""

    def count_commit(self, error: ErrorCode) -> None:
        """Count the answer to an OffsetCommit."""
        if error:
            self.commits_rejected += 1
        else:
            self.commits_accepted += 1


def count_reason(counts: dict[str, int], reason: str) -> None:
    """Add one to a reason. Reasons come from the core and are few."""
    counts[reason] = counts.get(reason, 0) + 1
