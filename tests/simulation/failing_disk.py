"""SQLite on a disk that fails to sync, forgets pages, and loses its power
(docs/decisions/0043-failed-sync.md).
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from groupkeeper.storage.backends.sqlite import checkpoints
from groupkeeper.storage.backends.sqlite.tables import connect_reader
from groupkeeper.storage.base import OffsetStorage
from tests.helpers.storage.forgetful_disk import Cached, ForgetfulDisk
from tests.simulation.backends import SqliteBackend
from tests.simulation.store import Misfortune

if TYPE_CHECKING:
    from tests.simulation.world import World

CHECKPOINT_PAGES = (20, 1_000)
RETRY_PAGES = 5
"""The numbers of pages after which a checkpoint is due, and after which it is tried again. In some
worlds they are small, so there are many checkpoints. In others almost only a start makes one, so
pages that are lost in the WAL stay lost."""


class FailingDiskBackend(SqliteBackend):
    """A file on a disk with a cache."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.disk = ForgetfulDisk(self.path.parent, Random(world.random.random()))
        self.disk.fails = self._fails
        self._fate: Misfortune | None = None
        self._syncs_left = -1
        """The number of syncs that succeed before one fails. -1: none fails."""
        self._readers: list[sqlite3.Connection] = []
        self._of_database = False
        """True if only a sync of the database fails, as in a checkpoint."""
        self._usual_pages = checkpoints.CHECKPOINT_PAGES, checkpoints._RETRY_PAGES
        _set_pages(world.random.choice(CHECKPOINT_PAGES), RETRY_PAGES)

    def open_life(self, fate: Misfortune) -> OffsetStorage:
        self._fate = fate
        return super().open_life(fate)

    def fail_sync(self, after: int, *, of_database: bool) -> None:
        """Let one sync fail, after ``after`` others."""
        self._syncs_left, self._of_database = after, of_database

    def heal(self) -> None:
        self._syncs_left = -1

    def _fails(self, file: Cached) -> bool:
        """Return whether this sync fails. The worlds begin with a store that was created."""
        if self._syncs_left < 0 or self._fate is None or self._fate.is_dead:
            return False
        if self._of_database and file.name != str(self.path):
            return False
        self._syncs_left -= 1
        if self._syncs_left >= 0:
            return False
        self._fate.faults["failed sync"] += 1
        self._fate.has_failed_sync = True
        return True

    def read_for(self, seconds: float, connected_s: float) -> None:
        """Read like another process: in one transaction of ``seconds``, over a connection of
        ``connected_s``.
        """
        reader = connect_reader(self.path, 0)
        with suppress(sqlite3.OperationalError):  # SQLite's index is not built yet
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM log").fetchall()
        self._readers.append(reader)
        self._world.loop.call_later(seconds, self._end_transaction, reader)
        self._world.loop.call_later(connected_s, self._end_read, reader)

    def _end_transaction(self, reader: sqlite3.Connection) -> None:
        if reader in self._readers and reader.in_transaction:
            reader.execute("COMMIT")

    def _end_read(self, reader: sqlite3.Connection) -> None:
        if reader in self._readers:
            self._readers.remove(reader)
            reader.close()

    def steal(self, shards: list[int]) -> None:
        """Let another owner hold the shards. Do nothing while it is unknown whether an append is
        stored, because only a start finds this out.
        """
        life, syncs_left = self._life, self._syncs_left
        if life is None or life._connection is None or self.doubtful is not None:
            return
        self._syncs_left = -1  # a failed sync of another process is not our matter
        super().steal(shards)
        self._syncs_left = syncs_left

    def cut_power(self) -> None:
        """End all readers of the file. Only the content of the disk is left."""
        for reader in list(self._readers):
            self._end_read(reader)
        self.disk.cut_power()

    def close(self) -> None:
        for reader in list(self._readers):
            self._end_read(reader)
        super().close()
        self.disk.remove()
        _set_pages(*self._usual_pages)


def _set_pages(due: int, again: int) -> None:
    checkpoints.CHECKPOINT_PAGES = due  # type: ignore[misc]
    checkpoints._RETRY_PAGES = again  # type: ignore[misc]
