"""The disk of the worlds and of the soak does what Linux does after a failed sync."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from groupkeeper.storage.sync import sync_path
from tests.helpers.storage.forgetful_disk import ForgetfulDisk

LARGE = "x" * 20_000
"""A value of five pages."""


class Lossy(Random):
    """Of the pages of a failed sync none is written."""

    def random(self) -> float:
        return 1.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[ForgetfulDisk]:
    disk = ForgetfulDisk(tmp_path, Lossy())
    yield disk
    disk.remove()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for setting in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 0"):
        connection.execute(f"PRAGMA {setting}").fetchall()
    connection.execute("CREATE TABLE IF NOT EXISTS t (number, value)")
    sync_path(path.parent)
    return connection


def insert(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("INSERT INTO t VALUES (?, ?)", (number, LARGE))


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [number for (number,) in connection.execute("SELECT number FROM t ORDER BY number")]


def fail_once(disk: ForgetfulDisk) -> None:
    orders = [True]
    disk.fails = lambda _: bool(orders) and orders.pop()


def after_a_power_cut(disk: ForgetfulDisk, connection: sqlite3.Connection, path: Path) -> list[int]:
    disk.cut_power()
    connection.close()
    again = opened(path)
    found = numbers(again)
    again.close()
    return found


def test_what_is_synced_is_there_after_a_power_cut(disk: ForgetfulDisk, path: Path) -> None:
    connection = opened(path)
    insert(connection, 1)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    insert(connection, 2)
    assert after_a_power_cut(disk, connection, path) == [1, 2]


def test_what_is_not_synced_is_not(disk: ForgetfulDisk, path: Path) -> None:
    connection = opened(path)
    insert(connection, 1)
    connection.execute("PRAGMA synchronous = NORMAL")
    insert(connection, 2)
    assert numbers(connection) == [1, 2]
    assert after_a_power_cut(disk, connection, path) == [1]


def test_after_a_failed_sync_later_commits_are_lost_though_their_syncs_succeed(
    disk: ForgetfulDisk, path: Path
) -> None:
    """The pages of the second row are nowhere, and nobody syncs them again."""
    connection = opened(path)
    insert(connection, 1)
    connection.execute("PRAGMA synchronous = NORMAL")
    insert(connection, 2)
    connection.execute("PRAGMA synchronous = FULL")
    fail_once(disk)
    with pytest.raises(sqlite3.OperationalError) as failed:
        insert(connection, 3)
    assert failed.value.sqlite_errorcode == sqlite3.SQLITE_IOERR_FSYNC
    insert(connection, 4)
    assert numbers(connection) == [1, 2, 4]
    assert after_a_power_cut(disk, connection, path) == [1]


def test_pages_that_are_lost_are_read_until_the_kernel_forgets_them(
    disk: ForgetfulDisk, path: Path
) -> None:
    connection = opened(path)
    insert(connection, 1)
    wal = path.with_name("store.db-wal")
    before = wal.read_bytes()
    fail_once(disk)
    with pytest.raises(sqlite3.OperationalError):
        insert(connection, 2)
    cached = wal.read_bytes()
    assert cached.startswith(before)
    assert cached[len(before) :].strip(b"\0")
    with wal.open("r+b") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert wal.read_bytes().rstrip(b"\0") == before.rstrip(b"\0")
    connection.close()


def test_a_file_is_gone_whose_name_was_not_synced(disk: ForgetfulDisk, path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("CREATE TABLE t (number, value)")
    disk.cut_power()
    connection.close()
    assert not path.exists()


def test_a_file_that_was_there_before_is_durable(disk: ForgetfulDisk, path: Path) -> None:
    disk.remove()
    connection = opened(path)
    insert(connection, 1)
    connection.close()
    later = ForgetfulDisk(path.parent, Lossy())
    try:
        connection = opened(path)
        insert(connection, 2)
        assert after_a_power_cut(later, connection, path) == [1, 2]
    finally:
        later.remove()
