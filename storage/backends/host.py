"""Committed offsets in a store of the host, which needs only four methods over any database.

The promises are weaker than those of the other backends, because the store promises less:

- Only offsets are stored. The process remembers the members of a group. They survive a failed
  write, but after a restart every group is Empty and its members join again.
- Groups cannot be listed: ``list_groups`` returns the groups that were named since the start. A
  group is read when it is first named (``storage.base.LoadsGroups``), so the offsets of a group
  that is never named do not expire.
- A commit of several partitions is several calls of ``store``. A crash between them leaves the
  first offsets stored. The client got no success for that commit, so it retries.
- A write that lasts too long is not cancelled, because the coordinator could not know when it
  ends. Its group is neither written nor read before the write has ended. Other groups continue.
- There is no fence: two processes over one store overwrite each other. Run only one.
- Topics are not stored. A configured topic is created at every start, under a new id. Offsets
  belong to the topic's name. The end of a partition is the largest offset of the groups named so
  far. Offsets of a missing or deleted topic stay in the host's store.
- There is no event log, so no ``commit_log``.

Long because each of its weaker promises is handled in the same few methods.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import structlog

from groupkeeper.coordinator.core.records import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    GroupRemoved,
    OffsetsAdopted,
    OffsetsCommitted,
    OffsetsRemoved,
    Record,
    SavedGroup,
    SavedOffset,
)
from groupkeeper.coordinator.core.wire_values import INT32_MAX, int32, int64, text, whole_number
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
from groupkeeper.storage.cancellation import unless_cancelled
from groupkeeper.storage.keyed import KeyedRecords
from groupkeeper.storage.keyed_consumer import (
    METADATA_RECORDS,
    KeptMetadata,
    changed_metadata,
    saved_metadata,
)

MAX_STEP_BYTES: Final = 16 * 1024 * 1024

MAX_CALLS: Final = 32
"""The number of groups that an append writes, or a load reads, at the same time. The offsets of one
group are written one after the other.
"""

READ_TIMEOUT_MS: Final = 5_000
"""The time limit for reading one group during a load. It equals the default of
``CoordinatorConfig.append_timeout_ms``, which limits the read of a group outside a load."""

_T = TypeVar("_T")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset as the host's store keeps it; times are wall-clock milliseconds."""

    offset: int
    """An offset of -1 means that the offset of this partition was deleted, while other partitions
    of its group remain. Store it like any other offset. A client that commits -1 causes the same.
    Other negative offsets are normal offsets."""
    metadata: str = ""
    commit_time_ms: int = NO_TIMESTAMP
    expire_time_ms: int = NO_TIMESTAMP
    """-1: the coordinator's retention applies."""
    leader_epoch: int = NO_LEADER_EPOCH


GroupOffsets: TypeAlias = Mapping[str, Mapping[int, OffsetAndMetadata]]
"""All offsets of a group: by topic, then by partition."""


class MetadataStore(Protocol):
    """A store of the host. A method may be ``async``. If it is not, it runs on the loop and must
    not block. If a method raises, the client gets a retriable error.

    After a method has returned or raised, it must not write any more. The next call for the group
    follows at once. A late write, for example by a thread after the store's own timeout, would
    overwrite the result of that call.

    ``store`` and ``delete`` are never cancelled while the loop runs, however long they take.
    ``fetch`` and ``fetch_all`` may be cancelled. If a ``fetch_all`` continues after that, no other
    call is made for its group before it has ended.

    The results must have exactly these types: a partition is an int, not a str as in JSON, and
    metadata is never None. Otherwise the group is refused with UNKNOWN_SERVER_ERROR, which clients
    do not retry, and the log names the wrong value.
    """

    def store(
        self, group_id: str, topic: str, partition: int, offset: OffsetAndMetadata
    ) -> Awaitable[None] | None:
        """Write one offset over the previous one. It must be durable when this returns."""
        ...

    def fetch(
        self, group_id: str, topic: str, partition: int
    ) -> Awaitable[OffsetAndMetadata | None] | OffsetAndMetadata | None:
        """Return one offset, or None if there is none."""
        ...

    def fetch_all(self, group_id: str) -> Awaitable[GroupOffsets] | GroupOffsets:
        """Return all offsets of a group; empty if there are none."""
        ...

    def delete(self, group_id: str) -> Awaitable[None] | None:
        """Delete all offsets of a group; a missing group is no error. The deletion must be durable
        when this returns.
        """
        ...


_METHODS: Final = ("store", "fetch", "fetch_all", "delete")


@dataclass(slots=True)
class _GroupWrite:
    """The writes of one append for one group."""

    deletes: bool = False
    puts: dict[tuple[str, int], OffsetAndMetadata] = field(default_factory=dict)
    is_given_up: bool = False
    """The append failed or was cancelled, so no further call is made."""


class PersistentOffsetStorage:
    """Keeps offsets in the host's ``MetadataStore``. The head of this file lists its promises."""

    def __init__(self, store: MetadataStore, *, read_timeout_ms: int = READ_TIMEOUT_MS) -> None:
        """Raises TypeError if the store lacks one of the four methods, or is a class, not an
        object.

        ``read_timeout_ms`` is how long a load after a failed write waits for one group.
        """
        if isinstance(store, type):
            raise TypeError(f"store must be an object: {store.__name__}(...), not the class itself")
        missing = [name for name in _METHODS if not callable(getattr(store, name, None))]
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
        """Groups that have offsets or members, with the last record of their members."""
        self._shard_of: dict[str, ShardId] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}
        """Groups with an unfinished call of the store; its append may have failed long ago."""
        self._reading: dict[str, asyncio.Task[Any]] = {}
        """Groups with an unfinished ``fetch_all``, even if nobody waits for it any more."""
        self._cluster = KeyedRecords()
        self._ends: dict[ShardId, KeyedRecords] = {}

    # --- Life and lease: within the process -------------------------------------------------------

    async def open(self, identity: StoreIdentity) -> None:
        """Open the storage. The identity is not checked, since the host's store has none."""
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

        The epoch fences only late appends of this process.
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
        """Yield the records that this process knows: none at a start, all groups after a failed
        append.

        A group is left out if its write is unfinished, or if it cannot be read in time.
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
        """Read a group for a load. If the read fails or takes too long, the group is left out.

        It is read when it is named again; the load continues with the others.
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
        """Return the records of a group, read at the first request that names it."""
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
        """Fetch all offsets of a group.

        If the caller is cancelled, the call is cancelled too. The caller does not wait for its end,
        and a later result is ignored.
        """
        found = _ask(self._store.fetch_all, group_id)
        if not inspect.isawaitable(found):
            return found
        call = _call(self._reading, group_id, _result(found))
        try:
            await asyncio.wait([call])
        except asyncio.CancelledError:
            call.cancel()
            raise
        return call.result()

    def _offsets(self, group_id: str, found: Any) -> dict[str, dict[int, SavedOffset]]:
        """Check the offsets that the host's store returned for a group. Raises StoreRefused."""
        where = ""
        try:
            offsets: dict[str, dict[int, SavedOffset]] = {}
            for topic, rows in found.items():
                where = f" of topic {topic!r}"
                text("topic", topic, most_bytes=None)
                for partition, each in rows.items():
                    where = f" of topic {topic!r}, partition {partition!r}"
                    number = whole_number("partition", partition, least=0, most=INT32_MAX)
                    saved = _saved(each)
                    if saved.offset != NO_OFFSET:
                        offsets.setdefault(topic, {})[number] = saved
        except _UNFIT as error:
            raise self._unfit("fetch_all", group_id, where, error) from None
        return offsets

    async def fetch_offset(self, group_id: str, topic: str, partition: int) -> SavedOffset | None:
        """Return the stored offset of one partition, without a coordinator."""
        if group_id in self._writing:
            await asyncio.wait([self._writing[group_id]])
        found = await _result(_ask(self._store.fetch, group_id, topic, partition))
        if found is None:
            return None
        try:
            saved = _saved(found)
        except _UNFIT as error:
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
        """Write the last value of each offset of the append, several groups at a time."""
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
        """Forget deleted groups. This must not happen before the delete succeeds: after a failed
        delete, a load must read the group again.
        """
        for group_id, write in writes.items():
            if write.deletes and not write.puts and self._groups[group_id] is None:
                del self._groups[group_id], self._shard_of[group_id]

    def _remember(self, shard: ShardId, group_id: str, metadata: KeptMetadata) -> None:
        self._groups[group_id] = metadata
        self._shard_of[group_id] = shard

    async def _write_all(self, writes: Mapping[str, _GroupWrite]) -> None:
        """Write several groups at a time.

        If one fails, wait for the running writes. If the append is cancelled, the running writes
        end by themselves: a thread would continue in any case, and could overwrite the result of
        the client's next request. Groups whose write has not begun are not written.
        """
        waiting = deque(writes.items())
        under_way: set[asyncio.Task[None]] = set()
        try:
            while waiting or under_way:
                while waiting and len(under_way) < MAX_CALLS:
                    group_id, write = waiting.popleft()
                    under_way.add(_call(self._writing, group_id, self._write(group_id, write)))
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
            await _result(_ask(self._store.delete, group_id))
        for (topic, partition), offset in write.puts.items():
            if write.is_given_up:
                return
            await _result(_ask(self._store.store, group_id, topic, partition, offset))

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


_ENDS_THE_LOOP: Final = (KeyboardInterrupt, SystemExit)


def _call(
    calls: dict[str, asyncio.Task[_T]], group_id: str, call: Coroutine[Any, Any, _T]
) -> asyncio.Task[_T]:
    """Start a call to the store for a group. ``calls`` contains it until it has ended."""
    task = asyncio.get_running_loop().create_task(call)
    calls[group_id] = task

    def ended(task: asyncio.Task[_T]) -> None:
        del calls[group_id]
        if not task.cancelled():
            task.exception()  # avoids a warning if nobody awaits the task any more

    task.add_done_callback(ended)
    return task


def _ask(method: Callable[..., Any], *args: Any) -> Any:
    """Call a method of the host's store.

    Raises StorageError if the method raises an exception that is no Exception, such as
    CancelledError. Otherwise it would end a task of the coordinator, and requests would get no
    answer. KeyboardInterrupt and SystemExit are raised unchanged, because they end the process.
    """
    try:
        return method(*args)
    except (Exception, *_ENDS_THE_LOOP):
        raise
    except BaseException as error:
        raise StorageError(f"the store raised {error!r}") from error


async def _result(value: Any) -> Any:
    """Return the result of a method of the host's store. Await it if it is awaitable.

    Raises StorageError for the same exceptions as ``_ask``, and if the method was cancelled
    although the caller was not.
    """
    if not inspect.isawaitable(value):
        return value
    try:
        return await unless_cancelled(value)
    except (Exception, asyncio.CancelledError, GeneratorExit, *_ENDS_THE_LOOP):
        raise
    except BaseException as error:
        raise StorageError(f"the store raised {error!r}") from error


_UNFIT: Final = (AttributeError, TypeError, ValueError)
"""The errors that unusable values cause."""


def checked_offset(found: Any) -> OffsetAndMetadata:
    """Return a copy with checked values. Raises one of ``_UNFIT``."""
    return OffsetAndMetadata(
        int64("offset", found.offset),
        text("metadata", found.metadata, most_bytes=None),
        int64("commit_time_ms", found.commit_time_ms),
        int64("expire_time_ms", found.expire_time_ms),
        int32("leader_epoch", found.leader_epoch),
    )


def _saved(found: Any) -> SavedOffset:
    it = checked_offset(found)
    # topics are not stored, so the next start gives them new ids
    return SavedOffset(
        it.offset, it.leader_epoch, it.metadata, it.commit_time_ms, it.expire_time_ms, ""
    )
