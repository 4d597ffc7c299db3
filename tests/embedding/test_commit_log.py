"""The history of a group's offsets, where the storage keeps one, and what can be made of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
from groupkeeper.coordinator.embed.commit_log import REPLAY_PARTITIONS, OffsetCommitLog, replay
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.embed.messages import OffsetCommitData, OffsetFetchRequest
from groupkeeper.coordinator.embed.offset_manager import OffsetManager
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.backends.host import PersistentOffsetStorage
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import KeepsEvents, LoadsGroups, OffsetStorage, StorageError
from groupkeeper.storage.offset_store import OffsetStore
from tests.helpers.runtime.coordinator import a_commit as a_core_commit
from tests.helpers.runtime.coordinator import a_config
from tests.helpers.runtime.embedded import a_commit, join, sync
from tests.helpers.runtime.virtual_loop import VirtualClock, virtual_time, virtual_timer
from tests.helpers.storage.dict_store import DictStore


class HandSetClock:
    """Tells the time that the test says it is."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> HandSetClock:
    return HandSetClock()


@pytest.fixture(params=["memory", "sqlite"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, clock: HandSetClock) -> OffsetStorage:
    if request.param == "memory":
        return MemoryOffsetStorage(clock=clock)
    return SqliteOffsetStorage(tmp_path / "groups.db", clock=clock)


@pytest.fixture
async def coordinator(storage: OffsetStorage) -> AsyncIterator[GroupCoordinator]:
    coordinator = GroupCoordinator(storage, CoordinatorConfig(shards=4))
    await coordinator.start()
    yield coordinator
    await coordinator.stop()


@pytest.fixture
async def copy() -> AsyncIterator[GroupCoordinator]:
    """Another coordinator, empty, to replay into."""
    copy = GroupCoordinator(MemoryOffsetStorage(), CoordinatorConfig(shards=4))
    await copy.start()
    yield copy
    await copy.stop()


async def test_every_commit_is_an_entry_in_order(
    coordinator: GroupCoordinator, clock: HandSetClock
) -> None:
    joined = await join(coordinator)
    await sync(coordinator, joined)
    for offset in (5, 7):
        clock.now_ms += 1_000
        commit = a_commit(offset, member_id=joined.member_id, generation_id=1, client_id="app")
        await coordinator.commit_offsets(commit)
    await coordinator.commit_offsets(a_commit(99, group_id="another"))
    entries = [entry async for entry in coordinator.commit_log("g")]
    assert entries == [
        OffsetCommitLog(
            "g", "orders", 0, offset, "", at_ms, joined.member_id, 1, -1, "app", previous
        )
        for offset, at_ms, previous in (
            (5, 1_700_000_001_000, -1),
            (7, 1_700_000_002_000, 5),
        )
    ]
    assert [entry async for entry in coordinator.commit_log("absent")] == []


async def test_the_log_can_be_read_from_a_moment_on(
    coordinator: GroupCoordinator, clock: HandSetClock
) -> None:
    for offset in range(5):
        clock.now_ms += 1_000
        await coordinator.commit_offsets(a_commit(offset))
    since_ms = clock.now_ms - 1_000
    assert [entry.offset async for entry in coordinator.commit_log("g", since_ms)] == [3, 4]


async def test_what_goes_is_an_entry_too(coordinator: GroupCoordinator) -> None:
    await coordinator.commit_offsets(a_commit(5))
    await coordinator.delete_offsets("g", {"orders": [0]})
    await coordinator.commit_offsets(a_commit(2))
    await coordinator.delete_groups("g")
    entries = [entry async for entry in coordinator.commit_log("g")]
    assert [(e.offset, e.previous_offset) for e in entries] == [(5, -1), (-1, 5), (2, -1), (-1, 2)]


@virtual_time
async def test_what_expires_is_an_entry_too() -> None:
    config = a_config(retention_check_interval_ms=1_000)
    coordinator = GroupCoordinator(
        MemoryOffsetStorage(), config, clock=VirtualClock(), timer=virtual_timer
    )
    await coordinator.start()
    await coordinator.ask(a_core_commit("g", 5, retention_ms=2_000))
    await asyncio.sleep(5)
    entries = [entry async for entry in coordinator.commit_log("g")]
    assert [(e.offset, e.previous_offset) for e in entries] == [(5, -1), (-1, 5)]
    await coordinator.stop()


async def test_a_reader_may_stop_before_the_end(coordinator: GroupCoordinator) -> None:
    rows = {number: OffsetCommitData(number) for number in range(1_000)}
    await coordinator.commit_offsets(a_commit(0, offsets={"orders": rows}))
    async for entry in coordinator.commit_log("g"):
        assert entry.partition == 0
        break
    assert len([entry async for entry in coordinator.commit_log("g")]) == 1_000


async def test_a_replay_rebuilds_the_offsets(
    coordinator: GroupCoordinator, copy: GroupCoordinator
) -> None:
    manager = OffsetManager(coordinator)
    for partition in range(3):
        for offset in (4, 9, 6):
            await manager.commit_offset("g", "orders", partition, offset + partition, "note")
    await manager.commit_offset("g", "gone", 0, 1)
    await coordinator.delete_offsets("g", {"gone": [0]})
    assert await replay(coordinator.commit_log("g"), into=copy) == 4
    rebuilt = await OffsetManager(copy).get_all_offsets("g")
    assert rebuilt == await manager.get_all_offsets("g") == {"orders": {0: 6, 1: 7, 2: 8}}


async def test_a_replay_brings_metadata_and_leader_epochs_too(
    coordinator: GroupCoordinator, copy: GroupCoordinator
) -> None:
    rows = {0: OffsetCommitData(4, "note", 3), 1: OffsetCommitData(5)}
    await coordinator.commit_offsets(a_commit(0, offsets={"orders": rows}))
    await replay(coordinator.commit_log("g"), into=copy)
    fetch = OffsetFetchRequest(group_id="g")
    rebuilt = (await copy.fetch_offsets(fetch)).offsets
    assert rebuilt == (await coordinator.fetch_offsets(fetch)).offsets
    assert (rebuilt["orders"][0].metadata, rebuilt["orders"][0].leader_epoch) == ("note", 3)


async def test_a_negative_offset_is_an_offset_but_for_the_one_that_says_none(
    coordinator: GroupCoordinator, copy: GroupCoordinator
) -> None:
    manager, rebuilt = OffsetManager(coordinator), OffsetManager(copy)
    for offset in (7, -5):
        await manager.commit_offset("g", "orders", 0, offset)
        await manager.commit_offset("g", "orders", 1, offset)
    await manager.commit_offset("g", "orders", 1, -1)
    entries = [entry async for entry in coordinator.commit_log("g")]
    assert [(e.offset, e.previous_offset) for e in entries if e.partition == 1] == [
        (7, -1),
        (-5, 7),
        (-1, -5),
    ]
    await rebuilt.commit_offset("g", "orders", 1, 9)
    await replay(entries, into=copy)
    assert await rebuilt.get_all_offsets("g") == {"orders": {0: -5}}
    assert await manager.get_all_offsets("g") == {"orders": {0: -5}}


async def test_a_replay_goes_to_any_moment(
    coordinator: GroupCoordinator, copy: GroupCoordinator, clock: HandSetClock
) -> None:
    moments = []
    for offset in (10, 20, 5):
        await coordinator.commit_offsets(a_commit(offset))
        moments.append(clock.now_ms)
        clock.now_ms += 1_000
    entries = [e async for e in coordinator.commit_log("g") if e.timestamp_ms <= moments[1]]
    await replay(entries, into=copy)
    assert await copy.get_committed_offset("g", "orders", 0) == 20
    await replay(entries, into=coordinator)
    assert await coordinator.get_committed_offset("g", "orders", 0) == 20


async def test_a_replay_deletes_what_was_gone(copy: GroupCoordinator) -> None:
    gone = OffsetCommitLog("g", "orders", 0, -1, "", 2, "")
    assert await replay([gone], into=copy) == 1
    await copy.commit_offsets(a_commit(5))
    await replay([gone], into=copy)
    assert await copy.get_committed_offset("g", "orders", 0) is None


async def test_a_replay_of_many_partitions_takes_several_commits(copy: GroupCoordinator) -> None:
    count = 2 * REPLAY_PARTITIONS + 1
    entries = [OffsetCommitLog("g", "orders", n, n, "", 1, "") for n in range(count)]
    assert await replay(entries, into=copy) == count
    assert (await OffsetManager(copy).get_all_offsets("g"))["orders"] == {
        n: n for n in range(count)
    }


async def test_a_group_with_members_does_not_let_itself_be_replayed(
    copy: GroupCoordinator,
) -> None:
    await sync(copy, await join(copy))
    with pytest.raises(GroupError) as raised:
        await replay([OffsetCommitLog("g", "orders", 0, 5, "", 1, "")], into=copy)
    assert raised.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(GroupError) as raised:
        await replay([OffsetCommitLog("g", "orders", 0, -1, "", 1, "")], into=copy)
    assert raised.value.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


async def test_a_storage_without_events_says_so() -> None:
    coordinator = GroupCoordinator(PersistentOffsetStorage(DictStore()))
    with pytest.raises(StorageError, match="PersistentOffsetStorage keeps no events"):
        await anext(coordinator.commit_log("g"))


def test_the_optional_parts_of_the_contract_are_told_apart(tmp_path: Path) -> None:
    memory, sqlite = MemoryOffsetStorage(), SqliteOffsetStorage(tmp_path / "groups.db")
    persistent = PersistentOffsetStorage(DictStore())
    assert [isinstance(s, KeepsEvents) for s in (memory, sqlite, persistent)] == [True, True, False]
    assert [isinstance(s, LoadsGroups) for s in (memory, sqlite, persistent)] == [
        False,
        False,
        True,
    ]


ENTRY = OffsetCommitLog("g", "t", 0, 7, "", 1, "")


@pytest.mark.parametrize(
    "into",
    [None, "g", MemoryOffsetStorage(), OffsetStore(MemoryOffsetStorage()), GroupCoordinator],
    ids=["nothing", "a text", "a storage", "a store of offsets", "the class"],
)
async def test_a_replay_into_what_takes_no_offsets_says_what_does(into: Any) -> None:
    with pytest.raises(TypeError, match=r"^into must be a GroupCoordinator .*, not "):
        await replay([ENTRY], into=into)


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        (None, "entries must be OffsetCommitLog entries, such as .* not None"),
        (ENTRY, r"entries must be OffsetCommitLog entries, such as .* not OffsetCommitLog\("),
        ([ENTRY, None], "each of entries must be an OffsetCommitLog, not None"),
        ({"t": {0: 7}}, "each of entries must be an OffsetCommitLog, not 't'"),
        ([ENTRY, replace(ENTRY, offset="7")], "OffsetCommitLog.offset: Expected `int`"),
        ([ENTRY, replace(ENTRY, partition=None)], "OffsetCommitLog.partition: Expected `int`"),
        ([ENTRY, replace(ENTRY, topic=[])], "OffsetCommitLog.topic: Expected `str`"),
        ([ENTRY, replace(ENTRY, group_id=7)], "OffsetCommitLog.group_id: Expected `str`"),
    ],
)
async def test_a_replay_of_something_else_than_entries_writes_nothing(
    coordinator: GroupCoordinator, entries: Any, problem: str
) -> None:
    with pytest.raises(TypeError, match=f"^{problem}"):
        await replay(entries, into=coordinator)
    assert await coordinator.list_groups() == []


async def test_a_replay_of_nothing_writes_nothing(coordinator: GroupCoordinator) -> None:
    assert await replay([], into=coordinator) == 0
    assert await replay(coordinator.commit_log("g"), into=coordinator) == 0
