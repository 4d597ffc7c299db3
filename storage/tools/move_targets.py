"""The stores into which ``storage.tools.move`` copies groups."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from groupkeeper.coordinator.core.records import Record, SavedGroup, SavedOffsets
from groupkeeper.storage.backends.group_parts import GroupWalk
from groupkeeper.storage.backends.journal.driver import Fold, JournalDriver, Value
from groupkeeper.storage.backends.journal.store import boot_time_ms
from groupkeeper.storage.backends.journal.succession import fold_ended
from groupkeeper.storage.base import (
    Batch,
    LeaseEpoch,
    OffsetStorage,
    ShardAppend,
    ShardId,
    StorageError,
    StoreIdentity,
)
from groupkeeper.storage.codec.records import decode_record, decode_saved
from groupkeeper.storage.keyed import KeyedRecords
from groupkeeper.storage.tools.move import (
    PORTION_BYTES,
    MoveTarget,
    Values,
    all_shards,
    canonical,
    keyed_of,
    values_of,
)
from groupkeeper.storage.tools.short_life import short_life

PIECE_BYTES: Final = 512 * 1024
"""The approximate size of one batch of offsets."""


@asynccontextmanager
async def journal_target(
    driver: JournalDriver,
    identity: StoreIdentity,
    lease_ttl_ms: int,
    timer_ms: Callable[[], int] = boot_time_ms,
) -> AsyncIterator[MoveTarget]:
    """Open a store with a journal. Values are written directly, without an entry in the journal.

    If a process that used the store was killed, such as an earlier move, wait until its
    registration with the store has ended. Raises StoreRefused if a process uses the store.
    """
    await driver.open(identity)
    try:
        async with short_life(driver, "move", lease_ttl_ms, timer_ms) as life_id:
            for ended in await driver.ended_lives():
                await fold_ended(driver, life_id, ended)
            yield _JournalTarget(driver, identity, life_id)
    finally:
        await driver.close()


class _JournalTarget:
    def __init__(self, driver: JournalDriver, identity: StoreIdentity, life_id: str) -> None:
        self.name = driver.name
        self._driver = driver
        self._identity = identity
        self._life_id = life_id

    async def read(self) -> Values:
        found: Values = {}
        async for values in self._driver.read(all_shards(self._identity)):
            found.update({v[:3]: _canonical(v, v.data) for v in values if v.data is not None})
        return found

    async def write(self, values: Sequence[Value]) -> None:
        await self._driver.fold(self._life_id, self._life_id, Fold(values, 0, []))


@asynccontextmanager
async def storage_target(
    storage: OffsetStorage, name: str, identity: StoreIdentity
) -> AsyncIterator[MoveTarget]:
    """Open a store of any kind. Values are appended as a coordinator appends records.

    Raises StoreRefused if a process uses the store.
    """
    await storage.open(identity)
    try:
        yield _StorageTarget(storage, name, identity)
    finally:
        await storage.close()


class _StorageTarget:
    def __init__(self, storage: OffsetStorage, name: str, identity: StoreIdentity) -> None:
        self.name = name
        self._storage = storage
        self._shards = all_shards(identity)
        self._epochs: dict[ShardId, LeaseEpoch] = {}
        self._written: dict[ShardId, KeyedRecords] = {}
        """The present content of the target, by shard. An append passes it to the store, which may
        fold groups."""

    async def read(self) -> Values:
        leases = await self._storage.acquire(self._shards, "groupkeeper storage move")
        self._epochs = {shard: lease.epoch for shard, lease in leases.items()}
        if missing := [shard for shard in self._shards if shard not in leases]:
            raise StorageError(f"{self.name}: shard {missing[0]} belongs to another process")
        self._written = {shard: KeyedRecords() for shard in self._shards}
        self._written |= await keyed_of(self._storage.load(self._shards))
        return values_of(self._written)

    async def write(self, values: Sequence[Value]) -> None:
        batches: dict[ShardId, list[Batch]] = {}
        size = 0
        for value in values:
            for record, piece_bytes in _pieces(value):
                batches.setdefault(value.shard, []).append(Batch([record], []))
                self._written[value.shard].apply(record)
                size += piece_bytes
                if size >= PORTION_BYTES:
                    await self._append(batches)
                    batches, size = {}, 0
        await self._append(batches)

    async def _append(self, batches: dict[ShardId, list[Batch]]) -> None:
        items = [
            ShardAppend(shard, self._epochs[shard], part, self._written[shard].saved)
            for shard, part in batches.items()
        ]
        if items and (fenced := await self._storage.append(items)):
            raise StorageError(f"{self.name}: another process has acquired shard {min(fenced)}")


def _canonical(value: Value, data: bytes) -> bytes:
    """Encode a stored value as ``canonical`` does. Return unreadable data unchanged."""
    try:
        return canonical(_record(value))
    except StorageError:
        return data


def _record(value: Value) -> Record:
    decode = decode_saved if value.is_group else decode_record
    return decode(value.data or b"")


def _pieces(value: Value) -> Iterator[tuple[Record, int]]:
    """Yield the records that set a value, each with its approximate size. A large group is several
    records, because a store limits the size of one batch.
    """
    record, size = _record(value), len(value.data or b"")
    if not isinstance(record, SavedGroup) or size <= PIECE_BYTES:
        yield record, size
        return
    yield msgspec.structs.replace(record, offsets={}), PIECE_BYTES
    walk = GroupWalk()
    while not walk.is_done:
        yield SavedOffsets(record.group_id, walk.take(record, PIECE_BYTES)), PIECE_BYTES
