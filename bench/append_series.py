"""The times of appends to one store."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable

from bench.storage_bench import COMMITS

GOAL_RATIO = 1.5
"""The largest good ratio of the time of an append to that of a raw client with the same bytes."""


class Series:
    """The wall and CPU times of one kind of append."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.wall_s: list[float] = []
        self.cpu_s: list[float] = []

    async def measure(self, work: Callable[[], Awaitable[object]]) -> None:
        """Measure one append."""
        wall, cpu = time.perf_counter(), time.process_time()
        await work()
        self.wall_s.append(time.perf_counter() - wall)
        self.cpu_s.append(time.process_time() - cpu)

    @property
    def p50_ms(self) -> float:
        """Return the median of the wall times."""
        return statistics.median(self.wall_s) * 1e3

    @property
    def commit_us(self) -> float:
        """Return the CPU time of one commit, in all threads of this process."""
        return statistics.median(self.cpu_s) / COMMITS * 1e6

    def __str__(self) -> str:
        p99 = statistics.quantiles(self.wall_s, n=100)[98] * 1e3
        return (
            f"{self.name:<34} p50 {self.p50_ms:6.2f} ms  p99 {p99:6.2f} ms  "
            f"CPU {self.commit_us:5.1f} us a commit"
        )


def print_beside(ours: Series, theirs: Series) -> None:
    """Print the times of a store and of its raw client, and their ratio."""
    print(ours, theirs, sep="\n")
    print(f"p50 beside the raw client: {ours.p50_ms / theirs.p50_ms:.2f} (goal {GOAL_RATIO})")
