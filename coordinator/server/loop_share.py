"""Runs work that connections left for a later turn, a little of it in each turn. A turn is one
iteration of the event loop.

Each connection has a time limit in a turn, but there may be 10,000 connections. So all of them
together get ``max_s`` in one turn for the work that they left, and as much for new bytes. After
that, incoming bytes are only read, and their requests begin in a later turn. So other users of the
loop (the HTTP port, the store, timers) wait at most about twice ``max_s``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class _Later:
    """A call that can be cancelled."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class Turns:
    """Runs calls in a later turn, in the order in which they were added."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, read_s: Callable[[], float], max_s: float
    ) -> None:
        """``read_s`` returns the seconds of a monotonic clock."""
        self.is_full = False
        """True if incoming bytes have used up their ``max_s`` of this turn."""
        self._loop = loop
        self._read_s = read_s
        self._max_s = max_s
        self._spent_s = 0.0
        self._calls: deque[_Later] = deque()
        self._scheduled = False

    def spend(self, took_s: float) -> None:
        """Count the time in which new bytes were processed in this turn."""
        self._spent_s += took_s
        self.is_full = self._spent_s >= self._max_s
        self._schedule()

    def soon(self, call: Callable[[], None]) -> Callable[[], None]:
        """Run the call in a later turn. Return a function that cancels it."""
        later = _Later(call)
        self._calls.append(later)
        self._schedule()
        return later.cancel

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        """Begin a turn: run waiting calls before new bytes are read."""
        self._scheduled = False
        self._spent_s = 0.0
        self.is_full = False
        calls = self._calls
        until_s = self._read_s() + self._max_s
        for _ in range(len(calls)):  # calls that these add wait for the next turn
            call = calls.popleft().call
            if call is not None:
                call()
                if self._read_s() >= until_s:
                    break
        if calls:
            self._schedule()
