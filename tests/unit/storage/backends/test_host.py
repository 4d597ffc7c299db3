"""What a host's own store is asked to do, and what it is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.consumer_records import (
    ConsumerGroupEpoch,
    ConsumerGroupRecord,
    ConsumerMember,
    ConsumerMemberFields,
)
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.records import SavedGroup, SavedOffset
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.backends.host import PersistentOffsetStorage
from groupkeeper.storage.backends.metadata_store import OffsetAndMetadata
from groupkeeper.storage.base import (
    Batch,
    ShardAppend,
    StorageError,
    StoreIdentity,
    StoreRefused,
)
from tests.helpers.core.records import commit
from tests.helpers.runtime.coordinator import a_commit as a_core_commit
from tests.helpers.runtime.embedded import a_commit, join, sync
from tests.helpers.storage.dict_store import DictStore

IDENTITY = StoreIdentity("groupkeeper", 4)


@pytest.fixture
def store() -> DictStore:
    return DictStore()


@pytest.fixture
async def coordinator(store: DictStore) -> AsyncIterator[GroupCoordinator]:
    coordinator = GroupCoordinator(PersistentOffsetStorage(store), CoordinatorConfig(shards=4))
    await coordinator.start()
    yield coordinator
    await coordinator.stop()


async def test_a_start_asks_the_store_for_nothing(
    store: DictStore, coordinator: GroupCoordinator
) -> None:
    assert await coordinator.list_groups() == []
    assert store.calls == {}


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (None, ": 'NoneType' object has no attribute 'items'"),
        ({"orders": [7]}, " of topic 'orders': 'list' object has no attribute 'items'"),
        ({None: {0: OffsetAndMetadata(7)}}, " of topic None: topic must be a string"),
        ({"t": {"0": OffsetAndMetadata(7)}}, " of topic 't', partition '0': partition must be a"),
        ({"t": {-1: OffsetAndMetadata(7)}}, "partition -1: partition must be at least 0"),
        ({"t": {2**31: OffsetAndMetadata(7)}}, "partition must be at most 2147483647"),
        ({"t": {0: 7}}, " of topic 't', partition 0: 'int' object has no attribute 'offset'"),
        ({"t": {0: OffsetAndMetadata(7.0)}}, "offset must be a whole number, not 7.0"),
        ({"t": {0: OffsetAndMetadata(2**63)}}, "offset must be at most 9223372036854775807"),
        ({"t": {0: OffsetAndMetadata(7, None)}}, "metadata must be a string, not None"),
        ({"t": {0: OffsetAndMetadata(7, "", None)}}, "commit_time_ms must be a whole number"),
        ({"t": {0: OffsetAndMetadata(7, "", 1, "2")}}, "expire_time_ms must be a whole number"),
        ({"t": {0: OffsetAndMetadata(7, leader_epoch=None)}}, "leader_epoch must be a whole"),
        ({"t": {0: OffsetAndMetadata(7, leader_epoch=2**31)}}, "leader_epoch must be at most"),
    ],
)
async def test_what_the_store_returns_is_checked_and_told_with_its_place(
    store: DictStore, found: Any, problem: str
) -> None:
    storage = PersistentOffsetStorage(store)
    await storage.open(IDENTITY)
    store.groups["g"] = found
    with pytest.raises(StoreRefused) as raised:
        await storage.load_group(0, "g")
    told = str(raised.value)
    assert told.startswith("DictStore.fetch_all returned an unusable value for group 'g'")
    assert problem in told


async def test_texts_that_were_stored_when_they_could_be_longer_are_still_read(
    store: DictStore,
) -> None:
    storage, long = PersistentOffsetStorage(store), "x" * 32_768
    await storage.open(IDENTITY)
    store.store("g", long, 0, OffsetAndMetadata(7, long))
    kept = {long: {0: SavedOffset(7, -1, long, -1, -1, "")}}
    assert await storage.load_group(0, "g") == [SavedGroup("g", None, kept)]


@pytest.mark.parametrize("found", [7, OffsetAndMetadata("7"), OffsetAndMetadata(7, None)])
async def test_a_single_offset_of_the_store_is_checked_too(store: DictStore, found: Any) -> None:
    store.store("g", "t", 0, found)
    with pytest.raises(StoreRefused, match=r"DictStore\.fetch returned .* group 'g' of topic"):
        await PersistentOffsetStorage(store).fetch_offset("g", "t", 0)


@pytest.mark.parametrize(
    ("store", "missing"),
    [({}, "dict has no store, fetch, fetch_all, delete"), (None, "NoneType has no store, fetch")],
)
def test_what_is_no_store_is_refused_with_what_it_lacks(store: Any, missing: str) -> None:
    with pytest.raises(TypeError, match=f"four methods of a MetadataStore: a {missing}"):
        PersistentOffsetStorage(store)


def test_the_class_of_a_store_in_place_of_one_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^store must be an object: DictStore\(\.\.\.\), not the"):
        PersistentOffsetStorage(DictStore)  # type: ignore[arg-type]


async def test_each_offset_is_one_call_with_all_that_belongs_to_it(
    store: DictStore, coordinator: GroupCoordinator
) -> None:
    await coordinator.commit_offsets(a_commit(5))
    kept = store.groups["g"]["orders"][0]
    assert (kept.offset, kept.metadata, kept.leader_epoch, kept.expire_time_ms) == (5, "", -1, -1)
    assert kept.commit_time_ms > 1_600_000_000_000
    assert store.calls["store"] == 1


async def test_a_commit_with_a_retention_of_its_own_is_kept_with_its_end(
    store: DictStore, coordinator: GroupCoordinator
) -> None:
    result = await coordinator.ask(a_core_commit("g", 5, retention_ms=60_000))
    assert result.error is ErrorCode.NONE
    kept = store.groups["g"]["orders"][0]
    assert kept.expire_time_ms == kept.commit_time_ms + 60_000


async def test_a_deleted_group_costs_no_memory(store: DictStore) -> None:
    storage = PersistentOffsetStorage(store)
    coordinator = GroupCoordinator(storage, CoordinatorConfig(shards=4))
    await coordinator.start()
    for number in range(3):
        await coordinator.commit_offsets(a_commit(5, group_id=f"g{number}"))
    assert storage.stats() == {"groups": 3}
    await coordinator.delete_groups("g0", "g1")
    assert storage.stats() == {"groups": 1}
    await coordinator.commit_offsets(a_commit(6, group_id="g1"))
    assert storage.stats() == {"groups": 2}
    await coordinator.stop()


async def test_members_are_nothing_that_the_store_hears_of(
    store: DictStore, coordinator: GroupCoordinator
) -> None:
    await sync(coordinator, await join(coordinator))
    assert set(store.calls) == {"fetch_all"}


async def test_a_consumer_group_is_read_with_its_members_as_long_as_the_process_lives(
    store: DictStore,
) -> None:
    storage = PersistentOffsetStorage(store)
    await storage.open(IDENTITY)
    (lease,) = (await storage.acquire([1], "owner")).values()
    member = ConsumerMemberFields("m", subscribed_topic_names=("orders",))
    changes = [
        ConsumerGroupRecord("g"),
        ConsumerMember("g", member),
        ConsumerGroupEpoch("g", 2, 7),
        commit("g", 5),
    ]
    await storage.append([ShardAppend(1, lease.epoch, [Batch(changes, [])], lambda _: None)])
    loaded = [record async for _, records in storage.load([1]) for record in records]
    (group,) = [*loaded, *await storage.load_group(1, "g")][:1]
    assert isinstance(group, SavedGroup)
    assert isinstance(group.metadata, ConsumerGroupRecord)
    assert (group.metadata.epoch, group.metadata.metadata_hash) == (2, 7)
    assert [each.fields.member_id for each in group.metadata.members] == ["m"]
    assert group.offsets["orders"][0].offset == 5
    await storage.close()


async def test_a_deleted_partition_is_kept_as_one_without_an_offset(
    store: DictStore, coordinator: GroupCoordinator
) -> None:
    for partition in (0, 1):
        await coordinator.commit_offsets(a_commit(5, partition))
    await coordinator.delete_offsets("g", {"orders": [0]})
    assert store.groups["g"]["orders"][0] == OffsetAndMetadata(-1)
    again = PersistentOffsetStorage(store)
    assert await again.fetch_offset("g", "orders", 0) is None
    found = await again.fetch_offset("g", "orders", 1)
    assert found is not None
    assert found.offset == 5
    assert await again.fetch_offset("g", "orders", 2) is None


async def test_a_deleted_group_is_deleted(store: DictStore, coordinator: GroupCoordinator) -> None:
    await coordinator.commit_offsets(a_commit(5))
    await coordinator.delete_groups("g")
    assert store.groups == {}
    await coordinator.commit_offsets(a_commit(6))
    assert store.groups["g"]["orders"][0].offset == 6


async def test_offsets_belong_to_the_name_of_a_topic_for_its_id_does_not_survive(
    store: DictStore,
) -> None:
    for _ in range(2):
        topics = Topics([ConfiguredTopic("orders", 2)])
        coordinator = GroupCoordinator(PersistentOffsetStorage(store), topics=topics)
        await coordinator.start()
        if store.calls["store"]:
            assert await coordinator.get_committed_offset("g", "orders", 0) == 5
        await coordinator.commit_offsets(a_commit(5))
        await coordinator.stop()
    assert store.groups["g"]["orders"][0].offset == 5


async def test_it_serves_one_coordinator_at_a_time_and_only_while_it_is_open() -> None:
    storage = PersistentOffsetStorage(DictStore())
    with pytest.raises(StorageError, match="not open"):
        await storage.load_group(0, "g")
    await storage.open(IDENTITY)
    with pytest.raises(StoreRefused, match="in use"):
        await storage.open(IDENTITY)
    leases = await storage.acquire(range(4), "one")
    assert set(leases) == {0, 1, 2, 3}
    assert await storage.acquire(range(4), "two") == {}
    await storage.release(list(leases.values()))
    assert set(await storage.acquire(range(4), "two")) == {0, 1, 2, 3}
    await storage.close()
    await storage.open(IDENTITY)


async def test_a_group_is_read_with_all_that_was_kept_of_each_offset(store: DictStore) -> None:
    store.store("g", "orders", 0, OffsetAndMetadata(7, "note", 1_000, 2_000, 3))
    store.store("g", "orders", 1, OffsetAndMetadata(-5))
    store.store("g", "orders", 2, OffsetAndMetadata(-1))
    storage = PersistentOffsetStorage(store)
    await storage.open(IDENTITY)
    kept = {0: SavedOffset(7, 3, "note", 1_000, 2_000, ""), 1: SavedOffset(-5, -1, "", -1, -1, "")}
    assert await storage.load_group(0, "g") == [SavedGroup("g", None, {"orders": kept})]
    for partition in (0, 1):
        assert await storage.fetch_offset("g", "orders", partition) == kept[partition]
    assert await storage.fetch_offset("g", "orders", 2) is None
