"""The owner of all shards of this process: lanes, leases, loading, deadlines and shutdown.

There is one recovery path (docs/design.md#loading). After any failure the owner drops the shards
and answers every waiting request. Then it loads the shards again, with back-off, until that
succeeds.

Long because starting, losing and loading the shards are one state machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import structlog

from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    ShardLoaded,
)
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.requests import Now, Request
from groupkeeper.coordinator.runtime.alarm import Alarm
from groupkeeper.coordinator.runtime.known_bugs import KnownBugs
from groupkeeper.coordinator.runtime.lane import Lane, Observer
from groupkeeper.coordinator.runtime.loading import Slicer, load_records
from groupkeeper.coordinator.runtime.merge import Merged, RefusalMerger
from groupkeeper.coordinator.runtime.settings import within_limits
from groupkeeper.coordinator.runtime.slot import Refusal, Slot
from groupkeeper.coordinator.runtime.stats import Stats
from groupkeeper.storage.base import CanBeMoved, OffsetStorage, StorageError, StoreRefused
from groupkeeper.storage.cancellation import unless_cancelled

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.cluster.group_configs import GroupOverrides
    from groupkeeper.coordinator.core.records import Record
    from groupkeeper.coordinator.runtime.clock import Clock
    from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
    from groupkeeper.coordinator.runtime.shards import AnyShard, MakeShard
    from groupkeeper.coordinator.runtime.tickets import Ticket

log = structlog.get_logger(__name__)

_HOUSE_S = 1.0
"""How often the owner ends merge windows, renews leases, checks the store's place and folds."""
_MAX_FOLDS_IN_VAIN = 5_000
"""A group of a gigabyte has 2,000 parts, and counts as folded only after the last of them."""
_TAKEN = (
    "somebody else writes to the store that this process holds: another groupkeeper, or a copy was "
    "put in its place. This one has stopped; run one process, or put the store back"
)
_LOGGED_INPUT_CHARS = 4_000


class ShardOwner:
    """Runs shards over a storage."""

    def __init__(
        self,
        storage: OffsetStorage,
        config: CoordinatorConfig,
        clock: Clock,
        observer: Observer,
        makers: dict[int, MakeShard],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``makers`` has a function for each shard id that makes its shard."""
        self.stats = Stats()
        self._storage = storage
        self._config = config
        self.clock = clock
        self.observer = observer
        self._makers = makers
        self._timer = timer
        limits = storage.limits
        self._limits: CoreLimits = within_limits(config, limits)
        self.merger = RefusalMerger(config.merge_window_ms, config.max_merged_members)
        self.alarm = Alarm(clock, self._timer)
        self.lanes: list[Lane] = []
        self.slots: dict[int, Slot] = {}
        for shard_id in makers:
            if not self.lanes or not limits.one_lane:
                self.lanes.append(Lane(storage, config, clock, self, timer))
            slot = Slot(shard_id, self.lanes[-1], self)
            self.lanes[-1].slots.append(slot)
            self.slots[shard_id] = slot
        self.alarm.watch(self.slots.values())
        self._recoveries: dict[Lane, asyncio.Task[None]] = {}
        self._house: asyncio.Task[None] | None = None
        self.before_answers: Callable[[], None] = lambda: None
        """Called after a load of shards, before any of them answers."""
        self.refusal = ""
        """Why the store must not be used until a person has acted. Empty if it may be used."""
        self.store_taken: Callable[[], None] = lambda: None
        """Called when another process writes to a store of which we are the sole owner."""
        self._known_bugs = KnownBugs()
        self._has_loaded = False
        self._is_stopping = False
        self._ended_tasks: list[asyncio.Task[None]] = []
        self._unfoldable_since_ms = -1

    # --- Life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Acquire the leases and load. Returns when every shard answers.

        Raises StoreRefused if a person has to act. Any other failure is retried until it works.
        """
        for lane in self.lanes:  # the cluster shard's lane is the first: the others need its topics
            self._begin_recovery(lane)
            await self._recoveries[lane]
        self._has_loaded = True
        self._house = asyncio.get_running_loop().create_task(self._keep_house())

    def drain(self) -> None:
        """Stop timers and recoveries, and answer parked requests with NOT_COORDINATOR."""
        self._is_stopping = True
        self.alarm.stop()
        self._ended_tasks = [*self._recoveries.values()]
        if self._house is not None:
            self._ended_tasks.append(self._house)
        for task in self._ended_tasks:
            task.cancel()
        for slot in self.slots.values():
            slot.refuse(slot.close_parked())

    async def finish(self, timeout_ms: int) -> None:
        """Write all waiting records and events, and fold as much as the time allows. Requests that
        still wait after that are refused.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if self._ended_tasks:
                    await asyncio.wait(self._ended_tasks)
                for merged in self.merger.end_all():
                    self._write_merged(merged)
                for lane in self.lanes:
                    await lane.flush()
                await self._fold()
        except TimeoutError:
            log.warning("drain_timed_out", timeout_ms=timeout_ms)
        finally:
            for lane in self.lanes:
                lane.abandon()
            self._drop(list(self.slots.values()))

    async def release(self) -> None:
        """Release the leases. This is the last use of the store."""
        leases = [slot.lease for slot in self.slots.values() if slot.lease is not None]
        try:
            await unless_cancelled(self._storage.release(leases))
        except StorageError as error:
            log.warning("release_failed", error=str(error))

    def loading_count(self) -> int:
        """Return how many shards are LOADING."""
        return sum(slot.shard is None for slot in self.slots.values())

    def next_deadline(self) -> int | None:
        """Return the time of the earliest deadline (monotonic ms), or None if there is none. The
        time may be too early, but never too late.
        """
        return self.alarm.earliest()

    async def clock_moved(self) -> None:
        """Expire everything that is due now. Returns once it is durable."""
        now_ms = self.clock.now().monotonic_ms
        self.alarm.look()
        while True:
            at_ms = self.alarm.earliest()
            if at_ms is None or at_ms > now_ms:
                break
            await asyncio.sleep(0)  # the alarm continues in the next turn
        for merged in self.merger.due(now_ms):
            self._write_merged(merged)
        for lane in self.lanes:
            await lane.flush()

    def push_settings(self, shard_id: int, settings: Mapping[str, GroupOverrides]) -> None:
        """Pass settings of groups to their shard. A LOADING shard gets them after its load."""
        slot = self.slots[shard_id]
        now = self.clock.now()
        if slot.shard is not None:
            slot.run(lambda shard: shard.configs_changed(settings, now))

    def push_image(self, image: TopicImage) -> None:
        """Pass a new image of topics to every loaded shard. The others get it after their load."""
        now = self.clock.now()
        for slot in self.slots.values():
            if slot.shard is not None:
                slot.run(lambda shard: shard.topics_changed(image, now))

    def load_group(self, slot: Slot, group_id: str, records: Sequence[Record]) -> bool:
        """Add a group that was loaded by itself. Return False if its shard is LOADING or already
        has the group, or if the records are unusable.
        """
        shard = slot.shard
        if shard is None or shard.saved(group_id) is not None:
            return False
        now = self.clock.now()
        slot.run(lambda shard: shard.load_group(group_id, records, now))
        if slot.shard is not shard:
            return False  # it was dropped: the records could not be applied
        self.observer.loaded(slot.shard_id, shard)
        return True

    # --- What slots and lanes call ----------------------------------------------------------------

    def request_failed(
        self, slot: Slot, request: Request, ticket: Ticket, error: Exception
    ) -> None:
        """Handle an exception inside the core, which is a bug: log the input, answer, and load the
        shard again.

        If the same request fails a second time, its connection is closed, provided that the ticket
        allows it. A client that repeats the request for ever would keep the shard loading for ever.
        """
        is_repeated = self._known_bugs.is_repeated(request)
        slot.forget(ticket)
        self._bug(slot, error, repr(request)[:_LOGGED_INPUT_CHARS])
        abort: Callable[[], None] | None = getattr(ticket, "abort", None)
        if is_repeated and abort is not None:
            abort()
        else:
            slot.refuse([(ticket, request.refused(ErrorCode.UNKNOWN_SERVER_ERROR))])

    def step_failed(self, slot: Slot, error: Exception) -> None:
        self._bug(slot, error, "a step of our own making")

    def append_failed(self, lane: Lane, error: BaseException) -> None:
        log.error("append_failed", error=str(error) or repr(error), shards=len(lane.slots))
        self._lose(lane, lane.slots)

    def fenced(self, lane: Lane, slots: Sequence[Slot]) -> None:
        log.error("append_fenced", shards=[slot.shard_id for slot in slots])
        if self._storage.limits.sole_owner:
            self.refusal = _TAKEN
            self._is_stopping = True
            self.store_taken()
        self._lose(lane, slots)

    def held_too_long(self, lane: Lane) -> None:
        """Load the lane again and refuse its waiting requests. Nothing was appended, so the leases
        stay valid.
        """
        log.error("append_held_too_long", shards=len(lane.slots))
        self._drop(lane.slots)
        self._begin_recovery(lane)

    # --- Dropping and loading ---------------------------------------------------------------------

    def _lose(self, lane: Lane, slots: Sequence[Slot]) -> None:
        for slot in slots:
            slot.needs_lease = True
        self._drop(slots)
        self._begin_recovery(lane)

    def _drop(self, slots: Iterable[Slot]) -> None:
        """Drop all slots before any answer is sent: a client may send its next request from within
        an answer.
        """
        owed: list[tuple[Slot, list[Refusal]]] = [(slot, slot.drop()) for slot in slots]
        for slot, answers in owed:
            slot.refuse(answers)

    def _bug(self, slot: Slot, error: Exception, while_doing: str) -> None:
        self.stats.bugs += 1
        log.error("core_failed", shard=slot.shard_id, input=while_doing, exc_info=error)
        self._drop([slot])
        lane = next(lane for lane in self.lanes if slot in lane.slots)
        self._begin_recovery(lane, self._config.retry_min_ms)

    def _begin_recovery(self, lane: Lane, delay_ms: int = 0) -> None:
        if lane not in self._recoveries and not self._is_stopping:
            task = asyncio.get_running_loop().create_task(self._recover(lane, delay_ms))
            self._recoveries[lane] = task

    async def _recover(self, lane: Lane, delay_ms: int = 0) -> None:
        """Load the dropped slots of a lane, with retries until it succeeds."""
        try:
            await self._recover_until_loaded(lane, delay_ms)
        finally:
            del self._recoveries[lane]

    async def _recover_until_loaded(self, lane: Lane, delay_ms: int) -> None:
        config = self._config
        retry_ms = min(config.retry_min_ms * 2 ** min(lane.failures, 10), config.retry_max_ms)
        if lane.failures > 1:  # the lane loads and then fails to append, again and again
            delay_ms = retry_ms
        while any(slot.shard is None for slot in lane.slots):
            await asyncio.sleep(delay_ms / 1000)
            delay_ms = retry_ms
            retry_ms = min(2 * retry_ms, config.retry_max_ms)
            await lane.hold()
            try:
                await unless_cancelled(self._load(lane))
            except StoreRefused as error:
                if not self._has_loaded:
                    raise
                self.refusal = str(error)
                log.error("load_refused", error=str(error), retry_ms=delay_ms)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is retried
                self.stats.loads_failed += 1
                log.error("load_failed", error=str(error) or repr(error), retry_ms=delay_ms)
            finally:
                lane.end_hold()

    async def _load(self, lane: Lane) -> None:
        """Load the dropped slots of a lane. The caller holds the lane, so nothing is in flight."""
        lost = [slot for slot in lane.slots if slot.shard is None]
        started = self.clock.now()
        await self._take_leases([slot for slot in lost if slot.needs_lease])
        ready = [slot for slot in lost if not slot.needs_lease]
        if len(ready) < len(lost):
            log.warning("leases_held_by_another", shards=len(lost) - len(ready))
        if not ready:
            return
        image = self.observer.image
        shards = {
            s.shard_id: self._makers[s.shard_id](s.shard_id, self._limits, image) for s in ready
        }
        slicer = Slicer(self._config.load_slice_ms, self._timer)
        # A lane is read whole (``storage.base``). The records of other shards are skipped.
        read = [slot.shard_id for slot in lane.slots]
        await load_records(self._storage, read, shards, slicer)
        self.before_answers()
        for slot in ready:  # the cluster shard, if it is among them, is the first
            if slot.needs_lease:
                continue  # a renewal has reported during the load that the lease is lost
            self._activate(slot, shards[slot.shard_id], started)
            await slicer.pause()
        self.refusal = ""
        self.stats.loads += 1
        self.stats.load_ms_last = self.clock.now().monotonic_ms - started.monotonic_ms
        log.info("loaded", shards=len(ready), duration_ms=self.stats.load_ms_last)

    async def _take_leases(self, slots: Sequence[Slot]) -> None:
        if not slots:
            return
        wanted = [slot.shard_id for slot in slots]
        leases = await self._storage.acquire(wanted, self._config.owner)
        for slot in slots:
            lease = leases.get(slot.shard_id)
            if lease is not None:
                slot.lease = lease
                slot.needs_lease = False

    def _activate(self, slot: Slot, shard: AnyShard, started: Now) -> None:
        """Start to answer with a loaded shard: with the current topics and with new sessions."""
        assert slot.shard is None, "loaded twice at a time"
        now = self.clock.now()
        self.observer.loaded(slot.shard_id, shard)
        # Before ``loaded``, which removes offsets of topics that are not in the image.
        steps = [
            shard.configs_changed(self.observer.settings(slot.shard_id), now),
            shard.topics_changed(self.observer.image, now),
            shard.loaded(now),
        ]
        slot.shard = shard
        for step in steps:
            slot.carry_out(step)
        groups, duration_ms = shard.group_count(), now.monotonic_ms - started.monotonic_ms
        if groups:
            event = ShardLoaded(
                groups=groups, offsets=shard.offset_count(), duration_ms=duration_ms
            )
            slot.add_events([event])
        self.alarm.set(slot, shard.next_deadline())

    # --- Housekeeping -----------------------------------------------------------------------------

    async def _keep_house(self) -> None:
        renewed_ms = self.clock.now().monotonic_ms
        while True:
            await asyncio.sleep(_HOUSE_S)
            now_ms = self.clock.now().monotonic_ms
            try:
                for merged in self.merger.due(now_ms):
                    self._write_merged(merged)
                await self._check_place()
                if now_ms - renewed_ms >= self._config.renew_interval_ms:
                    renewed_ms = now_ms
                    await unless_cancelled(self._renew())
                await self._fold_if_idle(now_ms)
            except Exception as error:  # noqa: BLE001 - retried next time
                log.warning("housekeeping_failed", error=str(error) or repr(error))

    async def _renew(self) -> None:
        held = {
            slot.shard_id: slot.lease
            for slot in self.slots.values()
            if slot.lease is not None and not slot.needs_lease
        }
        lost = set(await self._storage.renew([*held.values()]))
        for lane in self.lanes:
            # Include slots that are loading, but not those that acquired a newer lease during the
            # renewal.
            slots = [s for s in lane.slots if s.shard_id in lost and s.lease is held[s.shard_id]]
            if slots:
                log.error("leases_lost", shards=[slot.shard_id for slot in slots])
                self._lose(lane, slots)

    async def _check_place(self) -> None:
        """Fail the lanes if the store's files were moved. This is noticed even if nothing is
        written.
        """
        if isinstance(self._storage, CanBeMoved) and not self.loading_count():
            try:
                await unless_cancelled(self._storage.check_place())
            except StoreRefused as error:
                for lane in self.lanes:
                    self.append_failed(lane, error)

    async def _fold_if_idle(self, now_ms: int) -> None:
        written_ms = max(lane.last_append_ms for lane in self.lanes)
        is_idle = now_ms - written_ms >= self._config.fold_idle_ms and not self.loading_count()
        if is_idle and self._unfoldable_since_ms != written_ms and not await self._fold():
            self._unfoldable_since_ms = written_ms

    async def _fold(self) -> bool:
        """Fold until nothing is left or a lane is needed. Return False if folding makes no
        progress.
        """
        in_vain = 0
        while (before := self._storage.unfolded()) > 0 and self._lives():
            for lane in self.lanes:
                if not await lane.fold():
                    return True
            # One row of the log may name many groups. It is deleted only after the last of them is
            # folded.
            in_vain = in_vain + 1 if self._storage.unfolded() >= before else 0
            if in_vain > _MAX_FOLDS_IN_VAIN:
                return False
        return True

    def _lives(self) -> bool:
        """Return whether any shard is loaded. Without one there is nothing to fold."""
        return any(slot.shard is not None for slot in self.slots.values())

    def _write_merged(self, merged: Merged) -> None:
        if not self.slots[merged.shard].add_events([merged.event]):
            self.stats.events_dropped += 1
