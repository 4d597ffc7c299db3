"""The plain calls, over every backend."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from storage.base import StorageError, StoreRefused
from storage.offset_store import OffsetStore
from storage.persistent import OffsetAndMetadata, PersistentOffsetStorage
from tests.helpers.dict_store import DictStore
from tests.helpers.faulty_storage import FaultyStorage, fail, fence, lie
from tests.helpers.storage_owner import IDENTITY, SHARDS
from tests.storage.conftest import Store, WallClock


@pytest.fixture
async def offsets(store: Store) -> AsyncIterator[OffsetStore]:
    offsets = OffsetStore(store.make(), IDENTITY, clock=store.clock)
    await offsets.open()
    yield offsets
    await offsets.close()


async def test_what_was_stored_is_fetched_also_by_the_next_process(
    store: Store, offsets: OffsetStore
) -> None:
    assert await offsets.fetch_offset("g", "orders", 0) is None
    await offsets.store_offset("g", "orders", 0, 5, "note")
    await offsets.store_offset("g", "orders", 0, 6)
    await offsets.store_offset("g", "orders", 1, 7)
    await offsets.store_offset("other", "orders", 0, 1)
    await offsets.close()
    again = OffsetStore(store.make(), IDENTITY)
    await again.open()
    found = await again.fetch_offsets("g")
    assert {key: value.offset for key, value in found.items()} == {
        ("orders", 0): 6,
        ("orders", 1): 7,
    }
    one = await again.fetch_offset("g", "orders", 0)
    assert one is not None
    assert (one.offset, one.metadata, one.commit_time_ms) == (6, "", store.clock.now_ms)
    assert await again.fetch_offsets("unknown") == {}
    await again.close()


async def test_deleted_offsets_are_gone_and_the_others_stay(offsets: OffsetStore) -> None:
    for partition in range(3):
        await offsets.store_offset("g", "orders", partition, 5)
    await offsets.delete_offsets("g", [("orders", 0), ("orders", 2), ("orders", 9)])
    await offsets.delete_offsets("unknown", [("orders", 0)])
    assert list(await offsets.fetch_offsets("g")) == [("orders", 1)]


async def test_what_was_stored_is_in_the_event_log(store: Store, offsets: OffsetStore) -> None:
    await offsets.store_offset("g", "orders", 0, 5)
    await offsets.store_offset("g", "orders", 0, 3)
    events = [event for event in store.events() if event["kind"] == "commit"]
    rows = [event["topics"][0]["partitions"][0] for event in events]
    assert [(row["previous_offset"], row["offset"]) for row in rows] == [(-1, 5), (5, 3)]
    assert {event["generation"] for event in events} == {-1}


async def test_it_does_not_run_beside_a_coordinator(store: Store) -> None:
    owner = await store.owner()
    with pytest.raises(StoreRefused, match="in use"):
        await OffsetStore(store.make(), IDENTITY).open()
    assert not await owner.storage.append([owner.item(shard) for shard in SHARDS])


async def test_after_a_failure_it_tells_what_the_store_holds() -> None:
    storage = FaultyStorage()
    offsets = OffsetStore(storage, IDENTITY, clock=WallClock())
    await offsets.open()
    await offsets.store_offset("g", "orders", 0, 1)
    for fault, offset, stored in ((fail(), 2, 1), (lie(), 3, 3), (fence(*SHARDS), 4, 3)):
        storage.script("append", fault)
        with pytest.raises(StorageError):
            await offsets.store_offset("g", "orders", 0, offset)
        found = await offsets.fetch_offset("g", "orders", 0)
        assert found is not None
        assert found.offset == stored
    await offsets.close()


async def over_a_host_store(host: DictStore) -> OffsetStore:
    """As a process does that has just been started."""
    offsets = OffsetStore(PersistentOffsetStorage(host), IDENTITY)
    await offsets.open()
    return offsets


async def test_a_store_that_cannot_list_its_groups_is_asked_when_one_is_first_named() -> None:
    host = DictStore()
    for partition in (0, 1):
        host.store("g", "orders", partition, OffsetAndMetadata(5 + partition, "note"))
    offsets = await over_a_host_store(host)
    assert host.calls["fetch_all"] == 0
    found = await offsets.fetch_offset("g", "orders", 0)
    assert found is not None
    assert (found.offset, found.metadata) == (5, "note")
    await offsets.delete_offsets("g", [("orders", 0)])
    assert host.groups["g"]["orders"][0].offset == -1
    await offsets.store_offset("g", "orders", 1, 7)
    assert host.calls["fetch_all"] == 1
    await offsets.close()
    again = await over_a_host_store(host)
    assert {k: v.offset for k, v in (await again.fetch_offsets("g")).items()} == {("orders", 1): 7}
    assert await again.fetch_offsets("unknown") == {}
    await again.close()


async def test_a_group_that_could_not_be_read_is_not_taken_for_an_empty_one() -> None:
    host = DictStore()
    host.store("g", "orders", 0, OffsetAndMetadata(5))
    host.failures["fetch_all"] = 1
    offsets = await over_a_host_store(host)
    with pytest.raises(ConnectionError):
        await offsets.delete_offsets("g", [("orders", 0)])
    assert list(await offsets.fetch_offsets("g")) == [("orders", 0)]
    host.failures["store"] = 1
    with pytest.raises(ExceptionGroup):
        await offsets.store_offset("g", "orders", 0, 6)
    found = await offsets.fetch_offset("g", "orders", 0)
    assert found is not None
    assert found.offset == 5
    await offsets.close()


async def test_opened_again_it_asks_anew_for_what_the_host_store_has() -> None:
    host = DictStore()
    offsets = await over_a_host_store(host)
    assert await offsets.fetch_offsets("g") == {}
    await offsets.close()
    host.store("g", "orders", 0, OffsetAndMetadata(5))
    await offsets.open()
    assert list(await offsets.fetch_offsets("g")) == [("orders", 0)]
    await offsets.close()
