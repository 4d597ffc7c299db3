"""One budget of memory for all connections of the Kafka port.

It counts everything that a connection makes us hold:

- an incomplete frame
- requests that have not begun
- requests that wait for their answer, such as a parked join
- replies that wait for an earlier reply
- replies that the peer does not read

Three things happen when peers hold much:

1. Above three quarters of the budget (``SOFT_SHARE``), a connection that holds more than its share
   is not read. The share is the same for every connection that holds something. A member that only
   heartbeats and commits holds little and never reaches this share.

2. While this lasts, a connection that has waited for its peer for ``STALLED_TICKS`` ticks (5 s) is
   closed. The connection that has waited longest is closed first.

3. Above the whole budget, the largest connection is closed at once. A connection that has waited
   for its peer counts as larger.

See docs/decisions/0007-server.md for the reasons.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from groupkeeper.coordinator.runtime.line_limit import LineLimit
from groupkeeper.coordinator.server.stats import CloseReason, ServerStats

SOFT_SHARE = 0.75
ROOM_SHARE = 0.9375
"""If the budget is exceeded, the largest connections are closed until at most this share of it is
used."""
EASED_SHARE = 0.125
"""When less than this share is used, and more than twice as much was used before, freed memory
returns to the system."""
TICK_S = 0.25
"""The time between two checks for connections that wait for their peer."""
STALLED_TICKS = 20
"""A connection may wait for its peer for this many ticks (5 s). This is shorter than the shortest
session timeout (6 s), so a request that waits for memory is read in time.
"""

WINDOW_S = 60.0
"""One line about memory that is short is logged in each window of this length."""

_NO_LIMIT = 1 << 62

_log = structlog.get_logger("groupkeeper.server")


def _do_nothing() -> None:
    pass


class HeldMemory(Protocol):
    """The part of a connection that the budget uses (``ConnectionMemory``)."""

    reported_bytes: int
    stalled_ticks: int

    def waits_for_client(self, requests: int, owes: int) -> bool:
        """Return True if the memory stays in use until the peer sends or reads more."""
        ...


class Holder(Protocol):
    """The methods of a connection that the budget calls."""

    @property
    def memory(self) -> HeldMemory:
        """The memory of the connection, as far as the budget uses it."""
        ...

    @property
    def requests(self) -> int:
        """The number of requests that have begun."""
        ...

    @property
    def owes(self) -> int:
        """The number of requests that have begun and are not answered."""
        ...

    def look_at_budget(self) -> None:
        """Stop or resume reading, according to ``MemoryBudget.allows``."""
        ...

    def abort(self, reason: CloseReason) -> None:
        """Close the connection at once, and release the memory that it holds."""
        ...


class MemoryBudget:
    """The memory that all connections of a server hold together."""

    def __init__(self, max_bytes: int, stats: ServerStats, loop: asyncio.AbstractEventLoop) -> None:
        self.max_bytes = max_bytes
        self.soft_bytes = int(max_bytes * SOFT_SHARE)
        self.held_bytes = 0
        self.share_bytes = _NO_LIMIT
        """How much one connection may hold and still be read."""
        self.freed: Callable[[], None] = _do_nothing
        """Called when much memory was freed: either little is used after much was used, or
        connections were closed."""
        self._eased_bytes = int(max_bytes * EASED_SHARE)
        self._was_high = False
        self._holders: set[Holder] = set()
        self._paused: set[Holder] = set()
        self._stats = stats
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._lines = LineLimit(loop.time, WINDOW_S, 1)

    def count(self, holder: Holder, held_bytes: int) -> None:
        """Report the current memory of a connection. This may close it or another connection."""
        before = holder.memory.reported_bytes
        if before == held_bytes:
            return
        holder.memory.reported_bytes = held_bytes
        self.held_bytes += held_bytes - before
        self._stats.buffered_bytes = self.held_bytes
        if not held_bytes:
            holder.memory.stalled_ticks = 0
            self._holders.discard(holder)
            self._paused.discard(holder)
        elif not before:
            self._holders.add(holder)
        if self.held_bytes > 2 * self._eased_bytes:
            self._was_high = True
        elif self._was_high and self.held_bytes < self._eased_bytes:
            self._was_high = False
            self.freed()
        if self.held_bytes > self.soft_bytes:
            if held_bytes > before:
                self._press(holder)
        elif self.share_bytes != _NO_LIMIT:
            self.share_bytes = _NO_LIMIT

    def allows(self, holder: Holder) -> bool:
        """Return True if the connection may be read. If it may not, it is remembered as paused."""
        if holder.memory.reported_bytes <= self.share_bytes:
            self._paused.discard(holder)
            return True
        if holder not in self._paused:
            self._paused.add(holder)
            self._stats.reading_paused += 1
        return False

    def stop(self) -> None:
        """Stop checking the connections. Called when the server stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _press(self, holder: Holder) -> None:
        """Start to limit connections. Called if one has grown while the soft limit is exceeded.

        If the whole budget is exceeded, close the largest connections. Then let the connection that
        has grown check whether it may still be read.
        """
        self.share_bytes = self.soft_bytes // len(self._holders)
        if self._timer is None:
            left_out = self._lines.allow("")
            if left_out is not None:
                _log.warning(
                    "memory_budget_pressed",
                    held_bytes=self.held_bytes,
                    connections=len(self._holders),
                    max_buffered_bytes=self.max_bytes,
                    left_out=left_out,
                )
            self._timer = self._loop.call_later(TICK_S, self._tick)
        if self.held_bytes > self.max_bytes:
            self._close_largest()
        if holder.memory.reported_bytes:
            holder.look_at_budget()

    def _close_largest(self) -> None:
        """Close the largest connections until enough memory is free.

        Sorting 10,000 connections costs time, so one call makes room for many reads.
        """
        by_size = sorted(
            self._holders, key=lambda h: h.memory.reported_bytes * (1 + h.memory.stalled_ticks)
        )
        while by_size and self.held_bytes > self.max_bytes * ROOM_SHARE:
            by_size.pop().abort(CloseReason.MEMORY_BUDGET)
        self.freed()

    def _tick(self) -> None:
        """Close connections that have waited for their peer for too long, while the soft limit is
        exceeded. Let paused connections check again whether they may be read.
        """
        self._timer = None
        for holder in self._holders:
            memory = holder.memory
            is_stalled = memory.waits_for_client(holder.requests, holder.owes)
            memory.stalled_ticks = memory.stalled_ticks + 1 if is_stalled else 0
        stalled = [h for h in self._holders if h.memory.stalled_ticks >= STALLED_TICKS]
        stalled.sort(key=lambda h: (h.memory.stalled_ticks, h.memory.reported_bytes))
        while stalled and self.held_bytes > self.soft_bytes:
            stalled.pop().abort(CloseReason.MEMORY_BUDGET)
        if self.held_bytes > self.soft_bytes:
            self.share_bytes = self.soft_bytes // len(self._holders)
        self._read_on()
        if self._paused or self.held_bytes > self.soft_bytes:
            self._timer = self._loop.call_later(TICK_S, self._tick)

    def _read_on(self) -> None:
        """Let paused connections check again whether they may be read, the smallest first.

        Stops at the first connection for which there is no room and that holds more than its share.
        """
        room = self.soft_bytes - self.held_bytes
        for holder in sorted(self._paused, key=lambda h: h.memory.reported_bytes):
            room -= holder.memory.reported_bytes
            if room < 0 and holder.memory.reported_bytes > self.share_bytes:
                break
            holder.look_at_budget()
