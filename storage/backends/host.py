"""Committed offsets in a store of the host program, which needs only four methods over any
database.

The host's store promises less than a database of ours, so this backend promises less than the
others:

- Only offsets are stored. The members of a group are kept only in memory. They survive a failed
  write, but after a restart every group is Empty and its members join again.
- Groups cannot be listed: ``list_groups`` returns the groups that were named since the start. A
  group is read when a request first names it (``storage.base.LoadsGroups``). So the offsets of a
  group that no request names do not expire.
- A commit of several partitions is several calls of ``store``. A crash between them leaves only the
  first offsets stored. The client got no success for that commit, so it retries.
- A write that lasts too long is not cancelled, because the coordinator could not know when it ends.
  Until its end, the group is neither written nor read. Other groups continue.
- There is no fence: two processes over one store overwrite each other. Run only one.
- Topics are not stored. A configured topic is created at every start, under a new id. Offsets
  belong to the topic's name. The end of a partition is the largest offset of the groups named so
  far. Offsets of a missing or deleted topic stay in the host's store.
- There is no event log, so no ``commit_log``.

This file is long because each call to the host's store needs its own rule for failures and late
ends.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import (
    AsyncIterator,
    Collection,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import structlog

from groupkeeper.coordinator.core.records import (
    NO_OFFSET,
    GroupRemoved,
    OffsetsAdopted,
    OffsetsCommitted,
    OffsetsRemoved,
    Record,
    SavedGroup,
    SavedOffset,
)
from groupkeeper.coordinator.core.wire_values import INT32_MAX, text, whole_number
from groupkeeper.storage.backends.metadata_store import (
    METHODS,
    UNFIT,
    MetadataStore,
    OffsetAndMetadata,
    ask,
    result_of,
    saved_offset,
    start_call,
)
from groupkeeper.storage.base import (
    CLUSTER_SHARD,
    Lease,
    LeaseEpoch,
    ShardAppend,
    ShardId,
    StorageError,
    StorageLimits,
    StoreIdentity,
    StoreRefused,
)
from groupkeeper.storage.keyed import KeyedRecords
from groupkeeper.storage.keyed_consumer import (
    METADATA_RECORDS,
    KeptMetadata,
    changed_metadata,
    saved_metadata,
)

MAX_STEP_BYTES: Final = 16 * 1024 * 1024

MAX_CALLS: Final = 32
"""How many groups an append writes, or a load reads, at the same time. The offsets of one group are
written one after the other."""

READ_TIMEOUT_MS: Final = 5_000
"""The time limit for reading one group during a load. It equals the default of
``CoordinatorConfig.append_timeout_ms``, which limits the read of a group outside a load."""

_T = TypeVar("_T")

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _GroupWrite:
    """The calls of the host's store that one append needs for one group.

    If ``deletes`` is True, all offsets of the group are deleted first.
    """

    deletes: bool = False
    puts: dict[tuple[str, int], OffsetAndMetadata] = field(default_factory=dict)
    """(topic, partition) -> the offset to store."""
    is_given_up: bool = False
    """True if the append failed or was cancelled. Then no further call is made."""


class PersistentOffsetStorage:
    """Keeps offsets in the host's ``MetadataStore``. The docstring of this file says what this
    backend promises.
    """

    def __init__(self, store: MetadataStore, *, read_timeout_ms: int = READ_TIMEOUT_MS) -> None:
        """Raises TypeError if the store lacks one of the four methods, or is a class, not an
        object.

        ``read_timeout_ms`` limits the time for reading one group, in a load after a failed write.
        """
        if isinstance(store, type):
            raise TypeError(f"store must be an object: {store.__name__}(...), not the class itself")
        missing = [name for name in METHODS if not callable(getattr(store, name, None))]
        if missing:
            raise TypeError(
                "store must be an object with the four methods of a MetadataStore: a "
                f"{type(store).__name__} has no {', '.join(missing)}"
            )
        self.limits = StorageLimits(
            max_step_bytes=MAX_STEP_BYTES, one_lane=True, keeps_topics=False
        )
        self._store = store
        self._read_timeout_s = whole_number("read_timeout_ms", read_timeout_ms, least=1) / 1000
        self._is_open = False
        self._owner: str | None = None
        self._epoch: LeaseEpoch = 0
        self._groups: dict[str, KeptMetadata] = {}
        """Maps the id of each known group to its last recorded members. The value is None if no
        members are recorded."""
        self._shard_of: dict[str, ShardId] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}
        """The writes that have not ended, by group. The append that began a write may have failed
        long ago."""
        self._reading: dict[str, asyncio.Task[Any]] = {}
        """The calls of ``fetch_all`` that have not ended, by group. Maybe nobody waits for their
        results any more."""
        self._cluster = KeyedRecords()
        self._ends: dict[ShardId, KeyedRecords] = {}

    # --- Life and lease: within the process -------------------------------------------------------

    async def open(self, identity: StoreIdentity) -> None:
        """Open the storage. The identity is not checked, because the host's store has none. Raises
        StoreRefused if this object is already open.
        """
        if self._is_open:
            raise StoreRefused("the store is in use by another coordinator of this process")
        self._is_open = True

    async def close(self) -> None:
        """Wait for the unfinished writes, and close.

        The storage may be opened again. The host closes its store itself.
        """
        self._is_open = False
        self._owner = None
        if self._writing:
            await asyncio.wait(self._writing.values())

    async def acquire(self, shards: Collection[ShardId], owner: str) -> dict[ShardId, Lease]:
        """Acquire all shards under a new epoch. Return nothing if another owner has them.

        Only this process knows the epoch. So the epoch stops late appends of this process, but not
        those of another process.
        """
        self._check_open()
        if self._owner not in (None, owner):
            return {}
        self._owner = owner
        self._epoch += 1
        return {shard: Lease(shard, owner, self._epoch) for shard in shards}

    async def renew(self, leases: Collection[Lease]) -> Collection[ShardId]:
        """Return no shards: nobody else can acquire them."""
        return []

    async def release(self, leases: Collection[Lease]) -> None:
        self._owner = None

    # --- Reading ----------------------------------------------------------------------------------

    async def load(
        self, shards: Collection[ShardId]
    ) -> AsyncIterator[tuple[ShardId, Sequence[Record]]]:
        """Yield the records that this process knows: no records at a start, and the records of all
        known groups after a failed append.

        A group is left out if its write has not ended, or if it cannot be read in time.
        """
        self._check_open()
        wanted = set(shards)
        if CLUSTER_SHARD in wanted:
            yield CLUSTER_SHARD, list(self._cluster.records())
        for shard, keyed in self._ends.items():
            if shard in wanted:
                yield shard, list(keyed.records())
        groups = [(shard, group_id) for group_id, shard in self._shard_of.items()]
        groups = [each for each in groups if each[0] in wanted]
        for start in range(0, len(groups), MAX_CALLS):
            part = groups[start : start + MAX_CALLS]
            found = await asyncio.gather(*[self._read_in_time(group_id) for _, group_id in part])
            for (shard, _), records in zip(part, found, strict=True):
                yield shard, records

    async def _read_in_time(self, group_id: str) -> list[Record]:
        """Read a group for a load. If the read fails or takes too long, return no records: the load
        then continues without the group. The next request that names the group reads it.
        """
        if group_id in self._writing or group_id in self._reading:
            return []
        try:
            async with asyncio.timeout(self._read_timeout_s):
                return await self._read(group_id)
        except Exception as error:  # noqa: BLE001 - the contract: any exception means "not known"
            _log.warning("group_left_out", group=group_id, error=str(error) or repr(error))
            return []

    async def load_group(self, shard: ShardId, group_id: str) -> Sequence[Record]:
        """Return the records of a group. Called at the first request that names the group."""
        self._check_open()
        records = await self._read(group_id)
        if records:
            self._remember(shard, group_id, self._groups.get(group_id))
        return records

    async def _read(self, group_id: str) -> list[Record]:
        while call := self._writing.get(group_id) or self._reading.get(group_id):
            await asyncio.wait([call])
        metadata = saved_metadata(self._groups.get(group_id))
        offsets = self._offsets(group_id, await self._fetch_all(group_id))
        if not offsets and metadata is None:
            return []
        return [SavedGroup(group_id, metadata, offsets)]

    async def _fetch_all(self, group_id: str) -> Any:
        """Fetch all offsets of a group from the host's store.

        If the caller is cancelled, the fetch is cancelled too. The caller does not wait until the
        fetch has ended. If the fetch still returns a result, the result is ignored.
        """
        found = ask(self._store.fetch_all, group_id)
        if not inspect.isawaitable(found):
            return found
        call = start_call(self._reading, group_id, result_of(found))
        try:
            await asyncio.wait([call])
        except asyncio.CancelledError:
            call.cancel()
            raise
        return call.result()

    def _offsets(self, group_id: str, found: Any) -> dict[str, dict[int, SavedOffset]]:
        """Check the offsets that the host's store returned for a group, and convert them. Raises
        StoreRefused if one is not valid.
        """
        where = ""
        try:
            offsets: dict[str, dict[int, SavedOffset]] = {}
            for topic, rows in found.items():
                where = f" of topic {topic!r}"
                text("topic", topic, most_bytes=None)
                for partition, each in rows.items():
                    where = f" of topic {topic!r}, partition {partition!r}"
                    number = whole_number("partition", partition, least=0, most=INT32_MAX)
                    saved = saved_offset(each)
                    if saved.offset != NO_OFFSET:
                        offsets.setdefault(topic, {})[number] = saved
        except UNFIT as error:
            raise self._unfit("fetch_all", group_id, where, error) from None
        return offsets

    async def fetch_offset(self, group_id: str, topic: str, partition: int) -> SavedOffset | None:
        """Return the stored offset of one partition; None if there is none. The storage need not be
        open.
        """
        if group_id in self._writing:
            await asyncio.wait([self._writing[group_id]])
        found = await result_of(ask(self._store.fetch, group_id, topic, partition))
        if found is None:
            return None
        try:
            saved = saved_offset(found)
        except UNFIT as error:
            where = f" of topic {topic!r}, partition {partition}"
            raise self._unfit("fetch", group_id, where, error) from None
        return None if saved.offset == NO_OFFSET else saved

    def _unfit(self, method: str, group_id: str, where: str, error: Exception) -> StoreRefused:
        return StoreRefused(
            f"{type(self._store).__name__}.{method} returned an unusable value for group "
            f"{group_id!r}{where}: {error}"
        )

    # --- Writing ----------------------------------------------------------------------------------

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        """Write the last value of each offset, for several groups at a time. Return the fenced
        shards.
        """
        self._check_open()
        fenced = [item.shard for item in items if item.fence != self._epoch]
        writes: dict[str, _GroupWrite] = {}
        for item in items:
            if item.fence == self._epoch:
                for batch in item.batches:
                    for record in batch.records:
                        self._take(item.shard, record, writes)
        if writes:
            await self._write_all(writes)
        self._forget(writes)
        return fenced

    def _take(self, shard: ShardId, record: Record, writes: dict[str, _GroupWrite]) -> None:
        match record:
            case _ if isinstance(record, METADATA_RECORDS):
                before = self._groups.get(record.group_id)
                self._remember(shard, record.group_id, changed_metadata(before, record))
            case OffsetsCommitted():
                self._remember(shard, record.group_id, self._groups.get(record.group_id))
                puts = writes.setdefault(record.group_id, _GroupWrite()).puts
                for topic in record.topics:
                    for partition, offset, _, leader_epoch, metadata in topic.partitions:
                        puts[topic.topic, partition] = OffsetAndMetadata(
                            offset,
                            metadata,
                            record.commit_time_ms,
                            record.expire_time_ms,
                            leader_epoch,
                        )
            case OffsetsRemoved():
                puts = writes.setdefault(record.group_id, _GroupWrite()).puts
                puts.update(dict.fromkeys(record.partitions, OffsetAndMetadata(NO_OFFSET)))
            case GroupRemoved():
                writes[record.group_id] = _GroupWrite(deletes=True)
                self._remember(shard, record.group_id, None)
            case OffsetsAdopted():
                pass  # topic ids are not stored
            case _ if shard == CLUSTER_SHARD:
                self._cluster.apply(record)
            case _:
                self._ends.setdefault(shard, KeyedRecords()).apply(record)

    def _forget(self, writes: Mapping[str, _GroupWrite]) -> None:
        """Forget deleted groups. Call this only after the delete has succeeded: after a failed
        delete, a load must read the group again.
        """
        for group_id, write in writes.items():
            if write.deletes and not write.puts and self._groups[group_id] is None:
                del self._groups[group_id], self._shard_of[group_id]

    def _remember(self, shard: ShardId, group_id: str, metadata: KeptMetadata) -> None:
        self._groups[group_id] = metadata
        self._shard_of[group_id] = shard

    async def _write_all(self, writes: Mapping[str, _GroupWrite]) -> None:
        """Write several groups at a time. If a write fails, raise its error.

        After a failure or a cancellation, no further call of the host's store begins. The calls
        that run then continue to their end. A cancelled thread would continue in any case, and
        could overwrite the result of the client's next request. After a failure, but not after a
        cancellation, wait for these calls.
        """
        waiting = deque(writes.items())
        under_way: set[asyncio.Task[None]] = set()
        try:
            while waiting or under_way:
                while waiting and len(under_way) < MAX_CALLS:
                    group_id, write = waiting.popleft()
                    under_way.add(start_call(self._writing, group_id, self._write(group_id, write)))
                ended, under_way = await asyncio.wait(
                    under_way, return_when=asyncio.FIRST_COMPLETED
                )
                for task in ended:
                    task.result()
        except BaseException as error:
            for write in writes.values():
                write.is_given_up = True
            if under_way and not isinstance(error, asyncio.CancelledError):
                await asyncio.wait(under_way)
            raise

    async def _write(self, group_id: str, write: _GroupWrite) -> None:
        if write.deletes and not write.is_given_up:
            await result_of(ask(self._store.delete, group_id))
        for (topic, partition), offset in write.puts.items():
            if write.is_given_up:
                return
            await result_of(ask(self._store.store, group_id, topic, partition, offset))

    # --- The rest of the contract -----------------------------------------------------------------

    def unfolded(self) -> int:
        return 0

    def stats(self) -> dict[str, float]:
        return {"groups": len(self._groups)}

    async def check_after_unclean_end(self) -> str | None:
        """Return None: the host checks its own store."""
        return None

    def _check_open(self) -> None:
        if not self._is_open:
            raise StorageError("the store is not open")
