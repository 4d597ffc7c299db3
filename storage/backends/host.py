"""Committed offsets in a store of the host's own: four methods over whatever it has.

Weaker promises than those of the other backends, because the store promises less:

- Offsets alone are stored. Which members a group has is remembered by the process: it survives a
  failed write, and after a restart every group is Empty and its members join again.
- Nothing can be listed: ``list_groups`` knows the groups that were named since the start. A group
  is read when it is first named (``storage.base.LoadsGroups``); what was never named does not
  expire either.
- A commit of several partitions is several calls of ``store``. A crash between them leaves the
  first ones; nobody was told that the commit succeeded, and its client repeats it.
- A write that takes too long is not cancelled, for nobody could tell when it ends; its group is
  neither written nor read before it has. Other groups go on.
- There is no fence: two processes over one store overwrite each other. See to it that there is one.
- Topics are not stored either: a configured one is made again at every start, under a new id, and
  offsets belong to its name. Its end is the largest offset of the groups that were named so far.
  Offsets of a topic that is missing, or that is deleted, stay in the host's store.
- No event log, so no ``commit_log``.

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
    GroupRecord,
    GroupRemoved,
    OffsetsAdopted,
    OffsetsCommitted,
    OffsetsRemoved,
    Record,
    SavedGroup,
    SavedOffset,
)
from groupkeeper.coordinator.core.wire_numbers import INT32_MAX
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
from groupkeeper.storage.host_values import int32, int64, text, whole_number
from groupkeeper.storage.keyed import KeyedRecords

MAX_STEP_BYTES: Final = 16 * 1024 * 1024

MAX_CALLS: Final = 32
"""Groups that are written at the same time, or read by a load; the offsets of one are written one
by one.
"""

READ_TIMEOUT_MS: Final = 5_000
"""``CoordinatorConfig.append_timeout_ms`` by default, which limits the reads of single groups."""

_T = TypeVar("_T")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset as the host's store keeps it; times are wall-clock milliseconds."""

    offset: int
    """-1: this partition was deleted while others of its group stay; to be kept like any other. A
    commit of -1 reads the same, as it does for every client; other negative offsets are offsets.
    """
    metadata: str = ""
    commit_time_ms: int = NO_TIMESTAMP
    expire_time_ms: int = NO_TIMESTAMP
    """-1: as long as the coordinator's retention says."""
    leader_epoch: int = NO_LEADER_EPOCH


GroupOffsets: TypeAlias = Mapping[str, Mapping[int, OffsetAndMetadata]]
"""All offsets of a group: by topic, then by partition."""


class MetadataStore(Protocol):
    """What a host brings. Each method may be ``async``; one that is not runs on the loop, so it
    must not wait for anything. What a method raises ends up as a retriable error at the client.

    A method that has returned or raised has ended: nothing of it may be written later. What comes
    next for the group does not wait for a thread that goes on after a time limit of the store's
    own, say, and would be overwritten by it. ``store`` and ``delete`` are never cancelled while
    the loop lives, however long they take; ``fetch`` and ``fetch_all`` may be. A ``fetch_all`` that
    goes on all the same is the only one of its group until it has ended.

    What is returned has to have the types that are written here: a partition is an int and no str,
    as JSON makes of it, and metadata is never None. Else the group is refused with
    UNKNOWN_SERVER_ERROR, which clients do not try again, and the log names what was wrong.
    """

    def store(
        self, group_id: str, topic: str, partition: int, offset: OffsetAndMetadata
    ) -> Awaitable[None] | None:
        """Keep one offset, replacing what was there. Durable on return."""
        ...

    def fetch(
        self, group_id: str, topic: str, partition: int
    ) -> Awaitable[OffsetAndMetadata | None] | OffsetAndMetadata | None:
        """Return one offset; None where there is none."""
        ...

    def fetch_all(self, group_id: str) -> Awaitable[GroupOffsets] | GroupOffsets:
        """Return all offsets of a group; empty where there are none."""
        ...

    def delete(self, group_id: str) -> Awaitable[None] | None:
        """Forget all offsets of a group; one that is not there is no error. Durable on return."""
        ...


_METHODS: Final = ("store", "fetch", "fetch_all", "delete")


@dataclass(slots=True)
class _GroupWrite:
    """What one append comes to for one group."""

    deletes: bool = False
    puts: dict[tuple[str, int], OffsetAndMetadata] = field(default_factory=dict)
    is_given_up: bool = False
    """The append failed or was cancelled: no call is begun any more."""


class PersistentOffsetStorage:
    """Keeps offsets in the host's ``MetadataStore``; see the promises above."""

    def __init__(self, store: MetadataStore, *, read_timeout_ms: int = READ_TIMEOUT_MS) -> None:
        """Touch nothing yet. Raises TypeError for what has not all four methods, and for a class in
        place of an object.

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
        self._groups: dict[str, GroupRecord | None] = {}
        """Groups that have something, with what is known of their members."""
        self._shard_of: dict[str, ShardId] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}
        """Groups with a call of the store that has not ended, its append perhaps long given up."""
        self._reading: dict[str, asyncio.Task[Any]] = {}
        """Groups with a ``fetch_all`` that has not ended, though perhaps nobody waits for it."""
        self._cluster = KeyedRecords()
        self._ends: dict[ShardId, KeyedRecords] = {}

    # --- Life and lease: within the process -------------------------------------------------------

    async def open(self, identity: StoreIdentity) -> None:
        """Begin; the identity is the host's affair."""
        if self._is_open:
            raise StoreRefused("the store is in use by another coordinator of this process")
        self._is_open = True

    async def close(self) -> None:
        """End, once the writes that are under way have. The object may be opened again; the host
        closes its store itself.
        """
        self._is_open = False
        self._owner = None
        if self._writing:
            await asyncio.wait(self._writing.values())

    async def acquire(self, shards: Collection[ShardId], owner: str) -> dict[ShardId, Lease]:
        """Take all shards under a new epoch; it fences late appends of this process alone."""
        self._check_open()
        if self._owner not in (None, owner):
            return {}
        self._owner = owner
        self._epoch += 1
        return {shard: Lease(shard, owner, self._epoch) for shard in shards}

    async def renew(self, leases: Collection[Lease]) -> Collection[ShardId]:
        """Nobody can take them."""
        return []

    async def release(self, leases: Collection[Lease]) -> None:
        """Let the next owner in."""
        self._owner = None

    # --- Reading ----------------------------------------------------------------------------------

    async def load(
        self, shards: Collection[ShardId]
    ) -> AsyncIterator[tuple[ShardId, Sequence[Record]]]:
        """Yield what this process has heard of: nothing at a start, all that lives after a failed
        append, but for groups whose write has not ended.
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
        """Read a group for a load. One that cannot be read, or not in time, is left out: others go
        on, and it is read when it is next named.
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
        """Read a group that was named for the first time."""
        self._check_open()
        records = await self._read(group_id)
        if records:
            self._remember(shard, group_id, self._groups.get(group_id))
        return records

    async def _read(self, group_id: str) -> list[Record]:
        while call := self._writing.get(group_id) or self._reading.get(group_id):
            await asyncio.wait([call])
        metadata = self._groups.get(group_id)
        offsets = self._offsets(group_id, await self._fetch_all(group_id))
        if not offsets and metadata is None:
            return []
        return [SavedGroup(group_id, metadata, offsets)]

    async def _fetch_all(self, group_id: str) -> Any:
        """Ask for all of a group. Who gives up cancels the call and does not wait for its end; what
        it still returns is not heard.
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
        """Take what the host's store has of a group, each value being what it may be."""
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
        """Return what the store has of one partition, past any coordinator."""
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
            f"{type(self._store).__name__}.{method} returned for group {group_id!r} what cannot be "
            f"used{where}: {error}"
        )

    # --- Writing ----------------------------------------------------------------------------------

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        """Write what the append comes to: the last value of each offset, groups side by side."""
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
            case GroupRecord():
                self._remember(shard, record.group_id, record)
            case OffsetsCommitted():
                self._remember(shard, record.group_id, self._groups.get(record.group_id))
                puts = writes.setdefault(record.group_id, _GroupWrite()).puts
                for topic in record.topics:
                    for each in topic.partitions:
                        puts[topic.topic, each.partition] = OffsetAndMetadata(
                            each.offset,
                            each.metadata,
                            record.commit_time_ms,
                            record.expire_time_ms,
                            each.leader_epoch,
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
        """Only now: had a delete failed, a load would have to ask the store what the group has."""
        for group_id, write in writes.items():
            if write.deletes and not write.puts and self._groups[group_id] is None:
                del self._groups[group_id], self._shard_of[group_id]

    def _remember(self, shard: ShardId, group_id: str, metadata: GroupRecord | None) -> None:
        self._groups[group_id] = metadata
        self._shard_of[group_id] = shard

    async def _write_all(self, writes: Mapping[str, _GroupWrite]) -> None:
        """Write the groups side by side. What is under way when one fails is waited for, and when
        the append is cancelled left to end by itself: a thread would write on, and later than what
        a client is told next. What has not begun then never does.
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
        """Nothing is folded."""
        return 0

    def stats(self) -> dict[str, float]:
        """Tell how many groups are known."""
        return {"groups": len(self._groups)}

    async def check_after_unclean_end(self) -> str | None:
        """The host's affair."""
        return None

    def _check_open(self) -> None:
        if not self._is_open:
            raise StorageError("the store is not open")


_ENDS_THE_LOOP: Final = (KeyboardInterrupt, SystemExit)


def _call(
    calls: dict[str, asyncio.Task[_T]], group_id: str, call: Coroutine[Any, Any, _T]
) -> asyncio.Task[_T]:
    """Begin a call of the store for a group; it is among ``calls`` until it has ended."""
    task = asyncio.get_running_loop().create_task(call)
    calls[group_id] = task

    def ended(task: asyncio.Task[_T]) -> None:
        del calls[group_id]
        if not task.cancelled():
            task.exception()  # perhaps nobody is left to hear of it

    task.add_done_callback(ended)
    return task


def _ask(method: Callable[..., Any], *args: Any) -> Any:
    """Call a method of the host's. StorageError for what is no Exception (the result of a task that
    was cancelled, say): it would end a task of ours, and nobody would be answered.
    """
    try:
        return method(*args)
    except (Exception, *_ENDS_THE_LOOP):
        raise
    except BaseException as error:
        raise StorageError(f"the store raised {error!r}") from error


async def _result(value: Any) -> Any:
    """What a method gave, awaited if it is to be. StorageError for what is no Exception, as above,
    and where it ends as cancelled though nobody has cancelled us.
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
"""What comes of taking values that are not what they may be."""


def checked_offset(found: Any) -> OffsetAndMetadata:
    """Return the same, each value being what it may be. Raises one of ``_UNFIT``."""
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
