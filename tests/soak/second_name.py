"""A second daemon that somebody starts on the same database, under another name (a hard link).

Each name has a lock file and a write-ahead log of its own, so two daemons would both acknowledge
commits, and then the database is malformed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.helpers.daemon.servers import Groupkeeper

START_LIMIT_S = 30
LEFT_BEHIND = ("", ".lock", "-wal", "-shm", ".sealing")
TOLD = ("under another name", "hard links")
"""What the log of the second daemon says: the database is locked, or it has two names."""


class SecondName:
    """The link, and the daemon on it."""

    def __init__(self, database: Path, directory: Path) -> None:
        """The second daemon has its settings and its log in ``directory``."""
        self._database = database
        self._link = database.with_name("second-name.db")
        self.daemon = Groupkeeper(directory, storage_url=f"sqlite:///{self._link}")

    def come(self) -> str | None:
        """Start the second daemon, and wait until it was refused. Return a finding if it was not.

        Removes the link at the end, because the first daemon could not start again beside it.
        """
        os.link(self._database, self._link)
        try:
            self.daemon.launch()
            return self._finding()
        finally:
            self.daemon.stop()
            for ending in LEFT_BEHIND:
                self._link.with_name(self._link.name + ending).unlink(missing_ok=True)

    def _finding(self) -> str | None:
        process = self.daemon.process
        assert process is not None
        give_up_s = time.monotonic() + START_LIMIT_S
        while process.poll() is None:
            if self.daemon.get("/readyz")[0] == 200:
                return "a second daemon serves the same database, under another name"
            if time.monotonic() > give_up_s:
                return f"a second daemon on the database was not refused in {START_LIMIT_S} s"
            time.sleep(0.05)
        if process.returncode == 0 or not any(each in self.daemon.log for each in TOLD):
            return f"a second daemon on the database ended with {process.returncode}, untold"
        return None
