"""The storages that a host may embed us over, each in virtual time as far as it lets itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.backends.host import PersistentOffsetStorage
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import OffsetStorage
from tests.helpers.storage.dict_store import AsyncDictStore, DictStore

MakeStorage = Callable[[], OffsetStorage]


@pytest.fixture(params=["memory", "sqlite", "dict", "async dict"])
def make_storage(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStorage:
    """Opens the same store again and again, as after restarts of the process."""
    if request.param == "memory":
        memory = MemoryOffsetStorage()
        return lambda: memory
    if request.param == "sqlite":
        return lambda: SqliteOffsetStorage(tmp_path / "groups.db")
    if request.param == "dict":
        store = DictStore()
        return lambda: PersistentOffsetStorage(store)
    async_store = AsyncDictStore()
    return lambda: PersistentOffsetStorage(async_store)


@pytest.fixture
async def coordinator(make_storage: MakeStorage) -> AsyncIterator[GroupCoordinator]:
    """A coordinator that was started, without topics."""
    coordinator = GroupCoordinator(make_storage(), CoordinatorConfig(shards=4))
    await coordinator.start()
    yield coordinator
    await coordinator.stop()
