"""One budget of memory over all connections of the Kafka port.

It counts what a connection makes us hold: a frame that is not complete, requests that wait to be
begun, requests that wait for their answer (a parked join is one), replies that wait for an earlier
one, and replies that the peer does not take. Three things happen when peers hold much:

1. Above three quarters of the budget (``SOFT_SHARE``) a connection that holds more than its share
   is read no further. The share is the same for all that hold something. A member that heartbeats
   and commits holds little, and never meets it.
2. While it stays so, a connection that has waited for its peer for ``STALLED_TICKS`` looks (5 s) is
   closed, the oldest first.
3. Above the whole budget the largest is closed at once, and one that has waited for its peer for
   long counts as larger.

Why reading stops and is not merely slowed down, and why nobody else is paused: see
docs/decisions/0007-server.md.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

from groupkeeper.coordinator.server.stats import CloseReason, ServerStats

SOFT_SHARE = 0.75
ROOM_SHARE = 0.9375
"""Above the budget the largest are closed until so much of it is held."""
TICK_S = 0.25
"""How often the budget looks at who waits for its peer, while it is pressed."""
STALLED_TICKS = 20
"""Less than the least session timeout (6 s): a request that waits for memory is read in time."""
GRAIN_BYTES = 4_096
"""Smaller changes of what a connection holds are not told: they are part of what every connection
costs, and telling each one would cost every commit."""
OWED_GRAIN_BYTES = 16_384
"""The same for requests that wait for their answer, with a quarter of them: pipelined commits."""
CALL_BYTES = 1_024
"""What a waiting request holds beside its bytes: the exchange, the ticket, the core's request."""
FRAME_BYTES = 64
"""What a frame takes in memory beside its bytes."""
DECODED_FACTOR = 16
MAX_DECODED_BYTES = 4_194_304
"""A request is larger when it is read: a partition takes 18 bytes in a frame and up to 300 in
memory. The most elements that a frame may have (kafka.max_request_elements) bound it."""

UNCOUNTED_BYTES = 1_024
REQUEST_BYTES = 256
"""While what waits is no more than this, and this much for each request, it is part of what a
connection costs, like ``GRAIN_BYTES``: a member's commit is nearly always alone."""

_NO_LIMIT = 1 << 62

_log = structlog.get_logger("groupkeeper.server")


def cost_bytes(frame_bytes: int) -> int:
    """Return what a request holds while it waits: rather too much than too little."""
    return CALL_BYTES + frame_bytes + min(DECODED_FACTOR * frame_bytes, MAX_DECODED_BYTES)


class Holder(Protocol):
    """A connection, as the budget sees it."""

    held_bytes: int
    """What it was last told to hold."""
    stalled_ticks: int
    """For how many looks it has waited for its peer."""

    def waits_for_peer(self) -> bool:
        """Say whether only the peer can end what is held: the rest of a frame, a reply to take."""
        ...

    def look_at_budget(self) -> None:
        """Stop reading, or read on, as ``MemoryBudget.allows`` says now."""
        ...

    def abort(self, reason: CloseReason) -> None:
        """Close at once, and hold nothing from here on."""
        ...


class MemoryBudget:
    """What all connections of one listener hold together."""

    def __init__(self, max_bytes: int, stats: ServerStats, loop: asyncio.AbstractEventLoop) -> None:
        """Start with nothing held."""
        self.max_bytes = max_bytes
        self.soft_bytes = int(max_bytes * SOFT_SHARE)
        self.held_bytes = 0
        self.share_bytes = _NO_LIMIT
        """What one connection may hold and still be read."""
        self._holders: set[Holder] = set()
        self._paused: set[Holder] = set()
        self._stats = stats
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, holder: Holder, held_bytes: int) -> None:
        """Take note of what a connection holds now; this may close it, or another one."""
        before = holder.held_bytes
        if before == held_bytes:
            return
        holder.held_bytes = held_bytes
        self.held_bytes += held_bytes - before
        self._stats.buffered_bytes = self.held_bytes
        if not held_bytes:
            holder.stalled_ticks = 0
            self._holders.discard(holder)
            self._paused.discard(holder)
        elif not before:
            self._holders.add(holder)
        if self.held_bytes > self.soft_bytes:
            if held_bytes > before:
                self._press(holder)
        elif self.share_bytes != _NO_LIMIT:
            self.share_bytes = _NO_LIMIT

    def allows(self, holder: Holder) -> bool:
        """Say whether the connection may be read; the answer is kept until it changes."""
        if holder.held_bytes <= self.share_bytes:
            self._paused.discard(holder)
            return True
        if holder not in self._paused:
            self._paused.add(holder)
            self._stats.reading_paused += 1
        return False

    def stop(self) -> None:
        """Look at nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _press(self, holder: Holder) -> None:
        """More is held than may be for long, and this connection has grown."""
        self.share_bytes = self.soft_bytes // len(self._holders)
        if self._timer is None:
            _log.warning(
                "memory_budget_pressed",
                held_bytes=self.held_bytes,
                connections=len(self._holders),
                max_buffered_bytes=self.max_bytes,
            )
            self._timer = self._loop.call_later(TICK_S, self._tick)
        if self.held_bytes > self.max_bytes:
            self._close_largest()
        if holder.held_bytes:
            holder.look_at_budget()

    def _close_largest(self) -> None:
        """Close the largest until there is some room: looking for them costs as much as 10,000
        connections do, so it is done once for many reads.
        """
        by_size = sorted(self._holders, key=lambda h: h.held_bytes * (1 + h.stalled_ticks))
        while by_size and self.held_bytes > self.max_bytes * ROOM_SHARE:
            by_size.pop().abort(CloseReason.MEMORY_BUDGET)

    def _tick(self) -> None:
        """Close who keeps memory from others for too long; read on where there is room again."""
        self._timer = None
        for holder in self._holders:
            holder.stalled_ticks = holder.stalled_ticks + 1 if holder.waits_for_peer() else 0
        stalled = [h for h in self._holders if h.stalled_ticks >= STALLED_TICKS]
        stalled.sort(key=lambda h: (h.stalled_ticks, h.held_bytes))
        while stalled and self.held_bytes > self.soft_bytes:
            stalled.pop().abort(CloseReason.MEMORY_BUDGET)
        if self.held_bytes > self.soft_bytes:
            self.share_bytes = self.soft_bytes // len(self._holders)
        self._read_on()
        if self._paused or self.held_bytes > self.soft_bytes:
            self._timer = self._loop.call_later(TICK_S, self._tick)

    def _read_on(self) -> None:
        """Let those that were paused read again, the smallest first, as far as there is room."""
        room = self.soft_bytes - self.held_bytes
        for holder in sorted(self._paused, key=lambda h: h.held_bytes):
            room -= holder.held_bytes
            if room < 0 and holder.held_bytes > self.share_bytes:
                break
            holder.look_at_budget()
