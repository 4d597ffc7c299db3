"""A store in the memory of the process, for tests and trials. It does not survive the process.

Leases, epochs, fencing, order and atomicity follow the storage contract. ``close`` keeps the
content: a second coordinator can open the same object and load what the first one wrote.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from groupkeeper.coordinator.core.events import Event
from groupkeeper.coordinator.core.records import OffsetsCommitted, Record
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
    refuse_other_identity,
)
from groupkeeper.storage.codec.events import Stamp, batch_events, event_dict
from groupkeeper.storage.event_log.lines import RowLines
from groupkeeper.storage.event_log.log_clock import LogClock, wall_clock_ms
from groupkeeper.storage.event_log.source import Address, LogEnds, LogHead, LogNote
from groupkeeper.storage.keyed import KeyedRecords
from groupkeeper.storage.segment_lines import EventDict, encode_line
from groupkeeper.storage.turns import in_turns

MAX_EVENTS = 100_000
"""The default number of events that are kept. With about 500 bytes each, they need 50 MB."""

MAX_STEP_BYTES = 16 * 1024 * 1024

LOAD_SLICE_RECORDS = 500

HISTORY_SLICE_EVENTS = 5_000
"""The number of events that ``history`` visits before other tasks of the loop can run."""


class KeptEvent(NamedTuple):
    """One event that is kept in memory. It is encoded only when somebody reads it."""

    stamp: Stamp
    seq: int
    shard: ShardId
    lease_epoch: LeaseEpoch
    event: Event | OffsetsCommitted


class MemoryOffsetStorage:
    """Keeps the last value of every key, and the newest events. Older events are dropped."""

    def __init__(
        self, *, clock: Callable[[], int] = wall_clock_ms, max_events: int = MAX_EVENTS
    ) -> None:
        """``clock`` returns the wall time in milliseconds."""
        self.limits = StorageLimits(max_step_bytes=MAX_STEP_BYTES, one_lane=True)
        self._identity: StoreIdentity | None = None
        self._is_open = False
        self._log_clock = LogClock(clock)
        self._log_id: str | None = None
        """The log id of the last event."""
        self._shards: dict[ShardId, KeyedRecords] = {}
        self._owners: dict[ShardId, str] = {}
        self._epochs: dict[ShardId, LeaseEpoch] = {}
        self._last_epoch: LeaseEpoch = 0
        self._last_seq = 0
        self._events: deque[KeptEvent] = deque(maxlen=max_events)
        self._door = MemoryEvents(self._log_clock, self._events)

    async def open(self, identity: StoreIdentity) -> None:
        if self._is_open:
            raise StoreRefused("memory: is in use by another coordinator of this process")
        if self._identity is not None:
            refuse_other_identity("memory:", self._identity, identity)
        self._identity = identity
        self._is_open = True
        if self._last_seq:
            self._log_clock.begin(after=self._log_id)

    async def close(self) -> None:
        """Close the store and release the leases. The content stays in memory."""
        self._is_open = False
        self._owners.clear()

    async def acquire(self, shards: Collection[ShardId], owner: str) -> dict[ShardId, Lease]:
        """Acquire the shards that are free or already ours, all under one new epoch."""
        self._check_open()
        free = [shard for shard in shards if self._owners.get(shard, owner) == owner]
        return self.take_over(free, owner)

    def take_over(self, shards: Collection[ShardId], owner: str) -> dict[ShardId, Lease]:
        """Acquire shards even if another owner has them, under one new epoch. With this, tests
        simulate a process that takes the shards of an owner that seems dead.
        """
        self._last_epoch += 1
        for shard in shards:
            self._owners[shard] = owner
            self._epochs[shard] = self._last_epoch
        return {shard: Lease(shard, owner, self._last_epoch) for shard in shards}

    async def renew(self, leases: Collection[Lease]) -> Collection[ShardId]:
        """Return the shards that another owner has acquired. A lease in memory does not expire."""
        self._check_open()
        return [lease.shard for lease in leases if not self._holds(lease)]

    async def release(self, leases: Collection[Lease]) -> None:
        self._check_open()
        self.give_back(leases)

    def give_back(self, leases: Collection[Lease]) -> None:
        """Release those of the leases that are still valid. The epochs do not change."""
        for lease in leases:
            if self._holds(lease):
                del self._owners[lease.shard]

    async def load(
        self, shards: Collection[ShardId]
    ) -> AsyncIterator[tuple[ShardId, Sequence[Record]]]:
        self._check_open()
        for shard in shards:
            if shard not in self._shards:
                continue
            records = list(self._shards[shard].records())
            for start in range(0, len(records), LOAD_SLICE_RECORDS):
                yield shard, records[start : start + LOAD_SLICE_RECORDS]

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        self._check_open()
        fenced = [item.shard for item in items if self._epochs.get(item.shard) != item.fence]
        ours = [item for item in items if item.shard not in fenced and item.batches]
        if ours:
            stamp = self._log_clock.stamp()
            if (started := self._log_clock.started(self._last_seq)) is not None:
                self._keep(stamp, CLUSTER_SHARD, ours[0].fence, started)
            for item in ours:
                self._store(stamp, item)
            self._log_clock.written()
            self._log_id = stamp.log_id
        return fenced

    def unfolded(self) -> int:
        """Return 0: a load reads only the last values, which each append updates at once."""
        return 0

    def stats(self) -> dict[str, float]:
        return {"last_seq": self._last_seq, "events": len(self._events)}

    async def check_after_unclean_end(self) -> str | None:
        """Return None: the content does not survive the process, so there is nothing to check."""
        return None

    def events(self, after_seq: int = 0) -> list[EventDict]:
        """Return the kept events above a sequence number, oldest first."""
        return [event_dict(*kept) for kept in self._events if kept.seq > after_seq]

    async def history(self, group_id: str, since_ms: int = 0) -> AsyncIterator[EventDict]:
        """Yield the kept events of a group, oldest first, from the time ``since_ms`` on."""
        async for kept in in_turns(list(self._events), HISTORY_SLICE_EVENTS):
            event = kept.event
            if event.group_id == group_id and kept.stamp.ts_ms >= since_ms:
                yield event_dict(*kept)

    def event_source(self) -> MemoryEvents:
        return self._door

    def _store(self, stamp: Stamp, item: ShardAppend) -> None:
        keyed = self._shards.setdefault(item.shard, KeyedRecords())
        for batch in item.batches:
            for record in batch.records:
                keyed.apply(record)
            for event in batch_events(batch.records, batch.events):
                self._last_seq += 1
                kept = (stamp, self._last_seq, item.shard, item.fence, event)
                # Skips the constructor, which is Python code and would slow down every commit.
                self._events.append(tuple.__new__(KeptEvent, kept))

    def _keep(
        self, stamp: Stamp, shard: ShardId, fence: LeaseEpoch, event: Event | OffsetsCommitted
    ) -> None:
        self._last_seq += 1
        self._events.append(KeptEvent(stamp, self._last_seq, shard, fence, event))

    def _holds(self, lease: Lease) -> bool:
        return (
            self._owners.get(lease.shard) == lease.owner
            and self._epochs[lease.shard] == lease.epoch
        )

    def _check_open(self) -> None:
        if not self._is_open:
            raise StorageError("memory: is not open")


class MemoryRow(NamedTuple):
    """The events of one append, except old ones that were dropped to limit the memory."""

    row: int
    """The number of the row. It is the sequence number of the row's last event."""
    first_seq: int
    last_seq: int
    kept: list[KeptEvent]

    def lines(self) -> RowLines:
        stamp = self.kept[0].stamp
        lines = ((event["group"], encode_line(event)) for event in self.events())
        return RowLines(stamp.log_id, self.first_seq, stamp.ts_ms, lines)

    def events(self, since_ms: int = 0) -> Iterator[EventDict]:
        """Yield the events of the row; none if the row is older than ``since_ms``."""
        if self.kept[0].stamp.ts_ms >= since_ms:
            for kept in self.kept:
                yield event_dict(*kept)


class MemoryRows:
    """The kept events, as rows. One row has the events of one append. Any thread may read them,
    because copying a deque is atomic.
    """

    def __init__(self, ring: deque[KeptEvent], note: LogNote) -> None:
        self._ring = ring
        self._note = note

    def hold(self) -> None:
        """Keep the present rows for this reader. Later appends do not change what the reader
        sees.
        """
        self._ring = self._ring.copy()

    def note(self) -> LogNote:
        """Return what was recorded about sealing (the move of events into files) when the rows were
        opened.
        """
        return self._note

    def ends(self) -> LogEnds:
        ring = self._ring.copy()
        return LogEnds(ring[0].seq, ring[-1].seq) if ring else LogEnds(1, 0)

    def log_id_at(self, seq: int) -> str | None:
        """Return the log id of an event; None if the event is not kept any more."""
        ring = self._ring.copy()
        at = seq - ring[0].seq if ring else -1
        return ring[at].stamp.log_id if 0 <= at < len(ring) else None

    def rows(self, after_seq: int, containing: bytes = b"") -> Iterator[MemoryRow]:
        """Yield the rows above a sequence number. An append in progress may appear as two rows.
        ``containing`` is ignored.
        """
        if self._ring and self._ring[-1].seq > after_seq:
            ring = list(self._ring)
            new = ring[max(0, after_seq + 1 - ring[0].seq) :]
            # each append has its own stamp object, even if two stamps are equal
            for _, group in groupby(new, key=lambda kept: id(kept.stamp)):
                kept = list(group)
                yield MemoryRow(kept[-1].seq, kept[0].seq, kept[-1].seq, kept)

    def close(self) -> None: ...


class MemoryEvents:
    """The event source of a memory store. Only this process can read its events, and the oldest are
    dropped.
    """

    address: Address | None = None

    def __init__(self, clock: LogClock, ring: deque[KeptEvent]) -> None:
        self.clock = clock
        self._ring = ring
        self._note = LogNote(frozenset(), None)

    def open_rows(self) -> MemoryRows:
        return MemoryRows(self._ring, self._note._replace(store=self.clock.store))

    async def head(self) -> LogHead:
        last = self._ring[-1] if self._ring else None
        return LogHead(None, 0) if last is None else LogHead(last.stamp.log_id, last.seq)

    async def note_place(self, log_dir: str) -> None:
        self._note = self._note._replace(log_dir=log_dir)

    async def note_sealed(self, seq: int, new: Collection[str], gone: Collection[str]) -> None:
        """Record that the logs ``new`` have files of events. Remove the logs ``gone``, whose files
        were deleted.
        """
        log_ids = (self._note.log_ids | {*new}) - {*gone}
        self._note = self._note._replace(log_ids=log_ids, sealed_seq=seq)

    async def trim(self, sealed_row: int) -> int:
        """Delete nothing, and return 0: the store drops old events by itself."""
        return 0
