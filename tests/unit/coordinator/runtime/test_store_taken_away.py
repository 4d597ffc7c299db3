"""A store that must not be used any more, because it was moved or another process wrote to it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.storage.base import StorageError, StoreGivenUp, StoreRefused, StoreTaken
from tests.helpers.runtime.coordinator import a_coordinator
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.storage.faulty_storage import Fault, FaultyStorage, Gate, fence, slow

SHARDS = (-1, 0, 1, 2, 3)


class MovableStorage(FaultyStorage):
    """A store of files."""

    problem: Exception | None = None

    async def check_place(self) -> None:
        if self.problem is not None:
            raise self.problem


@virtual_time
async def test_who_is_fenced_on_a_store_of_his_own_takes_no_turn_with_the_other() -> None:
    storage = FaultyStorage()
    storage.limits = msgspec.structs.replace(storage.limits, sole_owner=True)
    async with a_coordinator(storage) as world:
        told: list[str] = []
        world.coordinator.when_store_is_given_up(lambda: told.append(world.coordinator.refusal))
        storage.script("append", fence(*SHARDS))
        acquired = storage.calls.count("acquire")
        lost = world.commit("g", 7)
        await world.until(lost)
        assert lost.error is ErrorCode.NOT_COORDINATOR
        await asyncio.sleep(60)
        assert storage.calls.count("acquire") == acquired
        assert world.commit("g", 8).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert not world.coordinator.is_ready
        (problem,) = told
        assert "somebody else writes to the store" in problem
        assert world.coordinator.not_ready == problem


@virtual_time
async def test_who_finds_his_store_acquired_by_another_stops_although_he_is_idle() -> None:
    storage = MovableStorage()
    storage.limits = msgspec.structs.replace(storage.limits, sole_owner=True)
    async with a_coordinator(storage) as world:
        told: list[str] = []
        world.coordinator.when_store_is_given_up(lambda: told.append(world.coordinator.refusal))
        acquired = storage.calls.count("acquire")
        storage.problem = StoreTaken("acquired by another")
        await asyncio.sleep(60)
        assert storage.calls.count("acquire") == acquired
        assert world.commit("g", 8).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        (problem,) = told
        assert "somebody else writes to the store" in problem


@pytest.mark.parametrize("calls", [["append"], ["append", "acquire"]])
@virtual_time
async def test_a_store_that_must_not_be_used_any_more_is_given_up_at_once(
    calls: list[str],
) -> None:
    storage = FaultyStorage()
    given_up = Fault(stores=False, error=StoreGivenUp("the disk failed to sync"))
    async with a_coordinator(storage) as world:
        told: list[str] = []
        world.coordinator.when_store_is_given_up(lambda: told.append(world.coordinator.refusal))
        for call in calls[:-1]:
            storage.script(call, Fault(stores=False, error=StorageError("broken")))
        storage.script(calls[-1], given_up)
        acquired = storage.calls.count("acquire")
        lost = world.commit("g", 7)
        await world.until(lost)
        assert lost.error in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        await asyncio.sleep(60)
        assert storage.calls.count("acquire") == acquired + len(calls) - 1
        assert world.commit("g", 8).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert told == ["the disk failed to sync"]
        assert world.coordinator.not_ready == "the disk failed to sync"


@virtual_time
async def test_a_store_that_was_moved_is_refused_without_traffic_for_as_long_as_it_says() -> None:
    storage = MovableStorage()
    async with a_coordinator(storage) as world:
        storage.problem = StoreRefused("moved")
        refused = Fault(stores=False, error=storage.problem)
        storage.script("acquire", *[refused] * 1_000)
        await asyncio.sleep(1.5)
        assert world.coordinator.not_ready == "moved"
        assert world.commit("g", 8).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(600)
        assert world.coordinator.not_ready == "moved"


@virtual_time
async def test_why_the_store_failed_is_told_until_it_is_loaded_and_not_at_the_next_load() -> None:
    storage, gate = FaultyStorage(), Gate()
    full = Fault(stores=False, error=StorageError("the disk is full"))
    async with a_coordinator(storage) as world:
        storage.script("append", full)
        storage.script("acquire", slow(gate))
        await world.until(world.commit("g", 7))
        told = "the store failed, and its shards are loaded again: the disk is full"
        assert world.coordinator.not_ready == told
        gate.open()
        await asyncio.sleep(1)
        assert world.coordinator.not_ready is None
        gate = Gate()
        storage.script("append", fence(*SHARDS))
        storage.script("acquire", slow(gate))
        await world.until(world.commit("g", 8))
        assert world.coordinator.not_ready == "5 of 5 shards are loading"
        gate.open()


@virtual_time
async def test_a_store_that_cannot_be_looked_at_goes_on() -> None:
    storage = MovableStorage()
    async with a_coordinator(storage) as world:
        storage.problem = StorageError("input/output error")
        await asyncio.sleep(10)
        assert world.coordinator.is_ready
        kept = world.commit("g", 8)
        await world.until(kept)
        assert kept.error is ErrorCode.NONE


@virtual_time
async def test_the_time_of_an_append_that_a_stop_gave_up_ends_in_silence() -> None:
    """The append timer was set anew, because our clock had stood still."""
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    gate = Gate()
    async with a_coordinator() as world:
        world.storage.script("append", slow(gate))
        world.commit("g", 5)
        await gate.reached.wait()
        world.clock.monotonic_offset_ms -= 3_000
        await asyncio.sleep(6)
        await world.coordinator.stop(100)
        world.clock.monotonic_offset_ms += 3_000
        await asyncio.sleep(10)
    assert failures == []


@virtual_time
async def test_a_stop_folds_nothing_of_a_store_that_was_moved() -> None:
    """No shard is loaded, so each of thousands of folds would be an empty append."""
    storage = MovableStorage()
    async with a_coordinator(storage) as world:
        await world.until(world.commit("g", 8))
        storage.problem = StoreRefused("moved")
        storage.script("acquire", *[Fault(stores=False, error=storage.problem)] * 1_000)
        await asyncio.sleep(1.5)
        storage.unfolded = lambda: 1  # type: ignore[method-assign]
        appends = len(storage.appends)
        await world.coordinator.stop()
        assert len(storage.appends) == appends
