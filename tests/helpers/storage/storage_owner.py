"""The owner of a store, reduced to the storage contract: lease, load, append."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from groupkeeper.coordinator.core.events import Event
from groupkeeper.coordinator.core.records import Record
from groupkeeper.storage.base import (
    Batch,
    LeaseEpoch,
    OffsetStorage,
    ShardAppend,
    ShardId,
    StoreIdentity,
)
from tests.helpers.core.record_model import RecordModel

IDENTITY = StoreIdentity("test-cluster", 4)
SHARDS = (-1, 0, 1, 2, 3)
MAX_FOLDS = 1_000


class Owner:
    """Owns all shards of a storage. Its model has the records that it loaded and wrote."""

    def __init__(self, storage: OffsetStorage, name: str = "owner") -> None:
        self.storage = storage
        self.name = name
        self.model = RecordModel()
        self.epoch: LeaseEpoch = 0

    async def start(self) -> Owner:
        """Open the store and load it."""
        await self.storage.open(IDENTITY)
        await self.reload()
        return self

    async def reload(self) -> None:
        """Acquire the leases again and load, as after a failed append."""
        leases = await self.storage.acquire(SHARDS, self.name)
        assert set(leases) == set(SHARDS)
        self.epoch = leases[0].epoch
        self.model = await self.read()

    async def read(self, shards: Collection[ShardId] = SHARDS) -> RecordModel:
        """Return the records of a load as a model."""
        model = RecordModel()
        async for shard, records in self.storage.load(shards):
            model.apply_all(shard, records)
        return model

    def item(self, shard: ShardId, *batches: Batch, fence: LeaseEpoch | None = None) -> ShardAppend:
        """Return an item for one shard, with the model's states for the fold."""
        epoch = self.epoch if fence is None else fence
        return ShardAppend(shard, epoch, batches, partial(self.model.saved, shard))

    async def append(
        self, shard: ShardId, records: Sequence[Record] = (), events: Sequence[Event] = ()
    ) -> None:
        """Apply a step as a shard does, then write it. It must not be fenced."""
        self.model.apply_all(shard, records)
        assert not await self.storage.append([self.item(shard, Batch(records, events))])

    async def fold_all(self) -> None:
        """Append nothing until everything is folded, as an idle owner does."""
        for _ in range(MAX_FOLDS):
            if not self.storage.unfolded():
                return
            await self.fold()
        raise AssertionError(f"{self.storage.unfolded()} requests are left")

    async def fold(self) -> None:
        """Append nothing, which lets the storage fold."""
        assert not await self.storage.append([self.item(shard) for shard in SHARDS])
