"""The clocks (docs/design.md#clocks): monotonic time and wall time, read in one place and passed
down.

The monotonic time advances by at most one second between two iterations of the event loop. The
process may have been suspended (SIGSTOP, a paused machine) or may have got no CPU. It then reads
the requests in its sockets before it ends any session. So the time in which the process did not run
does not count against the members of its groups.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from groupkeeper.coordinator.core.now import Now

MAX_ADVANCE_NS = 1_000_000_000
"""The longest time by which the monotonic clock advances in one iteration of the event loop."""

TICK_S = 0.5
"""The interval at which an idle loop is woken. Without this, the clock would take idle time for a
suspension of the process."""


class Clock(Protocol):
    """Returns the current time."""

    def now(self) -> Now:
        """Return the monotonic time and the wall time. This must be cheap, because it is called for
        each request.
        """
        ...


def _never(_callback: Callable[[], None]) -> object:
    raise AssertionError("the clock has no loop")


class LoopClock:
    """The real clocks, read once in each iteration of the event loop.

    All calls of ``now`` in one iteration return the same time. The first one reads the clocks. A
    callback at the start of the next iteration makes the next call read them again. A timer wakes
    an idle loop. Otherwise an idle time would look like a suspension of the process.
    """

    def __init__(
        self,
        read_monotonic_ns: Callable[[], int] = time.monotonic_ns,
        read_wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Create the clock without a loop. Until ``start``, each call reads the time."""
        self._read_monotonic_ns = read_monotonic_ns
        self._read_wall_ns = read_wall_ns
        self._last_ns = read_monotonic_ns()
        self._elapsed_ns = self._last_ns
        self._now = Now(0, 0)
        self._is_read = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._soon: Callable[[Callable[[], None]], object] = _never
        self._at_end_of_turn: Callable[[], None] = self._end_turn
        self._tick_timer: asyncio.TimerHandle | None = None
        self.on_turn: Callable[[], None] | None = None
        """Called once in each iteration of the event loop that reads the time, before ``now``
        returns.
        """

    def start(self) -> None:
        """Bind the clock to the running loop, and wake the loop regularly."""
        assert self._loop is None, "started twice"
        self._loop = loop = asyncio.get_running_loop()
        # The daemon's loop measures its callbacks. This one runs in every iteration of the loop,
        # and is too short to be measured.
        self._soon = getattr(loop, "call_soon_unmeasured", loop.call_soon)
        self._tick()

    def stop(self) -> None:
        """Cancel the timer. From then on the time advances only when ``now`` is called."""
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        self._tick_timer = None
        self._loop = None
        self._is_read = False

    def now(self) -> Now:
        """Return the time of this iteration of the event loop."""
        if self._is_read:
            return self._now
        return self._read()

    def _read(self) -> Now:
        reading_ns = self._read_monotonic_ns()
        self._elapsed_ns += min(reading_ns - self._last_ns, MAX_ADVANCE_NS)
        self._last_ns = reading_ns
        self._now = Now(self._elapsed_ns // 1_000_000, self._read_wall_ns() // 1_000_000)
        if self._loop is not None:
            self._is_read = True
            self._soon(self._at_end_of_turn)
            if self.on_turn is not None:
                self.on_turn()
        return self._now

    def _end_turn(self) -> None:
        self._is_read = False

    def _tick(self) -> None:
        assert self._loop is not None
        self._read()  # even if this iteration has read the clocks
        self._tick_timer = self._loop.call_later(TICK_S, self._tick)
