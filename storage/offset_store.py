"""Offsets without a coordinator: the plain calls, over any backend.

For programs of their own and for tools. It takes the lease like any owner, so it cannot run beside
a coordinator on the same store; what it writes is a commit like any other, so the event log has it.
A store that cannot list its groups (``LoadsGroups``) is asked for each when it is first named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TypeAlias

from coordinator.core.records import (
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    CommittedPartition,
    CommittedTopic,
    OffsetsCommitted,
    OffsetsRemoved,
    Record,
    SavedOffset,
)
from coordinator.core.routing import shard_of
from storage.base import (
    CLUSTER_SHARD,
    Batch,
    LeaseEpoch,
    LoadsGroups,
    OffsetStorage,
    ShardAppend,
    ShardId,
    StorageError,
    StoreIdentity,
)
from storage.keyed import KeyedRecords
from storage.log_clock import wall_clock_ms

TopicPartition: TypeAlias = tuple[str, int]

NO_OFFSET = -1


class OffsetStore:
    """Stores, fetches and deletes committed offsets, by group; one call at a time."""

    def __init__(
        self,
        storage: OffsetStorage,
        identity: StoreIdentity,
        *,
        owner: str = "offset-store",
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """Touch nothing yet. ``clock`` tells commit times."""
        self._storage = storage
        self._identity = identity
        self._owner = owner
        self._clock = clock
        self._turn = asyncio.Lock()
        self._shards: dict[ShardId, KeyedRecords] = {}
        self._named: set[str] = set()
        """Groups that were read by name since the last load."""
        self._epoch: LeaseEpoch | None = None
        """None: to be loaded (again) before the next call."""

    async def open(self) -> None:
        """Open the store and read it. Raises StoreRefused while a coordinator uses it."""
        await self._storage.open(self._identity)
        async with self._turn:
            await self._load()

    async def close(self) -> None:
        """Give the store back."""
        await self._storage.close()

    async def store_offset(
        self, group_id: str, topic: str, partition: int, offset: int, metadata: str = ""
    ) -> None:
        """Commit one offset; durable on return."""
        async with self._turn:
            keyed = await self._shard(group_id)
            before = keyed.offset(group_id, topic, partition)
            previous = NO_OFFSET if before is None else before.offset
            row = CommittedPartition(partition, offset, previous, NO_LEADER_EPOCH, metadata)
            commit = OffsetsCommitted(
                group_id=group_id,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                client_id=self._owner,
                client_host="",
                principal="",
                commit_time_ms=self._clock(),
                expire_time_ms=NO_TIMESTAMP,
                topics=[CommittedTopic(topic, "" if before is None else before.topic_id, [row])],
            )
            await self._write(group_id, commit)

    async def fetch_offset(self, group_id: str, topic: str, partition: int) -> SavedOffset | None:
        """Return the committed offset of one partition, None where there is none."""
        async with self._turn:
            return (await self._shard(group_id)).offset(group_id, topic, partition)

    async def fetch_offsets(self, group_id: str) -> dict[TopicPartition, SavedOffset]:
        """Return all committed offsets of a group; empty where there is no such group."""
        async with self._turn:
            saved = (await self._shard(group_id)).saved(group_id)
            if saved is None:
                return {}
            return {
                (topic, partition): offset
                for topic, rows in saved.offsets.items()
                for partition, offset in rows.items()
            }

    async def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> None:
        """Delete offsets of a group; one that is not there is no error. Durable on return."""
        async with self._turn:
            keyed = await self._shard(group_id)
            there = [each for each in partitions if keyed.offset(group_id, *each) is not None]
            if there:
                await self._write(group_id, OffsetsRemoved(group_id, there))

    async def _shard(self, group_id: str) -> KeyedRecords:
        if self._epoch is None:
            await self._load()
        shard = shard_of(group_id, self._identity.shards)
        keyed = self._shards[shard]
        if isinstance(self._storage, LoadsGroups) and group_id not in self._named:
            for record in await self._storage.load_group(shard, group_id):
                keyed.apply(record)
            self._named.add(group_id)
        return keyed

    async def _load(self) -> None:
        shards = range(CLUSTER_SHARD, self._identity.shards)
        leases = await self._storage.acquire(shards, self._owner)
        if len(leases) < len(shards):
            raise StorageError("another owner holds a part of the store")
        self._shards = {shard: KeyedRecords() for shard in shards}
        self._named.clear()
        async for shard, records in self._storage.load(shards):
            for record in records:
                self._shards[shard].apply(record)
        self._epoch = leases[CLUSTER_SHARD].epoch

    async def _write(self, group_id: str, record: Record) -> None:
        assert self._epoch is not None
        shard = shard_of(group_id, self._identity.shards)
        keyed, epoch = self._shards[shard], self._epoch
        keyed.apply(record)
        # What became of an append that fails is not known: the next call loads.
        self._epoch = None
        item = ShardAppend(shard, epoch, [Batch([record], [])], keyed.saved)
        if await self._storage.append([item]):
            raise StorageError("the store was taken over by another owner; nothing was stored")
        self._epoch = epoch
