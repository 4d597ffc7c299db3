"""Another process with a connection to the database of a store: an operator's shell."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHELL = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for line in sys.stdin:
    print(connection.execute(line).fetchall(), flush=True)
"""


class OtherProcess:
    """A process that executes statements."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def execute(self, sql: str) -> str:
        """Execute a statement of one line. Return its rows as text."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(sql + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        """Let the process close its connection and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def other_process(path: Path) -> Iterator[OtherProcess]:
    """Start a process with a connection. Kill it at the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-c", _SHELL, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield OtherProcess(process)
        finally:
            process.kill()
