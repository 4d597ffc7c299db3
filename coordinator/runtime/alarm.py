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
"""How long expiry may hold one turn of the loop. The rest is done in the next turn."""


class Expires(Protocol):
    """Something with deadlines."""

    def next_deadline(self) -> int | None:
        """Return the time of the next call of ``expire``, or None if there is none. O(1)."""
        ...

    def expire(self, now: Now) -> None:
        """Expire one portion of the due deadlines."""
        ...


class Alarm:
    """Calls ``expire`` of everything that is due, one portion at a time."""

    def __init__(self, clock: Clock, timer: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._timer = timer
        self._watched: list[Expires] = []
        self._handle: asyncio.Handle | None = None
        self._at_ms = _NEVER
        self._stopped = False

    def watch(self, watched: Iterable[Expires]) -> None:
        """Replace the watched objects."""
        self._watched = list(watched)

    def set(self, at_ms: int | None) -> None:
        """Make sure that the alarm rings at this time or earlier."""
        if at_ms is not None and at_ms < self._at_ms and not self._stopped:
            self._arm(at_ms)

    def earliest(self) -> int | None:
        """Return the time of the earliest deadline (monotonic ms), or None if there is none. The
        time may be too early, but never too late.
        """
        deadlines = [watched.next_deadline() for watched in self._watched]
        return min([at_ms for at_ms in deadlines if at_ms is not None], default=None)

    def look(self) -> None:
        """Ring now for everything that is due. Called after the clock was moved."""
        if not self._stopped:
            self._cancel()
            self._ring()

    def stop(self) -> None:
        """Stop ringing."""
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
                # The next turn begins with the objects behind this one.
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
