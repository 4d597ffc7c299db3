"""Store and fetch offsets without a coordinator, over any backend.

This is for programs without Kafka clients, and for tools. An OffsetStore acquires the lease of the
store like a coordinator does. So it cannot use a store that a coordinator has open. Its writes are
ordinary commits, so the event log contains them. If a store cannot list its groups
(``LoadsGroups``), a group is loaded at its first use.

    async with OffsetStore(SqliteOffsetStorage("groups.db")) as offsets:
        await offsets.store_offset("billing", "orders", 0, OffsetAndMetadata(17, leader_epoch=3))
        await offsets.fetch_offset("billing", "orders", 0)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Self, TypeAlias

from groupkeeper.coordinator.core.events import Event, GroupDeleted, OffsetDeleted
from groupkeeper.coordinator.core.groups.lost_offsets import StoredOffset, lost_topics
from groupkeeper.coordinator.core.records import (
    NO_TIMESTAMP,
    CommittedTopic,
    GroupRemoved,
    OffsetsCommitted,
    OffsetsRemoved,
    Record,
    SavedOffset,
)
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.coordinator.core.wire_values import INT32_MAX, Int32, text, whole_number
from groupkeeper.storage.backends.metadata_store import OffsetAndMetadata, checked_offset
from groupkeeper.storage.base import (
    CLUSTER_SHARD,
    Batch,
    LeaseEpoch,
    LoadsGroups,
    OffsetStorage,
    ShardAppend,
    ShardId,
    StorageError,
    StoreIdentity,
    check_storage,
)
from groupkeeper.storage.event_log.log_clock import wall_clock_ms
from groupkeeper.storage.host_values import checked
from groupkeeper.storage.keyed import KeyedRecords

TopicPartition: TypeAlias = tuple[str, int]
_Named: TypeAlias = tuple[str, Int32]

NO_OFFSET = -1

NO_GENERATION = -1
"""The generation in a commit whose sender is no member of the group."""

DEFAULT_IDENTITY: Final = StoreIdentity("groupkeeper", 50)
"""The cluster id and the number of shards of a store that a daemon or a host created with default
settings."""


class OffsetStore:
    """Stores, fetches and deletes committed offsets of groups. Calls run one after another."""

    def __init__(
        self,
        storage: OffsetStorage,
        identity: StoreIdentity = DEFAULT_IDENTITY,
        *,
        owner: str = "offset-store",
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """Create the object without opening the store.

        ``identity`` is the cluster id and the number of shards with which the store was created.
        ``clock`` returns wall-clock milliseconds for commit times. Raises TypeError if ``storage``
        is not an OffsetStorage.
        """
        check_storage(storage)
        self._storage = storage
        self._identity = identity
        self._owner = owner
        self._clock = clock
        self._turn = asyncio.Lock()
        self._shards: dict[ShardId, KeyedRecords] = {}
        self._named: set[str] = set()
        """The groups that were read by their id since the last load of the store."""
        self._epoch: LeaseEpoch | None = None
        """The epoch of our lease. None: the store has to be loaded before the next call."""

    async def open(self) -> None:
        """Open the store and load it. Raises StoreRefused while a coordinator uses it.

        If the call fails or is cancelled, the store is closed, and ``open`` may be called again.
        """
        await self._storage.open(self._identity)
        try:
            async with self._turn:
                await self._load()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the store, so that others can open it."""
        await self._storage.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def store_offset(
        self,
        group_id: str,
        topic: str,
        partition: int,
        offset: int | OffsetAndMetadata,
        metadata: str = "",
    ) -> None:
        """Commit one offset. It is durable when the call returns.

        An ``OffsetAndMetadata`` also sets the leader epoch, the expire time and the commit time. A
        commit time of -1 means now. Raises TypeError if the offset is neither an
        ``OffsetAndMetadata`` nor a number. Raises ValueError if a number or a text does not fit
        into Kafka's protocol.
        """
        given = _given(offset, metadata)
        group_id, topic, partition = _place(group_id, topic, partition)
        async with self._turn:
            keyed = await self._shard(group_id)
            before = keyed.offset(group_id, topic, partition)
            previous = NO_OFFSET if before is None else before.offset
            row = partition, given.offset, previous, given.leader_epoch, given.metadata
            commit = OffsetsCommitted(
                group_id=group_id,
                generation_id=NO_GENERATION,
                member_id="",
                group_instance_id=None,
                client_id=self._owner,
                client_host="",
                principal="",
                commit_time_ms=(
                    self._clock() if given.commit_time_ms == NO_TIMESTAMP else given.commit_time_ms
                ),
                expire_time_ms=given.expire_time_ms,
                topics=[CommittedTopic(topic, self._shards[CLUSTER_SHARD].topic_id(topic), [row])],
            )
            await self._write(group_id, commit)

    async def fetch_offset(self, group_id: str, topic: str, partition: int) -> SavedOffset | None:
        """Return the committed offset of one partition. Return None if there is none."""
        topic = text("topic", topic, most_bytes=None)
        partition = whole_number("partition", partition, least=0, most=INT32_MAX)
        async with self._turn:
            return (await self._shard(group_id)).offset(group_id, topic, partition)

    async def fetch_offsets(self, group_id: str) -> dict[TopicPartition, SavedOffset]:
        """Return all committed offsets of a group by (topic, partition); empty if the group does
        not exist.
        """
        return {
            (topic, partition): offset
            for topic, rows in (await self.fetch_group(group_id)).items()
            for partition, offset in rows.items()
        }

    async def fetch_group(self, group_id: str) -> dict[str, dict[int, SavedOffset]]:
        """Return all committed offsets of a group by topic, then by partition; empty if the group
        does not exist.
        """
        async with self._turn:
            saved = (await self._shard(group_id)).saved(group_id)
            return {} if saved is None else {t: dict(rows) for t, rows in saved.offsets.items()}

    async def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> None:
        """Delete all offsets of a group, or only those of ``partitions``. The deletion is durable
        on return.

        It is no error if an offset does not exist. Raises TypeError if an element of ``partitions``
        is not a (topic, partition).
        """
        named = None if partitions is None else set(checked(partitions, list[_Named], "partitions"))
        async with self._turn:
            keyed = await self._shard(group_id)
            saved = keyed.saved(group_id)
            if saved is None:
                return
            there = [(t, p, o) for t, rows in saved.offsets.items() for p, o in rows.items()]
            # If a group has only offsets, the group is deleted when its last offset is deleted.
            is_all = named is None and saved.metadata is None
            if named is not None:
                there = [each for each in there if each[:2] in named]
            if there:
                record = OffsetsRemoved(group_id, [each[:2] for each in there])
                await self._write(
                    group_id,
                    GroupRemoved(group_id) if is_all else record,
                    self._deleted(group_id, there, is_all),
                )

    def _deleted(self, group_id: str, lost: Sequence[StoredOffset], is_all: bool) -> list[Event]:
        """Return the events for a deletion of offsets: the same ones that a coordinator writes."""
        who: dict[str, Any] = {
            "group_id": group_id,
            "generation_id": NO_GENERATION,
            "client_id": self._owner,
            "client_host": "",
            "principal": "",
            "api": "DeleteGroups" if is_all else "OffsetDelete",
        }
        reason = "group_deleted" if is_all else "deleted"
        events: list[Event] = [OffsetDeleted(**who, topics=lost_topics(lost), reason=reason)]
        if is_all:
            events.append(GroupDeleted(**who, reason="deleted", offsets=len(lost)))
        return events

    async def _shard(self, group_id: str) -> KeyedRecords:
        group_id = text("group_id", group_id, most_bytes=None)
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

    async def _write(self, group_id: str, record: Record, events: Sequence[Event] = ()) -> None:
        assert self._epoch is not None
        shard = shard_of(group_id, self._identity.shards)
        keyed, epoch = self._shards[shard], self._epoch
        keyed.apply(record)
        # If the append fails, its result is unknown, so the next call loads the store again.
        self._epoch = None
        item = ShardAppend(shard, epoch, [Batch([record], events)], keyed.saved)
        if await self._storage.append([item]):
            raise StorageError("the store was taken over by another owner; nothing was stored")
        self._epoch = epoch


def _given(offset: Any, metadata: str) -> OffsetAndMetadata:
    """Return the offset to store, with its metadata. Raises TypeError or ValueError for an invalid
    value, because every later fetch would return it.
    """
    if isinstance(offset, OffsetAndMetadata):
        if metadata:
            raise TypeError("metadata is named twice: the OffsetAndMetadata has its own")
        given = offset
    elif hasattr(offset, "__index__"):
        given = OffsetAndMetadata(offset, metadata)
    else:
        raise TypeError(f"offset must be a whole number or an OffsetAndMetadata, not {offset!r}")
    given = checked_offset(given)
    text("metadata", given.metadata)
    return given


def _place(group_id: object, topic: object, partition: object) -> tuple[str, str, int]:
    number = whole_number("partition", partition, least=0, most=INT32_MAX)
    return text("group_id", group_id), text("topic", topic), number
