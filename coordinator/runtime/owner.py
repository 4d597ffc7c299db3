"""The owner of all shards of this process. It starts and stops them, and passes changes of topics
and settings to them.

``recovery`` loads the shards. ``housekeeping`` does the work of each second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import structlog

from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.runtime.housekeeping import Housekeeping
from groupkeeper.coordinator.runtime.lane import Lane, Observer
from groupkeeper.coordinator.runtime.leases import Leases
from groupkeeper.coordinator.runtime.recovery import Recovery
from groupkeeper.coordinator.runtime.slot import Slot
from groupkeeper.coordinator.runtime.workshop import Workshop
from groupkeeper.storage.base import OffsetStorage, ShardId, StorageError, TimesFolds
from groupkeeper.storage.cancellation import unless_cancelled

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.cluster.group_configs import GroupOverrides
    from groupkeeper.coordinator.runtime.clock import Clock
    from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
    from groupkeeper.coordinator.runtime.shards import MakeShard

log = structlog.get_logger(__name__)


class ShardOwner:
    """Runs the shards of this process. A slot holds one shard. Each slot belongs to a lane, the
    queue of appends that writes its records.
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
        """Create a slot for each shard, and the lanes. The slots are LOADING until ``start``.
        ``makers`` maps the id of each shard to the function that makes it.
        """
        self._storage = storage
        self._clock = clock
        self.workshop = Workshop(config, lambda: observer.image, timer)
        self.recovery = Recovery(storage, config, clock, observer, makers, timer)
        self.recovery.workers = self.workshop
        self.stats = self.recovery.stats
        self.lanes: list[Lane] = []
        self.slots: dict[ShardId, Slot] = {}
        for shard_id in makers:
            if not self.lanes or not storage.limits.one_lane:
                self.lanes.append(Lane(storage, config, clock, self.recovery, timer))
            slot = Slot(shard_id, self.lanes[-1], self.recovery)
            self.lanes[-1].slots.append(slot)
            self.slots[shard_id] = slot
        self.recovery.alarm.watch(self.slots.values())
        self._leases = Leases(storage, config, self.lanes, self.slots, self.recovery)
        self._housekeeping = Housekeeping(
            storage, config, clock, self.lanes, self.slots, self.recovery, self._leases
        )
        if isinstance(storage, TimesFolds):
            storage.on_fold_due(self._fold_soon)
        self._tasks: list[asyncio.Task[None]] = []
        self._ended_tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Acquire the leases and load the shards. Returns when every shard answers. If the
        store is shared, unreadable shards are left out (``Recovery.first_load``).

        Raises StoreRefused if an operator must act. After any other failure, the start is tried
        again until it succeeds.
        """
        await self.recovery.first_load(self.lanes)
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._housekeeping.run()))
        if self._storage.limits.shared:
            self._leases.watch(self._clock)
            self._tasks.append(loop.create_task(self._leases.run()))

    def drain(self) -> None:
        """Stop timers, loads and computations, and answer parked requests with NOT_COORDINATOR."""
        self.recovery.alarm.stop()
        self._ended_tasks = [*self.recovery.stop(), *self.workshop.stop()]
        for task in self._tasks:
            task.cancel()
            self._ended_tasks.append(task)
        for slot in self.slots.values():
            slot.refuse(slot.close_parked())

    async def finish(self, timeout_ms: int) -> None:
        """Write all waiting records and events, and the present state of as many groups as the time
        allows.

        Requests that still wait after that are refused.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if self._ended_tasks:
                    await asyncio.wait(self._ended_tasks)
                self._housekeeping.end_windows()
                for lane in self.lanes:
                    await lane.flush()
                await self._housekeeping.fold()
        except TimeoutError:
            log.warning("drain_timed_out", timeout_ms=timeout_ms)
        finally:
            for lane in self.lanes:
                lane.abandon()
            self.recovery.drop(self.slots.values())

    async def release(self) -> None:
        """Release the leases. After this, only ``close`` of the store may be called."""
        leases = [slot.lease for slot in self.slots.values() if slot.lease is not None]
        try:
            await unless_cancelled(self._storage.release(leases))
        except StorageError as error:
            log.warning("release_failed", error=str(error))

    def _fold_soon(self) -> None:
        for lane in self.lanes:
            lane.fold_soon()

    def loading_count(self) -> int:
        """Return how many shards are LOADING."""
        return sum(slot.shard is None for slot in self.slots.values())

    def next_deadline(self) -> int | None:
        """Return the time of the earliest deadline (monotonic ms). The time may be too early, but
        never too late. None if there is no deadline, or during a stop.
        """
        return self.recovery.alarm.earliest()

    async def clock_moved(self) -> None:
        """Process every deadline that is due now. A test calls this after it has moved the clock.
        Returns when the changes are durable.
        """
        now_ms = self._clock.now().monotonic_ms
        self.recovery.alarm.look()
        while True:
            at_ms = self.recovery.alarm.earliest()
            if at_ms is None or at_ms > now_ms:
                break
            await asyncio.sleep(0)  # the alarm continues in the next iteration of the loop
        self._housekeeping.end_windows(now_ms)
        for lane in self.lanes:
            await lane.flush()

    def push_settings(self, shard_id: int, settings: Mapping[str, GroupOverrides]) -> None:
        """Pass settings of groups to their shard. A LOADING shard gets them after its load."""
        slot = self.slots[shard_id]
        now = self._clock.now()
        if slot.shard is not None:
            slot.run(lambda shard: shard.configs_changed(settings, now))

    def push_image(self, image: TopicImage) -> None:
        """Pass the present topics to every loaded shard. The others get them after their load."""
        now = self._clock.now()
        for slot in self.slots.values():
            if slot.shard is not None:
                slot.run(lambda shard: shard.topics_changed(image, now))
