"""Bugs that are found by worlds whose disk fails to sync (docs/decisions/0043-failed-sync.md).

They have a separate table, because only these worlds can find them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from groupkeeper.storage.backends.sqlite import (
    checkpoints,
    failed_sync,
    store,
    store_files,
    tables,
)

Patch = pytest.MonkeyPatch


def appends_go_on(patch: Patch) -> None:
    """The store does not end after a failed sync."""
    patch.setattr(store, "is_failed_sync", lambda _: False)


def checkpoint_fails_silently(patch: Patch) -> None:
    patch.setattr(checkpoints, "is_failed_sync", lambda _: False)


def sqlite_makes_checkpoints(patch: Patch) -> None:
    """SQLite copies the WAL by itself after a commit, and reports no failure."""
    prepare = tables.prepare

    def prepared(connection: sqlite3.Connection, path: Path) -> None:
        prepare(connection, path)
        connection.execute("PRAGMA wal_autocheckpoint = 10").fetchall()

    patch.setattr(tables, "prepare", prepared)


def last_checkpoint_after_a_failed_sync(patch: Patch) -> None:
    """SQLite copies the WAL when the connection is closed, and deletes it."""
    patch.setattr(store, "close_without_checkpoint", lambda writer, _: writer.close())


def start_trusts_the_cache(patch: Patch) -> None:
    patch.setattr(failed_sync, "_drop_from_cache", lambda _: None)


def start_trusts_the_index(patch: Patch) -> None:
    patch.setattr(failed_sync, "_invalidate_index", lambda *_: None)


def start_does_not_sync_the_folder(patch: Patch) -> None:
    patch.setattr(store_files, "sync_path", lambda _: None)


def appends_do_not_wait(patch: Patch) -> None:
    """After a fold, appends are acknowledged before they are on the disk."""
    patch.setattr(tables, "_sync_again", lambda _: None)


LOST: Final = r"loaded \w+\(|not loaded|replayed|given out|of the log|malformed|not durable"
"""The failure that a world reports if the store has lost data, or SQLite cannot read the file."""

DISKS: Final[dict[str, tuple[Callable[[Patch], None], str]]] = {
    "appends after a failed sync": (appends_go_on, LOST),
    "a checkpoint that fails silently": (checkpoint_fails_silently, LOST),
    "checkpoints that SQLite makes": (sqlite_makes_checkpoints, LOST),
    "a last checkpoint after a failed sync": (last_checkpoint_after_a_failed_sync, LOST),
    "a start that trusts the cache": (start_trusts_the_cache, LOST),
    "a start that trusts the index of the WAL": (start_trusts_the_index, LOST),
    "a start that does not sync the folder": (start_does_not_sync_the_folder, LOST),
    "appends that do not wait for the disk": (appends_do_not_wait, LOST),
}
"""As ``BREAKAGES``."""
