"""Histograms as plain integers. ``daemon.metrics`` shows them.

They stand apart from ``daemon.metrics``, whose library imports an HTTP server. The runtime also
runs in other projects' tests (``testkit``), and must not import that there.
"""

from __future__ import annotations

from bisect import bisect_left

LATENCY_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
REQUEST_BOUNDS_S = (*LATENCY_BOUNDS_S, 10.0, 30.0, 60.0, 300.0)
REBALANCE_BOUNDS_S = (0.01, 0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
LAG_BOUNDS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
CALLBACK_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
BATCH_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)


class Histogram:
    """Plain integers in buckets. ``observe`` costs a binary search over a dozen bounds."""

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
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
