"""Whose file it is, which version wrote it, and how an older one is brought up."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.backends.sqlite.tables import (
    MIGRATIONS,
    SyncIsOff,
    connect_writer,
    migrate,
    prepare,
    without_sync,
)
from groupkeeper.storage.base import StorageError, StoreBusy, StoreIdentity, StoreRefused
from tests.helpers.core.record_model import Key
from tests.helpers.core.records import commit
from tests.helpers.storage.other_process import other_process
from tests.helpers.storage.storage_owner import IDENTITY, Owner
from tests.helpers.storage.writer_connection import connecting


async def written_store(path: Path) -> Owner:
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await owner.append(0, [commit("g", 1)])
    await owner.storage.close()
    return owner


async def content(path: Path) -> dict[Key, Any]:
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await owner.storage.close()
    return owner.model.keys


def run_sql(path: Path, *statements: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return [row for sql in statements for row in connection.execute(sql).fetchall()]


async def refusal(path: Path, identity: StoreIdentity = IDENTITY) -> str:
    storage = SqliteOffsetStorage(path)
    with pytest.raises(StoreRefused) as refused:
        await storage.open(identity)
    await storage.close()
    assert "\n" not in str(refused.value)
    return str(refused.value)


async def test_a_database_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await written_store(path)
    newer = len(MIGRATIONS) + 1
    run_sql(
        path, f"PRAGMA user_version = {newer}", "UPDATE store SET value = 1 WHERE key='running'"
    )
    before = path.read_bytes()
    message = await refusal(path)
    assert f"written by a newer groupkeeper (schema version {newer}" in message
    assert str(path) in message
    assert path.read_bytes() == before


async def test_a_refused_store_keeps_its_mark_of_an_unclean_end(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await written_store(path)
    for running in (0, 1):
        run_sql(path, f"UPDATE store SET value = {running} WHERE key = 'running'")
        await refusal(path, StoreIdentity("another", 4))
        assert run_sql(path, "SELECT value FROM store WHERE key = 'running'") == [(running,)]


async def test_a_database_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    run_sql(path, "CREATE TABLE invoices (id)")
    before = path.read_bytes()
    assert "not one of groupkeeper" in await refusal(path)
    assert path.read_bytes() == before


async def test_a_directory_that_cannot_be_looked_at_is_named_with_the_reason(
    tmp_path: Path,
) -> None:
    """As if this user might not enter a directory above it; a name that is too long fails for every
    user.
    """
    path = tmp_path / ("x" * 300) / "store.db"
    with pytest.raises(StorageError, match=r"store\.db: cannot be opened: File name too long"):
        await SqliteOffsetStorage(path).open(IDENTITY)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, " * 100)
    assert "is not a SQLite database" in await refusal(path)


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    storage = SqliteOffsetStorage(tmp_path / "nowhere" / "store.db")
    with pytest.raises(StorageError, match=r"nowhere/store\.db: the directory does not exist"):
        await storage.open(IDENTITY)
    await storage.close()


async def test_a_database_that_somebody_holds_is_busy_and_can_be_opened_later(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    owner = await written_store(path)
    storage = SqliteOffsetStorage(path, append_timeout_ms=20)
    with other_process(path) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match=r"store\.db: database is locked"):
            await storage.open(IDENTITY)
        other.execute("ROLLBACK")
    await storage.open(IDENTITY)
    await storage.close()
    assert await content(path) == owner.model.keys


async def test_a_full_disk_is_busy_and_a_broken_one_is_not(tmp_path: Path) -> None:
    class FullDisk(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            cursor = super().execute(sql, *arguments)
            if sql == "PRAGMA synchronous = FULL":
                super().execute("PRAGMA max_page_count = 2")
            return cursor

    class BrokenDisk(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            raise sqlite3.OperationalError("disk I/O error")

    for kind, problem in ((FullDisk, StoreBusy), (BrokenDisk, StorageError)):
        path = tmp_path / f"{kind.__name__}.db"
        storage = SqliteOffsetStorage(path, connect=connecting(kind))
        with pytest.raises(StorageError) as caught:
            await storage.open(IDENTITY)
        assert type(caught.value) is problem, caught.value


NEXT_VERSION = ("ALTER TABLE lease ADD COLUMN acquired_ms INTEGER NOT NULL DEFAULT 0",)


async def test_an_older_database_is_migrated_with_its_content(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    owner = await written_store(path)
    run_sql(path, f"PRAGMA user_version = {len(MIGRATIONS)}")
    with closing(connect_writer(path, 1.0)) as connection:
        migrate(connection, path, [*MIGRATIONS, NEXT_VERSION])
        migrate(connection, path, [*MIGRATIONS, NEXT_VERSION])
        assert connection.execute("SELECT acquired_ms FROM lease").fetchall() == [(0,)]
        assert connection.execute("PRAGMA user_version").fetchall() == [(len(MIGRATIONS) + 1,)]
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    assert await content(path) == owner.model.keys


async def test_a_migration_that_fails_leaves_the_older_version_whole(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    owner = await written_store(path)
    run_sql(path, f"PRAGMA user_version = {len(MIGRATIONS)}")
    with closing(connect_writer(path, 1.0)) as connection:
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            migrate(connection, path, [*MIGRATIONS, (*NEXT_VERSION, "DROP TABLE ledger")])
        assert connection.execute("PRAGMA user_version").fetchall() == [(len(MIGRATIONS),)]
        columns = [row[1] for row in connection.execute("PRAGMA table_info(lease)")]
        assert "acquired_ms" not in columns, "the first statement of it was kept"
    assert await content(path) == owner.model.keys


async def test_the_migrations_of_all_versions_lead_from_an_empty_file_to_the_last(
    tmp_path: Path,
) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    with closing(connect_writer(path, 1.0)) as connection:
        prepare(connection, path)
        for known in range(1, len(MIGRATIONS) + 1):
            migrate(connection, path, MIGRATIONS[:known])
            assert connection.execute("PRAGMA user_version").fetchall() == [(known,)]


async def test_a_store_that_was_created_half_way_is_created_again(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(connect_writer(path, 1.0)) as connection:
        prepare(connection, path)
        migrate(connection, path)
    assert await content(path) == {}


async def test_the_settings_that_durability_rests_on_are_in_force(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(connect_writer(path, 1.0)) as connection:
        prepare(connection, path)
        assert connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
        full = 2
        assert connection.execute("PRAGMA synchronous").fetchall() == [(full,)]


def test_a_connection_that_cannot_wait_for_the_disk_again_is_told(tmp_path: Path) -> None:
    class Stuck(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            if sql == "PRAGMA synchronous = FULL":
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(sql, *arguments)

    with (
        closing(sqlite3.connect(tmp_path / "store.db", factory=Stuck)) as connection,
        pytest.raises(SyncIsOff),
        without_sync(connection),
    ):
        connection.execute("CREATE TABLE repeated (id)")


def test_a_connection_waits_for_the_disk_again_after_a_pragma_that_fails_and_takes_effect(
    tmp_path: Path,
) -> None:
    class Lying(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            cursor = super().execute(sql, *arguments)
            if sql == "PRAGMA synchronous = NORMAL":
                raise sqlite3.OperationalError("disk I/O error")
            return cursor

    with closing(sqlite3.connect(tmp_path / "store.db", factory=Lying)) as connection:
        with pytest.raises(sqlite3.OperationalError), without_sync(connection):
            pass
        full = 2
        assert connection.execute("PRAGMA synchronous").fetchall() == [(full,)]


def test_rows_that_are_deleted_are_not_overwritten(tmp_path: Path) -> None:
    with closing(connect_writer(tmp_path / "store.db", 1.0)) as connection:
        prepare(connection, tmp_path / "store.db")
        assert connection.execute("PRAGMA secure_delete").fetchall() == [(0,)]
