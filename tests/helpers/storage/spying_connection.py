"""A writer's connection that calls a test before and after every statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.helpers.storage.writer_connection import connecting


class Spy:
    """Use ``spy.connect`` as the ``connect`` of a SqliteOffsetStorage."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        """Every statement of the writer since the test last cleared the list. Statements that only
        set whether it waits for the disk are left out."""
        self.parameters: Iterable[Any] = ()
        """The parameters of the statement for which ``before`` is called."""
        self.busy_timeout_s = -1.0
        """The time that the last connection waits for a lock of another process."""
        self.before: Callable[[str], None] = lambda sql: None
        self.after: Callable[[str], None] = lambda sql: None

    def connect(self, path: Path, busy_timeout_s: float) -> sqlite3.Connection:
        spy = self
        spy.busy_timeout_s = busy_timeout_s

        class SpiedConnection(sqlite3.Connection):
            def execute(self, sql: str, parameters: Iterable[Any] = (), /) -> sqlite3.Cursor:  # type: ignore[override]
                if not sql.startswith("PRAGMA synchronous"):
                    spy.statements.append(" ".join(sql.split()[:3]))
                spy.parameters = parameters
                spy.before(sql)
                cursor = super().execute(sql, parameters)  # type: ignore[arg-type]
                spy.after(sql)
                return cursor

        return connecting(SpiedConnection)(path, busy_timeout_s)
