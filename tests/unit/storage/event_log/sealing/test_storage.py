"""A store in memory that is to seal: its events outlive it."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.event_log.check import verify
from groupkeeper.storage.event_log.manifest import read_manifest
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.sealing.storage import SealedStorage
from groupkeeper.storage.event_log.segments import read_segment
from groupkeeper.storage.segment_lines import EventDict
from tests.helpers.core.records import commit
from tests.helpers.runtime.virtual_loop import turns
from tests.helpers.storage.sealed_store import NOON_MS, until
from tests.helpers.storage.storage_owner import Owner


def sealed(directory: Path) -> list[EventDict]:
    files = read_manifest(directory).segments
    return [event for file in files for event in read_segment(directory / file)]


async def test_events_in_memory_become_files_by_age_and_at_the_end(tmp_path: Path) -> None:
    now_ms = NOON_MS
    memory = MemoryOffsetStorage(clock=lambda: now_ms)
    storage = SealedStorage(
        memory, SealSettings(directory=tmp_path / "log"), clock=lambda: now_ms, poll_s=0.001
    )
    owner = await Owner(storage).start()
    for number in range(5):
        await owner.append(0, [commit("g", number)])
    now_ms += 300_000
    await until(lambda: len(sealed(tmp_path / "log")) == 5)
    await owner.append(0, [commit("g", 9)])
    await storage.close()
    assert sealed(tmp_path / "log") == memory.events()
    assert len(memory.events()) == 6
    assert verify(tmp_path / "log", reads_events=True).is_sound


async def cancelled_close(storage: SealedStorage) -> None:
    """Begin to close, and wait for the end no longer."""
    closing = asyncio.create_task(storage.close())
    await turns(1)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing


async def test_a_close_that_is_cancelled_leaves_the_store_free(tmp_path: Path) -> None:
    storage = SealedStorage(MemoryOffsetStorage(), SealSettings(directory=tmp_path / "log"))
    await Owner(storage).start()
    await cancelled_close(storage)
    await Owner(storage).start()
    await storage.close()


async def test_a_close_that_is_cancelled_leaves_no_thread_and_no_open_file(tmp_path: Path) -> None:
    """Two descriptors of the reader of rows and a thread stayed until the process ended."""
    settings = SealSettings(directory=tmp_path / "log")
    threads = {*threading.enumerate()}  # those of earlier tests may end meanwhile
    assert not open_files(tmp_path)
    for _ in range(3):
        storage = SealedStorage(
            SqliteOffsetStorage(tmp_path / "store.db"), settings, poll_s=0.001, in_process=True
        )
        owner = await Owner(storage).start()
        await owner.append(0, [commit("g", 1)])
        await until(lambda: len(open_files(tmp_path)) > 0)
        await cancelled_close(storage)
        await until(lambda: threads.issuperset(threading.enumerate()))
        await until(lambda: not open_files(tmp_path))


def open_files(directory: Path) -> list[str]:
    """The files below a directory that this process has open."""
    links = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    return [link for link in links if link.startswith(f"{directory}/")]


class SlowToClose(SqliteOffsetStorage):
    """Closes when ``may_close`` is set."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.may_close = asyncio.Event()

    async def close(self) -> None:
        await self.may_close.wait()
        await super().close()


async def test_an_open_waits_for_the_close_that_its_caller_no_longer_waited_for(
    tmp_path: Path,
) -> None:
    store = SlowToClose(tmp_path / "store.db")
    storage = SealedStorage(store, SealSettings(directory=tmp_path / "log"), poll_s=0.001)
    await Owner(storage).start()
    await cancelled_close(storage)
    opening = asyncio.create_task(Owner(storage).start())
    await turns(5)
    store.may_close.set()
    owner = await opening
    await owner.append(0, [commit("g", 1)])
    await storage.close()
