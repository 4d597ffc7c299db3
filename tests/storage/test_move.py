"""Groups that move from a file to a store on a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from groupkeeper.coordinator.core.records import GroupConfigs, TopicRecord
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import StorageError, StoreRefused
from groupkeeper.storage.move import Moved, move
from tests.helpers.core.records import TOPIC_ID, commit, group_record
from tests.helpers.storage.fake_driver import FakeDriver, FakeServer
from tests.helpers.storage.storage_owner import IDENTITY, Owner

TTL_MS = 2_000


async def a_source(path: Path) -> dict[Any, Any]:
    """Make a file with some groups. Return what it has."""
    owner = await Owner(SqliteOffsetStorage(path)).start()
    for name in ("", "a/b", "\0", "x" * 40):
        await owner.append(1, [group_record(name), commit(name, 7, partitions=30)])
    await owner.append(-1, [TopicRecord("orders", TOPIC_ID, 30), GroupConfigs("a/b", {"a": "1"})])
    await owner.storage.close()
    return owner.model.keys


async def run(path: Path, server: FakeServer, **fields: Any) -> Moved:
    driver = FakeDriver(server)
    return await move(SqliteOffsetStorage(path), driver, IDENTITY, lease_ttl_ms=TTL_MS, **fields)


async def a_target(server: FakeServer) -> Owner:
    storage = JournalStorage(FakeDriver(server), node_id=1, name="host:1", lease_ttl_ms=TTL_MS)
    return await Owner(storage).start()


async def test_everything_is_there_after_a_move_and_the_store_can_be_used(tmp_path: Path) -> None:
    wanted, server = await a_source(tmp_path / "a.db"), FakeServer()
    seen: list[tuple[int, int]] = []
    moved = await run(
        tmp_path / "a.db", server, progress=lambda done, all_: seen.append((done, all_))
    )
    assert (moved, seen) == (Moved(4, 6), [(6, 6)])
    owner = await a_target(server)
    assert owner.model.keys == wanted
    await owner.append(1, [commit("a/b", 8)])
    await owner.storage.close()


async def test_a_move_that_was_interrupted_writes_only_the_rest(tmp_path: Path) -> None:
    wanted, server = await a_source(tmp_path / "a.db"), FakeServer()
    await run(tmp_path / "a.db", server)
    for key in list(server.values)[:2]:
        del server.values[key]
    assert await run(tmp_path / "a.db", server) == Moved(4, 2)
    owner = await a_target(server)
    assert owner.model.keys == wanted
    await owner.storage.close()


async def test_groups_of_the_target_are_not_overwritten(tmp_path: Path) -> None:
    await a_source(tmp_path / "a.db")
    server = FakeServer()
    owner = await a_target(server)
    await owner.append(0, [commit("mine", 1)])
    with pytest.raises(StoreRefused, match=r"is in use by node 1 \(host:1\)"):
        await run(tmp_path / "a.db", server)
    await owner.storage.close()
    with pytest.raises(StoreRefused, match="has 'mine', which the source does not have"):
        await run(tmp_path / "a.db", server)
    assert not server.going_on()


async def test_a_source_in_use_is_refused(tmp_path: Path) -> None:
    owner = await Owner(SqliteOffsetStorage(tmp_path / "a.db")).start()
    with pytest.raises(StoreRefused):
        await run(tmp_path / "a.db", FakeServer())
    await owner.storage.close()


async def test_a_copy_that_differs_is_noticed(tmp_path: Path) -> None:
    await a_source(tmp_path / "a.db")
    server = FakeServer()

    async def damage(call: str, is_done: bool) -> None:
        if call == "fold" and is_done:
            server.values[1, True, "a/b"] = b"{}"

    with pytest.raises(StorageError, match="the copy differs from the source"):
        await move(
            SqliteOffsetStorage(tmp_path / "a.db"),
            FakeDriver(server, damage),
            IDENTITY,
            lease_ttl_ms=TTL_MS,
        )
