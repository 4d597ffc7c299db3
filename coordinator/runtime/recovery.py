"""Loads shards, at the start and again after each failure (docs/design.md#loading).

There is one path for all failures. The shards are dropped, and every waiting request is answered.
Then the shards are loaded again. A load that fails is retried after a pause that grows.

This file is long because failures and loads change the same few fields.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import ShardLoaded
from groupkeeper.coordinator.runtime.alarm import Alarm
from groupkeeper.coordinator.runtime.known_bugs import KnownBugs
from groupkeeper.coordinator.runtime.lane import Lane
from groupkeeper.coordinator.runtime.load_log import LoadLog
from groupkeeper.coordinator.runtime.loading import Slicer, load_records
from groupkeeper.coordinator.runtime.merge import RefusalMerger
from groupkeeper.coordinator.runtime.settings import within_limits
from groupkeeper.coordinator.runtime.stats import Stats
from groupkeeper.storage.base import (
    CLUSTER_SHARD,
    LimitsReads,
    OffsetStorage,
    StorageError,
    StoreGivenUp,
    StoreRefused,
)
from groupkeeper.storage.cancellation import unless_cancelled

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.now import Now
    from groupkeeper.coordinator.core.requests.request import Request
    from groupkeeper.coordinator.core.step import Step
    from groupkeeper.coordinator.runtime.clock import Clock
    from groupkeeper.coordinator.runtime.lane import Observer
    from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
    from groupkeeper.coordinator.runtime.shards import AnyShard, MakeShard
    from groupkeeper.coordinator.runtime.slot import Slot, SlotWorkers
    from groupkeeper.coordinator.runtime.tickets import Ticket
    from groupkeeper.storage.base import ShardId

log = structlog.get_logger(__name__)

_TAKEN: Final = (
    "somebody else writes to the store that this process holds: another groupkeeper, or a copy was "
    "put in its place. This one has stopped; run one process, or put the store back"
)
NOT_CONFIRMED: Final = "the store does not confirm the leases of the shards"
_LOGGED_INPUT_CHARS: Final = 4_000


class Recovery:
    """Drops and loads shards. Slots (which hold shards) and lanes (their queues of appends) report
    failures to this object.
    """

    def __init__(
        self,
        storage: OffsetStorage,
        config: CoordinatorConfig,
        clock: Clock,
        observer: Observer,
        makers: Mapping[ShardId, MakeShard],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Create the object. ``makers`` maps the id of each shard to the function that makes it."""
        self.clock = clock
        self.observer = observer
        self.workers: SlotWorkers
        """Does the computations that shards ask for. The owner sets this attribute."""
        self.stats = Stats()
        self.alarm = Alarm(clock, timer)
        self.merger = RefusalMerger(config.merge_window_ms, config.max_merged_members)
        self.before_answers: Callable[[], None] = lambda: None
        """Called after a load of shards, before any of them answers."""
        self.refusal = ""
        """The reason why an operator must act before the store may be used; empty if it may be
        used."""
        self.problem = ""
        """Why the last append or load failed, or why shards are suspended. Otherwise empty."""
        self.has_loaded = False
        """True after the first load."""
        self.store_given_up: Callable[[], None] = lambda: None
        """Called when this process must not use the store any more: another process has written to
        it although a lock should keep it out, or its disk failed to sync."""
        self.held_elsewhere: Callable[[ShardId], None] = lambda _: None
        """Called with the id of a shard whose lease another process holds."""
        self.is_stopping = False
        """True if dropped shards must not be loaded again."""
        self._storage = storage
        self._config = config
        self._makers = makers
        self._timer = timer
        self._limits = within_limits(config, storage.limits)
        self._is_shared = storage.limits.shared
        self._tasks: dict[Lane, asyncio.Task[None]] = {}
        self._known_bugs = KnownBugs()
        self._load_log = LoadLog(clock)

    async def first_load(self, lanes: Sequence[Lane]) -> None:
        """Load the shards of all lanes. Returns when every shard answers.

        The lanes of a shared store are loaded together. If some of its shards cannot be read and
        others answer, the call returns. The load of the unreadable shards is retried from time to
        time.

        Raises StoreRefused if an operator must act. After any other failure, the load is tried
        again until it succeeds.
        """
        # The cluster shard's lane is the first: the others need its topics.
        parts = [lanes[:1], lanes[1:]] if self._is_shared else [[lane] for lane in lanes]
        for part in parts:
            await self._first_load(part)
        self.has_loaded = True
        for lane in lanes:
            if any(slot.kept is None for slot in lane.slots):
                self.begin(lane, self._config.retry_min_ms)

    async def _first_load(self, lanes: Sequence[Lane]) -> None:
        for lane in lanes:
            self.begin(lane)
        loads = [self._tasks[lane] for lane in lanes]
        for error in await asyncio.gather(*loads, return_exceptions=True):
            answers = any(slot.shard is not None for lane in lanes for slot in lane.slots)
            if isinstance(error, StoreRefused) and self._is_shared and answers:
                self.refusal = str(error)
            elif error is not None:
                raise error

    def begin(self, lane: Lane, delay_ms: int = 0) -> None:
        """Start to load the dropped slots of a lane after ``delay_ms``. Do nothing if a load of
        this lane is running, or if the coordinator stops.
        """
        if lane not in self._tasks and not self.is_stopping:
            task = asyncio.get_running_loop().create_task(self._run(lane, delay_ms))
            self._tasks[lane] = task

    def stop(self) -> list[asyncio.Task[None]]:
        """Cancel all loads and start no further one. Return the cancelled tasks."""
        self.is_stopping = True
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        return tasks

    # --- What slots and lanes report --------------------------------------------------------------

    def request_failed(
        self, slot: Slot, request: Request, ticket: Ticket, error: Exception
    ) -> None:
        """Handle a request that raised an exception in the core: log the request, answer it, and
        load the shard again.

        If the same request fails a second time, its connection is closed (unless the request came
        from the host program). Otherwise a client that repeats it for ever would keep the shard
        LOADING for ever.
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
        self.problem = str(error) or repr(error)
        log.error("append_failed", error=self.problem, shards=len(lane.slots))
        if isinstance(error, StoreGivenUp):
            self._give_up(self.problem)
        self.lose(lane, lane.slots)

    def fenced(self, lane: Lane, slots: Sequence[Slot]) -> None:
        log.error("append_fenced", shards=[slot.shard_id for slot in slots])
        if self._storage.limits.sole_owner:
            self._give_up(_TAKEN)
        self.lose(lane, slots)

    def _give_up(self, reason: str) -> None:
        """Load nothing any more, and let the host stop the coordinator."""
        self.refusal = reason
        self.is_stopping = True
        self.store_given_up()

    def paused_too_long(self, lane: Lane) -> None:
        """Load the shards of a lane again, and refuse the requests that wait for it. The leases
        stay valid, because nothing was appended.
        """
        log.error("append_held_too_long", shards=len(lane.slots))
        self.drop(lane.slots)
        self.begin(lane)

    def lapsed(self, slots: Sequence[Slot]) -> None:
        """Suspend slots whose leases the store has not confirmed for too long."""
        self.problem = NOT_CONFIRMED
        self.stats.lapses += 1
        log.error("leases_lapsed", shards=len(slots))
        for slot in slots:
            slot.suspend()

    def confirmed(self, slot: Slot, stopped_ms: int) -> None:
        """Let a suspended slot answer again, because its lease has been valid all the time."""
        now = self.clock.now()

        def steps(shard: AnyShard) -> Sequence[Step]:
            return [
                shard.resumed(stopped_ms, now),
                shard.configs_changed(self.observer.settings(slot.shard_id), now),
                shard.topics_changed(self.observer.image, now),
            ]

        try:
            slot.resume(steps)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a bug of the core
            self.step_failed(slot, error)

    # --- Dropping ---------------------------------------------------------------------------------

    def lose(self, lane: Lane, slots: Iterable[Slot]) -> None:
        """Drop slots whose leases are lost or in doubt. Load them again under new leases."""
        slots = list(slots)
        for slot in slots:
            slot.needs_lease = True
        self.drop(slots)
        self.begin(lane)

    def drop(self, slots: Iterable[Slot]) -> None:
        """Drop the shards of these slots. Then refuse their waiting requests. The order matters: a
        refused ticket may submit the next request of its client from within ``resolve``.
        """
        loads_again = not self.is_stopping
        for slot, refusals in [(slot, slot.drop(loads_again)) for slot in slots]:
            slot.refuse(refusals)

    def _count_bug(self, slot: Slot, error: Exception, while_doing: str) -> None:
        self.stats.bugs += 1
        log.error("core_failed", shard=slot.shard_id, input=while_doing, exc_info=error)

    def _bug(self, slot: Slot, error: Exception, while_doing: str) -> None:
        self._count_bug(slot, error, while_doing)
        self.drop([slot])
        assert isinstance(slot.lane, Lane)
        self.begin(slot.lane, self._config.retry_min_ms)

    # --- Loading ----------------------------------------------------------------------------------

    async def _run(self, lane: Lane, delay_ms: int) -> None:
        """Load those slots of a lane that were dropped. Try again until this succeeds."""
        try:
            await self._load_until_done(lane, delay_ms)
        finally:
            del self._tasks[lane]

    async def _load_until_done(self, lane: Lane, delay_ms: int) -> None:
        config = self._config
        retry_ms = min(config.retry_min_ms * 2 ** min(lane.failures, 10), config.retry_max_ms)
        if lane.failures > 1:  # after each load, an append fails again
            delay_ms = retry_ms
        while any(slot.kept is None for slot in lane.slots):
            await asyncio.sleep(delay_ms / 1000)
            delay_ms = retry_ms
            retry_ms = min(2 * retry_ms, config.retry_max_ms)
            try:
                await self._load_beside_appends(lane)
            except StoreRefused as error:
                if not self.has_loaded:
                    raise
                if isinstance(error, StoreGivenUp):
                    self._give_up(str(error))
                    return
                self.refusal = str(error)
                self._load_log.refused(self.refusal, delay_ms)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is retried
                self.stats.loads_failed += 1
                self.problem = str(error) or repr(error)
                self._load_log.failed(self.problem, delay_ms)

    async def _load_beside_appends(self, lane: Lane) -> None:
        """Wait until no append in flight can contain a dropped slot. Then load the dropped slots.

        If the store is not shared, the whole lane is paused during the load.
        """
        if self._is_shared:
            await lane.end_of_append()  # a later append contains no dropped slot
            await unless_cancelled(self._load(lane))
            return
        await lane.pause()
        try:
            await unless_cancelled(self._load(lane))
        finally:
            lane.end_pause()

    async def _load(self, lane: Lane) -> None:
        """Load the dropped slots of a lane, except slots whose lease another process holds."""
        lost = [slot for slot in lane.slots if slot.kept is None]
        started = self.clock.now()
        await self._acquire_leases([slot for slot in lost if slot.needs_lease])
        ready = [slot for slot in lost if not slot.needs_lease]
        if len(ready) < len(lost):
            for slot in lost:
                if slot.needs_lease:
                    self.held_elsewhere(slot.shard_id)
            self._load_log.held_by_another(len(lost) - len(ready))
        if not ready:
            return
        if not self._is_shared:
            # A lane is read whole (``storage.base``). The records of other shards are skipped.
            await self._load_slots(ready, [slot.shard_id for slot in lane.slots], started)
            return
        try:
            await self._load_slots(ready, [slot.shard_id for slot in ready], started)
        except StoreRefused:
            if len(ready) == 1:
                raise
            await self._load_each(ready, started)

    async def _load_each(self, slots: Sequence[Slot], started: Now) -> None:
        """Load each slot alone. If a stored value cannot be read, only the shard of that value
        stays LOADING.

        Raises the first StoreRefused after it has tried all slots. A first load ends at once if the
        cluster shard cannot be read: without its topics, the other shards would delete offsets.
        """
        refused: StoreRefused | None = None
        for slot in slots:
            if slot.kept is not None or slot.needs_lease:
                continue
            try:
                await self._load_slots([slot], [slot.shard_id], started)
            except StoreRefused as error:
                if slot.shard_id == CLUSTER_SHARD and not self.has_loaded:
                    raise
                refused = refused or error
        if refused is not None:
            raise refused

    async def _load_slots(
        self, ready: Sequence[Slot], read: Sequence[ShardId], started: Now
    ) -> None:
        """Read the shards in ``read``. Then let the slots in ``ready`` answer."""
        image = self.observer.image
        shards = {
            s.shard_id: self._makers[s.shard_id](s.shard_id, self._limits, image) for s in ready
        }
        slicer = Slicer(self._config.load_slice_ms, self._timer)
        await load_records(self._storage, read, shards, slicer)
        if isinstance(self._storage, LimitsReads) and not self._storage.read_time_left_ms():
            raise StorageError(NOT_CONFIRMED)
        self.before_answers()
        for slot in ready:  # the cluster shard, if it is among them, is the first
            if slot.needs_lease:
                continue  # a renewal has reported during the load that the lease is lost
            try:
                self._activate(slot, shards[slot.shard_id], started)
            except Exception as error:  # any error: a retry would raise it again
                self._count_bug(slot, error, "the end of a load")
                self.drop([slot])
                raise StoreRefused(
                    f"shard {slot.shard_id}: a bug of groupkeeper keeps it from answering after "
                    f"its load ({error!r}): report it with this log, or run the version that wrote "
                    "the store"
                ) from error
            await slicer.pause()
        self.refusal = self.problem = ""
        self.stats.loads += 1
        self.stats.load_ms_last = self.clock.now().monotonic_ms - started.monotonic_ms
        log.info("loaded", shards=len(ready), duration_ms=self.stats.load_ms_last)

    async def _acquire_leases(self, slots: Sequence[Slot]) -> None:
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
        """Let a loaded shard answer, with the current topics and with new sessions."""
        assert slot.kept is None, "loaded twice at a time"
        now = self.clock.now()
        self.observer.loaded(slot.shard_id, shard)
        # ``loaded`` is the last: it removes offsets of topics that are not in the image.
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
