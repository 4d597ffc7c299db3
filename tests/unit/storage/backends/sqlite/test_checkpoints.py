"""When the write-ahead log is copied into the database."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from groupkeeper.storage.backends.sqlite.checkpoints import CHECKPOINT_PAGES, Checkpoints
from groupkeeper.storage.backends.sqlite.fold import FoldedPart, FoldWork
from groupkeeper.storage.backends.sqlite.tables import connect_writer
from tests.helpers.storage.spying_connection import Spy


@pytest.fixture
def spy() -> Spy:
    return Spy()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    with closing(connect_writer(path, 1.0)) as writer:
        writer.execute("PRAGMA journal_mode = WAL").fetchall()
        writer.execute("CREATE TABLE t (x)")
        writer.execute("INSERT INTO t VALUES (0)")
    return path


def test_the_count_is_adapted_to_the_pages_that_the_wal_really_has(path: Path, spy: Spy) -> None:
    """Each statement here changes one page, and is counted as several."""
    checkpoints = Checkpoints(is_due=False)
    statements = []
    with closing(spy.connect(path, 1.0)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        for _ in range(3):
            count = 0
            while not checkpoints.is_due:
                writer.execute("UPDATE t SET x = x + 1")
                checkpoints.wrote(0)
                count += 1
            checkpoints.run_if_due(writer)
            statements.append(count)
    assert statements[0] < CHECKPOINT_PAGES // 2
    assert CHECKPOINT_PAGES * 0.9 < statements[1] < CHECKPOINT_PAGES * 1.1
    assert CHECKPOINT_PAGES * 0.9 < statements[2] < CHECKPOINT_PAGES * 1.1


def test_the_part_of_a_large_group_counts_with_its_pages() -> None:
    checkpoints = Checkpoints(is_due=False)
    work = FoldWork(1, has_keyed=False)
    work.part = FoldedPart(0, "g", 0, bytes(CHECKPOINT_PAGES * 4_096), None)
    checkpoints.folded(work)
    assert checkpoints.is_due
