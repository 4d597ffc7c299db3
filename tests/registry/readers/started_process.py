"""A process of a spread group, as the test that started it sees it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

from tests.registry.readers.reader_process import LOCK_DELAY_MS, TTL_MS

TTL_S = TTL_MS / 1000
LONGEST_S = 2 * TTL_S + LOCK_DELAY_MS / 1000
"""Consul ends a session after its TTL at the earliest, and after twice that at the latest."""


class ReaderProcess:
    """A process of the group, and the file in which it says what it read."""

    def __init__(self, arguments: list[str], path: Path, *pace: str) -> None:
        self.path = path
        program = [sys.executable, "-m", "tests.registry.readers.reader_process"]
        self._process = subprocess.Popen(
            [*program, *arguments, str(path), *pace],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """The number of the process, which is also part of its member id."""
        return self._process.pid

    def say(self, order: str) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(order + "\n")
        stdin.flush()

    def hear(self) -> str:
        stdout: IO[str] | None = self._process.stdout
        assert stdout is not None
        return stdout.readline().strip()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        return self._process.wait(60)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()

    def read(self) -> list[tuple[int, int, int]]:
        """When, of which partition, which offset; the last line of a killed one may be torn."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [(int(t), int(p), int(o)) for t, p, o in (line.split() for line in lines)]
