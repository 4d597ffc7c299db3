"""One call of ``storage.append``, and the part that each slot has in it."""

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
    """The batches of one slot in one append, and the replies to release once they are durable."""

    __slots__ = ("batches", "replies", "shard_id")

    def __init__(self, shard_id: ShardId) -> None:
        self.shard_id = shard_id
        self.batches: list[Batch] = []
        self.replies: deque[Reply] = deque()


class Append(Generic[S]):
    """One call of ``storage.append`` that is gathering or in flight."""

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
        self.writes: dict[S, Write] = {}
        self.requests = 0
        """Steps with records."""
        self.events = 0
        """Events of steps without records. An event with long names counts as several."""
        self.bytes = 0
        self.started_ms = 0
        """When the append began. Before that: since when it waits for a held lane, or 0 if it does
        not wait.
        """
        self.started_s = 0.0
        """The start by the timer. An append may be shorter than one millisecond of the clock."""
        self.abandoned = False
        """True if the append timed out. Its result is then ignored."""
        self.done: asyncio.Future[None] | None = None
        """Resolved when the append ends, whether or not it failed. Set only for folds."""

    def end(self) -> None:
        """Wake the caller that waits for the end, unless it was cancelled."""
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

    def write_of(self, slot: S) -> Write:
        """Return the slot's part. The first call creates it."""
        write = self.writes.get(slot)
        if write is None:
            write = self.writes[slot] = Write(slot.shard_id)
        return write
