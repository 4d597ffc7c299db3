"""A store that fails at random, and reports to the world what became durable in it.

``SimStore`` is the view of one life of one process. The content outlives it. Under it is either
memory, which several processes may share under leases, or the real SQLite backend.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from copy import deepcopy
from random import Random

from msgspec import structs

from groupkeeper.coordinator.core.records import Record, SavedGroup
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import (
    Lease,
    LeaseEpoch,
    LimitsReads,
    OffsetStorage,
    ShardAppend,
    ShardId,
    StorageError,
    StoreIdentity,
    StoreRefused,
    TimesFolds,
)
from groupkeeper.storage.codec.records import group_of
from tests.simulation.history import Durable


class SharedMemory(MemoryOffsetStorage):
    """Memory that outlives the processes. A lease is free once its owner counts as dead."""

    def __init__(self, durable: Durable, clock: Callable[[], int]) -> None:
        super().__init__(clock=clock)
        self.dead_owners: set[str] = set()
        """Owners whose leases have expired. They may be alive and not know it."""
        self._durable = durable
        self._is_open = True

    async def open(self, identity: StoreIdentity) -> None:
        self._identity = self._identity or identity
        if self._last_seq:
            self._log_clock.begin(after=self._log_id)

    async def close(self) -> None:
        """Keep content and leases."""

    async def acquire(self, shards: Collection[ShardId], owner: str) -> dict[ShardId, Lease]:
        self.dead_owners.discard(owner)
        holders = {self._owners.get(shard, owner) for shard in shards}
        # One lane has one epoch: an owner has all of its shards, or none.
        return self.take_over(shards, owner) if holders <= {owner, *self.dead_owners} else {}

    def take_over(self, shards: Collection[ShardId], owner: str) -> dict[ShardId, Lease]:
        leases = super().take_over(shards, owner)
        for lease in leases.values():
            self._durable.granted(lease.shard, lease.epoch)
        return leases

    def group(self, shard: ShardId, group_id: str) -> Sequence[Record]:
        """Return the stored data of one group."""
        keyed = self._shards.get(shard)
        saved = None if keyed is None else keyed.saved(group_id)
        return [] if saved is None else [saved]

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        fenced = await super().append(items)
        for item in items:
            if item.shard not in fenced and item.batches:
                self._durable.stored(item.shard, item.fence, item.batches)
        return fenced


class Misfortune:
    """The faults of one life, and their times."""

    def __init__(
        self, random: Random, die: Callable[[], None], faults: Counter[str] | None = None
    ) -> None:
        self.faults = Counter() if faults is None else faults
        """The number of times that each fault happened."""
        self.trouble = 0.0
        """The probability that a call fails."""
        self.is_dead = False
        """True if the process was killed. None of its calls reaches the store any more."""
        self.has_failed_sync = False
        """True if the disk failed to sync in this life. A start may then fail."""
        self._random = random
        self._die = die
        self._deaths = -1

    def die_at(self, point: int) -> None:
        """Kill the process at this number of points from now."""
        self._deaths = point

    def point(self) -> None:
        """Pass a point at which a crash makes a difference: around every call, and
        between replies.
        """
        self._deaths -= 1
        if self._deaths == 0 and not self.is_dead:
            self.faults["kill at a point"] += 1
            self._die()

    def while_alive(self, call: Callable[[], None]) -> Callable[[], None]:
        """Return a function that does the same until the process is killed, then nothing."""
        return lambda: None if self.is_dead else call()

    def happens(self, weight: float) -> bool:
        return self._random.random() < self.trouble * weight

    def chances(self, likelihood: float) -> bool:
        """Return whether a fault happens that does not depend on ``trouble``."""
        return self._random.random() < likelihood

    async def pause(self, weight: float = 1.0) -> None:
        """Take a moment, or a long time."""
        self.point()
        if self.happens(weight * 0.3):
            self.faults["slow call of the store"] += 1
            await asyncio.sleep(self._random.uniform(0.5, 4.0))
        else:
            await asyncio.sleep(self._random.choice((0.0, 0.0005, 0.002, 0.01)))
        self.point()

    async def work(self, weight: float = 1.0) -> None:
        """Take a moment or a long time, or fail."""
        await self.pause(weight)
        if self.is_dead:
            raise StorageError("killed")
        if self.happens(weight):
            self.faults["failed call of the store"] += 1
            raise StorageError("simulated failure")


class SimStore:
    """The store of one life. Checks that the runtime keeps the contract."""

    def __init__(
        self,
        inner: OffsetStorage,
        fate: Misfortune,
        durable: Durable,
        *,
        one_lane: bool,
    ) -> None:
        self.inner = inner
        self.limits = structs.replace(inner.limits, one_lane=one_lane)
        self._folds = isinstance(inner, SqliteOffsetStorage | JournalStorage)
        self._fate = fate
        self._durable = durable
        self._appending: dict[ShardId, asyncio.Task[Collection[ShardId]]] = {}
        self._loaded: dict[ShardId, LeaseEpoch] = {}
        """The epochs under which shards were loaded. Only with these they may be written."""
        self._held: dict[ShardId, LeaseEpoch] = {}
        self.appends_failed = 0
        """Appends that may not have ended yet. An abandoned one has failed, whatever its result is
        later.
        """
        self.told_lost: set[Lease] = set()
        """Leases that the process knows to be lost. It must use none of them."""
        self.is_moved = False
        """True if its files were moved. This process must never use them again."""
        if isinstance(inner, TimesFolds):
            times_folds = inner
            self.on_fold_due = lambda call: times_folds.on_fold_due(fate.while_alive(call))

    async def open(self, identity: StoreIdentity) -> None:
        await self.inner.open(identity)

    async def close(self) -> None:
        if not self._fate.is_dead:
            await self.inner.close()

    async def check_place(self) -> None:
        if self.is_moved:
            raise StoreRefused("moved")

    async def acquire(self, shards: Collection[ShardId], owner: str) -> dict[ShardId, Lease]:
        await self._fate.work()
        await self.check_place()
        for shard in shards:  # an append that was given up is refused from now on
            self._appending.pop(shard, None)
        leases = await self.inner.acquire(shards, owner)
        self._held |= {lease.shard: lease.epoch for lease in leases.values()}
        self._fate.point()
        return leases

    async def renew(self, leases: Collection[Lease]) -> Collection[ShardId]:
        await self._fate.work()
        lost = await self.inner.renew(leases)
        self.told_lost.update(lease for lease in leases if lease.shard in lost)
        return lost

    async def release(self, leases: Collection[Lease]) -> None:
        if not self._fate.is_dead:
            await self.inner.release(leases)

    async def load(
        self, shards: Collection[ShardId]
    ) -> AsyncIterator[tuple[ShardId, Sequence[Record]]]:
        await self._fate.work()
        with self._durable.noting():
            late = self._appending.keys() & set(shards)
            assert not late, f"shards {late} are loaded during an append of theirs"
        epochs = {shard: self._held[shard] for shard in shards if shard in self._held}
        async for part in self.inner.load(shards):
            yield part
            self._fate.point()
            if self._fate.happens(0.1):
                await self._fate.work()
        self._loaded |= epochs

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        shards = {item.shard for item in items}
        with self._durable.noting():
            assert not shards & self._appending.keys(), "two appends of a shard at a time"
            for item in items:
                loaded = self._loaded.get(item.shard)
                assert loaded == item.fence, f"shard {item.shard}: {item.fence} was not loaded"
        if self._folds:
            items = [_as_of_now(item) for item in items]  # a task begins later
        task = asyncio.ensure_future(self._append(items))
        self._appending |= dict.fromkeys(shards, task)
        self.appends_failed += 1
        try:
            fenced = await self._outcome(task)
            self.appends_failed -= not fenced
            return fenced
        except asyncio.CancelledError:
            if task.cancelled():
                raise
            return await asyncio.shield(task)  # goes on, and answers whoever has given it up
        finally:
            if task.done():
                self._appending = {s: t for s, t in self._appending.items() if t is not task}

    async def _outcome(self, task: asyncio.Task[Collection[ShardId]]) -> Collection[ShardId]:
        if not self._fate.happens(0.3):
            return await task
        self._fate.faults["append that outlives its caller"] += 1
        return await asyncio.shield(task)

    def unfolded(self) -> int:
        return self.inner.unfolded()

    def read_time_left_ms(self) -> int:
        inner = self.inner
        return inner.read_time_left_ms() if isinstance(inner, LimitsReads) else 1

    def lost(self, leases: Collection[Lease]) -> Collection[ShardId]:
        inner = self.inner
        return inner.lost(leases) if isinstance(inner, LimitsReads) else []

    def stats(self) -> dict[str, float]:
        return self.inner.stats()

    async def check_after_unclean_end(self) -> str | None:
        return None

    async def _append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        if not self._folds:  # SQLite has pauses and failures of its own (backends.Jobs, Disk)
            await self._fate.work()
        await self.check_place()
        fenced = await self.inner.append(items)
        try:
            await self._fate.work(0.5)
        except StorageError:
            self._fate.faults["append that lied"] += not self._fate.is_dead
            raise
        return fenced


class NamedSimStore(SimStore):
    """A store that loads a group when it is first named (LoadsGroups). Its reads fail, take too
    long, or are refused.
    """

    def __init__(
        self, inner: SharedMemory, fate: Misfortune, durable: Durable, *, one_lane: bool
    ) -> None:
        super().__init__(inner, fate, durable, one_lane=one_lane)
        self._groups = inner
        self._named: set[str] = set()

    async def load(
        self, shards: Collection[ShardId]
    ) -> AsyncIterator[tuple[ShardId, Sequence[Record]]]:
        async for shard, records in super().load(shards):
            yield shard, [record for record in records if self._knows(record)]

    def _knows(self, record: Record) -> bool:
        """True if this load leaves out what it cannot read. A load after a stolen lease may do so
        as well.
        """
        if not isinstance(record, SavedGroup):
            return True
        if self._fate.chances(0.5):
            self._fate.faults["group left out of a load"] += 1
            return False
        return record.group_id in self._named

    async def load_group(self, shard: ShardId, group_id: str) -> Sequence[Record]:
        await self._fate.work()
        if self._fate.happens(0.2):
            self._fate.faults["group refused"] += 1
            raise StoreRefused("what the group has cannot be used")
        self._named.add(group_id)
        self._fate.faults["group read by name"] += 1
        return self._groups.group(shard, group_id)

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        for item in items:
            for batch in item.batches:
                self._named.update(filter(None, map(group_of, batch.records)))
        return await super().append(items)


def _as_of_now(item: ShardAppend) -> ShardAppend:
    """Return the item with the saved states of this moment. In a later turn they would contain
    more.
    """
    shard = getattr(item.saved, "__self__", None)
    groups: Collection[str] = getattr(shard, "groups", ())
    saved = {group_id: deepcopy(item.saved(group_id)) for group_id in groups}  # offsets are live
    return item._replace(saved=saved.get)
