"""What one call of ``storage.append`` is made of: a part of each slot that has something in it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.step import Reply
    from groupkeeper.storage.base import Batch, ShardId


class _OfShard(Protocol):
    shard_id: ShardId


S = TypeVar("S", bound=_OfShard)


class Write:
    """What one slot has in one append, and the replies that are released once it is durable."""

    __slots__ = ("batches", "replies", "shard_id")

    def __init__(self, shard_id: ShardId) -> None:
        """Start empty."""
        self.shard_id = shard_id
        self.batches: list[Batch] = []
        self.replies: deque[Reply] = deque()


class Append(Generic[S]):
    """One call of ``storage.append`` in the making, or in flight."""

    __slots__ = (
        "abandoned",
        "bytes",
        "done",
        "events",
        "requests",
        "started_ms",
        "started_s",
        "writes",
    )

    def __init__(self) -> None:
        """Start empty."""
        self.writes: dict[S, Write] = {}
        self.requests = 0
        """Steps with records."""
        self.events = 0
        """Events of steps without records; one with long names counts as several."""
        self.bytes = 0
        self.started_ms = 0
        """When it began; before that since when it waits for a held lane, 0 where it does not."""
        self.started_s = 0.0
        """The same by the timer: appends take less than the clock's millisecond."""
        self.abandoned = False
        """It took too long: whatever it says now is not heard."""
        self.done: asyncio.Future[None] | None = None
        """Set when the append ended, well or not; for those who fold."""

    def end(self) -> None:
        """Tell who waits for the end, if he still does."""
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

    def write_of(self, slot: S) -> Write:
        """Return the slot's part, made on first use."""
        write = self.writes.get(slot)
        if write is None:
            write = self.writes[slot] = Write(slot.shard_id)
        return write
