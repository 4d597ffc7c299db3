"""The leases of a store that several processes can reach (``StorageLimits.shared``).

A slot holds one shard in this process. A lane is a queue of appends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from groupkeeper.coordinator.runtime.clock import LoopClock
from groupkeeper.storage.base import LimitsReads, OffsetStorage
from groupkeeper.storage.cancellation import unless_cancelled

if TYPE_CHECKING:
    from groupkeeper.coordinator.runtime.clock import Clock
    from groupkeeper.coordinator.runtime.lane import Lane
    from groupkeeper.coordinator.runtime.recovery import Recovery
    from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
    from groupkeeper.coordinator.runtime.slot import Slot
    from groupkeeper.storage.base import ShardId

log = structlog.get_logger(__name__)

INTERVAL_S: Final = 0.25
"""The pause between two checks for lost leases."""


class Leases:
    """Suspends shards while their leases may have ended: they stay in memory, and answer as
    LOADING. Loads a shard again if its lease was lost.
    """

    def __init__(
        self,
        storage: OffsetStorage,
        config: CoordinatorConfig,
        lanes: Sequence[Lane],
        slots: Mapping[ShardId, Slot],
        recovery: Recovery,
    ) -> None:
        self._storage = storage
        self._limits_reads = storage if isinstance(storage, LimitsReads) else None
        self._timeout_s = config.append_timeout_ms / 1000
        self._lanes = lanes
        self._slots = slots
        self._recovery = recovery
        self._suspended: dict[Slot, int] = {}
        """The suspended slots, each with the time when its suspension began (monotonic ms)."""

    def watch(self, clock: Clock) -> None:
        """Let the clock call ``check_time`` once in each iteration of the event loop, before the
        first request of the iteration.

        So a process that was suspended for a long time answers no request from its old state.
        """
        if self._limits_reads is not None and isinstance(clock, LoopClock):
            clock.on_turn = self.check_time

    async def run(self) -> None:
        """Until cancelled: suspend shards whose leases are not confirmed, renew the leases, and
        resume suspended shards.
        """
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                self.check_time()
                async with asyncio.timeout(self._timeout_s):
                    await unless_cancelled(self.renew())
                    await self._resume()
            except Exception as error:  # noqa: BLE001 - retried next time
                log.warning("leases_not_renewed", error=str(error) or repr(error))

    def check_time(self) -> None:
        """Suspend every shard if the store has not confirmed the leases for too long:
        another process may own the shards.
        """
        if self._limits_reads is None or self._limits_reads.read_time_left_ms() > 0:
            return
        # The first look of a turn calls this method, which then suspends the shards.
        now_ms = self._recovery.clock.now().monotonic_ms
        answering = [slot for slot in self._slots.values() if slot.shard is not None]
        if answering and not self._recovery.is_stopping:
            self._suspended |= dict.fromkeys(answering, now_ms)
            self._recovery.lapsed(answering)

    async def _resume(self) -> None:
        """Let suspended shards answer again if the store confirms their leases.

        No other process can have owned these shards during the suspension, so they are not loaded
        again. Only the sessions of their members start again.
        """
        resumed, longest_ms = 0, 0
        for slot, since_ms in [*self._suspended.items()]:
            if slot.suspended is not None and not self._is_confirmed(slot):
                continue
            del self._suspended[slot]
            if slot.suspended is None:
                continue  # the shard was dropped and loaded again
            stopped_ms = self._recovery.clock.now().monotonic_ms - since_ms
            self._recovery.confirmed(slot, stopped_ms)
            resumed, longest_ms = resumed + 1, max(longest_ms, stopped_ms)
            await asyncio.sleep(0)  # a shard may have thousands of sessions
        if resumed:
            log.info("leases_confirmed", shards=resumed, duration_ms=longest_ms)
            if all(slot.shard is not None for slot in self._slots.values()):
                self._recovery.problem = ""

    def _is_confirmed(self, slot: Slot) -> bool:
        storage = self._limits_reads
        if storage is None or slot.lease is None or self._recovery.is_stopping:
            return False
        return storage.read_time_left_ms() > 0 and not storage.lost([slot.lease])

    async def renew(self) -> None:
        """Renew the leases. Load each shard again whose lease was lost."""
        held = {
            slot.shard_id: slot.lease
            for slot in self._slots.values()
            if slot.lease is not None and not slot.needs_lease
        }
        lost = set(await self._storage.renew([*held.values()]))
        for lane in self._lanes:
            # Include slots that are loading, but not those that acquired a newer lease during the
            # renewal.
            slots = [s for s in lane.slots if s.shard_id in lost and s.lease is held[s.shard_id]]
            if slots:
                log.error("leases_lost", shards=[slot.shard_id for slot in slots])
                self._recovery.lose(lane, slots)
