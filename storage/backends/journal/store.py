"""A store on a server. Appends go to a journal, and are folded into values later. Processes use the
store one after another.

An append is one entry of the journal, written in one round trip. The append succeeds only if the
registration of this process, its life, has not ended (``storage.leases.lives``). Later a fold
writes one value for each group that changed, and deletes the entry (``life_journal``). See
docs/decisions/0035-journal.md.

This file is long because the life and the append change the same few fields.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import structlog

from groupkeeper.coordinator.core.records import Record
from groupkeeper.storage.backends.journal.beating import beating
from groupkeeper.storage.backends.journal.driver import (
    HasFigures,
    JournalDriver,
    JournalEnd,
    JournalEntry,
    LifeOver,
    StoreLook,
)
from groupkeeper.storage.backends.journal.event_source import JournalEvents
from groupkeeper.storage.backends.journal.life_journal import LifeJournal, error_text, is_told
from groupkeeper.storage.backends.journal.others import begin_alone
from groupkeeper.storage.backends.journal.succession import fold_ended
from groupkeeper.storage.base import (
    CLUSTER_SHARD,
    ROUND_TRIPS,
    Batch,
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
from groupkeeper.storage.codec.events import count_events
from groupkeeper.storage.codec.records import (
    decode_payload,
    decode_record,
    decode_saved,
    encode_payload,
    payload_events,
)
from groupkeeper.storage.event_log.log_clock import (
    LogClock,
    LogReason,
    mint_log_id,
    wall_clock_ms,
)
from groupkeeper.storage.event_log.sealing.sealer import FOR_EVER
from groupkeeper.storage.leases.lives import NodeLife, ReadTime, beat_interval_ms
from groupkeeper.storage.segment_lines import EventDict

CLEAN_EVERY_MS: Final = 60_000
"""The interval at which old events are deleted."""

_log = structlog.get_logger(__name__)


def boot_time_ms() -> int:
    """Return the time since the machine started. Time in which the machine slept counts too."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


class Succession(NamedTuple):
    """A new life of this process. It must fold the journals of ended lives before it may write."""

    life_id: str
    end: JournalEnd


class JournalStorage:
    """A storage backend over a store on a server. The driver makes the calls to the store."""

    def __init__(  # noqa: PLR0913 - some are only for tests
        self,
        driver: JournalDriver,
        *,
        node_id: int,
        name: str,
        lease_ttl_ms: int,
        retention_ms: int = FOR_EVER,
        clock: Callable[[], int] = wall_clock_ms,
        timer_ms: Callable[[], int] = boot_time_ms,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        new_log_id: Callable[[], str] = mint_log_id,
    ) -> None:
        """``name`` has the host and the process id of this process, for messages of other
        processes. Events are deleted from the event log after ``retention_ms``. ``timer_ms``
        returns a monotonic time, for leases.
        """
        self.limits = StorageLimits(
            max_step_bytes=driver.max_entry_bytes // 2, one_lane=True, shared=True
        )
        self._driver = driver
        self._node_id = node_id
        self._name = name
        self._ttl_ms = lease_ttl_ms
        self._timer_ms = timer_ms
        self._new_id = new_id
        self._retention_ms = retention_ms
        self._cleaned_ms = timer_ms()
        self._clock = clock
        self._log_clock = LogClock(clock, new_log_id)
        self._read_time = ReadTime(lease_ttl_ms)
        self._is_open = False
        self._beating: asyncio.Task[None] | None = None
        self._life_id: str | None = None
        """The id of the registration of this process with the store (its life). None before it has
        begun, and after it has ended."""
        self._begun: list[str] = []
        """The ids of all lives of this process that may not have ended. A new one may begin while
        the end of an old one is unknown."""
        self._taking_over: Succession | None = None
        """A new life that has begun, but has not folded all journals of ended lives."""
        self._is_in_doubt = False
        """True if it is unknown whether the last append was stored: during the append, and after an
        error."""
        self._epochs: dict[ShardId, LeaseEpoch] = {}
        """The epoch of each shard that this process owns."""
        self._losses = 0
        """The number of times that all leases were lost. If the number changes during an acquire or
        an append, that call raises StorageError."""
        self._end = JournalEnd(None, 1, 0)
        """The position of the last durable event."""
        self._journal = self._new_journal("")
        """The journal of the present life, or of the last one."""
        self._earlier_fold_failures = 0
        """The folds that failed in the journals of earlier lives of this process."""
        self._ask_for_fold: Callable[[], None] = _nobody
        """Called when an append without changes should come, which begins a fold."""
        self._beat_failures = 0
        self._set_backs = 0
        self._events = JournalEvents(driver, node_id, _OwnJournal(self), self._log_clock)

    # --- opening and closing ----------------------------------------------------------------------

    async def open(self, identity: StoreIdentity) -> None:
        """Connect to the store, and register this process.

        Raises StoreRefused if another process uses the store. If that process was killed, the call
        waits until its registration counts as dead.
        """
        if self._is_open:
            raise StoreRefused(f"{self._driver.name}: is in use by another coordinator here")
        self._is_open = True
        try:
            self._events.opened()
            await self._driver.open(identity)
            await self._begin_life()
        except BaseException:
            await self.close()
            raise
        self._beating = asyncio.get_running_loop().create_task(self._beat_forever())

    async def close(self) -> None:
        """End the registration of this process and disconnect. The next start folds the entries
        that are left in the journal.
        """
        if not self._is_open:
            return
        self._is_open = False
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        self._journal.stop()
        await self._journal.end_of_fold()
        life_id, self._life_id = self._life_id, None
        if self._taking_over is not None:
            life_id, self._taking_over = self._taking_over.life_id, None
        self._read_time.life_ended()
        try:
            if life_id is not None:
                await self._driver.end_life(life_id, None)
        except StorageError as error:  # the next start waits until the life counts as dead
            _log.warning("life_not_ended", store=self._driver.name, error=str(error))
        finally:
            self._epochs.clear()
            await self._driver.close()

    # --- lives ------------------------------------------------------------------------------------

    async def _begin_life(self) -> None:
        """End the lives of processes that do not beat any more. Then begin a life for this process,
        and fold the journals of ended lives. Raises StoreRefused if another process uses the store.

        If a journal cannot be folded, the next call tries again in the same life. Otherwise hours
        of failing folds would leave thousands of ended lives.
        """
        if self._taking_over is None:
            self._taking_over = await self._register()
        life_id, end = self._taking_over
        try:
            async with beating(self._driver, life_id, self._ttl_ms):  # a large journal takes long
                await self._fold_ended_lives(life_id)
        except LifeOver:
            self._taking_over = None
            raise
        self._taking_over = None
        is_set_back = end.next_seq < self._end.next_seq
        if is_set_back:
            _log.error(
                "store_set_back",
                store=self._driver.name,
                last_seq=end.next_seq - 1,
                expected_seq=self._end.next_seq - 1,
            )
            self._set_backs += 1
        self._end = end
        self._earlier_fold_failures += self._journal.fold_failures
        self._journal.stop()
        self._journal = self._new_journal(life_id)
        self._epochs.clear()
        reason = LogReason.OLDER_STORE if is_set_back else LogReason.START
        await self._events.begin_log(life_id, end, reason)
        self._is_in_doubt = False
        self._life_id = life_id
        await self._beat()

    def _new_journal(self, life_id: str) -> LifeJournal:
        clean = partial(self._clean, life_id)
        return LifeJournal(
            self._driver, life_id, self._timer_ms, clean, lambda: self._ask_for_fold()
        )

    async def _register(self) -> Succession:
        """Begin a life of this process, after the lives of all other processes have ended. Wait for
        the end of lives that do not beat any more. Raises StoreRefused if another life beats.
        """
        for begun_before in self._begun:  # lives that may not have ended
            await self._driver.end_life(begun_before, None)
        self._begun.clear()
        life = NodeLife(self._node_id, self._new_id(), self._name, counter=0)
        self._begun.append(life.life_id)
        begun = await begin_alone(self._driver, life, self._ttl_ms, self._timer_ms)
        return Succession(life.life_id, begun.end)

    async def _fold_ended_lives(self, life_id: str) -> None:
        for ended in await self._driver.ended_lives():
            try:
                await fold_ended(self._driver, life_id, ended)
            except (LifeOver, StoreRefused):
                raise
            except StorageError as error:
                raise StorageError(
                    f"the journal of an ended life cannot be folded, and until then nothing can be "
                    f"written: {error}"
                ) from error
            _log.info("life_folded", store=self._driver.name, life=ended)

    async def _beat_forever(self) -> None:
        while True:
            began_ms = self._timer_ms()
            try:
                async with asyncio.timeout(self._ttl_ms / 1000):
                    await unless_cancelled(self._beat())
                self._beat_failures = 0
            except Exception as error:  # noqa: BLE001 - whatever it is, the next beat may succeed
                self._beat_failures += 1
                if is_told(self._beat_failures):
                    _log.warning(
                        "beat_failed",
                        store=self._driver.name,
                        error=error_text(error),
                        in_a_row=self._beat_failures,
                    )
            took_ms = self._timer_ms() - began_ms
            await asyncio.sleep(max(beat_interval_ms(self._ttl_ms) - took_ms, 1) / 1000)

    async def _beat(self) -> None:
        life_id = self._life_id
        if life_id is None:
            return
        sent_ms, next_seq = self._timer_ms(), self._end.next_seq
        try:
            look = await self._driver.beat(life_id)
        except LifeOver:
            if self._life_id == life_id:  # otherwise a new life has begun since
                self._lose_life()
            return
        if self._life_id != life_id:
            return
        if look.next_seq is not None and look.next_seq < next_seq:
            self._is_in_doubt = True  # the store has lost appends: begin a new life, and load
            self._lose_leases()
            return
        self._read_time.beat_succeeded(sent_ms)
        self._drop_lost(look)

    def _drop_lost(self, look: StoreLook) -> None:
        """Forget the epochs of shards that another process has acquired, as the store says."""
        for shard, epoch in [*self._epochs.items()]:
            owner = look.owners.get(shard)
            if owner is not None and owner.epoch > epoch:
                del self._epochs[shard]

    def _lose_life(self) -> None:
        """Forget the life of this process and all epochs. The next ``acquire`` begins a new
        life.
        """
        _log.error("life_ended", store=self._driver.name)
        self._life_id = None
        self._lose_leases()

    def _lose_leases(self) -> None:
        self._epochs.clear()
        self._read_time.life_ended()
        self._losses += 1

    # --- leases -----------------------------------------------------------------------------------

    async def acquire(self, shards: Collection[ShardId], owner: str) -> dict[ShardId, Lease]:
        """Acquire the shards that are free or already our own.

        If the outcome of the last append is unknown, first end the life of this process, then begin
        a new one. The end of a life waits for its append. So a later load reads the whole append,
        or nothing of it.
        """
        self._check_open()
        if self._is_in_doubt or self._life_id is None:
            await self._go_on_in_new_life()
        try:
            epochs = await self._acquire(shards)
        except LifeOver:  # ended by another process, and no beat has noticed yet
            self._lose_life()
            await self._go_on_in_new_life()
            epochs = await self._acquire(shards)
        self._epochs |= epochs
        return {shard: Lease(shard, owner, epoch) for shard, epoch in epochs.items()}

    async def _acquire(self, shards: Collection[ShardId]) -> Mapping[ShardId, LeaseEpoch]:
        """Acquire the shards in the present life. Raises StorageError if the leases were lost
        before the answer came, because nothing would show later that they are not valid.
        """
        losses = self._losses
        epochs = await self._driver.acquire(str(self._life_id), shards)
        if self._losses != losses:
            raise StorageError(f"{self._driver.name}: the life ended while shards were acquired")
        return epochs

    async def _go_on_in_new_life(self) -> None:
        life_id = self._life_id
        if life_id is not None:
            await self._driver.end_life(life_id, None)
            self._lose_life()
        await self._journal.abandon_fold()  # without an answer it would last for a minute
        await self._begin_life()

    async def renew(self, leases: Collection[Lease]) -> Collection[ShardId]:
        """Return the shards that another process owned at the last beat; all shards if our own life
        has ended.
        """
        self._check_open()
        return self.lost(leases)

    def lost(self, leases: Collection[Lease]) -> Collection[ShardId]:
        return [lease.shard for lease in leases if self._epochs.get(lease.shard) != lease.epoch]

    def read_time_left_ms(self) -> int:
        return self._read_time.left_ms(self._timer_ms())

    async def release(self, leases: Collection[Lease]) -> None:
        """Write nothing more under these leases. If no change waits in the journal, also free the
        shards. Otherwise the next start folds the journal and then frees them.
        """
        self._check_open()
        ours = [lease.shard for lease in leases if self._epochs.get(lease.shard) == lease.epoch]
        for shard in ours:
            del self._epochs[shard]
        if ours and self._life_id is not None and not self._journal.requests:
            await self._driver.release(self._life_id, ours)

    # --- loading ----------------------------------------------------------------------------------

    async def load(
        self, shards: Collection[ShardId]
    ) -> AsyncIterator[tuple[ShardId, Sequence[Record]]]:
        """Yield the saved values of the shards, and then the later changes from the journal of this
        process.

        Journals of earlier processes were folded before their shards became free. While a shard is
        loaded, no fold deletes its entries from the journal.
        """
        self._check_open()
        await self._journal.end_of_fold()
        async for values in self._driver.read(shards):
            for value in values:
                if value.data is not None:
                    yield value.shard, [_record_of(value.is_group, value.key, value.data)]
        wanted = frozenset(shards)
        for entry in [*self._journal.entries]:
            for item in decode_payload(entry.payload).items:
                if item.shard in wanted:
                    yield item.shard, [r for batch in item.batches for r in batch.records]

    # --- appending --------------------------------------------------------------------------------

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        """Write the items as one journal entry. Begin a fold if one is due. Return the fenced
        shards.
        """
        self._check_open()
        fenced = [item.shard for item in items if self._epochs.get(item.shard) != item.fence]
        ours = [item for item in items if item.shard not in fenced]
        if not ours or self._life_id is None:
            return fenced
        if self._is_in_doubt:
            raise StorageError(
                f"{self._driver.name}: refused, as nobody knows whether the last append was stored"
            )
        if not any(item.batches for item in ours):
            await self._journal.only_fold(ours)
            return fenced
        journal, life_id, losses = self._journal, self._life_id, self._losses
        entry = self._encode(ours)
        portion = journal.portion(ours, entry)
        self._is_in_doubt = True
        try:
            await journal.wait_for_room(entry)
            await self._driver.append(life_id, entry)
        except LifeOver:
            if self._life_id == life_id:  # otherwise a new life has begun since
                self._is_in_doubt = False
                self._lose_life()
            return [item.shard for item in items]
        if self._losses != losses:
            raise StorageError(f"{self._driver.name}: the life ended during an append")
        self._is_in_doubt = False
        if entry.event_count:
            next_seq = self._end.next_seq + entry.event_count
            self._end = JournalEnd(entry.log_id, next_seq, entry.ts_ms)
        self._log_clock.written()
        journal.appended(entry, portion)
        return fenced

    def _encode(self, items: Sequence[ShardAppend]) -> JournalEntry:
        stamp = self._log_clock.stamp()
        first: Sequence[ShardAppend] = ()
        if (started := self._log_clock.started(self._end.next_seq - 1)) is not None:
            fence = self._epochs.get(CLUSTER_SHARD, items[0].fence)
            first = [ShardAppend(CLUSTER_SHARD, fence, [Batch([], [started])], items[0].saved)]
        written = [*first, *items]
        batches = [batch for item in written for batch in item.batches]
        return JournalEntry(
            self._journal.note(items),
            self._end.next_seq,
            sum(count_events(batch.records, batch.events) for batch in batches),
            stamp.log_id,
            stamp.ts_ms,
            encode_payload(stamp, 0, written),
        )

    async def _clean(self, life_id: str) -> None:
        """Delete old events from the event log, if the last deletion was long enough ago."""
        now_ms = self._timer_ms()
        if self._retention_ms == FOR_EVER or now_ms - self._cleaned_ms < CLEAN_EVERY_MS:
            return
        self._cleaned_ms = now_ms
        try:
            await self._driver.delete_events(life_id, self._clock() - self._retention_ms)
        except StorageError as error:  # not an error of the fold, which has succeeded
            _log.warning("events_not_deleted", path=self._driver.name, error=str(error))

    # --- figures ----------------------------------------------------------------------------------

    def unfolded(self) -> int:
        return self._journal.unfolded()

    def on_fold_due(self, call: Callable[[], None]) -> None:
        self._ask_for_fold = call

    def stats(self) -> dict[str, float]:
        figures = self._driver.figures() if isinstance(self._driver, HasFigures) else {}
        return {
            **figures,
            "last_seq": self._end.next_seq - 1,
            "rows": self._end.next_seq - 1,  # the number of a row is the seq of its last event
            "unfolded": self._journal.requests,
            "fold_failures": self._earlier_fold_failures + self._journal.fold_failures,
            "journal_bytes": self._journal.bytes,
            "journal_beyond_bound": float(self._journal.is_beyond_bound),
            "lease_time_left_s": self.read_time_left_ms() / 1000,
            "set_backs": self._set_backs,
            **{ROUND_TRIPS + call: count for call, count in self._driver.round_trips.items()},
        }

    async def check_after_unclean_end(self) -> str | None:
        """Return None: the server of the store checks its own files."""
        return None

    async def history(self, group_id: str, since_ms: int = 0) -> AsyncIterator[EventDict]:
        """Yield the durable events of a group, oldest first, from the time ``since_ms`` on."""
        entries = [*self._journal.entries]
        seen: dict[str, int] = {}
        """The last seq that was yielded, by log. Another node, or an older copy of the store, may
        have used the same seqs."""
        async for event in self._driver.history(group_id, since_ms):
            seen[event["log_id"]] = event["seq"]
            yield event
        for entry in entries:
            for event in payload_events(entry.first_seq, decode_payload(entry.payload)):
                wanted = event["group"] == group_id and event["ts_ms"] >= since_ms
                if wanted and event["seq"] > seen.get(event["log_id"], 0):
                    yield event

    def event_source(self) -> JournalEvents:
        """Return the object that reads the events, and deletes them when they are sealed."""
        return self._events

    def _check_open(self) -> None:
        if not self._is_open:
            raise StorageError(f"{self._driver.name}: is not open")


def _nobody() -> None:
    """Do nothing: nobody has asked to be called when a fold is due."""


class _OwnJournal:
    """Gives the event source access to the journal of a storage (``event_source.OwnJournal``)."""

    def __init__(self, storage: JournalStorage) -> None:
        self._storage = storage

    def life_id(self) -> str | None:
        return self._storage._life_id

    def entries(self) -> Sequence[JournalEntry]:
        return self._storage._journal.entries

    def end(self) -> JournalEnd:
        return self._storage._end

    def generation(self) -> int:
        return self._storage._set_backs


def _record_of(is_group: bool, key: str, data: bytes) -> Record:
    """Decode a saved value. Raises StoreRefused if this fails."""
    try:
        return decode_saved(data) if is_group else decode_record(data)
    except StorageError as error:
        kind = "group" if is_group else "record"
        raise StoreRefused(f"the value of {kind} {key!r} cannot be read: {error}") from error
