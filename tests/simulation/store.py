"""A store that misbehaves at random, and checks what is written to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from random import Random

from coordinator.core.records import GroupRecord, GroupRemoved, OffsetsCommitted, Record
from storage.base import Lease, ShardAppend, ShardId, StorageError, StoreIdentity
from storage.memory import MemoryOffsetStorage


class SimStore:
    """What one life of the coordinator has of the store; the content outlives it."""

    def __init__(self, inner: MemoryOffsetStorage, random: Random, model: DurableModel) -> None:
        self.inner = inner
        self.limits = inner.limits
        self.is_dead = False
        """The process was killed: nothing of it reaches the store any more."""
        self.trouble = 0.0
        """How likely a call goes wrong."""
        self._random = random
        self._model = model
        self._late: set[asyncio.Task[Collection[ShardId]]] = set()
        self._is_appending = False

    async def open(self, identity: StoreIdentity) -> None:
        await self.inner.open(identity)

    async def close(self) -> None:
        if not self.is_dead:
            await self.inner.close()

    async def kill(self) -> None:
        """End this life's part of the store, as the death of its process does."""
        await self.close()
        self.is_dead = True

    async def acquire(self, shards: Collection[ShardId], owner: str) -> dict[ShardId, Lease]:
        await self._work()
        self._is_appending = False  # an append that was given up is refused from now on
        return await self.inner.acquire(shards, owner)

    async def renew(self, leases: Collection[Lease]) -> Collection[ShardId]:
        await self._work()
        return await self.inner.renew(leases)

    async def release(self, leases: Collection[Lease]) -> None:
        if not self.is_dead:
            await self.inner.release(leases)

    async def load(
        self, shards: Collection[ShardId]
    ) -> AsyncIterator[tuple[ShardId, Sequence[Record]]]:
        await self._work()
        async for part in self.inner.load(shards):
            yield part
            if self._happens(0.1):
                await self._work()

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        assert not self._is_appending, "two appends at a time"
        self._is_appending = True
        task = asyncio.ensure_future(self._append(items))
        if not self._happens(0.3):
            fenced = await task
        else:  # goes on in the store even if the caller gives it up
            self._late.add(task)
            task.add_done_callback(self._ended)
            fenced = await asyncio.shield(task)
        self._is_appending = False
        return fenced

    def unfolded(self) -> int:
        return 0

    def stats(self) -> dict[str, float]:
        return self.inner.stats()

    async def check_after_unclean_end(self) -> str | None:
        return None

    def fence(self, shards: Collection[ShardId]) -> None:
        """Let another owner have these shards for a moment."""
        self.inner.give_back(self.inner.take_over(shards, "thief").values())

    async def _append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        await self._work()
        fenced = await self.inner.append(items)
        for item in items:
            if item.shard not in fenced:
                for batch in item.batches:
                    self._model.stored(batch.records)
        await self._work(0.5)
        return fenced

    async def _work(self, weight: float = 1.0) -> None:
        """Take a moment, or long, or fail."""
        if self._happens(weight * 0.3):
            await asyncio.sleep(self._random.uniform(0.5, 4.0))
        else:
            await asyncio.sleep(self._random.choice((0.0, 0.0005, 0.002, 0.01)))
        if self.is_dead or self._happens(weight):
            self._is_appending = False
            raise StorageError("simulated failure")

    def _happens(self, weight: float) -> bool:
        return self._random.random() < self.trouble * weight

    def _ended(self, task: asyncio.Task[Collection[ShardId]]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()


class DurableModel:
    """What must be true of everything that was ever stored."""

    def __init__(self) -> None:
        self.generations: dict[str, int] = {}
        self.offsets: dict[tuple[str, str, int], int] = {}
        """(group, topic, partition) -> the last offset stored."""
        self.assignments: dict[str, GroupRecord] = {}

    def stored(self, records: Sequence[Record]) -> None:
        """Take records that are durable from now on."""
        for record in records:
            if isinstance(record, GroupRecord):
                last = self.generations.get(record.group_id, 0)
                assert record.generation_id >= last, f"{record.group_id} went back from {last}"
                self.generations[record.group_id] = record.generation_id
                self.assignments[record.group_id] = record
            elif isinstance(record, GroupRemoved):
                self.generations.pop(record.group_id, None)
                self.assignments.pop(record.group_id, None)
            elif isinstance(record, OffsetsCommitted):
                self._committed(record)

    def _committed(self, record: OffsetsCommitted) -> None:
        for topic in record.topics:
            for p in topic.partitions:
                key = (record.group_id, topic.topic, p.partition)
                assert p.offset > self.offsets.get(key, -1), f"{key} was stored out of order"
                self.offsets[key] = p.offset
