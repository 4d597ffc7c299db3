"""One timer of the event loop, for the earliest deadline of all shards
(docs/design.md#deadlines).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.runtime.clock import Clock

NEVER: Final = 1 << 62
BUDGET_S = 0.005
"""How long the alarm may work in one iteration of the event loop. It processes the other due
deadlines in the next iteration.
"""


class Expires(Protocol):
    """An object with deadlines. In the product this is a slot, which holds one shard."""

    alarm_ms: int
    """The time at which the alarm calls ``expire`` (monotonic ms), or NEVER. Only the alarm changes
    this value."""

    def expire(self, now: Now) -> None:
        """Process some of the deadlines that are due, and set the alarm for the next one."""
        ...


class Alarm:
    """Calls ``expire`` of every slot that has a due deadline. A slot holds one shard.

    A slot sets the alarm for its earliest deadline. When the timer ends, the alarm compares
    ``alarm_ms`` of each slot with the clock, and calls only the slots that are due. If a deadline
    was moved to a later time, the slot is called too early. This does no harm.
    """

    def __init__(self, clock: Clock, timer: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._timer = timer
        self._watched: list[Expires] = []
        self._handle: asyncio.Handle | None = None
        self._at_ms = NEVER
        self._stopped = False

    def watch(self, watched: Iterable[Expires]) -> None:
        """Watch the deadlines of these objects, and no longer those of earlier objects."""
        self._watched = list(watched)

    def set(self, watched: Expires, at_ms: int | None) -> None:
        """Make sure that the alarm calls this object at ``at_ms`` (monotonic ms) or earlier. None:
        do nothing.
        """
        if at_ms is None or at_ms >= watched.alarm_ms:
            return
        watched.alarm_ms = at_ms
        if at_ms < self._at_ms:
            self._arm(at_ms)

    def earliest(self) -> int | None:
        """Return the time of the earliest deadline (monotonic ms). The time may be too early, but
        never too late. None if there is no deadline, or after ``stop``.
        """
        at_ms = self._earliest_ms()
        return None if at_ms == NEVER or self._stopped else at_ms

    def look(self) -> None:
        """Process the deadlines that are due now, without waiting for the timer. A test calls this
        after it has moved the clock. After ``BUDGET_S``, the others follow in the next iteration of
        the event loop.
        """
        if not self._stopped:
            self._cancel()
            self._ring()

    def stop(self) -> None:
        self._stopped = True
        self._cancel()

    def _arm(self, at_ms: int) -> None:
        if self._stopped:
            return
        self._cancel()
        self._at_ms = at_ms
        loop = asyncio.get_running_loop()
        delay_ms = at_ms - self._clock.now().monotonic_ms
        if delay_ms <= 0:
            self._handle = loop.call_soon(self._ring)
        else:
            self._handle = loop.call_later(delay_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._at_ms = NEVER
        now = self._clock.now()
        until = self._timer() + BUDGET_S
        try:
            for position, watched in enumerate(self._watched):
                if watched.alarm_ms > now.monotonic_ms:
                    continue
                watched.alarm_ms = NEVER
                watched.expire(now)
                if self._timer() > until:
                    # The next iteration of the event loop begins with the objects after this one.
                    behind = position + 1
                    self._watched = self._watched[behind:] + self._watched[:behind]
                    break
        finally:
            self._rearm()

    def _rearm(self) -> None:
        at_ms = self._earliest_ms()
        if at_ms < self._at_ms:
            self._arm(at_ms)

    def _earliest_ms(self) -> int:
        return min([watched.alarm_ms for watched in self._watched], default=NEVER)

    def _cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None
        self._at_ms = NEVER
