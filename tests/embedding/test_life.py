"""A coordinator's start and stop, where they meet, are cut short or come from elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path

import pytest

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
from groupkeeper.coordinator.core.records import Record
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import OffsetStorage, ShardId, StoreBusy, StoreIdentity, StoreRefused
from tests.embedding.conftest import MakeStorage
from tests.helpers.runtime.embedded import a_commit
from tests.helpers.runtime.virtual_loop import run_virtual, turns, virtual_time
from tests.helpers.storage.faulty_storage import Fault, FaultyStorage, Gate, slow


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


async def a_life(storage: OffsetStorage) -> GroupCoordinator:
    coordinator = GroupCoordinator(storage)
    await coordinator.start()
    (await coordinator.commit_offsets(a_commit(5))).raise_for_error()
    return coordinator


async def assert_cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


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
    (ended,) = await asyncio.gather(starting, return_exceptions=True)
    assert str(ended) in ("None", "the coordinator was stopped while it started")
    assert coordinator.not_ready == "the coordinator is not running"
    assert await serves(make_storage())


async def test_a_stop_while_a_file_is_opened_gives_its_lock_back(tmp_path: Path) -> None:
    path = tmp_path / "groups.db"
    coordinator = GroupCoordinator(SqliteOffsetStorage(path))
    starting = asyncio.create_task(coordinator.start())
    await turns(2)  # the writer's thread writes it now
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


@pytest.mark.parametrize("stops", [True, False])
def test_a_call_after_the_end_of_the_loop_is_told_what_became_of_the_coordinator(
    stops: bool,
) -> None:
    coordinator = GroupCoordinator(MemoryOffsetStorage())

    async def its_life() -> None:
        await coordinator.start()
        if stops:
            await coordinator.stop()

    asyncio.run(its_life())
    with pytest.raises(RuntimeError, match="lived in has ended") as raised:
        asyncio.run(coordinator.stop())
    assert ("locked until this process ends" in str(raised.value)) is not stops
    assert "run_coroutine_threadsafe" not in str(raised.value)


async def test_a_file_that_this_process_has_open_itself_is_not_said_to_be_in_use_by_another(
    tmp_path: Path,
) -> None:
    coordinator = GroupCoordinator(SqliteOffsetStorage(tmp_path / "groups.db"))
    await coordinator.start()
    with pytest.raises(StoreRefused, match="in use by another coordinator of this process"):
        await GroupCoordinator(SqliteOffsetStorage(tmp_path / "groups.db")).start()
    await coordinator.stop()


# --- The end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("after_turns", [0, 1, 2, 3, 5, 8])
async def test_a_stop_that_is_cancelled_goes_on_and_the_next_one_waits_for_its_end(
    make_storage: MakeStorage, after_turns: int
) -> None:
    coordinator = await a_life(make_storage())
    stopping = asyncio.create_task(coordinator.stop())
    await turns(1 + after_turns)
    stopping.cancel()
    await asyncio.wait([stopping])
    await coordinator.stop()
    assert await serves(make_storage())


@virtual_time
async def test_a_stop_that_is_cancelled_ends_within_its_time_whatever_the_store_does() -> None:
    storage = FaultyStorage()
    coordinator = await a_life(storage)
    release = Gate()
    storage.script("release", slow(release))
    stopping = asyncio.create_task(coordinator.stop(5_000))
    await release.reached.wait()
    await assert_cancelled(stopping)
    assert "close" not in storage.calls
    await asyncio.sleep(5.1)
    assert await serves(storage)


@virtual_time
async def test_every_stop_returns_when_the_store_is_free() -> None:
    storage, close = FaultyStorage(), Gate()
    coordinator = await a_life(storage)
    storage.script("close", slow(close))
    stops = [asyncio.create_task(coordinator.stop()) for _ in range(2)]
    await close.reached.wait()
    stops.append(asyncio.create_task(coordinator.stop()))
    await turns(20)
    assert not any(stop.done() for stop in stops)
    close.open()
    await asyncio.gather(*stops)
    assert storage.calls.count("close") == 1
    await coordinator.stop()
    assert await serves(storage)


@virtual_time
async def test_a_start_that_is_cancelled_twice_holds_nothing_in_the_end() -> None:
    storage, load, release = FaultyStorage(), Gate(), Gate()
    storage.script("load", slow(load))
    storage.script("release", slow(release))
    coordinator = GroupCoordinator(storage)
    starting = asyncio.create_task(coordinator.start())
    await load.reached.wait()
    starting.cancel()
    await release.reached.wait()
    await assert_cancelled(starting)
    release.open()
    await coordinator.stop()
    assert await serves(storage)


@virtual_time
async def test_a_start_that_is_cancelled_twice_lets_the_store_clear_up() -> None:
    class ClearsUp(MemoryOffsetStorage):
        """Opens for ever, and takes its time to let go again."""

        async def open(self, identity: StoreIdentity) -> None:
            if clearing.reached.is_set():
                return await super().open(identity)
            try:
                await opening.wait()
            finally:
                await clearing.wait()
                cleared.append(True)

    opening, clearing, cleared = Gate(), Gate(), list[bool]()
    coordinator = GroupCoordinator(ClearsUp())
    starting = asyncio.create_task(coordinator.start())
    await opening.reached.wait()
    starting.cancel()
    await clearing.reached.wait()
    await assert_cancelled(starting)
    with pytest.raises(RuntimeError, match="was started already"):
        await coordinator.start()
    clearing.open()
    await turns(5)
    assert cleared
    await coordinator.start()
    assert coordinator.is_ready
    await coordinator.stop()


@virtual_time
async def test_a_start_that_a_stop_ends_returns_when_the_store_is_free() -> None:
    storage, load, close = FaultyStorage(), Gate(), Gate()
    storage.script("load", slow(load))
    storage.script("close", slow(close))
    coordinator = GroupCoordinator(storage)
    starting = asyncio.create_task(coordinator.start())
    await load.reached.wait()
    stopping = asyncio.create_task(coordinator.stop())
    await close.reached.wait()
    await turns(20)
    assert not starting.done()
    close.open()
    await assert_stopped(starting)
    await stopping


def test_a_loop_that_ends_in_the_middle_of_a_stop_leaves_the_store_free() -> None:
    storage = FaultyStorage()

    async def life() -> GroupCoordinator:
        coordinator = await a_life(storage)
        append = storage.hold_next_append()
        waiting.append(asyncio.create_task(coordinator.commit_offsets(a_commit(6))))
        waiting.append(asyncio.create_task(coordinator.stop()))
        await append.reached.wait()
        await turns(5)
        return coordinator

    waiting: list[asyncio.Task[object]] = []
    coordinator = run_virtual(life())
    assert all(task.cancelled() for task in waiting)
    assert coordinator.not_ready == "the coordinator is not running"
    assert run_virtual(serves(storage))


async def test_a_store_is_closed_though_it_would_not_take_the_leases_back() -> None:
    storage = FaultyStorage()
    coordinator = await a_life(storage)
    storage.script("release", Fault(error=ConnectionError("gone")))  # type: ignore[arg-type]
    with pytest.raises(ConnectionError):
        await coordinator.stop()
    assert await serves(storage)


@virtual_time
async def test_a_store_that_was_opened_after_all_is_closed() -> None:
    class CannotBeCancelled(MemoryOffsetStorage):
        async def open(self, identity: StoreIdentity) -> None:
            opening = asyncio.ensure_future(gate.wait())
            while not opening.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(opening)
            await super().open(identity)

    gate, storage = Gate(), CannotBeCancelled()
    coordinator = GroupCoordinator(storage)
    starting = asyncio.create_task(coordinator.start())
    await gate.reached.wait()
    await coordinator.stop(1_000)
    gate.open()
    await assert_stopped(starting)
    assert await serves(storage)


# --- From where, and beside what ------------------------------------------------------------------


@virtual_time
async def test_a_question_while_the_store_is_busy_is_answered_as_by_one_that_loads() -> None:
    coordinator = GroupCoordinator(BusyStorage())
    starting = asyncio.create_task(coordinator.start())
    await asyncio.sleep(1)
    answer = await coordinator.commit_offsets(a_commit(5))
    assert answer.error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not coordinator.is_ready
    await assert_cancelled(starting)
    with pytest.raises(RuntimeError, match="was not started"):
        await coordinator.commit_offsets(a_commit(5))


async def test_a_stop_from_another_loop_is_refused_also_while_the_store_is_busy() -> None:
    storage = BusyStorage()
    coordinator = GroupCoordinator(storage)
    starting = asyncio.create_task(coordinator.start())
    await turns(3)
    with pytest.raises(RuntimeError, match="lives in another event loop"):
        await asyncio.to_thread(lambda: asyncio.run(coordinator.stop()))
    storage.is_busy = False
    await starting
    assert coordinator.is_ready
    await coordinator.stop()


@pytest.mark.parametrize("calls", ["start stop", "stop start", "start stop start", "stop stop"])
async def test_starts_and_stops_beside_each_other_end_and_hold_nothing(
    make_storage: MakeStorage, calls: str
) -> None:
    coordinator = GroupCoordinator(make_storage())
    ended = await asyncio.gather(
        *[getattr(coordinator, call)() for call in calls.split()], return_exceptions=True
    )
    for call, end in zip(calls.split(), ended, strict=True):
        assert end is None if call == "stop" else isinstance(end, RuntimeError)
    assert await serves(make_storage())


async def test_a_store_that_one_coordinator_uses_is_refused_to_the_next(
    make_storage: MakeStorage,
) -> None:
    storage = make_storage()
    coordinator = await a_life(storage)
    with pytest.raises(StoreRefused, match="in use by another coordinator of this process"):
        await GroupCoordinator(storage).start()
    assert await coordinator.get_committed_offset("g", "orders", 0) == 5
    await coordinator.stop()
    assert await serves(storage)


@pytest.mark.parametrize(("wrong", "error"), [("1", TypeError), (0.5, TypeError), (-1, ValueError)])
async def test_a_stop_that_says_no_time_is_refused_and_the_next_one_ends_all(
    wrong: int, error: type[Exception]
) -> None:
    storage = MemoryOffsetStorage()
    coordinator = await a_life(storage)
    with pytest.raises(error, match=r"^timeout_ms must be "):
        await coordinator.stop(wrong)
    assert coordinator.is_ready
    await coordinator.stop()
    assert await serves(storage)
