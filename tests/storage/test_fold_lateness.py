"""When a journal is folded: at most 500 ms after an append. Nobody wakes up if nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from groupkeeper.coordinator.cluster.topics import Topics
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.storage.backends.journal.driver import Fold, JournalEntry
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.base import StorageError
from tests.helpers.core.records import commit
from tests.helpers.runtime.coordinator import TOPICS, World, a_commit, a_world
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.storage.fake_driver import FakeDriver, FakeServer
from tests.helpers.storage.storage_owner import Owner
from tests.storage.test_journal_large_groups import METADATA, PARTITIONS, a_storage

MOST_LATE_S = 0.5


class Watched:
    """A server that knows when each entry was written, and when a fold deleted it."""

    def __init__(self, fold_s: float = 0.0, append_s: float = 0.0) -> None:
        self.server = FakeServer()
        self.server.appended = self._appended
        self.fold_s = fold_s
        self.append_s = append_s
        self.error = ""
        self.begun: list[float] = []
        """When each fold began."""
        self.late_s: list[float] = []
        """For each entry that was folded, the time from its append to the end of the fold."""
        self._written: dict[int, float] = {}

    def _appended(self, entry: JournalEntry) -> None:
        self._written[entry.row] = asyncio.get_running_loop().time()

    async def pause(self, call: str, is_done: bool) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        if call == "append" and not is_done:
            await asyncio.sleep(self.append_s)
        elif call == "fold" and not is_done:
            self.begun.append(loop.time())
            await asyncio.sleep(self.fold_s)
            if self.error:
                raise StorageError(self.error)
        elif call == "fold":
            left = {entry.row for each in self.server.lives.values() for entry in each.entries}
            self.late_s += [
                loop.time() - self._written.pop(row) for row in [*self._written] if row not in left
            ]

    @asynccontextmanager
    async def world(self) -> AsyncIterator[tuple[World, JournalStorage]]:
        storage = a_storage(FakeDriver(self.server, self.pause))
        async with a_world(storage, Topics(TOPICS)) as world:
            await asyncio.sleep(3)
            assert not storage.unfolded()
            self.begun.clear()
            self.late_s.clear()
            yield world, storage


async def committed(world: World, group_id: str, offset: int) -> None:
    sent = world.send(a_commit(group_id, offset))
    await world.until(sent)
    assert sent.error is ErrorCode.NONE


@pytest.mark.parametrize(
    ("append_s", "fold_s"), [(0.0, 0.0), (0.001, 0.005), (0.04, 0.1), (0.12, 0.12), (0.02, 0.2)]
)
@virtual_time
async def test_each_change_is_folded_within_half_a_second(append_s: float, fold_s: float) -> None:
    watched = Watched(fold_s, append_s)
    async with watched.world() as (world, storage):
        offset = 0
        for pause_ms in [0, 10, 260, 240, 3, 700, 90, 249, 251, 1_300, 40, 40, 40, 500]:
            for _ in range(3):
                offset += 1
                await committed(world, f"g{offset % 5}", offset)
            await asyncio.sleep(pause_ms / 1000)
        await asyncio.sleep(MOST_LATE_S)
        assert not storage.unfolded()
        assert len(watched.late_s) >= 14
        assert max(watched.late_s) <= MOST_LATE_S
    gaps = [later - earlier for earlier, later in pairwise(watched.begun)]
    assert min(gaps) >= 0.249 - append_s, "a group is written more than four times a second"


@virtual_time
async def test_what_one_fold_cannot_write_is_folded_at_once_by_the_next() -> None:
    watched = Watched(0.01)
    async with watched.world() as (world, storage):
        long = [("orders", "", [(number, 1, -1, "x" * 4_000) for number in range(12)])]
        for first in range(0, 100, 20):
            sent = [world.send(a_commit(f"g{first + each}", topics=long)) for each in range(20)]
            await world.until(*sent)
            assert {ticket.error for ticket in sent} == {ErrorCode.NONE}
        await asyncio.sleep(MOST_LATE_S)
        assert not storage.unfolded()
        assert len(watched.begun) >= 4
        assert max(watched.late_s) <= MOST_LATE_S


@virtual_time
async def test_an_idle_coordinator_begins_no_fold_and_sets_no_timer() -> None:
    watched = Watched()
    async with watched.world() as (world, storage):
        await committed(world, "g", 1)
        await asyncio.sleep(120)  # the event of the group's end is written after a minute
        begun, appends = len(watched.begun), storage.stats()["round_trips.append"]
        asked = 0

        def ask() -> None:
            nonlocal asked
            asked += 1

        storage.on_fold_due(ask)
        await asyncio.sleep(3_600)
        assert (len(watched.begun), asked) == (begun, 0)
        assert storage.stats()["round_trips.append"] == appends


class NamedFolds(FakeDriver):
    """A driver that knows when each value was written."""

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched.server, watched.pause)
        self.written: dict[str, list[float]] = {}

    async def fold(self, life_id: str, journal_of: str, fold: Fold) -> None:
        for value in fold.values:
            self.written.setdefault(value.key, []).append(asyncio.get_running_loop().time())
        await super().fold(life_id, journal_of, fold)


@virtual_time
async def test_a_large_group_that_changes_steadily_delays_no_other_group() -> None:
    """Small commits to a large group would otherwise occupy the store all the time."""
    driver = NamedFolds(Watched(fold_s=0.1))
    owner = await Owner(a_storage(driver)).start()
    await owner.append(0, [commit("large", 0, partitions=PARTITIONS, metadata=METADATA)])
    for number in range(60):
        await owner.append(0, [commit("large", number, partitions=1), commit("g", number)])
        await asyncio.sleep(0.1)
    gaps = {
        name: [later - earlier for earlier, later in pairwise(times)]
        for name, times in driver.written.items()
    }
    assert max(gaps["g"]) <= MOST_LATE_S
    assert min(gaps["large"]) >= 0.99, "ten times as long as its last write took"
    assert len(gaps["large"]) > 3
    await owner.storage.close()


@virtual_time
async def test_a_fold_that_fails_is_tried_again_without_a_request() -> None:
    watched = Watched()
    async with watched.world() as (world, storage):
        watched.error = "no space left"
        await committed(world, "g", 1)
        await asyncio.sleep(10)
        assert 2 < len(watched.begun) <= 41, "a failing fold is tried in a loop"
        watched.error = ""
        await asyncio.sleep(MOST_LATE_S)
        assert not storage.unfolded()
