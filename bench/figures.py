"""One figure of a benchmark, and the table that all of them go into."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """What one thing costs."""

    layer: str
    what: str
    us: float
    """CPU time of one call, in microseconds."""
    beside: str = ""
    """What others need for the same."""


def cpu_us(
    call: Callable[[], Any],
    count: int = 500,
    rounds: int = 40,
    clock: Callable[[], float] = time.thread_time,
) -> float:
    """The CPU time of a call in microseconds: the best of many short rounds, so that neither a busy
    neighbour nor a cold cache counts.
    """
    call()
    best = float("inf")
    for _ in range(rounds):
        begin = clock()
        for _ in range(count):
            call()
        best = min(best, clock() - begin)
    return best / count * 1e6


def show(figures: Iterable[Figure]) -> None:
    """Print the table, line by line as the figures come."""
    print(f"{'layer':10} {'what':44} {'us':>9}  beside")
    for layer, what, us, beside in figures:
        print(f"{layer:10} {what:44} {us:9.2f}  {beside}".rstrip(), flush=True)
