"""A database is replaced or overwritten while a process uses it, or files are of another kind."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from groupkeeper.storage.backends.sqlite import store_files
from groupkeeper.storage.backends.sqlite.backup import back_up
from groupkeeper.storage.backends.sqlite.complete import COMPLETE
from groupkeeper.storage.backends.sqlite.rows import SqliteRows
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.backends.sqlite.tables import MIGRATIONS
from groupkeeper.storage.base import StorageError, StoreBusy, StoreRefused
from groupkeeper.storage.tools.check import check_sqlite
from tests.helpers.core.records import commit
from tests.helpers.storage.noise import noise
from tests.helpers.storage.other_process import other_process
from tests.helpers.storage.spying_connection import Spy
from tests.helpers.storage.storage_owner import IDENTITY, Owner

VERSION = len(MIGRATIONS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def image_of(path: Path, name: str) -> Path:
    """Return a copy of an open database, as a kill would leave it."""
    copy = path.with_name(name)
    shutil.copyfile(path, copy)
    shutil.copyfile(beside(path, "-wal"), beside(copy, "-wal"))
    return copy


def read(path: Path) -> bytes:
    return path.read_bytes()


def version_in_file(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[60:64], "big")


def give_version(path: Path, version: int) -> None:
    """Write a schema version into the file itself, as a mark is written."""
    with path.open("r+b") as file:
        file.seek(60)
        file.write(version.to_bytes(4, "big"))


async def commit_up_to(owner: Owner, last: int, first: int = 1) -> None:
    for offset in range(first, last + 1):
        await owner.append(0, [commit("g", offset, metadata="x" * 300)])


async def stopped(path: Path, last: int) -> None:
    """Leave a store that was stopped after these commits."""
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await commit_up_to(owner, last)
    await owner.storage.close()


async def stored(path: Path) -> int:
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await owner.storage.close()
    found: Any = owner.model.keys["offset", 0, "g", "orders", 0]
    return int(found[0])


async def backed_up_in_use(path: Path) -> tuple[Owner, Path]:
    """Return the owner of a store with 30 commits, and a backup of it."""
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await commit_up_to(owner, 30)
    copy = path.with_name("copy.db")
    back_up(path, copy)
    return owner, copy


async def killed_beside(path: Path, copy: Path) -> None:
    """Leave a killed store with 60 commits, and a backup of its first 20."""
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await commit_up_to(owner, 20)
    back_up(path, copy)
    await commit_up_to(owner, 60, first=21)
    image = image_of(path, "image.db")
    await owner.storage.close()
    image.replace(path)
    beside(image, "-wal").replace(beside(path, "-wal"))


# --- files that are not ours ----------------------------------------------------------------------


async def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    """Other programs have large schema versions too."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL").fetchall()
        other.execute("PRAGMA user_version = 20261130")
        other.execute("CREATE TABLE note (text)")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        other.execute("INSERT INTO note VALUES ('kept')")
        image = image_of(path, "image.db")
    with pytest.raises(StoreRefused, match="not one of groupkeeper"):
        await SqliteOffsetStorage(image).open(IDENTITY)
    with closing(sqlite3.connect(image)) as other:
        assert other.execute("SELECT text FROM note").fetchall() == [("kept",)]
        assert other.execute("PRAGMA user_version").fetchall() == [(20261130,)]


async def test_a_complete_file_of_a_newer_version_is_left_alone(path: Path) -> None:
    await stopped(path, 5)
    give_version(path, VERSION + 1 + COMPLETE)
    beside(path, "-wal").write_bytes(b"stale")
    content = read(path)
    with pytest.raises(StoreRefused, match=rf"schema version {VERSION + 1}, this one knows"):
        await SqliteOffsetStorage(path).open(IDENTITY)
    assert read(path) == content
    assert beside(path, "-wal").read_bytes() == b"stale"


# --- the mark and the cache of the disk -----------------------------------------------------------


async def test_a_start_writes_the_header_again_after_a_try_that_failed_to_sync(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed sync, the cache of the kernel has no mark, and the disk has it."""
    await stopped(path, 5)
    steps: list[str] = []
    fsync, pwrite = os.fsync, os.pwrite

    def is_of_database(descriptor: int) -> bool:
        return os.readlink(f"/proc/self/fd/{descriptor}") == str(path)

    def broken(descriptor: int) -> None:
        if is_of_database(descriptor):
            if steps[-1:] == ["write"]:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            steps.append("sync")
        fsync(descriptor)

    def noted(descriptor: int, data: bytes, at: int) -> int:
        if is_of_database(descriptor):
            steps.append("write")
        return pwrite(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", noted)
    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StorageError, match="Input/output error"):
        await SqliteOffsetStorage(path).open(IDENTITY)
    assert version_in_file(path) == VERSION
    steps.append("next start")
    monkeypatch.setattr(os, "fsync", lambda d: (steps.append("sync"), fsync(d)))
    await (storage := SqliteOffsetStorage(path)).open(IDENTITY)
    await storage.close()
    assert steps[: steps.index("next start") + 4] == [
        "sync",
        "write",
        "next start",
        "sync",
        "write",
        "sync",
    ]


# --- another process still uses the earlier database ---------------------------------------------


def overwrite(copy: Path, path: Path) -> None:
    shutil.copyfile(copy, path)


def put_in_its_place(copy: Path, path: Path) -> None:
    copy.replace(path)


@pytest.mark.parametrize("restore", [overwrite, put_in_its_place])
async def test_a_start_waits_while_a_process_uses_the_log_of_the_earlier_database(
    path: Path, restore: Callable[[Path, Path], None]
) -> None:
    """When this process ended, it copied that log into the database, and deleted ours."""
    copy, again = path.with_name("copy.db"), path.with_name("again.db")
    await killed_beside(path, copy)
    shutil.copyfile(copy, again)
    with other_process(path) as shell:
        shell.execute("SELECT count(*) FROM log")
        restore(copy, path)
        for _ in range(2):
            with pytest.raises(StoreBusy, match="that another process still uses"):
                await SqliteOffsetStorage(path).open(IDENTITY)
        assert beside(path, "-wal").stat().st_size
        assert not beside(path, "-wal.stale").exists()
    overwrite(again, path)
    assert await stored(path) == 20


async def test_a_start_waits_while_a_process_has_the_index_of_the_earlier_database(
    path: Path,
) -> None:
    """Its log may be empty: two databases with one index would lose what is appended."""
    copy = path.with_name("copy.db")
    await stopped(copy, 5)
    await stopped(path, 9)
    with other_process(path) as shell:
        shell.execute("SELECT count(*) FROM log")
        assert not beside(path, "-wal").stat().st_size
        copy.replace(path)
        with pytest.raises(StoreBusy, match="that another process still uses"):
            await SqliteOffsetStorage(path).open(IDENTITY)
    assert await stored(path) == 5


async def test_a_start_waits_for_such_a_process_though_its_index_was_deleted(path: Path) -> None:
    copy = path.with_name("copy.db")
    await killed_beside(path, copy)
    with other_process(path) as shell:
        shell.execute("SELECT count(*) FROM log")
        overwrite(copy, path)
        beside(path, "-shm").unlink()
        with pytest.raises(StoreBusy, match="that another process still uses"):
            await SqliteOffsetStorage(path).open(IDENTITY)
        assert beside(path, "-wal").stat().st_size


async def test_a_start_does_not_wait_for_readers_of_its_own_database(path: Path) -> None:
    await stopped(path, 9)
    with other_process(path) as shell:
        shell.execute("SELECT count(*) FROM log")
        assert await stored(path) == 9
        with closing(sqlite3.connect(path)) as ours:
            ours.execute("SELECT count(*) FROM log").fetchall()
            assert await stored(path) == 9


async def test_what_a_shell_changed_in_a_stopped_store_is_kept_if_it_ends_by_itself(
    path: Path,
) -> None:
    await stopped(path, 9)
    with closing(sqlite3.connect(path, isolation_level=None)) as shell:
        shell.execute("UPDATE lease SET owner = 'shell'")
        image = image_of(path, "image.db")
    with other_process(image) as other:
        other.execute("SELECT count(*) FROM log")
        with pytest.raises(StoreBusy):
            await SqliteOffsetStorage(image).open(IDENTITY)
        other.end()
    with closing(sqlite3.connect(image)) as shell:
        assert shell.execute("SELECT owner FROM lease").fetchall() == [("shell",)]
    assert await stored(image) == 9


# --- another database is written over this one ----------------------------------------------------


def restore_with_sqlite(copy: Path, path: Path) -> None:
    with closing(sqlite3.connect(copy)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)


async def test_nothing_is_lost_if_the_present_copy_is_restored_with_sqlite_while_it_is_used(
    path: Path,
) -> None:
    """Its mark must not get into the database, or a start would set aside what came later."""
    owner, copy = await backed_up_in_use(path)
    restore_with_sqlite(copy, path)
    acknowledged = [30]
    with pytest.raises(StoreRefused, match="was overwritten"):
        await commit_until_refused(owner, acknowledged)
    image = image_of(path, "image.db")
    await owner.storage.close()
    assert version_in_file(image) != VERSION + COMPLETE
    last = acknowledged[-1]
    assert await stored_when_free(image) in (last, last + 1)
    assert await stored_when_free(path) in (last, last + 1)


async def commit_until_refused(owner: Owner, acknowledged: list[int]) -> None:
    for offset in range(acknowledged[-1] + 1, 1_000):
        await commit_up_to(owner, offset, first=offset)
        acknowledged.append(offset)


async def test_a_search_for_the_mark_that_fails_is_retried_like_a_checkpoint(path: Path) -> None:
    spy = Spy()
    owner = await Owner(SqliteOffsetStorage(path, connect=spy.connect)).start()

    def is_full(sql: str) -> None:
        if sql == "PRAGMA user_version":
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    spy.before = is_full
    for offset in range(1, 40):
        await owner.append(0, [commit("g", offset, metadata=noise(100_000))])
    spy.before = lambda sql: None
    await owner.storage.close()
    assert await stored(path) == 39


async def stored_when_free(path: Path) -> int:
    """Return what is stored. The end of a start may copy the WAL, and the next one uses it."""
    try:
        return await stored(path)
    except StoreBusy:
        return await stored(path)


async def test_an_older_copy_that_sqlite_restores_while_it_is_used_is_noticed_at_once(
    path: Path,
) -> None:
    """It has the same epoch, and lacks what was acknowledged since."""
    owner, copy = await backed_up_in_use(path)
    await commit_up_to(owner, 40, first=31)
    restore_with_sqlite(copy, path)
    with pytest.raises(StoreRefused, match="was overwritten"):
        await commit_up_to(owner, 41, first=41)
    with pytest.raises(StoreRefused, match="was overwritten"):
        await owner.reload()
    await owner.storage.close()


async def test_a_complete_copy_of_any_size_over_the_database_is_noticed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_files, "CHECK_EVERY_S", 0.0)
    owner, copy = await backed_up_in_use(path)
    with copy.open("ab") as file:
        file.write(bytes(1_000_000))
    overwrite(copy, path)
    with pytest.raises(StoreRefused, match="was overwritten"):
        await commit_up_to(owner, 31, first=31)
    await owner.storage.close()


async def overwritten_in_use(path: Path) -> tuple[Owner, bytes]:
    """Copy a backup with 30 commits over a database in use, which has 40. Return its content."""
    owner, copy = await backed_up_in_use(path)
    await commit_up_to(owner, 40, first=31)
    overwrite(copy, path)
    return owner, read(copy)


@pytest.mark.parametrize("is_noticed", [False, True])
async def test_a_close_leaves_a_backup_over_the_database_as_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_noticed: bool
) -> None:
    """A restart within a second is not noticed before. The close mixed both databases: the restore
    was undone, or the database was malformed.
    """
    owner, content = await overwritten_in_use(path)
    if is_noticed:
        monkeypatch.setattr(store_files, "CHECK_EVERY_S", 0.0)
        with pytest.raises(StoreRefused, match="was overwritten"):
            await commit_up_to(owner, 41, first=41)
    await owner.storage.close()
    assert read(path) == content
    assert beside(path, "-wal").stat().st_size
    assert await stored(path) == 30


async def test_a_checkpoint_leaves_a_backup_over_the_database_as_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_files, "CHECK_EVERY_S", 1_000.0)
    owner, content = await overwritten_in_use(path)
    with pytest.raises(StoreRefused, match="was overwritten"):
        await commit_until_refused(owner, [40])
    await owner.storage.close()
    assert read(path) == content
    assert await stored(path) == 30


async def test_a_close_copies_a_backup_that_sqlite_restored_and_copied(path: Path) -> None:
    """Then the log belongs to the database, although the database has the mark."""
    owner, copy = await backed_up_in_use(path)
    restore_with_sqlite(copy, path)
    with closing(sqlite3.connect(path)) as shell:
        shell.execute("PRAGMA wal_checkpoint").fetchall()
    assert version_in_file(path) == VERSION + COMPLETE
    await commit_up_to(owner, 35, first=31)
    await owner.storage.close()
    assert await stored(path) == 35


# --- readers of a restored copy -------------------------------------------------------------------


async def test_a_reader_refuses_a_copy_beside_the_log_of_another_database(path: Path) -> None:
    """SQLite would show it the state from before the restore, and so would a backup of this."""
    copy = path.with_name("copy.db")
    await killed_beside(path, copy)
    overwrite(copy, path)
    link = path.with_name("link.db")
    link.symlink_to(path)
    for name in (path, link):
        with pytest.raises(StoreRefused, match="belongs to another file"):
            SqliteRows(name)
        with pytest.raises(StoreRefused, match="belongs to another file"):
            back_up(name, path.with_name("next.db"))
        with pytest.raises(StoreRefused, match="belongs to another file"):
            await check_sqlite(name)
    assert not path.with_name("next.db").exists()
    assert await stored(path) == 20


async def test_a_reader_takes_no_lock_from_a_store_of_its_process(path: Path) -> None:
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await commit_up_to(owner, 5)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        SqliteRows(path).close()
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    with other_process(path) as shell:
        shell.execute("BEGIN")
        shell.execute("SELECT count(*) FROM log")
        shell.end()
    assert beside(path, "-wal").exists(), "the shell was not the last user"
    await owner.storage.close()


async def test_a_backup_of_a_stopped_store_is_marked_once(path: Path) -> None:
    await stopped(path, 5)
    copy = path.with_name("copy.db")
    back_up(path, copy)
    assert version_in_file(copy) == VERSION + COMPLETE
    assert await stored(copy) == 5


async def test_a_reader_is_not_refused_because_a_daemon_starts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start removes the mark, and then a log appears."""
    await stopped(path, 5)
    stat = os.stat

    def started_before(file: Any, **options: Any) -> os.stat_result:
        if str(file) == str(beside(path, "-wal")):
            give_version(path, VERSION)
            beside(path, "-wal").write_bytes(bytes(40))
        return stat(file, **options)

    monkeypatch.setattr(os, "stat", started_before)
    SqliteRows(path).close()
    assert beside(path, "-wal").exists()


async def test_a_reader_needs_no_right_to_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stopped(path, 5)
    opened = os.open

    def refused(file: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
        return opened(file, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", refused)
    SqliteRows(path).close()


async def test_a_start_goes_on_where_the_system_cannot_tell_who_has_locks(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stopped(path, 5)
    call = fcntl.fcntl

    def unknown(descriptor: int, command: int, *arguments: Any) -> Any:
        if command == fcntl.F_GETLK:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return call(descriptor, command, *arguments)

    monkeypatch.setattr(fcntl, "fcntl", unknown)
    with other_process(path) as shell:
        shell.execute("SELECT count(*) FROM log")
        assert await stored(path) == 5
