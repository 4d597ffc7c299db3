"""Measures the CPU time of single callbacks of the event loop, and counts the slow ones.

While one callback runs, no request is answered. Only the CPU time of the loop's thread counts. A
busy neighbour, or a suspended process, is not the fault of a callback.

Reading a thread's CPU time is a system call and costs ten times as much as reading the clock. So
the clock times each callback. The CPU time is read only after a callback that took longer than
``LOOK_ABOVE_S``, and otherwise at most once in ``SAMPLE_S``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

from groupkeeper.coordinator.runtime.stats import CALLBACK_BOUNDS_S, Histogram

SLOW_S = 0.1
"""A callback with at least this CPU time is slow. Clients notice if the loop is blocked for this
time.
"""
LOOK_ABOVE_S = 0.001
"""A callback that takes no longer than this is neither measured nor counted."""
SAMPLE_S = 0.005
"""The CPU time of a callback is the difference between a reading after it and an earlier reading.
When the callback begins, the earlier reading is at most this old. So the result may be too high by
this much, but never too low.
"""

Report: TypeAlias = Callable[[str, float, float], None]
"""Called with the name of a slow callback, its CPU time and its duration, both in seconds."""


class CallbackWatch:
    """Measures the callbacks of one event loop, and counts the slow ones."""

    def __init__(
        self,
        report: Report | None = None,
        read_s: Callable[[], float] = time.monotonic,
        read_cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """``report`` is called for each slow callback."""
        self.slow = 0
        """The number of callbacks that used ``SLOW_S`` of CPU time or more."""
        self.cpu_seconds = Histogram(CALLBACK_BOUNDS_S)
        """The CPU time of the callbacks that took longer than ``LOOK_ABOVE_S``."""
        self.look_above_s = LOOK_ABOVE_S
        """A callback that takes no longer than this needs no call of ``end``. Very frequent
        callbacks call only ``read_s``, when they begin.
        """
        self.read_s = read_s
        self._report = report
        self._read_cpu_s = read_cpu_s
        self._read_at_s = float("-inf")
        self._cpu_s = 0.0

    def begin(self) -> float:
        """Return the time at which a callback begins, for ``end``."""
        now_s = self.read_s()
        if now_s - self._read_at_s > SAMPLE_S:
            self._read_at_s = now_s
            self._cpu_s = self._read_cpu_s()
        return now_s

    def end(self, begun_s: float, callback: object) -> None:
        """Measure a callback that has ended, if it took longer than ``look_above_s``."""
        now_s = self.read_s()
        if now_s - begun_s > self.look_above_s:
            self._look(now_s, now_s - begun_s, callback)

    def _look(self, now_s: float, took_s: float, callback: object) -> None:
        cpu_s = self._read_cpu_s()
        used_s = min(cpu_s - self._cpu_s, took_s)
        self._cpu_s, self._read_at_s = cpu_s, now_s
        self.cpu_seconds.observe(used_s)
        if used_s >= SLOW_S:
            self.slow += 1
            if self._report is not None:
                self._report(_name(callback), used_s, took_s)


def _name(callback: object) -> str:
    """Return the name of a callback. A step of a task has the name of its coroutine."""
    task = getattr(callback, "__self__", None)
    coroutine = getattr(task, "get_coro", lambda: None)()
    named = coroutine or callback
    return str(getattr(named, "__qualname__", named))
