"""The SQLite writer's connection as a class of a test, which fails, spies or kills."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from groupkeeper.storage.backends.sqlite.tables import Connect


def connecting(kind: type[sqlite3.Connection]) -> Connect:
    """Return a function that opens connections of this class, in place of
    ``sqlite.tables.connect_writer``.
    """

    def connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
        return sqlite3.connect(
            path,
            timeout=busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=kind,
        )

    return connect
