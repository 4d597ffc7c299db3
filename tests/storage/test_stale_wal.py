"""A backup is put in the place of a database whose write-ahead log (WAL) was left behind."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupkeeper.storage.backends.sqlite.backup import back_up
from groupkeeper.storage.backends.sqlite.complete import COMPLETE
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.backends.sqlite.tables import MIGRATIONS
from groupkeeper.storage.base import StorageError, StoreBusy, StoreTaken
from tests.helpers.core.records import commit
from tests.helpers.storage.other_process import other_process
from tests.helpers.storage.spying_connection import Spy
from tests.helpers.storage.storage_owner import IDENTITY, Owner

VERSION = len(MIGRATIONS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def read(path: Path) -> bytes:
    return path.read_bytes()


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def version_in_file(path: Path) -> int:
    """Return the schema version in the database file itself, without its WAL."""
    return int.from_bytes(path.read_bytes()[60:64], "big")


def killed(path: Path, name: str) -> Path:
    """Return a copy of an open store, as a kill would leave it."""
    copy = path.with_name(name)
    shutil.copyfile(path, copy)
    shutil.copyfile(wal_of(path), wal_of(copy))
    return copy


async def commit_up_to(owner: Owner, last: int, first: int = 1) -> None:
    for offset in range(first, last + 1):
        await owner.append(0, [commit("g", offset, metadata="x" * 300)])


async def stored(path: Path) -> int:
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await owner.storage.close()
    return offset_of(owner)


def offset_of(owner: Owner) -> int:
    found: Any = owner.model.keys["offset", 0, "g", "orders", 0]
    return int(found[0])


async def test_a_wal_that_was_left_behind_is_not_applied_to_a_restored_copy(path: Path) -> None:
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await commit_up_to(owner, 20)
    copy = path.with_name("copy.db")
    back_up(path, copy)
    await commit_up_to(owner, 60, first=21)
    restored = killed(path, "restored.db")
    await owner.storage.close()
    left = wal_of(restored).read_bytes()
    shutil.copyfile(copy, restored)
    with capture_logs() as logs:
        owner = await Owner(SqliteOffsetStorage(restored)).start()
    assert offset_of(owner) == 20
    kept = wal_of(restored).with_name("restored.db-wal.stale")
    assert kept.read_bytes() == left
    assert [line for line in logs if line["event"] == "wal_set_aside"] == [
        {
            "event": "wal_set_aside",
            "log_level": "warning",
            "path": str(wal_of(restored)),
            "renamed_to": kept.name,
        }
    ]
    await commit_up_to(owner, 101, first=100)
    again = killed(restored, "again.db")
    await owner.storage.close()
    assert await stored(again) == 101


async def test_each_wal_that_is_set_aside_keeps_its_own_name(path: Path) -> None:
    assert await stored_after_commits(path, 5) == 5
    copy = read(path)
    for number in range(3):
        write(path, copy)
        write(wal_of(path), b"%d" % number)
        assert await stored(path) == 5
    found = {file.name: file.read_bytes() for file in path.parent.glob("*.stale*")}
    assert found == {
        "store.db-wal.stale": b"0",
        "store.db-wal.stale2": b"1",
        "store.db-wal.stale3": b"2",
    }


async def stored_after_commits(path: Path, last: int) -> int:
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await commit_up_to(owner, last)
    await owner.storage.close()
    return offset_of(owner)


async def test_a_plain_copy_of_a_stopped_store_is_complete_too(path: Path) -> None:
    await stored_after_commits(path, 5)
    assert version_in_file(path) == VERSION + COMPLETE
    copy = read(path)
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await commit_up_to(owner, 60, first=6)
    restored = killed(path, "restored.db")
    await owner.storage.close()
    write(restored, copy)
    assert await stored(restored) == 5


async def test_the_wal_of_a_killed_store_is_applied_however_little_it_did(path: Path) -> None:
    await stored_after_commits(path, 5)
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await commit_up_to(owner, 6, first=6)
    image = killed(path, "image.db")
    await owner.storage.close()
    assert version_in_file(image) == VERSION
    assert await stored(image) == 6


async def test_a_store_is_not_complete_while_a_reader_keeps_its_wal(path: Path) -> None:
    owner = await Owner(SqliteOffsetStorage(path, append_timeout_ms=20)).start()
    await commit_up_to(owner, 5)
    with other_process(path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM log")
        await commit_up_to(owner, 6, first=6)
        await owner.storage.close()
        assert version_in_file(path) == VERSION
        image = killed(path, "image.db")
    assert await stored(image) == 6


async def test_a_store_is_not_complete_if_somebody_writes_while_it_closes(path: Path) -> None:
    spy = Spy()
    owner = await Owner(SqliteOffsetStorage(path, connect=spy.connect)).start()
    await commit_up_to(owner, 5)
    with other_process(path) as other:

        def write_after_the_checkpoint(sql: str) -> None:
            if sql.startswith("PRAGMA wal_checkpoint(TRUNCATE)"):
                other.execute("UPDATE lease SET owner = 'other'")

        spy.after = write_after_the_checkpoint
        await owner.storage.close()
        assert wal_of(path).stat().st_size
        assert version_in_file(path) == VERSION


async def test_a_store_that_another_process_has_acquired_is_not_marked(path: Path) -> None:
    owner = await Owner(SqliteOffsetStorage(path)).start()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE lease SET epoch = epoch + 1")
    with pytest.raises(StoreTaken):
        await owner.storage.check_place()
    await owner.storage.close()
    assert version_in_file(path) == VERSION


async def test_the_mark_is_removed_durably_before_sqlite_opens_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stored_after_commits(path, 5)
    wal_of(path).write_bytes(b"stale")
    done: list[tuple[str, str]] = []

    def note(name: str) -> None:
        call = getattr(os, name)

        def noted(target: int | Path, *arguments: Any) -> Any:
            file = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else target
            done.append((name, Path(file).name))
            return call(target, *arguments)

        monkeypatch.setattr(os, name, noted)

    for name in ("fsync", "pread", "rename", "pwrite"):
        note(name)
    spy = Spy()
    spy.before = lambda sql: done.append(("sql", ""))
    storage = SqliteOffsetStorage(path, connect=spy.connect)
    await storage.open(IDENTITY)
    done = [step for step in done if step[1] != "store.db.lock"]
    order = [step for step, before in zip(done, [None, *done], strict=False) if step != before]
    assert order[:7] == [
        ("fsync", "store.db"),
        ("pread", "store.db"),
        ("rename", "store.db-wal"),
        ("fsync", path.parent.name),
        ("pread", "store.db"),
        ("pwrite", "store.db"),
        ("fsync", "store.db"),
    ]
    assert ("sql", "") not in order[:7]
    await storage.close()


async def test_a_start_that_cannot_remove_the_mark_fails(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stored_after_commits(path, 5)
    pwrite = os.pwrite

    def is_full(descriptor: int, data: bytes, at: int) -> int:
        if len(data) == 4:
            raise OSError(28, "No space left on device")
        return pwrite(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", is_full)
    with pytest.raises(StoreBusy, match="No space left on device"):
        await SqliteOffsetStorage(path).open(IDENTITY)
    assert version_in_file(path) == VERSION + COMPLETE
    monkeypatch.undo()
    assert await stored(path) == 5


async def test_a_copy_that_sqlite_wrote_into_the_wal_is_used_when_its_last_user_is_gone(
    path: Path,
) -> None:
    """Otherwise a checkpoint could copy the mark into the database while it is used."""
    copy = path.with_name("copy.db")
    await stored_after_commits(copy, 5)
    await stored_after_commits(path, 9)
    await (owner := Owner(SqliteOffsetStorage(path))).start()
    image = killed(path, "image.db")
    await owner.storage.close()
    with other_process(image) as reader:
        reader.execute("SELECT count(*) FROM log")
        with closing(sqlite3.connect(copy)) as source, closing(sqlite3.connect(image)) as target:
            source.backup(target)
        assert version_in_file(image) == VERSION
        for _ in range(2):
            with pytest.raises(StoreBusy, match="which another process still uses"):
                await SqliteOffsetStorage(image).open(IDENTITY)
    with pytest.raises(StoreBusy):
        await SqliteOffsetStorage(image).open(IDENTITY)  # its end copies the WAL
    assert await stored(image) == 5


@pytest.mark.parametrize("content", [b"x" * 200, b"SQLite format 3\0" + bytes(20)])
async def test_what_is_no_database_is_left_alone(path: Path, content: bytes) -> None:
    write(path, content)
    with pytest.raises(StorageError):
        await SqliteOffsetStorage(path).open(IDENTITY)
    assert read(path) == content
