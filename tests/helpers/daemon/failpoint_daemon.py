"""The normal daemon with a connection to SQLite that kills its own process at a chosen point.

A test writes ``POINT COUNT`` into the file that the variable ``FAILPOINT_FILE`` names. The process
is then killed at the COUNT-th append from that moment on. For the point ``fold`` it is killed at
the COUNT-th group that is written into the folded tables. ``FOLD_AFTER`` makes the fold begin
early.
"""

from __future__ import annotations

import functools
import os
import signal
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import groupkeeper.storage.backends.sqlite.store
import groupkeeper.storage.event_log.sealing.process
import groupkeeper.storage.event_log.sealing.storage
from groupkeeper.__main__ import main
from groupkeeper.storage.backends.sqlite import tables as sqlite_tables
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.event_log.sealing.storage import SealedStorage
from tests.helpers.storage.writer_connection import connecting

POINTS = ("before", "inside", "after", "fold")
SEALING_POINTS = (
    "written",
    "synced",
    "indexed",
    "renamed",
    "directory_synced",
    "listed",
    "noted",
    "trimmed",
)
"""The steps of sealing. The process dies when a step is done. The last two are steps of the daemon,
the others are steps of the process that seals for it (``tests.helpers.daemon.failpoint_sealing``).
"""


class FailingConnection(sqlite3.Connection):
    """Counts appends. It kills the process before, inside or after the chosen one, or inside the
    chosen fold.
    """

    point = ""
    left = 0
    is_prepared = False

    def prepare(self) -> None:
        """Create temporary triggers, which call this class from inside a statement, after it has
        changed its row.
        """
        self.is_prepared = True
        self.create_function("failpoint_append", 0, self._inside_append)
        self.create_function("failpoint_fold", 0, self._inside_fold)
        for name, when, function in (
            ("on_append", "INSERT ON main.log", "failpoint_append"),
            ("on_fold", "INSERT ON main.groups", "failpoint_fold"),
            ("on_fold_again", "UPDATE ON main.groups", "failpoint_fold"),
        ):
            super().execute(
                f"CREATE TEMP TRIGGER {name} AFTER {when} BEGIN SELECT {function}(); END"
            )

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        """Run a statement. If it is an append, count it, and die at the chosen point."""
        if statement != sqlite_tables.APPEND:
            return super().execute(statement, *arguments)
        if not self.is_prepared:  # the tables exist now
            self.prepare()
        self._look()
        if self.point != "fold":
            self.left -= 1
        self._die_at("before")
        cursor = super().execute(statement, *arguments)
        self._die_at("after")
        return cursor

    def _look(self) -> None:
        order = Path(os.environ["FAILPOINT_FILE"])
        if self.point or not order.exists():
            return
        point, count = order.read_text().split()
        if point in SEALING_POINTS:
            return
        assert point in POINTS
        self.left = int(count)
        self.point = point

    def _inside_append(self) -> int:
        self._die_at("inside")
        return 0

    def _inside_fold(self) -> int:
        if self.point == "fold":
            self.left -= 1
        self._die_at("fold")
        return 0

    def _die_at(self, point: str) -> None:
        if point == self.point and self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def at_step(step: str, *others: int) -> None:
    """Kill this process if the file names this step, and the step was done COUNT times. The
    processes ``others`` are killed just before.
    """
    order = Path(os.environ["FAILPOINT_FILE"])
    if not order.exists():
        return
    point, count = order.read_text().split()
    if point == step:
        _done[step] += 1
        if _done[step] >= int(count):
            for pid in (*others, os.getpid()):
                os.kill(pid, signal.SIGKILL)


_done: Counter[str] = Counter()


if __name__ == "__main__":
    # The constructors accept replacements. Only the class that the app imports by name is patched,
    # and only here. `storage.open` imports it when it opens a store.
    groupkeeper.storage.backends.sqlite.store.SqliteOffsetStorage = functools.partial(  # type: ignore[misc,assignment]
        SqliteOffsetStorage,
        connect=connecting(FailingConnection),
        fold_after=int(os.environ["FOLD_AFTER"]),
    )
    groupkeeper.storage.event_log.sealing.storage.SealedStorage = functools.partial(  # type: ignore[misc,assignment]
        SealedStorage, hook=at_step, poll_s=0.05
    )
    groupkeeper.storage.event_log.sealing.process.COMMAND = (
        sys.executable,
        "-m",
        "tests.helpers.daemon.failpoint_sealing",
    )
    main()
