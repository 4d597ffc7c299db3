"""The storage of worlds over a journal: the real ``JournalStorage``, and a server whose calls are
slow, fail, or do their work and then fail.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

from groupkeeper.coordinator.core.events import LogStarted
from groupkeeper.storage.backends.journal import life_journal
from groupkeeper.storage.backends.journal.driver import JournalEntry
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.base import StorageError
from groupkeeper.storage.codec.records import decode_payload
from groupkeeper.storage.segment_lines import EventDict
from tests.helpers.storage.fake_driver import FakeDriver, FakeServer, Pause

if TYPE_CHECKING:
    from tests.simulation.store import Misfortune
    from tests.simulation.world import World

TTL_MS = 2_000

FULL_JOURNAL = 4
MOST_IN_JOURNAL = 8
"""The limits of a journal in requests, in worlds whose folds fail. They are small, so that worlds
reach them."""


class JournalBackend:
    """A server that outlives the processes."""

    one_lane = True
    by_name = False

    def __init__(self, world: World, *, folds_fail: bool = False) -> None:
        self._world = world
        self._ids = count(1)
        self._folds_fail = folds_fail
        self._limits = life_journal.MAX_JOURNAL_REQUESTS, life_journal.MOST_JOURNAL_REQUESTS
        if folds_fail:
            _set_limits(FULL_JOURNAL, MOST_IN_JOURNAL)
        self.server = FakeServer()
        self.server.appended = self._appended
        self.server.acquired = world.durable.granted

    def open_life(self, fate: Misfortune) -> JournalStorage:
        return JournalStorage(
            FakeDriver(self.server, self._pause(fate)),
            node_id=1,
            name="a",
            lease_ttl_ms=TTL_MS,
            clock=self._world.wall_ms,
            timer_ms=lambda: self._world.monotonic_ns() // 1_000_000,
            new_id=lambda: f"life-{next(self._ids)}",
            new_log_id=lambda: f"log-{next(self._ids)}",
        )

    def _appended(self, entry: JournalEntry) -> None:
        if self._folds_fail:
            with self._world.durable.noting():
                waiting = sum(len(each.entries) for each in self.server.lives.values())
                assert waiting <= MOST_IN_JOURNAL, "a journal that is not folded grows"
        for item in decode_payload(entry.payload).items:
            events = [event for batch in item.batches for event in batch.events]
            if [type(event) for event in events] == [LogStarted]:
                continue  # of the log, not of a shard
            self._world.durable.stored(item.shard, item.lease_epoch, item.batches)

    def killed(self, owner: str) -> None:
        """Do nothing: the next process waits until the life counts as dead."""

    def lapse(self, owner: str) -> bool:
        """Let an observer end the life."""
        for life in self.server.going_on():
            self.server.lives[life.life_id].is_over = True
        return True

    def steal(self, shards: list[int]) -> None:
        """Let an observer end the life: shards change their owner only then."""
        self.lapse("")

    def heal(self) -> None:
        """Do nothing: the server fails, not its disk."""

    def events(self) -> list[EventDict]:
        return self.server.events()

    def close(self) -> None:
        _set_limits(*self._limits)

    def _pause(self, fate: Misfortune) -> Pause:
        async def pause(call: str, is_done: bool) -> None:
            if fate.is_dead:
                raise asyncio.CancelledError
            try:
                await fate.work(0.5 if is_done else 1.0)
            except StorageError:
                if fate.is_dead:
                    raise asyncio.CancelledError from None
                fate.faults[f"{call} that lied" if is_done else f"{call} that failed"] += 1
                raise
            if call == "fold" and not is_done and self._world.folds_fail():
                fate.faults["fold while folds fail"] += 1
                raise StorageError("simulated: no fold succeeds now")

        return pause


def _set_limits(full: int, most: int) -> None:
    life_journal.MAX_JOURNAL_REQUESTS = full  # type: ignore[misc]
    life_journal.MOST_JOURNAL_REQUESTS = most  # type: ignore[misc]
