"""The disk fails to sync: nothing is trusted any more that an earlier sync has not made durable."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import groupkeeper
from groupkeeper.storage.backends.sqlite import full_disk, load
from groupkeeper.storage.backends.sqlite.failed_sync import (
    close_without_checkpoint,
    read_wal_from_disk,
)
from groupkeeper.storage.backends.sqlite.fold import IDLE_SLICE_GROUPS
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.backends.sqlite.tables import connect_reader
from groupkeeper.storage.base import StorageError, StoreBusy, StoreGivenUp, StoreRefused
from groupkeeper.storage.file_lock import identity_of
from groupkeeper.storage.offset_store import OffsetStore
from tests.helpers.core.record_model import Key
from tests.helpers.core.records import commit
from tests.helpers.storage.noise import noise
from tests.helpers.storage.other_process import other_process
from tests.helpers.storage.spying_connection import Spy
from tests.helpers.storage.storage_owner import IDENTITY, SHARDS, Owner

Change = Callable[[Owner], Awaitable[Any]]

CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"
LARGE = noise(100_000)
"""The metadata of a commit whose row has about 25 pages."""


def error_of(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    return error


class Disk:
    """A disk that fails to sync at chosen statements. SQLite then rolls the statement back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.wal = path.with_name(path.name + "-wal")
        self.spy = Spy()

    def store(self, fold_after: int = 50_000) -> SqliteOffsetStorage:
        return SqliteOffsetStorage(self.path, fold_after=fold_after, connect=self.spy.connect)

    def fail(self, beginning: str, code: int = sqlite3.SQLITE_IOERR_FSYNC) -> None:
        """Fail once, at the next statement that begins so."""

        def before(sql: str) -> None:
            if sql.startswith(beginning):
                self.spy.before = lambda _: None
                raise error_of(code)

        self.spy.before = before

    def content(self) -> tuple[bytes, bytes]:
        """Return the database and the WAL. No process may use them."""
        return self.path.read_bytes(), self.wal.read_bytes()


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "store.db")


async def loaded(path: Path) -> dict[Key, Any]:
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await owner.storage.close()
    return owner.model.keys


def offset_of(keys: dict[Key, Any]) -> int:
    return int(keys["offset", 0, "g", "orders", 0][0])


async def append(owner: Owner) -> None:
    await owner.append(0, [commit("g", 2)])


async def fold(owner: Owner) -> None:
    await owner.append(0, [commit("g", 2)])
    await owner.append(0, [commit("g", 3)])


async def fold_idle(owner: Owner) -> None:
    """Fold more groups than one append without records folds."""
    for number in range(IDLE_SLICE_GROUPS + 1):
        await owner.append(0, [commit(f"g-{number}", 1)])
    await owner.fold_all()


async def write_on_the_thread(owner: Owner) -> None:
    assert isinstance(owner.storage, SqliteOffsetStorage)
    await owner.storage.on_writer(
        lambda writer: writer.execute("UPDATE sealed SET sealed_seq = 0").fetchall()
    )


FAILURES: list[tuple[str, Change]] = [
    ("INSERT INTO log", append),
    ("INSERT INTO groups", fold),
    ("UPDATE fold", fold_idle),
    ("UPDATE lease", Owner.reload),
    ("UPDATE sealed", write_on_the_thread),
]


@pytest.mark.parametrize(("statement", "change"), FAILURES, ids=[what for what, _ in FAILURES])
async def test_after_a_failed_sync_nothing_is_written_and_the_next_start_finds_everything(
    disk: Disk, statement: str, change: Change
) -> None:
    owner = await Owner(disk.store(fold_after=0 if change is fold else 50_000)).start()
    storage = owner.storage
    assert isinstance(storage, SqliteOffsetStorage)
    await owner.append(0, [commit("g", 1)])
    disk.fail(statement)
    with pytest.raises(StoreGivenUp, match="the disk failed to sync"):
        await change(owner)
    before = disk.content()
    for call in (
        owner.append(0, [commit("g", 9)]),
        storage.acquire(SHARDS, "again"),
        storage.check_place(),
        write_on_the_thread(owner),
    ):
        with pytest.raises(StorageError):
            await call
    with pytest.raises(StoreGivenUp):
        await storage.check_place()
    await storage.close()
    assert disk.content() == before
    again = SqliteOffsetStorage(disk.path)
    owner = await Owner(again).start()
    assert offset_of(owner.model.keys) in (1, 2, 3)
    assert again.ended_uncleanly
    await again.close()


async def test_a_store_that_cannot_let_its_writes_wait_for_the_disk_again_is_given_up(
    disk: Disk,
) -> None:
    """A fold does not wait for the disk, but the next append has to."""

    def stuck(sql: str) -> None:
        if sql == "PRAGMA synchronous = FULL":
            raise error_of(sqlite3.SQLITE_IOERR)

    owner = await Owner(disk.store(fold_after=0)).start()
    await owner.append(0, [commit("g", 1)])
    disk.spy.before = stuck
    with pytest.raises(StoreGivenUp, match="the disk failed to sync"):
        await fold(owner)
    before = disk.content()
    await owner.storage.close()
    assert disk.content() == before
    assert offset_of(await loaded(disk.path)) in (1, 2)


async def commit_until_refused(owner: Owner, acknowledged: list[int]) -> None:
    """Commit more and more, and note each offset that was acknowledged."""
    for offset in range(1, 2_000):
        await owner.append(0, [commit("g", offset, metadata=LARGE)])
        acknowledged.append(offset)


async def test_a_failed_sync_of_a_checkpoint_is_noticed_at_the_next_append(disk: Disk) -> None:
    owner = await Owner(disk.store()).start()
    disk.fail(CHECKPOINT)
    acknowledged: list[int] = []

    with pytest.raises(StoreGivenUp, match="the disk failed to sync"):
        await commit_until_refused(owner, acknowledged)
    before = disk.content()
    await owner.storage.close()
    assert disk.content() == before
    assert acknowledged[-1] > 10
    assert offset_of(await loaded(disk.path)) == acknowledged[-1]


async def test_a_checkpoint_that_finds_the_file_damaged_is_an_error_of_the_next_append(
    disk: Disk,
) -> None:
    owner = await Owner(disk.store()).start()
    disk.fail(CHECKPOINT, sqlite3.SQLITE_CORRUPT)
    acknowledged: list[int] = []

    with pytest.raises(StoreRefused, match=r"delete store\.db-wal and store\.db-shm") as refused:
        await commit_until_refused(owner, acknowledged)
    assert not isinstance(refused.value, StoreGivenUp)
    with pytest.raises(StoreRefused):
        await owner.reload()
    await owner.storage.close()
    assert offset_of(await loaded(disk.path)) == acknowledged[-1]


async def test_a_start_whose_checkpoint_finds_the_file_damaged_is_refused(disk: Disk) -> None:
    owner = await Owner(disk.store()).start()
    await owner.append(0, [commit("g", 7)])
    disk.fail("PRAGMA wal_checkpoint(TRUNCATE)")
    await owner.storage.close()
    disk.fail(CHECKPOINT, sqlite3.SQLITE_CORRUPT)
    with pytest.raises(StoreRefused, match="restore the last backup"):
        await disk.store().open(IDENTITY)


async def test_a_stop_whose_checkpoint_fails_to_sync_keeps_the_wal(disk: Disk) -> None:
    owner = await Owner(disk.store()).start()
    await owner.append(0, [commit("g", 7)])
    disk.fail("PRAGMA wal_checkpoint(TRUNCATE)")
    await owner.storage.close()
    assert disk.wal.exists()
    assert offset_of(await loaded(disk.path)) == 7


@pytest.mark.parametrize("has_cursor", [False, True])
async def test_a_connection_is_closed_without_a_checkpoint(disk: Disk, has_cursor: bool) -> None:
    """SQLite really closes it when its last cursor is gone."""
    writer = sqlite3.connect(disk.path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL").fetchall()
    writer.execute("CREATE TABLE t (x)")
    size = disk.path.stat().st_size
    cursor = writer.execute("SELECT 1 FROM sqlite_schema") if has_cursor else None
    close_without_checkpoint(writer, disk.path)
    with pytest.raises(sqlite3.ProgrammingError):
        writer.execute("SELECT 1")
    del cursor, writer
    gc.collect()
    assert disk.wal.stat().st_size > 0
    assert disk.path.stat().st_size == size


async def test_a_start_writes_every_page_again_though_a_reader_keeps_the_index_of_the_wal(
    disk: Disk,
) -> None:
    """A reader makes a checkpoint copy a part of the WAL, without a sync. The index says that this
    part is copied. Then a sync fails, and the pages never reach the disk.
    """
    owner = await Owner(disk.store()).start()
    with other_process(disk.path) as reader:
        reader.execute("PRAGMA query_only = ON")
        for offset in range(1, 20):
            await owner.append(0, [commit("g", offset, metadata=noise(9_000))])
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM log") == "[(20,)]"
        await owner.append(0, [commit("g", 20)])
        on_disk = disk.path.read_bytes()
        assert isinstance(owner.storage, SqliteOffsetStorage)
        ((_, pages, copied),) = await owner.storage.on_writer(
            lambda writer: writer.execute(CHECKPOINT).fetchall()
        )
        assert 0 < copied < pages
        reader.execute("COMMIT")
        disk.fail("INSERT INTO log")
        with pytest.raises(StoreGivenUp):
            await owner.append(0, [commit("g", 21)])
        await owner.storage.close()
        with disk.path.open("r+b") as file:  # the kernel drops its pages
            file.write(on_disk)
            file.truncate()
        again = SqliteOffsetStorage(disk.path)
        await again.open(IDENTITY)
        image = disk.path.with_name("image.db")
        shutil.copyfile(disk.path, image)  # everything is in the database, without its WAL
        await again.close()
    assert offset_of(await loaded(image)) in (20, 21)


async def test_a_start_takes_no_lock_from_a_reader_of_the_same_process(disk: Disk) -> None:
    """Whoever closes a descriptor of a file loses all its POSIX locks on the file, and SQLite's
    index of the WAL has the locks of readers.
    """
    owner = await Owner(disk.store()).start()
    await owner.append(0, [commit("g", 7)])
    disk.fail("INSERT INTO log")
    with pytest.raises(StoreGivenUp):
        await owner.append(0, [commit("g", 8)])
    await owner.storage.close()
    with closing(connect_reader(disk.path, 0)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM log").fetchall()
        read_wal_from_disk(disk.path, identity_of(disk.path.stat()))
        with other_process(disk.path) as other:
            busy = other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert busy.startswith("[(1, "), "the reader's snapshot is in use"


async def test_a_start_reads_the_wal_from_the_disk_and_not_from_the_cache(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await Owner(disk.store()).start()
    await owner.append(0, [commit("g", 7)])
    disk.fail("INSERT INTO log")
    with pytest.raises(StoreGivenUp):
        await owner.append(0, [commit("g", 8)])
    await owner.storage.close()
    done: list[tuple[str, str]] = []

    def noted(name: str) -> None:
        call = getattr(os, name)

        def note(descriptor: int, *arguments: int) -> None:
            call(descriptor, *arguments)
            done.append((name, Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))

        monkeypatch.setattr(os, name, note)

    noted("fsync")
    noted("posix_fadvise")
    disk.spy.before = lambda sql: done.append(("sql", "")) if len(done) < 4 else None
    storage = disk.store()
    await storage.open(IDENTITY)
    await storage.close()
    assert done[:4] == [
        ("fsync", "store.db"),
        ("fsync", "store.db-wal"),
        ("posix_fadvise", "store.db-wal"),
        ("sql", ""),
    ]


async def test_a_start_whose_sync_finds_no_room_waits_and_any_other_ends(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await Owner(disk.store()).start()
    await owner.append(0, [commit("g", 7)])
    await owner.storage.close()
    for is_full, kind in ((True, StoreBusy), (False, StorageError)):
        monkeypatch.setattr(full_disk, "is_full", lambda _, result=is_full: result)
        disk.fail("UPDATE store")
        storage = disk.store()
        with pytest.raises(StorageError) as failed:
            await storage.open(IDENTITY)
        assert type(failed.value) is kind
        assert disk.wal.exists()
        await storage.open(IDENTITY)  # the same storage, as a start that waits does
        await storage.close()
    assert offset_of(await loaded(disk.path)) == 7


async def test_a_start_that_waits_for_room_needs_no_more_descriptors_with_each_retry(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await Owner(disk.store()).start()
    await owner.append(0, [commit("g", 7)])
    await owner.storage.close()
    monkeypatch.setattr(full_disk, "is_full", lambda _: True)
    storage = disk.store()
    counts: list[int] = []
    for _ in range(10):
        disk.fail("UPDATE store")
        with pytest.raises(StoreBusy):
            await storage.open(IDENTITY)
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[1:] == [counts[1]] * 9
    await storage.open(IDENTITY)
    await storage.close()
    assert offset_of(await loaded(disk.path)) == 7


async def test_a_start_says_when_the_wal_cannot_be_synced(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.wal.write_bytes(b"x")
    disk.path.write_bytes(b"x")

    sync = os.fsync

    def broken(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(disk.wal):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StorageError, match=r"store\.db-wal: cannot be opened: Input/output error"):
        await disk.store().open(IDENTITY)


async def test_a_start_says_when_the_directory_of_the_wal_cannot_be_synced(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def broken(descriptor: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).is_dir():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StorageError, match="Input/output error"):
        await disk.store().open(IDENTITY)


async def test_a_tool_that_stores_offsets_can_name_the_error(disk: Disk) -> None:
    async with OffsetStore(disk.store()) as offsets:
        await offsets.store_offset("g", "orders", 0, 7)
        disk.fail("INSERT INTO log")
        with pytest.raises(groupkeeper.StoreGivenUp, match="the disk failed to sync"):
            await offsets.store_offset("g", "orders", 0, 8)
    async with OffsetStore(disk.store()) as offsets:
        stored = await offsets.fetch_offset("g", "orders", 0)
    assert stored is not None
    assert stored.offset in (7, 8)


async def test_a_close_that_fails_for_any_reason_closes_the_database(disk: Disk) -> None:
    """Otherwise the connection would stay open, with its locks, as long as the error is kept."""

    def broken(sql: str) -> None:
        if sql.startswith("UPDATE store SET value = 0"):
            raise MemoryError

    storage = disk.store()
    await storage.open(IDENTITY)
    assert disk.wal.exists()
    disk.spy.before = broken
    with pytest.raises(MemoryError):
        await storage.close()
    assert not disk.wal.exists()  # SQLite deletes it with the last connection


# --- checkpoints ----------------------------------------------------------------------------------


async def test_the_wal_is_copied_every_400_pages(disk: Disk) -> None:
    owner = await Owner(disk.store()).start()
    for offset in range(1, 200):
        await owner.append(0, [commit("g", offset, metadata=LARGE)])
    assert 1_600_000 < owner.storage.stats()["wal_bytes"] < 1_900_000
    assert owner.storage.stats()["database_bytes"] > 10_000_000
    await owner.storage.close()


async def test_what_others_write_on_the_thread_is_copied_too(disk: Disk) -> None:
    """A store that only deletes sealed rows appends nothing."""
    owner = await Owner(disk.store()).start()
    disk.spy.statements.clear()
    for _ in range(200):
        await write_on_the_thread(owner)
    assert CHECKPOINT in disk.spy.statements
    await owner.storage.close()


async def test_a_checkpoint_that_a_reader_holds_up_is_tried_again_soon(disk: Disk) -> None:
    owner = await Owner(disk.store()).start()
    with other_process(disk.path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM log")
        for offset in range(1, 80):
            await owner.append(0, [commit("g", offset, metadata=LARGE)])
        large = owner.storage.stats()["wal_bytes"]
        assert large > 7_000_000
        reader.execute("COMMIT")
        for offset in range(80, 120):
            await owner.append(0, [commit("g", offset, metadata=LARGE)])
        assert owner.storage.stats()["wal_bytes"] < large + 1_000_000
    await owner.storage.close()


async def test_a_checkpoint_that_finds_no_room_is_logged_and_commits_go_on(disk: Disk) -> None:
    """SQLite makes no checkpoint of its own, whose failure nobody would notice."""
    owner = await Owner(disk.store()).start()
    size = owner.storage.stats()["database_bytes"]

    def is_full(sql: str) -> None:
        if sql == CHECKPOINT:
            raise error_of(sqlite3.SQLITE_FULL)

    disk.spy.before = is_full
    with capture_logs() as logs:
        for offset in range(1, 80):
            await owner.append(0, [commit("g", offset, metadata=LARGE)])
    assert [line["in_a_row"] for line in logs if line["event"] == "checkpoint_failed"] == [
        1,
        2,
        4,
        8,
        16,
    ]
    assert owner.storage.stats()["database_bytes"] == size
    await owner.storage.close()
    assert offset_of(await loaded(disk.path)) == 79


async def test_a_load_that_is_cancelled_holds_up_no_checkpoint(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The traceback of the error kept its cursor, and with it a read transaction."""
    monkeypatch.setattr(load, "LOAD_CHUNK_ROWS", 1)
    storage = disk.store(fold_after=1)
    owner = await Owner(storage).start()
    for number in range(9):
        await owner.append(0, [commit(f"g-{number}", 1)])
    await owner.fold_all()
    loaded = asyncio.Event()

    async def load_all() -> None:
        async for _ in storage.load([0]):
            loaded.set()

    loading = asyncio.create_task(load_all())
    await loaded.wait()
    loading.cancel()
    with pytest.raises(asyncio.CancelledError) as raised:
        await loading
    await owner.reload()
    await owner.append(0, [commit("g-0", 2)])
    with closing(sqlite3.connect(disk.path)) as other:
        ((busy, _, _),) = other.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    assert not busy, raised
    await storage.close()
