"""One timer of the loop for the earliest deadline of all shards (docs/design.md#deadlines)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from groupkeeper.coordinator.core.requests import Now
from groupkeeper.coordinator.runtime.clock import Clock

_NEVER = 1 << 62
BUDGET_S = 0.005
"""What expiry may take of one turn of the loop; the rest is done in the next."""


class Expires(Protocol):
    """Something with deadlines."""

    def next_deadline(self) -> int | None:
        """Tell when to call ``expire``; None: not at all for now. O(1)."""
        ...

    def expire(self, now: Now) -> None:
        """Take one portion of what is due."""
        ...


class Alarm:
    """Calls ``expire`` of whatever is due, a portion each in turn."""

    def __init__(self, clock: Clock, timer: Callable[[], float] = time.perf_counter) -> None:
        """Make an alarm without anything to watch."""
        self._clock = clock
        self._timer = timer
        self._watched: list[Expires] = []
        self._handle: asyncio.Handle | None = None
        self._at_ms = _NEVER
        self._stopped = False

    def watch(self, watched: Iterable[Expires]) -> None:
        """Set what is watched."""
        self._watched = list(watched)

    def set(self, at_ms: int | None) -> None:
        """Ring no later than this."""
        if at_ms is not None and at_ms < self._at_ms and not self._stopped:
            self._arm(at_ms)

    def earliest(self) -> int | None:
        """When the next thing is due (monotonic ms), perhaps too early; None: nothing waits."""
        deadlines = [watched.next_deadline() for watched in self._watched]
        return min([at_ms for at_ms in deadlines if at_ms is not None], default=None)

    def look(self) -> None:
        """Ring now for whatever is due: the clock was moved."""
        if not self._stopped:
            self._cancel()
            self._ring()

    def stop(self) -> None:
        """Ring no more."""
        self._stopped = True
        self._cancel()

    def _arm(self, at_ms: int) -> None:
        self._cancel()
        self._at_ms = at_ms
        loop = asyncio.get_running_loop()
        delay_ms = at_ms - self._clock.now().monotonic_ms
        if delay_ms <= 0:
            self._handle = loop.call_soon(self._ring)
        else:
            self._handle = loop.call_later(delay_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._at_ms = _NEVER
        now = self._clock.now()
        until = self._timer() + BUDGET_S
        for position, watched in enumerate(self._watched):
            at_ms = watched.next_deadline()
            if at_ms is None or at_ms > now.monotonic_ms:
                continue
            watched.expire(now)
            if self._timer() > until:
                # Those behind this one come first next time.
                self._watched = self._watched[position + 1 :] + self._watched[: position + 1]
                break
        self._rearm()

    def _rearm(self) -> None:
        earliest = _NEVER
        for watched in self._watched:
            at_ms = watched.next_deadline()
            if at_ms is not None and at_ms < earliest:
                earliest = at_ms
        if earliest < self._at_ms and not self._stopped:
            self._arm(earliest)

    def _cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None
        self._at_ms = _NEVER
