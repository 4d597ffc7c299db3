"""What is left of a fold when the statements around it fail."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from groupkeeper.storage.backends.sqlite import tables
from groupkeeper.storage.backends.sqlite.fold import FoldedPart, FoldWork
from groupkeeper.storage.backends.sqlite.fold_write import FoldWriter


class FailingOnce(sqlite3.Connection):
    """Fails the first statement that it is told."""

    failing = ""

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if sql == self.failing:
            self.failing = ""
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, *arguments)


def test_keyed_records_are_kept_if_not_even_the_write_could_begin() -> None:
    with closing(sqlite3.connect(":memory:", factory=FailingOnce)) as writer:
        writer.failing = "PRAGMA synchronous = NORMAL"
        work = FoldWork(1, has_keyed=True)
        FoldWriter().write(writer, work, [(-1, "topic", b"record")], 1)
        assert work.error is not None
        assert work.has_keyed


def test_a_connection_that_fails_once_to_sync_again_stays_open() -> None:
    with closing(sqlite3.connect(":memory:", factory=FailingOnce)) as writer:
        with tables.without_sync(writer):
            writer.failing = "PRAGMA synchronous = FULL"
        assert writer.execute("PRAGMA synchronous").fetchone() == (2,)


def test_the_parts_of_a_large_group_whose_fold_failed_do_not_stay() -> None:
    with closing(
        sqlite3.connect(":memory:", factory=FailingOnce, isolation_level=None)
    ) as connection:
        tables.migrate(connection, Path("store.db"))
        ((epoch,),) = connection.execute("SELECT epoch FROM lease").fetchall()
        writer = FoldWriter()

        def parts_after(part: FoldedPart | None) -> int:
            work = FoldWork(1, has_keyed=False)
            work.part = part
            writer.write(connection, work, [], epoch)
            ((count,),) = connection.execute("SELECT count(*) FROM group_parts").fetchall()
            return int(count)

        assert parts_after(FoldedPart(0, "g", 0, b"first", None)) == 1
        connection.failing = tables.SAVE_PART
        assert parts_after(FoldedPart(0, "g", 1, b"second", None)) == 1
        assert parts_after(None) == 0
