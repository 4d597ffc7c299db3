"""The helper that other tests rely on does what it says."""

from __future__ import annotations

import asyncio

import pytest

from groupkeeper.coordinator.core.records import TopicRecord
from groupkeeper.storage.base import (
    CLUSTER_SHARD,
    Batch,
    OffsetStorage,
    ShardAppend,
    StorageError,
    StoreIdentity,
)
from tests.helpers.storage.faulty_storage import (
    FaultyStorage,
    Gate,
    fail,
    fence,
    late,
    lie,
    slow_reply,
)


async def opened() -> FaultyStorage:
    storage = FaultyStorage()
    await storage.open(StoreIdentity("test", 1))
    return storage


async def topic(storage: OffsetStorage, name: str) -> ShardAppend:
    leases = await storage.acquire([CLUSTER_SHARD], "me")
    batch = Batch([TopicRecord(name, "", 1)], [])
    return ShardAppend(CLUSTER_SHARD, leases[CLUSTER_SHARD].epoch, [batch], lambda _: None)


async def names(storage: OffsetStorage) -> list[str]:
    return [
        record.name
        async for _, records in storage.load([CLUSTER_SHARD])
        for record in records
        if isinstance(record, TopicRecord)
    ]


async def test_an_unscripted_call_behaves() -> None:
    storage = await opened()
    assert list(await storage.append([await topic(storage, "a")])) == []
    assert await names(storage) == ["a"]
    assert storage.calls == ["open", "acquire", "append", "load"]


async def test_a_failed_append_stores_nothing_and_a_lying_one_everything() -> None:
    storage = await opened()
    storage.script("append", fail(), None, lie())
    with pytest.raises(StorageError, match="disk full"):
        await storage.append([await topic(storage, "failed")])
    await storage.append([await topic(storage, "good")])
    with pytest.raises(StorageError, match="connection lost"):
        await storage.append([await topic(storage, "lied")])
    assert await names(storage) == ["good", "lied"]


async def test_a_slow_append_stores_when_the_gate_opens_and_a_slow_reply_before() -> None:
    storage = await opened()
    gate = storage.hold_next_append()
    append = asyncio.ensure_future(storage.append([await topic(storage, "a")]))
    await gate.reached.wait()
    assert (storage.in_flight, await names(storage)) == (1, [])
    gate.open()
    await append
    assert (storage.in_flight, await names(storage)) == (0, ["a"])

    gate = Gate()
    storage.script("append", slow_reply(gate))
    append = asyncio.ensure_future(storage.append([await topic(storage, "b")]))
    await gate.reached.wait()
    assert (append.done(), await names(storage)) == (False, ["a", "b"])
    gate.open()
    await append


async def test_a_fenced_append_stores_nothing_and_the_shard_can_be_taken_again() -> None:
    storage = await opened()
    item = await topic(storage, "a")
    storage.script("append", fence(CLUSTER_SHARD))
    assert list(await storage.append([item])) == [CLUSTER_SHARD]
    assert await names(storage) == []
    await storage.append([await topic(storage, "b")])
    assert await names(storage) == ["b"]


async def test_a_late_append_outlives_its_caller_and_is_refused_after_a_new_lease() -> None:
    storage = await opened()
    gates = Gate(), Gate()
    storage.script("append", late(gates[0]), late(gates[1]))
    for gate, name in zip(gates, ("stored", "refused"), strict=True):
        append = asyncio.ensure_future(storage.append([await topic(storage, name)]))
        await gate.reached.wait()
        append.cancel()
        with pytest.raises(asyncio.CancelledError):
            await append
        if name == "refused":
            await storage.acquire([CLUSTER_SHARD], "me")
        gate.open()
        await storage.late_calls_ended()
    assert await names(storage) == ["stored"]


async def test_a_failing_load_fails_half_way() -> None:
    storage = await opened()
    await storage.append([await topic(storage, "a")])
    storage.script("load", fail("gone"))
    with pytest.raises(StorageError, match="gone"):
        await names(storage)
    assert await names(storage) == ["a"]
