"""Offsets of a host without topics, and what becomes of them once there are topics."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from groupkeeper.coordinator.cluster.topics import Topics
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.offsets import sweep as topic_sweep
from groupkeeper.coordinator.core.requests.offsets import OffsetFetch
from groupkeeper.coordinator.core.requests.topics import ChangeTopics, NewTopic
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.embed.offset_manager import OffsetManager
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.backends.host import PersistentOffsetStorage
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.backends.metadata_store import OffsetAndMetadata
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import OffsetStorage, StorageError, StorageLimits
from groupkeeper.storage.offset_store import OffsetStore
from tests.helpers.runtime.coordinator import CLIENT
from tests.helpers.runtime.virtual_loop import VirtualClock, virtual_time
from tests.helpers.storage.dict_store import DictStore
from tests.helpers.storage.faulty_storage import Fault, FaultyStorage, Gate

TOPICS = {"orders": 3, "payments": 2}
OFFSETS = {("orders", 0): 17, ("orders", 2): 4, ("unknown", 0): 3}
ONE_SHARD = CoordinatorConfig(shards=1)

MakeStorage = Callable[[], OffsetStorage]


@pytest.fixture(params=["sqlite", "memory"])
def make_storage(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStorage:
    """Makes what each process has of one store."""
    if request.param == "sqlite":
        return lambda: SqliteOffsetStorage(tmp_path / "groups.db")
    memory = MemoryOffsetStorage()
    return lambda: memory


async def written_by_a_coordinator(storage: OffsetStorage) -> None:
    coordinator = GroupCoordinator(storage)
    await coordinator.start()
    offsets = OffsetManager(coordinator)
    for (topic, partition), offset in OFFSETS.items():
        await offsets.commit_offset("billing", topic, partition, offset)
    await coordinator.stop()


async def written_by_an_offset_store(storage: OffsetStorage) -> None:
    async with OffsetStore(storage) as offsets:
        for (topic, partition), offset in OFFSETS.items():
            await offsets.store_offset("billing", topic, partition, offset)


async def fetched(
    coordinator: GroupCoordinator, group_id: str = "billing"
) -> dict[tuple[str, int], int]:
    result = await coordinator.ask(OffsetFetch(group_id, None, False, True))
    return {(name, part[0]): part[1] for name, _, parts in result.topics for part in parts}


@pytest.mark.parametrize("write", [written_by_a_coordinator, written_by_an_offset_store])
async def test_no_offset_is_lost_by_the_first_start_with_topics(
    make_storage: MakeStorage, write: Callable[[OffsetStorage], Awaitable[None]]
) -> None:
    await write(make_storage())
    for _ in range(3):
        coordinator = GroupCoordinator(make_storage(), topics=TOPICS)
        await coordinator.start()
        assert await fetched(coordinator) == OFFSETS
        topics = coordinator.topics
        assert topics is not None
        orders = topics.image.by_name["orders"]
        await asyncio.sleep(0.05)
        assert [topics.end_offset(orders.topic_id, p) for p in range(3)] == [17, 0, 4]
        await coordinator.stop()


async def test_they_go_with_the_topic_that_took_them_and_no_other(
    make_storage: MakeStorage,
) -> None:
    await written_by_a_coordinator(make_storage())
    coordinator = GroupCoordinator(make_storage(), topics=TOPICS)
    await coordinator.start()
    await coordinator.stop()
    coordinator = GroupCoordinator(make_storage(), topics=Topics())  # the store has them now
    await coordinator.start()
    assert coordinator.topics is not None
    await coordinator.topics.change_and_wait(ChangeTopics(CLIENT, delete=(("orders", ""),)))
    assert await fetched(coordinator) == {("unknown", 0): 3}
    await coordinator.stop()


async def test_a_deletion_waits_for_offsets_that_have_still_to_take_the_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_sweep, "MAX_OFFSETS_PER_STEP", 1)
    monkeypatch.setattr(topic_sweep, "NEXT_PORTION_MS", 250)
    path = tmp_path / "groups.db"
    coordinator = GroupCoordinator(SqliteOffsetStorage(path), ONE_SHARD)
    await coordinator.start()
    for number in range(4):
        await OffsetManager(coordinator).commit_offset(f"g{number}", "orders", 0, number)
    await coordinator.stop()
    coordinator = GroupCoordinator(SqliteOffsetStorage(path), ONE_SHARD, topics=TOPICS)
    await coordinator.start()
    assert coordinator.topics is not None
    delete = ChangeTopics(CLIENT, delete=(("orders", ""),))
    answers = [(await coordinator.topics.change_and_wait(delete)).error]
    while answers[-1] is not ErrorCode.NONE:
        await asyncio.sleep(0.005)
        answers.append((await coordinator.topics.change_and_wait(delete)).error)
    copied = tmp_path / "killed.db"  # the store as kill -9 leaves it at this moment
    with closing(sqlite3.connect(path)) as live, closing(sqlite3.connect(copied)) as copy:
        live.backup(copy)
    await coordinator.stop()
    coordinator = GroupCoordinator(SqliteOffsetStorage(copied), ONE_SHARD, topics=TOPICS)
    await coordinator.start()
    left = {0, 1, 2, 3}
    while left:
        await asyncio.sleep(0.01)
        left = {number for number in left if await fetched(coordinator, f"g{number}")}
    await coordinator.stop()
    assert answers[0] is ErrorCode.NOT_CONTROLLER, "clients send it again"


async def test_a_deletion_waits_until_the_ids_are_durable_in_the_lanes_of_other_shards() -> None:
    storage = FaultyStorage()
    storage.limits = StorageLimits(max_step_bytes=1 << 20, one_lane=False)
    config = CoordinatorConfig(shards=1, retry_min_ms=1, retry_max_ms=5)
    coordinator = GroupCoordinator(storage, config)
    await coordinator.start()
    await OffsetManager(coordinator).commit_offset("billing", "orders", 0, 17)
    await coordinator.stop()

    topics = Topics()
    coordinator = GroupCoordinator(storage, config, topics=topics)
    await coordinator.start()
    adopting = Gate()
    storage.script("append", None, Fault(adopting, stores=False, error=StorageError("disk full")))
    create = ChangeTopics(CLIENT, create=(NewTopic("orders", 3, "first"),))
    delete = ChangeTopics(CLIENT, delete=(("orders", ""),))
    await topics.change_and_wait(create)
    await adopting.reached.wait()
    answers = [(await topics.change_and_wait(delete)).error]
    adopting.open()  # the new ids are lost
    while answers[-1] is not ErrorCode.NONE:
        await asyncio.sleep(0.005)
        answers.append((await topics.change_and_wait(delete)).error)
    await topics.change_and_wait(ChangeTopics(CLIENT, create=(NewTopic("orders", 3, "second"),)))
    await asyncio.sleep(0.05)
    left = await fetched(coordinator)
    await coordinator.stop()
    assert left == {}, "the topic that was made again has the offsets of the deleted one"
    assert answers[0] is ErrorCode.NOT_CONTROLLER


async def test_an_offset_store_names_the_ids_of_topics_that_are_stored(
    make_storage: MakeStorage,
) -> None:
    coordinator = GroupCoordinator(make_storage(), topics=TOPICS)
    await coordinator.start()
    assert coordinator.topics is not None
    topic_id = coordinator.topics.image.by_name["orders"].topic_id
    await coordinator.stop()
    await written_by_an_offset_store(make_storage())
    async with OffsetStore(make_storage()) as offsets:
        stored = await offsets.fetch_group("billing")
    assert stored["orders"][0].topic_id == topic_id
    assert stored["unknown"][0].topic_id == ""


async def test_a_hosts_own_store_is_never_written_because_a_topic_is_missing() -> None:
    store = DictStore()
    store.store("billing", "orders", 0, OffsetAndMetadata(17))
    store.store("billing", "unknown", 0, OffsetAndMetadata(3))
    before = {topic: dict(rows) for topic, rows in store.groups["billing"].items()}
    coordinator = GroupCoordinator(PersistentOffsetStorage(store), topics=TOPICS)
    await coordinator.start()
    assert await fetched(coordinator) == {("orders", 0): 17, ("unknown", 0): 3}
    await asyncio.sleep(0.05)
    topics = coordinator.topics
    assert topics is not None
    assert topics.end_offset(topics.image.by_name["orders"].topic_id, 0) == 17
    await topics.change_and_wait(ChangeTopics(CLIENT, delete=(("orders", ""),)))
    await asyncio.sleep(0.05)
    await coordinator.stop()
    assert store.groups["billing"] == before


@pytest.mark.parametrize("topics", [None, TOPICS])
@virtual_time
async def test_a_hosts_offset_without_a_commit_time_is_kept_however_often_it_is_read(
    topics,
) -> None:
    """A host that stores no times counted as one whose offsets are fifty years old."""
    store = DictStore()
    store.store("billing", "orders", 0, OffsetAndMetadata(17))
    storage, clock = PersistentOffsetStorage(store), VirtualClock()
    coordinator = GroupCoordinator(storage, topics=topics, clock=clock)
    await coordinator.start()
    for _ in range(3):
        assert await fetched(coordinator) == {("orders", 0): 17}
        clock.monotonic_offset_ms += coordinator.config.retention_check_interval_ms
        await coordinator.clock_moved()
    await coordinator.stop()
    assert store.groups == {"billing": {"orders": {0: OffsetAndMetadata(17)}}}
    assert store.calls.keys() == {"store", "fetch_all"}
