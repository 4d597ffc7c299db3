"""Writes of a host's store that end when nobody waits for them any more: nothing that was
acknowledged in the meantime is overwritten by them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.backends.host import MAX_CALLS, PersistentOffsetStorage
from groupkeeper.storage.base import Batch, ShardAppend, StorageError, StoreIdentity
from tests.helpers.core.records import commit as a_record
from tests.helpers.runtime.embedded import a_commit, join, sync
from tests.helpers.runtime.virtual_loop import VirtualClock, turns, virtual_time, virtual_timer
from tests.helpers.storage.dict_store import AsyncDictStore, ThreadedDictStore
from tests.helpers.storage.faulty_storage import Gate

CONFIG = CoordinatorConfig(shards=4, append_timeout_ms=1_000)
AWAY = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}


async def a_coordinator(storage: PersistentOffsetStorage) -> GroupCoordinator:
    coordinator = GroupCoordinator(storage, CONFIG, clock=VirtualClock(), timer=virtual_timer)
    await coordinator.start()
    return coordinator


async def commit(coordinator: GroupCoordinator, offset: int, group_id: str = "g") -> ErrorCode:
    answer = await coordinator.commit_offsets(a_commit(offset, group_id=group_id))
    return ErrorCode(answer.error_code)


async def an_append(storage: PersistentOffsetStorage, *group_ids: str, partitions: int = 1) -> None:
    epoch = (await storage.acquire([0], "owner"))[0].epoch
    records = [a_record(group_id, 5, partitions=partitions) for group_id in group_ids]
    await storage.append([ShardAppend(0, epoch, [Batch(records, ())], lambda _: None)])


async def delete(coordinator: GroupCoordinator) -> ErrorCode:
    return (await coordinator.delete_groups("g"))["g"]


@pytest.mark.parametrize("write", [lambda c: commit(c, 2), delete])
@virtual_time
async def test_nothing_is_acknowledged_before_a_write_that_was_given_up_has_ended(
    write: Callable[[GroupCoordinator], Awaitable[ErrorCode]],
) -> None:
    store, gate = ThreadedDictStore(), Gate()
    coordinator = await a_coordinator(PersistentOffsetStorage(store))
    assert await commit(coordinator, 1) is ErrorCode.NONE
    store.write_gates.append(gate)
    assert await write(coordinator) in AWAY
    await asyncio.sleep(1)
    for _ in range(3):
        assert await commit(coordinator, 3) in AWAY
    assert await commit(coordinator, 9, "other") is ErrorCode.NONE
    reads = store.inner.calls["fetch_all"]
    retried = asyncio.create_task(commit(coordinator, 3))
    await turns(20)
    assert store.inner.calls["fetch_all"] == reads
    gate.open()
    assert await retried is ErrorCode.NONE
    await coordinator.stop()
    assert store.inner.groups["g"]["orders"][0].offset == 3


@virtual_time
async def test_a_failure_of_one_group_waits_for_what_is_under_way_for_others() -> None:
    store, gate = ThreadedDictStore(), Gate()
    storage = PersistentOffsetStorage(store)
    await storage.open(StoreIdentity("groupkeeper", 4))
    store.inner.failures["store"] = 1
    store.write_gates += [gate]
    append = asyncio.create_task(an_append(storage, "held", "failing"))
    await turns(20)
    assert store.inner.calls["store"] == 1
    assert not append.done()
    gate.open()
    with pytest.raises(ConnectionError):
        await append
    assert list(store.inner.groups) == ["held"]


@virtual_time
async def test_groups_whose_turn_had_not_come_when_an_append_was_given_up_are_served() -> None:
    store = ThreadedDictStore()
    coordinator = await a_coordinator(PersistentOffsetStorage(store))
    ids = [f"g{number}" for number in range(2 * MAX_CALLS)]
    await asyncio.gather(*[commit(coordinator, 1, group_id) for group_id in ids])
    gates = [Gate() for _ in range(MAX_CALLS)]
    store.write_gates += gates
    answers = await asyncio.gather(*[commit(coordinator, 2, group_id) for group_id in ids])
    assert set(answers) <= AWAY
    assert all(gate.reached.is_set() for gate in gates)
    await asyncio.sleep(1)
    answers = await asyncio.gather(*[commit(coordinator, 3, group_id) for group_id in ids])
    assert answers.count(ErrorCode.NONE) == MAX_CALLS
    for gate in gates:
        gate.open()
    await coordinator.stop()
    stored = [topics["orders"][0].offset for topics in store.inner.groups.values()]
    assert sorted(stored) == [2] * MAX_CALLS + [3] * MAX_CALLS


@virtual_time
async def test_every_group_of_an_append_is_written_however_many_there_are() -> None:
    store = ThreadedDictStore()
    storage = PersistentOffsetStorage(store)
    await storage.open(StoreIdentity("groupkeeper", 4))
    ids = [f"g{number}" for number in range(3 * MAX_CALLS + 1)]
    first = Gate()
    store.write_gates.append(first)
    append = asyncio.create_task(an_append(storage, *ids))
    await first.reached.wait()
    await turns(100)
    assert set(ids) - set(store.inner.groups) == {ids[0]}
    first.open()
    await append
    assert set(store.inner.groups) == set(ids)


@virtual_time
async def test_a_write_that_was_given_up_ends_with_the_call_that_is_under_way() -> None:
    store, gate = ThreadedDictStore(), Gate()
    storage = PersistentOffsetStorage(store)
    await storage.open(StoreIdentity("groupkeeper", 4))
    store.write_gates.append(gate)
    append = asyncio.create_task(an_append(storage, "g", partitions=3))
    await gate.reached.wait()
    append.cancel()
    with pytest.raises(asyncio.CancelledError):
        await append
    gate.open()
    assert await storage.load_group(0, "g") != []
    assert list(store.inner.groups["g"]["orders"]) == [0]


@virtual_time
async def test_a_call_that_the_store_cancelled_by_itself_is_no_success() -> None:
    class CancelsItself(AsyncDictStore):
        async def store(self, *_: Any) -> None:
            raise asyncio.CancelledError

    storage = PersistentOffsetStorage(CancelsItself())
    await storage.open(StoreIdentity("groupkeeper", 4))
    with pytest.raises(StorageError, match="cancelled a call by itself"):
        await an_append(storage, "g")


@virtual_time
async def test_stop_waits_for_a_write_that_was_given_up_within_its_time() -> None:
    store, gate = ThreadedDictStore(), Gate()
    coordinator = await a_coordinator(PersistentOffsetStorage(store))
    store.write_gates.append(gate)
    assert await commit(coordinator, 1) in AWAY
    stop = asyncio.create_task(coordinator.stop(5_000))
    await asyncio.sleep(4)
    assert not stop.done()
    gate.open()
    await stop
    assert store.inner.groups["g"]["orders"][0].offset == 1


@virtual_time
async def test_stop_ends_where_the_store_does_not_and_the_next_life_still_waits_for_it() -> None:
    store, gate = ThreadedDictStore(), Gate()
    storage = PersistentOffsetStorage(store)
    first = await a_coordinator(storage)
    store.write_gates.append(gate)
    waiting = asyncio.create_task(commit(first, 1))
    await gate.reached.wait()
    async with asyncio.timeout(3):
        await first.stop(2_000)
    assert await waiting in AWAY
    second = await a_coordinator(storage)
    assert await commit(second, 2) in AWAY
    gate.open()
    assert await commit(second, 2) is ErrorCode.NONE
    await second.stop()
    assert store.inner.groups["g"]["orders"][0].offset == 2


@virtual_time
async def test_members_of_a_group_whose_write_was_slow_are_there_when_it_has_ended() -> None:
    store, gate = ThreadedDictStore(), Gate()
    coordinator = await a_coordinator(PersistentOffsetStorage(store))
    joined = await join(coordinator)
    await sync(coordinator, joined)
    store.write_gates.append(gate)
    mine = {"member_id": joined.member_id, "generation_id": joined.generation_id}
    assert (await coordinator.commit_offsets(a_commit(1, **mine))).error_code in AWAY
    await asyncio.sleep(1)
    assert await coordinator.list_groups() == []
    gate.open()
    await turns(5)
    group = await coordinator.get_group("g")
    assert group is not None
    assert list(group.members) == [joined.member_id]
    await coordinator.stop()
