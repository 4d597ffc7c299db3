"""Group commit: while one append is in flight, the next one gathers records
(docs/design.md#group-commit).

A lane is a queue of appends. A storage that writes all shards in one transaction has one lane for
all of them. A storage that writes one shard at a time has one lane for each shard. A slot holds one
shard in this process. A fold is an append that writes only the present state of groups, so that a
later load reads less.

This file is long because the gathering append, the append in flight and the pauses share one state.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from groupkeeper.coordinator.runtime.gathering import Append, Gathering
from groupkeeper.coordinator.runtime.slot import Slot, Write
from groupkeeper.storage.base import OffsetStorage, ShardAppend, ShardId

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.cluster.group_configs import GroupOverrides
    from groupkeeper.coordinator.core.cluster.image import TopicImage
    from groupkeeper.coordinator.core.step import Reply
    from groupkeeper.coordinator.runtime.clock import Clock
    from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
    from groupkeeper.coordinator.runtime.shards import AnyShard
    from groupkeeper.coordinator.runtime.stats import Stats

RELEASE_SLICE_S = 0.005
"""The longest time for sending the replies of an append in one iteration of the event loop. The
other replies follow in later iterations.
"""


class Observer(Protocol):
    """Learns topics, configs and the ends of partitions (docs/design.md#ends). It is called when
    records are durable, and when a shard was loaded.
    """

    @property
    def image(self) -> TopicImage:
        """The present topics. A shard is created with them before its load."""
        ...

    def settings(self, shard_id: ShardId) -> Mapping[str, GroupOverrides]:
        """Return the configs of the groups in a shard, by group id. Groups without configs of their
        own are not in it.
        """
        ...

    def loaded(self, shard_id: ShardId, shard: AnyShard) -> None:
        """Called before a loaded shard answers again."""
        ...

    def durable(self, write: Write) -> None:
        """Called when records are durable, before the replies that wait for them are sent."""
        ...


class LaneHost(Protocol):
    """The services that all lanes share. The host also loads the shards of a lane again after a
    failure.
    """

    stats: Stats
    observer: Observer

    def append_failed(self, lane: Lane, error: BaseException) -> None:
        """Called when an append failed. It is unknown whether the append was stored, so every shard
        of the lane must be loaded again.
        """
        ...

    def fenced(self, lane: Lane, slots: Sequence[Slot]) -> None:
        """Called when the store refused these shards, because another owner has a newer lease.
        Nothing of the append was stored for them.
        """
        ...

    def paused_too_long(self, lane: Lane) -> None:
        """Called when requests have waited too long for a paused lane. Their records were not
        appended.
        """
        ...


class Lane(Gathering):
    """A queue of appends, and the slots whose records these appends write."""

    def __init__(
        self,
        storage: OffsetStorage,
        config: CoordinatorConfig,
        clock: Clock,
        host: LaneHost,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(config, host.stats)
        self._timer = timer
        self.slots: list[Slot] = []
        self.failures = 0
        """The number of failed appends since the last one that succeeded."""
        self.last_append_ms = 0
        """When the last append began (monotonic). Folds do not count."""
        self._storage = storage
        self._clock = clock
        self._observer = host.observer
        self._host = host
        self._in_flight: Append | None = None
        self._abandoned: set[asyncio.Task[None]] = set()
        self._must_fold = False
        """True if a fold has to follow the append in flight."""
        self._pauses = 0
        self._free = asyncio.Event()
        """Set while the lane is not paused."""
        self._free.set()
        self._idle = asyncio.Event()
        self._idle.set()

    # --- What slots call --------------------------------------------------------------------------

    def forget(self, slot: Slot) -> list[Reply]:
        """Remove all records and events of a dropped slot that are not durable. Return the replies
        that waited for them.
        """
        replies: list[Reply] = []
        for append in (self._in_flight, self._gathering):
            write = append.writes.pop(slot, None) if append is not None else None
            if write is not None:
                replies += write.replies
                write.replies.clear()
        if self._gathering is not None and not self._gathering.writes:
            self._gathering.end()
            self._gathering = None
            self.is_full = False
        return replies

    def waiting(self, slot: Slot) -> list[Reply]:
        """Return the replies of a slot that wait for an append."""
        writes = [a.writes.get(slot) for a in (self._in_flight, self._gathering) if a is not None]
        return [reply for write in writes if write is not None for reply in write.replies]

    # --- What the owner calls ---------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """True if no append is in flight and none gathers."""
        return self._task is None and self._gathering is None

    def is_writing(self, kind: type) -> bool:
        """Return True if a record of this type is in an append that gathers or is in flight."""
        appends = [a for a in (self._in_flight, self._gathering) if a is not None]
        batches = [b for a in appends for write in a.writes.values() for b in write.batches]
        return any(type(record) is kind for batch in batches for record in batch.records)

    async def end_of_append(self) -> None:
        """Wait until the append that is in flight now has ended. Later appends do not count."""
        append = self._in_flight
        if append is not None and not append.abandoned:
            if append.done is None:
                append.done = asyncio.get_running_loop().create_future()
            await asyncio.shield(append.done)

    async def pause(self) -> None:
        """Wait until no append is in flight, and start none before ``end_pause``.

        During the pause requests gather. If a request waits longer than ``append_timeout_ms``, the
        lane calls ``LaneHost.paused_too_long``.
        """
        self._pauses += 1
        self._free.clear()
        try:
            await self._idle.wait()
        except BaseException:
            self.end_pause()
            raise

    def end_pause(self) -> None:
        """End one ``pause``. When no pause is left, appends start again."""
        self._pauses -= 1
        if self._pauses == 0:
            self._free.set()
        if self._gathering is not None and self._task is None:
            self._start()

    async def flush(self) -> None:
        """Wait until all records and events are written: no append is in flight, and none
        gathers.
        """
        while not self.is_idle:
            if self._task is None:
                self._start()
            await self._free.wait()
            await self._idle.wait()
            await asyncio.sleep(0)

    async def fold(self) -> bool:
        """Make one append that writes only the present state of some groups (a fold), and wait for
        its end. Return False, without an append, if the lane is busy or paused.
        """
        if not self.is_idle or self._pauses:
            return False
        done = self._begin_fold().done
        assert done is not None
        await asyncio.shield(done)
        return True

    def fold_soon(self) -> None:
        """Begin an append that folds. If an append is in flight, begin after it, unless another
        append follows, which can fold too. Do nothing if the lane is paused. Events that wait for
        an append are written with it.
        """
        if self._task is not None or self._pauses:
            self._must_fold = self._task is not None
            return
        if any(slot.shard is not None for slot in self.slots):
            self._begin_fold()

    def _begin_fold(self) -> Append:
        append = self._gathering
        if append is None:
            append = self._gathering = Append()
            append.done = asyncio.get_running_loop().create_future()
        for slot in self.slots:
            if slot.shard is not None:
                append.write_of(slot)
        self._start()
        return append

    def abandon(self) -> None:
        """Abandon the append in flight, if there is one. Called at the end of a stop."""
        if self._in_flight is not None and not self._in_flight.abandoned:
            self._abandon(self._in_flight)
            self._task = None
            self._idle.set()

    # --- The append -------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._events_timer is not None:
            self._events_timer.cancel()
            self._events_timer = None
        append = self._gathering
        if self._task is not None or append is None:
            return
        if self._pauses == 0:
            self._idle.clear()
            self._task = asyncio.get_running_loop().create_task(self._run())
        else:
            self._limit_wait(append, self._clock.now().monotonic_ms)

    async def _run(self) -> None:
        """Append everything that has gathered. Continue until nothing is left, the lane is paused,
        or an append fails.
        """
        append: Append | None = None
        while self._gathering is not None and self._pauses == 0:
            append = self._begin_append(self._gathering)
            self._limit_time(append, self._config.append_timeout_ms)
            try:
                fenced = await self._storage.append(self._items_of(append))
                append.end_time_limit()
                if append.abandoned:
                    return
                await self._finish(append, fenced)
            except asyncio.CancelledError as error:
                if append.abandoned:
                    return
                self._failed(append, error)
                raise
            except Exception as error:  # noqa: BLE001 - the contract: any exception means "unknown"
                if not append.abandoned:
                    self._failed(append, error)
                return
            finally:
                append.end_time_limit()
            # Requests that came in during the release may share the next append. An iteration of
            # the event loop is short compared to an append, and a busy machine needs fewer and
            # larger appends.
            if append.requests:
                await asyncio.sleep(0)
        self._task = None
        self._idle.set()
        if self._gathering is not None:
            # Requests may have gathered since the last append began.
            since_ms = append.started_ms if append is not None else self._clock.now().monotonic_ms
            self._limit_wait(self._gathering, since_ms)
        elif self._must_fold:
            self.fold_soon()

    def _begin_append(self, append: Append) -> Append:
        self._gathering = None
        self._in_flight = append
        self.is_full = self._must_fold = False
        append.started_ms = self._clock.now().monotonic_ms
        append.started_s = self._timer()
        if append.writes and append.done is None:
            self.last_append_ms = append.started_ms
        return append

    def _items_of(self, append: Append) -> list[ShardAppend]:
        unfolded = self._storage.unfolded()
        if unfolded and unfolded + append.requests > self._storage.limits.fold_after_requests:
            for slot in self.slots:  # offer every shard to the fold, not only those that write
                if slot.shard is not None:
                    append.write_of(slot)
        items = []
        for slot, write in append.writes.items():
            shard = slot.shard or slot.suspended
            assert shard is not None, "the append still has a dropped slot"
            assert slot.lease is not None
            items.append(ShardAppend(slot.shard_id, slot.lease.epoch, write.batches, shard.saved))
        return items

    async def _finish(self, append: Append, fenced: Iterable[ShardId]) -> None:
        """Send the replies that waited for an append. The host drops the slots that the store has
        refused (fenced), and their replies are not sent.

        Thousands of replies may have waited, so some of them are sent in each iteration of the
        event loop.
        """
        lost = set(fenced)
        if append.requests:
            self._stats.append_seconds.observe(self._timer() - append.started_s)
            self._stats.append_requests.observe(append.requests)
        until = self._timer() + RELEASE_SLICE_S
        for slot in list(append.writes):
            # None if the slot was dropped while other replies were sent
            write = append.writes.get(slot)
            if write is not None and slot.shard_id not in lost:
                self._observer.durable(write)
                slot.release(write)
            if self._timer() >= until:
                await asyncio.sleep(0)
                until = self._timer() + RELEASE_SLICE_S
        if lost:
            self._report_fenced(append, lost)
        else:
            self.failures = 0
        self._in_flight = None
        append.end()

    def _report_fenced(self, append: Append, lost: set[ShardId]) -> None:
        self.failures += 1
        self._stats.appends_failed += 1
        slots = [slot for slot in append.writes if slot.shard_id in lost]
        # A store with one epoch for all its shards (SQLite) can only report all of them.
        everything = len(slots) == len(append.writes) and not self._storage.limits.shared
        self._host.fenced(self, self.slots if everything else slots)

    def _limit_time(self, append: Append, left_ms: int) -> None:
        loop = asyncio.get_running_loop()
        append.time_limit = loop.call_later(left_ms / 1000, self._check_time, append)

    def _check_time(self, append: Append) -> None:
        """Abandon an append that exceeds ``append_timeout_ms``. A timer calls this.

        The time is read from the lane's clock, which hardly advances while the process is
        suspended. So an append that the store answered during a suspension is not abandoned.
        """
        elapsed_ms = self._clock.now().monotonic_ms - append.started_ms
        left_ms = self._config.append_timeout_ms - elapsed_ms
        if append is not self._in_flight or append.abandoned:
            return
        if left_ms > 0:
            self._limit_time(append, left_ms)
            return
        self._abandon(append)
        self._failed(append, TimeoutError(f"the append took longer than {elapsed_ms} ms"))

    def _limit_wait(self, append: Append, since_ms: int) -> None:
        """Start the time limit for requests that wait for a paused lane. The limit is
        ``append_timeout_ms``, as for an append. Events without requests have no such limit.
        """
        if append.requests and not append.started_ms:
            append.started_ms = since_ms
            self._check_wait(append)

    def _check_wait(self, append: Append) -> None:
        """Call ``LaneHost.paused_too_long`` if requests have waited too long for a paused lane.
        Otherwise check again later.

        The time is read from the lane's clock, as for an append.
        """
        if append is not self._gathering:
            return
        waited_ms = self._clock.now().monotonic_ms - append.started_ms
        left_ms = self._config.append_timeout_ms - waited_ms
        if left_ms > 0:
            asyncio.get_running_loop().call_later(left_ms / 1000, self._check_wait, append)
        else:
            self._host.paused_too_long(self)

    def _abandon(self, append: Append) -> None:
        """Cancel an append and ignore its result. A store that ignores the cancellation may still
        finish it.
        """
        task = self._task
        assert task is not None
        append.abandoned = True
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)
        task.cancel()

    def _failed(self, append: Append, error: BaseException) -> None:
        """Report a failed append to the host. The host drops every slot, because it is unknown
        whether the append was stored.
        """
        self._task = None
        self._idle.set()
        self.failures += 1
        self._stats.appends_failed += 1
        self._host.append_failed(self, error)
        self._in_flight = None
        append.end()
