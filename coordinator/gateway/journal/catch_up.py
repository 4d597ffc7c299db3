"""Waits until a shard knows the end of every transaction that has ended.

In Kafka a producer may begin its next transaction only when the offsets of the last one are
visible. Here they become visible a moment later: when we read the end of the transaction in the
journal, a topic of ours in the upstream cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from groupkeeper.coordinator.gateway.journal.shard import JournalLost, JournalShard

LIMIT_S: Final = 5.0
"""After this time a client gets an error to try again. Clients wait at least 30 s for an answer."""


class CatchUp:
    """Waits for the journal of a shard. Callers share waits: for each shard at most one wait runs,
    and at most one more begins after it.
    """

    def __init__(
        self,
        end: Callable[[JournalShard], Coroutine[Any, Any, int]],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        """``end`` returns the present end offset of a shard's partition."""
        self._end = end
        self._spawn = spawn
        self._running: dict[int, asyncio.Task[None]] = {}
        self._next: dict[int, asyncio.Task[None]] = {}

    async def wait(self, shard: JournalShard) -> bool:
        """Wait until the shard has stored the end of each transaction that ended before the call in
        its partition, or until the shard is lost. Return False if this takes too long.
        """
        # A wait that runs may have asked for the end offset before the last transaction ended.
        task = self._next.get(shard.shard_id)
        if task is None:
            task = self._spawn(self._run(shard, self._running.get(shard.shard_id)))
            self._next[shard.shard_id] = task
        done, _ = await asyncio.wait([task], timeout=LIMIT_S)
        return bool(done)

    async def _run(self, shard: JournalShard, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        task = self._running[shard.shard_id] = self._next.pop(shard.shard_id)
        try:
            with suppress(JournalLost):
                await shard.reached(await self._end(shard))
                await shard.drained()
        finally:
            if self._running.get(shard.shard_id) is task:
                del self._running[shard.shard_id]
