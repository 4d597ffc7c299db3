"""A SQLite store whose statements a test can see and interrupt."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from groupkeeper import read_events
from groupkeeper.storage.backends.group_parts import MAX_PART_BYTES
from groupkeeper.storage.backends.sqlite.load import read_log_end
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from tests.helpers.storage.spying_connection import Spy
from tests.helpers.storage.storage_owner import Owner

INSERT_ROW = "INSERT INTO log"
INSERT_KEYED = "INSERT INTO keyed"
INSERT_GROUPS = "INSERT INTO groups"
INSERT_PART = "INSERT INTO group_parts"
DELETE_GROUPS = "DELETE FROM groups"


class Bench:
    """A store with a spied connection. It begins to fold early."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spy = Spy()
        self.fold_after = 50_000
        self.part_bytes = MAX_PART_BYTES
        self.copies = 0
        self.append_timeout_ms = 5_000
        self.wall_ms = 1_700_000_000_000
        self.owners: list[Owner] = []

    async def owner(self) -> Owner:
        storage = SqliteOffsetStorage(
            self.path,
            append_timeout_ms=self.append_timeout_ms,
            clock=lambda: self.wall_ms,
            fold_after=self.fold_after,
            part_bytes=self.part_bytes,
            connect=self.spy.connect,
        )
        self.owners.append(await Owner(storage).start())
        self.spy.statements.clear()
        return self.owners[-1]

    async def written(self, owner: Owner) -> None:
        """Wait until the writer thread has done its work after an append, and the loop knows it."""
        await owner.storage.on_writer(lambda _: None)
        owner.storage.unfolded()

    async def reopened(self, owner: Owner) -> Owner:
        """Close the store and open it again."""
        path = owner.storage.path
        await owner.storage.close()
        self.owners.append(
            await Owner(SqliteOffsetStorage(path, part_bytes=self.part_bytes)).start()
        )
        return self.owners[-1]

    async def copied(self) -> Owner:
        """Return a copy of the store as a kill at this moment would leave it."""
        self.copies += 1
        path = self.path.with_name(f"copy-{self.copies}.db")
        for suffix in ("", "-wal"):
            shutil.copy(f"{self.path}{suffix}", f"{path}{suffix}")
        owner = Owner(SqliteOffsetStorage(path, part_bytes=self.part_bytes))
        self.owners.append(await owner.start())
        return owner

    def folded_row(self) -> int:
        """Return the ``folded_row`` that the store holds."""
        with closing(sqlite3.connect(self.path)) as connection:
            return read_log_end(connection, self.path).folded_row

    def offsets(self, group_id: str) -> dict[int, int]:
        """Return partition -> offset of a group, from the view ``offsets``. It must have each
        offset once.
        """
        sql = "SELECT \"partition\", committed_offset FROM offsets WHERE group_id = '{}'"
        found = self.sql(sql.format(group_id))
        assert len(dict(found)) == len(found)
        return dict(found)

    async def folded(self, owner: Owner) -> None:
        """Wait until the writer thread has done its work after an append. A load waits in its
        queue.
        """
        await owner.read()

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(statement).fetchall()


def seqs(bench: Bench) -> list[int]:
    return [event["seq"] for event in read_events(bench.path)]
