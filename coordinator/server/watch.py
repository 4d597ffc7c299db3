"""How much CPU time single callbacks of the event loop use, and which are slow.

While one callback works, nobody else is answered. What counts is the CPU time of the loop's
thread: that of a busy neighbour, or of a process that was stopped, is nobody's fault here.

A reading of a thread's CPU time is a system call, ten times as dear as one of the clock. So each
callback is timed by the clock, and the CPU time is read when a callback took longer than
``LOOK_ABOVE_S``, and otherwise once in ``SAMPLE_S``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

from groupkeeper.coordinator.runtime.histogram import CALLBACK_BOUNDS_S, Histogram

SLOW_S = 0.1
"""From here on a callback is slow: a loop that stands still for so long is felt by clients."""
LOOK_ABOVE_S = 0.001
"""A callback that took no longer is neither slow nor counted."""
SAMPLE_S = 0.005
"""How old the reading may be that a callback's CPU time is counted from; so much too high it may
be, never too low."""

Tell: TypeAlias = Callable[[str, float, float], None]
"""Takes the name of a slow callback, its CPU time and how long it took, both in seconds."""


class CallbackWatch:
    """Times callbacks, one after the other, in one thread."""

    def __init__(
        self,
        tell: Tell | None = None,
        read_s: Callable[[], float] = time.monotonic,
        read_cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """Tell of each slow callback, if anyone wants to know."""
        self.slow = 0
        """Callbacks that used ``SLOW_S`` of CPU time or more."""
        self.cpu_seconds = Histogram(CALLBACK_BOUNDS_S)
        """The CPU time of the callbacks that took longer than ``LOOK_ABOVE_S``."""
        self.look_above_s = LOOK_ABOVE_S
        """A callback that took no longer needs no ``end``. For those that are too many to call
        twice for each: ``read_s`` when it begins."""
        self.read_s = read_s
        self._tell = tell
        self._read_cpu_s = read_cpu_s
        self._read_at_s = float("-inf")
        self._cpu_s = 0.0

    def begin(self) -> float:
        """Say that a callback begins; what is returned belongs to ``end``."""
        now_s = self.read_s()
        if now_s - self._read_at_s > SAMPLE_S:
            self._read_at_s = now_s
            self._cpu_s = self._read_cpu_s()
        return now_s

    def end(self, begun_s: float, callback: object) -> None:
        """Say that it ended."""
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
            if self._tell is not None:
                self._tell(_name(callback), used_s, took_s)


def _name(callback: object) -> str:
    """Name what ran; a step of a task by its coroutine."""
    task = getattr(callback, "__self__", None)
    coroutine = getattr(task, "get_coro", lambda: None)()
    named = coroutine or callback
    return str(getattr(named, "__qualname__", named))
