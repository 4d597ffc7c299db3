"""A coordinator's start and stop, where they meet, are cut short or come from elsewhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path

import pytest

from coordinator.core.errors import ErrorCode, GroupError
from coordinator.core.records import Record
from coordinator.service import GroupCoordinator
from coordinator.topics import ConfiguredTopic, Topics
from storage.base import OffsetStorage, ShardId, StoreBusy, StoreIdentity, StoreRefused
from storage.memory import MemoryOffsetStorage
from storage.sqlite import SqliteOffsetStorage
from tests.embedding.conftest import MakeStorage
from tests.helpers.embedded import a_commit
from tests.helpers.faulty_storage import Gate
from tests.helpers.virtual_loop import turns, virtual_time


class BusyStorage(MemoryOffsetStorage):
    """Somebody else holds it, until he is told to go."""

    is_busy = True

    async def open(self, identity: StoreIdentity) -> None:
        if self.is_busy:
            raise StoreBusy("somebody holds it")
        await super().open(identity)


class LoadsLate(MemoryOffsetStorage):
    """Its first load takes until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    async def load(
        self, shards: Collection[ShardId]
    ) -> AsyncIterator[tuple[ShardId, Sequence[Record]]]:
        await self.gate.wait()
        async for each in super().load(shards):
            yield each


async def serves(storage: OffsetStorage) -> bool:
    """Whether nothing of an earlier life is in the way of the next one."""
    coordinator = GroupCoordinator(storage)
    await coordinator.start()
    answer = await coordinator.commit_offsets(a_commit(5))
    await coordinator.stop()
    return answer.error_code is ErrorCode.NONE


async def assert_stopped(starting: asyncio.Task[None]) -> None:
    with pytest.raises(RuntimeError, match="was stopped while it started"):
        await starting


@pytest.mark.parametrize("after_turns", [1, 2, 3, 5, 8, 13])
async def test_a_stop_ends_a_start_wherever_it_is_and_holds_nothing(
    make_storage: MakeStorage, after_turns: int
) -> None:
    coordinator = GroupCoordinator(make_storage(), topics={"orders": 1})
    starting = asyncio.create_task(coordinator.start())
    await turns(after_turns)
    await coordinator.stop()
    if coordinator._starting is not None and coordinator._starting.cancelled():
        await assert_stopped(starting)
    else:
        await starting
    assert coordinator.not_ready == "the coordinator is not running"
    assert await serves(make_storage())


async def test_a_stop_while_a_file_is_opened_gives_its_lock_back(tmp_path: Path) -> None:
    path = tmp_path / "groups.db"
    coordinator = GroupCoordinator(SqliteOffsetStorage(path))
    starting = asyncio.create_task(coordinator.start())
    await turns(2)  # the writer's thread is at it
    await coordinator.stop()
    await assert_stopped(starting)
    assert await serves(SqliteOffsetStorage(path))


@virtual_time
async def test_a_stop_ends_a_start_that_waits_for_a_busy_store() -> None:
    storage = BusyStorage()
    coordinator = GroupCoordinator(storage)
    starting = asyncio.create_task(coordinator.start())
    await asyncio.sleep(1)
    await coordinator.stop()
    storage.is_busy = False
    await assert_stopped(starting)
    assert await serves(storage)


@virtual_time
async def test_a_stop_ends_a_start_that_loads() -> None:
    storage = LoadsLate()
    coordinator = GroupCoordinator(storage)
    starting = asyncio.create_task(coordinator.start())
    await storage.gate.reached.wait()
    await coordinator.stop()
    await assert_stopped(starting)
    storage.gate.open()
    assert await serves(storage)


@virtual_time
async def test_who_cancels_a_start_that_is_being_stopped_gets_what_he_asked_for() -> None:
    storage = LoadsLate()
    coordinator = GroupCoordinator(storage)
    starting = asyncio.create_task(coordinator.start())
    await storage.gate.reached.wait()
    starting.cancel()
    await coordinator.stop()
    with pytest.raises(asyncio.CancelledError):
        await starting


@virtual_time
async def test_a_start_that_ran_out_of_time_while_it_loaded_holds_nothing() -> None:
    storage = LoadsLate()
    coordinator = GroupCoordinator(storage)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await coordinator.start()
    assert coordinator.not_ready == "the coordinator is not running"
    with pytest.raises(RuntimeError, match="was stopped already: make another one"):
        await coordinator.start()
    storage.gate.open()
    assert await serves(storage)


@virtual_time
async def test_a_start_that_ran_out_of_time_before_the_store_was_open_may_be_tried_again() -> None:
    storage = BusyStorage()
    coordinator = GroupCoordinator(storage)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await coordinator.start()
    storage.is_busy = False
    await coordinator.start()
    assert coordinator.is_ready
    await coordinator.stop()


async def test_a_start_that_is_refused_by_an_open_store_holds_nothing() -> None:
    class RefusesOnce(MemoryOffsetStorage):
        is_refusing = True

        async def acquire(self, shards, owner):  # type: ignore[no-untyped-def]
            if self.is_refusing:
                self.is_refusing = False
                raise StoreRefused("a person has to act")
            return await super().acquire(shards, owner)

    storage = RefusesOnce()
    coordinator = GroupCoordinator(storage)
    with pytest.raises(StoreRefused, match="a person has to act"):
        await coordinator.start()
    assert not coordinator.is_ready
    assert await serves(storage)


async def test_a_start_without_room_for_its_topics_beside_those_stored_holds_nothing() -> None:
    storage = MemoryOffsetStorage()
    first = GroupCoordinator(storage, topics={"a": 99_999})
    await first.start()
    await first.stop()
    second = GroupCoordinator(storage, topics=Topics([ConfiguredTopic("b", 2)]))
    with pytest.raises(ValueError, match="topic 'b' of the config: More than 100000"):
        await second.start()
    assert not second.is_ready
    assert await serves(storage)


async def test_a_coordinator_that_was_never_started_is_stopped_like_any_other() -> None:
    coordinator = GroupCoordinator(MemoryOffsetStorage())
    await coordinator.stop()
    assert (await coordinator.commit_offsets(a_commit(5))).error_code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(GroupError) as raised:
        await coordinator.list_groups()
    assert raised.value.code is ErrorCode.NOT_COORDINATOR


async def test_a_call_from_another_loop_is_refused_and_disturbs_nobody(
    coordinator: GroupCoordinator,
) -> None:
    refused: list[str] = []

    def elsewhere() -> None:
        for call in (
            lambda: coordinator.commit_offsets(a_commit(6)),
            lambda: coordinator.get_group("g"),
            coordinator.stop,
        ):
            with pytest.raises(RuntimeError, match="lives in another event loop") as raised:
                asyncio.run(call())
            refused.append(str(raised.value))

    await coordinator.commit_offsets(a_commit(5))
    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert len(refused) == 3
    assert coordinator.is_ready
    assert await coordinator.get_committed_offset("g", "orders", 0) == 5
    assert (await coordinator.commit_offsets(a_commit(7))).error_code is ErrorCode.NONE
