"""What is special about the memory storage; the rest is the contract's."""

from __future__ import annotations

from groupkeeper.coordinator.core.events import GroupCreated
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.base import Batch, ShardAppend, StoreIdentity
from tests.helpers.core.records import commit


async def test_the_ring_keeps_the_newest_events_and_seq_goes_on() -> None:
    storage = MemoryOffsetStorage(max_events=2)
    await storage.open(StoreIdentity("test", 1))
    leases = await storage.acquire([0], "me")
    for number in range(3):
        batch = Batch([], [GroupCreated(group_id=f"g{number}")])
        await storage.append([ShardAppend(0, leases[0].epoch, [batch], lambda _: None)])
    assert [(event["seq"], event["group"]) for event in storage.events()] == [(2, "g1"), (3, "g2")]
    assert [event["seq"] for event in storage.events(after_seq=2)] == [3]


async def test_shards_of_another_owner_are_not_given_until_it_gives_them_back() -> None:
    storage = MemoryOffsetStorage()
    await storage.open(StoreIdentity("test", 2))
    first = await storage.acquire([0], "first")
    second = await storage.acquire([0, 1], "second")
    assert set(second) == {1}
    await storage.release(first.values())
    assert set(await storage.acquire([0, 1], "second")) == {0, 1}


async def test_what_was_loaded_is_a_copy() -> None:
    storage = MemoryOffsetStorage()
    await storage.open(StoreIdentity("test", 1))
    leases = await storage.acquire([0], "me")
    batch = Batch([commit("g", 1)], [])
    await storage.append([ShardAppend(0, leases[0].epoch, [batch], lambda _: None)])
    for _ in range(2):
        ((_, (group,)),) = [part async for part in storage.load([0])]
        assert group.offsets["orders"][0].offset == 1  # type: ignore[union-attr]
        group.offsets.clear()  # type: ignore[union-attr]
