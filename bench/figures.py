"""One figure of a benchmark, and the table of all figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """The cost of one operation."""

    layer: str
    what: str
    us: float
    """CPU time of one call, in microseconds."""
    beside: str = ""
    """The cost of the same operation in other software."""


def cpu_us(
    call: Callable[[], Any],
    count: int = 500,
    rounds: int = 40,
    clock: Callable[[], float] = time.thread_time,
) -> float:
    """Return the CPU time of a call in microseconds, from the best of many short rounds.

    So neither other load on the machine nor a cold cache counts.
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
    """Print the table, one line for each figure as it arrives."""
    print(f"{'layer':10} {'what':44} {'us':>9}  beside")
    for layer, what, us, beside in figures:
        print(f"{layer:10} {what:44} {us:9.2f}  {beside}".rstrip(), flush=True)
