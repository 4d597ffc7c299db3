"""A full disk under ``log.dir``: it is told, nothing is lost, and what may go makes room."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from groupkeeper.storage.backends.sqlite import full_disk
from groupkeeper.storage.backends.sqlite.full_disk import explained, is_full
from groupkeeper.storage.base import StorageError, StoreBusy
from groupkeeper.storage.event_log.check import verify
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from tests.helpers.core.records import commit
from tests.helpers.storage.sealed_store import DAY_MS, SealedStore, until


def no_room() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SealedStore:
    """Three days, a segment each, closed."""
    monkeypatch.setattr("groupkeeper.storage.event_log.sealing.storage.RETRY_S", 0.01)
    store = SealedStore(tmp_path)
    owner = await store.owner()
    for number in range(3):
        await store.append(owner, 0, [commit("g", number)])
        store.now_ms += DAY_MS
    await owner.storage.close()
    return store


async def test_a_full_disk_is_told_with_the_directory_that_it_is_under(store: SealedStore) -> None:
    store.at_step = lambda step: no_room() if step == "written" else None
    with capture_logs() as logs:
        owner = await store.owner()
        await store.append(owner, 0, [commit("g", 7)])
        store.now_ms += DAY_MS
        await until(lambda: any(line["event"] == "sealing_failed" for line in logs))
        store.at_step = lambda step: None
        await owner.storage.close()
    said = next(line for line in logs if line["event"] == "sealing_failed")
    assert (said["error"], said["log_dir"]) == (
        "[Errno 28] No space left on device",
        str(store.log_dir),
    )


async def test_a_missing_permission_is_told_with_the_setting(store: SealedStore) -> None:
    """Root has every permission, so no test can take it from a directory."""
    denied = PermissionError(errno.EACCES, "Permission denied", "/log/dt=2026-11-23")

    def at_step(step: str) -> None:
        if step == "written":
            raise denied

    store.at_step = at_step
    with capture_logs() as logs:
        owner = await store.owner()
        await store.append(owner, 0, [commit("g", 7)])
        store.now_ms += DAY_MS
        await until(lambda: any(line["event"] == "sealing_failed" for line in logs))
        store.at_step = lambda step: None
        await owner.storage.close()
    said = next(line["error"] for line in logs if line["event"] == "sealing_failed")
    assert said == "log.dir: /log/dt=2026-11-23: Permission denied; let this user write there"


async def test_days_beyond_the_horizon_go_while_there_is_no_room_for_new_ones(
    store: SealedStore,
) -> None:
    first = min(store.log_dir.glob("dt=*/events-*"))
    later_ms = store.now_ms + 20 * DAY_MS

    def fill(step: str) -> None:
        is_snapshot = any(store.log_dir.glob(f"dt=*/.events-{'?' * 32}.*"))
        if step == "written" and first.exists() and not is_snapshot:
            store.now_ms = later_ms
            no_room()

    store.settings = SealSettings(directory=store.log_dir, retention_ms=9 * DAY_MS)
    owner = await store.owner()
    await store.append(owner, 0, [commit("g", 7)])
    store.now_ms += DAY_MS
    await until(lambda: owner.storage.stats()["sealed_seq"] == 5)  # nothing may go yet
    store.at_step = fill
    await store.append(owner, 0, [commit("g", 8)])
    store.now_ms += DAY_MS
    await until(lambda: not first.exists())
    await until(lambda: owner.storage.stats()["sealed_seq"] == 6)
    await owner.storage.close()
    assert verify(store.log_dir, reads_events=True).is_sound


async def test_what_was_left_of_a_segment_that_never_came_to_be_goes(store: SealedStore) -> None:
    def fill(step: str) -> None:
        if step == "indexed":
            no_room()

    def indexes() -> list[str]:
        return sorted(path.name for path in store.log_dir.glob("dt=*/_events-*"))

    store.at_step = fill
    owner = await store.owner()
    await store.append(owner, 0, [commit("g", 7)])
    store.now_ms += store.settings.segment_ms
    await until(lambda: owner.storage.sealing_failures > 0)
    # The segment that comes to be has another name: it also holds this event.
    await store.append(owner, 0, [commit("g", 8)])
    assert len(indexes()) > len(store.files())
    store.at_step = lambda step: None
    store.now_ms += store.settings.segment_ms
    await until(lambda: owner.storage.stats()["unsealed_rows"] == 0)
    await owner.storage.close()
    owner = await store.owner()  # a start looks for what earlier ones left
    await owner.storage.close()
    segments = [name.replace("events-", "_events-", 1) for name in store.files()]
    assert indexes() == [name.replace(".jsonl.gz", ".groups.gz") for name in segments]


# --- a start --------------------------------------------------------------------------------------

FULL = [errno.ENOSPC, errno.EDQUOT]
NO_FILE = [sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_FSYNC]


@pytest.mark.parametrize("number", FULL)
async def test_a_directory_that_finds_no_room_is_a_busy_store(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    store = SealedStore(tmp_path)
    with monkeypatch.context() as disk:
        disk.setattr(Path, "mkdir", full)
        with pytest.raises(StoreBusy, match="cannot be made"):
            await store.owner()
    owner = await store.owner()
    await owner.storage.close()


def failing(code: int) -> None:
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorcode = code
    raise error


@pytest.mark.parametrize("code", NO_FILE)
def test_a_file_of_sqlite_that_finds_no_room_is_a_busy_store(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite says that it cannot open it, or that there was an input or output error."""
    with pytest.raises(StorageError) as broken:
        explained(lambda: failing(code), tmp_path / "store.db")
    assert not isinstance(broken.value, StoreBusy)
    monkeypatch.setattr(full_disk, "is_full", lambda directory: directory == tmp_path)
    with pytest.raises(StoreBusy, match="the disk is full; make room"):
        explained(lambda: failing(code), tmp_path / "store.db")


def test_a_write_of_sqlite_that_finds_no_room_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreBusy, match=r"store\.db: the disk is full; make room"):
        explained(lambda: failing(sqlite3.SQLITE_FULL), tmp_path / "store.db")


def test_a_directory_that_this_user_may_not_write_is_named_with_what_to_do(tmp_path: Path) -> None:
    """SQLite cannot create the write-ahead log of a stopped store there."""
    with pytest.raises(
        StorageError, match=r"store\.db: .*let this user write to it and to its dir"
    ):
        explained(lambda: failing(sqlite3.SQLITE_READONLY), tmp_path / "store.db")


@pytest.mark.parametrize("number", FULL)
def test_a_disk_is_full_where_a_few_pages_find_no_room(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_full(tmp_path)
    assert not is_full(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []

    def no_sync(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", no_sync)
    assert is_full(tmp_path)
