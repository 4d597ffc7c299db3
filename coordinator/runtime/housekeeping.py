"""The work of each second: write merged events, renew leases, check the store's files, and fold an
idle store. To fold is to write the present state of groups. A later load then reads less.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from groupkeeper.storage.base import (
    CanBeMoved,
    OffsetStorage,
    StoreRefused,
    StoreTaken,
    TimesFolds,
)
from groupkeeper.storage.cancellation import unless_cancelled

if TYPE_CHECKING:
    from groupkeeper.coordinator.runtime.clock import Clock
    from groupkeeper.coordinator.runtime.lane import Lane
    from groupkeeper.coordinator.runtime.leases import Leases
    from groupkeeper.coordinator.runtime.recovery import Recovery
    from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
    from groupkeeper.coordinator.runtime.slot import Slot
    from groupkeeper.storage.base import ShardId

log = structlog.get_logger(__name__)

INTERVAL_S: Final = 1.0
MAX_FOLDS_WITHOUT_PROGRESS: Final = 5_000
"""Folding stops after this many folds in a row that made no progress. The number is large because a
group of a gigabyte has 2,000 parts, and counts as folded only after the last of them.
"""


class Housekeeping:
    """Does the work of each second on the store and the event log."""

    def __init__(  # noqa: PLR0913 - the parts of the runtime that this work needs
        self,
        storage: OffsetStorage,
        config: CoordinatorConfig,
        clock: Clock,
        lanes: Sequence[Lane],
        slots: Mapping[ShardId, Slot],
        recovery: Recovery,
        leases: Leases,
    ) -> None:
        self._storage = storage
        self._config = config
        self._clock = clock
        self._lanes = lanes
        self._slots = slots
        self._recovery = recovery
        self._leases = leases
        self._unfoldable_since_ms = -1
        """If folding made no progress, the time when the last append before it began (monotonic
        ms). Until another append, folding is not tried again. Otherwise -1.
        """

    async def run(self) -> None:
        """Do the work of each second until the task is cancelled. An error is logged, and the next
        second tries again.
        """
        renewed_ms = self._clock.now().monotonic_ms
        while True:
            await asyncio.sleep(INTERVAL_S)
            now_ms = self._clock.now().monotonic_ms
            try:
                self.end_windows(now_ms)
                await self._check_place()
                is_due = now_ms - renewed_ms >= self._config.renew_interval_ms
                if is_due and not self._storage.limits.shared:
                    renewed_ms = now_ms
                    await unless_cancelled(self._leases.renew())
                await self._fold_if_idle(now_ms)
            except Exception as error:  # noqa: BLE001 - retried next time
                log.warning("housekeeping_failed", error=str(error) or repr(error))

    def end_windows(self, now_ms: int | None = None) -> None:
        """Write the merged events of the windows that are over. A window is the time in which
        repeated refusals are only counted (``runtime.merge``). If ``now_ms`` is None, end all
        windows.
        """
        merger = self._recovery.merger
        for merged in merger.end_all() if now_ms is None else merger.due(now_ms):
            if not self._slots[merged.shard].add_events([merged.event]):
                self._recovery.stats.events_dropped += 1

    async def fold(self) -> bool:
        """Fold until the state of every group is written, or until a lane is busy or paused.

        Returns False if folding makes no progress.
        """
        in_vain = 0
        while (before := self._storage.unfolded()) > 0 and self._is_anything_loaded():
            for lane in self._lanes:
                if not await lane.fold():
                    return True
            # One row of the log may name many groups. It is deleted only after the last of them is
            # folded.
            in_vain = in_vain + 1 if self._storage.unfolded() >= before else 0
            if in_vain > MAX_FOLDS_WITHOUT_PROGRESS:
                return False
        return True

    async def _check_place(self) -> None:
        """Check that the store is in its place and still belongs to this process. If its files were
        moved, report a failed append for every lane. If another process has acquired it, report a
        fenced append. An append finds this out too, but an idle store makes no appends.
        """
        if isinstance(self._storage, CanBeMoved) and self._is_all_loaded():
            try:
                await unless_cancelled(self._storage.check_place())
            except StoreTaken:
                for lane in self._lanes:
                    self._recovery.fenced(lane, lane.slots)
            except StoreRefused as error:
                for lane in self._lanes:
                    self._recovery.append_failed(lane, error)

    async def _fold_if_idle(self, now_ms: int) -> None:
        if isinstance(self._storage, TimesFolds):
            return  # the store itself asks for folds
        written_ms = max(lane.last_append_ms for lane in self._lanes)
        is_idle = now_ms - written_ms >= self._config.fold_idle_ms
        # A shard of a shared store may be LOADING for days. The others are folded nevertheless.
        may_fold = self._storage.limits.shared or self._is_all_loaded()
        if not is_idle or not may_fold or self._unfoldable_since_ms == written_ms:
            return
        if not await self.fold():
            self._unfoldable_since_ms = written_ms

    def _is_all_loaded(self) -> bool:
        return all(slot.shard is not None for slot in self._slots.values())

    def _is_anything_loaded(self) -> bool:
        return any(slot.shard is not None for slot in self._slots.values())
