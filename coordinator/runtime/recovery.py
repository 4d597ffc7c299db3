"""Loads shards, at the start and again after each failure (docs/design.md#loading).

There is one path. After any failure the shards are dropped and every waiting request is answered.
Then the shards are loaded again, with back-off, until that succeeds.
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
from groupkeeper.coordinator.runtime.loading import Slicer, load_records
from groupkeeper.coordinator.runtime.merge import RefusalMerger
from groupkeeper.coordinator.runtime.settings import within_limits
from groupkeeper.coordinator.runtime.stats import Stats
from groupkeeper.storage.base import OffsetStorage, StoreRefused
from groupkeeper.storage.cancellation import unless_cancelled

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.now import Now
    from groupkeeper.coordinator.core.requests.request import Request
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
_LOGGED_INPUT_CHARS: Final = 4_000


class Recovery:
    """Drops and loads shards. Slots and lanes report their failures here."""

    def __init__(
        self,
        storage: OffsetStorage,
        config: CoordinatorConfig,
        clock: Clock,
        observer: Observer,
        makers: Mapping[ShardId, MakeShard],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``makers`` has a function for each shard id that makes its shard."""
        self.clock = clock
        self.observer = observer
        self.workers: SlotWorkers
        """Carries out the work of steps. The owner sets it."""
        self.stats = Stats()
        self.alarm = Alarm(clock, timer)
        self.merger = RefusalMerger(config.merge_window_ms, config.max_merged_members)
        self.before_answers: Callable[[], None] = lambda: None
        """Called after a load of shards, before any of them answers."""
        self.refusal = ""
        """The reason why the store must not be used until a person has acted. Empty if it may be
        used."""
        self.problem = ""
        """The reason why the last append or load failed. Empty after a load that succeeded."""
        self.has_loaded = False
        """True after the first load."""
        self.store_taken: Callable[[], None] = lambda: None
        """Called when another process writes to a store of which we are the sole owner."""
        self.is_stopping = False
        """True if dropped shards are not loaded any more."""
        self._storage = storage
        self._config = config
        self._makers = makers
        self._timer = timer
        self._limits = within_limits(config, storage.limits)
        self._tasks: dict[Lane, asyncio.Task[None]] = {}
        self._known_bugs = KnownBugs()

    async def first_load(self, lanes: Iterable[Lane]) -> None:
        """Load all lanes, one after the other. Returns when every shard answers.

        Raises StoreRefused if a person has to act. Any other failure is retried until it works.
        """
        for lane in lanes:  # the cluster shard's lane is the first: the others need its topics
            self.begin(lane)
            await self._tasks[lane]
        self.has_loaded = True

    def begin(self, lane: Lane, delay_ms: int = 0) -> None:
        """Start to load the dropped slots of a lane, unless that is under way."""
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
        """Log the input, answer the request, and load the shard again.

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
        self.problem = str(error) or repr(error)
        log.error("append_failed", error=self.problem, shards=len(lane.slots))
        self.lose(lane, lane.slots)

    def fenced(self, lane: Lane, slots: Sequence[Slot]) -> None:
        log.error("append_fenced", shards=[slot.shard_id for slot in slots])
        if self._storage.limits.sole_owner:
            self.refusal = _TAKEN
            self.is_stopping = True
            self.store_taken()
        self.lose(lane, slots)

    def held_too_long(self, lane: Lane) -> None:
        """Load the lane again and refuse its waiting requests. Nothing was appended, so the leases
        stay valid.
        """
        log.error("append_held_too_long", shards=len(lane.slots))
        self.drop(lane.slots)
        self.begin(lane)

    # --- Dropping ---------------------------------------------------------------------------------

    def lose(self, lane: Lane, slots: Iterable[Slot]) -> None:
        """Drop slots whose leases are not valid any more, and load them again."""
        slots = list(slots)
        for slot in slots:
            slot.needs_lease = True
        self.drop(slots)
        self.begin(lane)

    def drop(self, slots: Iterable[Slot]) -> None:
        """Drop all slots before any answer is sent: a client may send its next request from within
        an answer.
        """
        for slot, refusals in [(slot, slot.drop()) for slot in slots]:
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
        """Load the dropped slots of a lane, with retries until it succeeds."""
        try:
            await self._load_until_done(lane, delay_ms)
        finally:
            del self._tasks[lane]

    async def _load_until_done(self, lane: Lane, delay_ms: int) -> None:
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
                if not self.has_loaded:
                    raise
                self.refusal = str(error)
                log.error("load_refused", error=str(error), retry_ms=delay_ms)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is retried
                self.stats.loads_failed += 1
                self.problem = str(error) or repr(error)
                log.error("load_failed", error=self.problem, retry_ms=delay_ms)
            finally:
                lane.end_hold()

    async def _load(self, lane: Lane) -> None:
        """Load the dropped slots of a lane. The caller holds the lane, so nothing is in flight."""
        lost = [slot for slot in lane.slots if slot.shard is None]
        started = self.clock.now()
        await self._acquire_leases([slot for slot in lost if slot.needs_lease])
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
