"""Servers of others as processes, each ready when it says so."""

from __future__ import annotations

import re
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

LOOKS: Final = 3_000
"""Five minutes: on a busy machine a JVM needs one."""


def started(
    stack: ExitStack, log: Path, command: list[str], environment: dict[str, str], says: str
) -> str:
    """Start a process, which ends with the stack. Return the group of the pattern in its output
    when it is there.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    stack.callback(process.wait)
    stack.callback(process.kill)
    for _ in range(LOOKS):
        if found := re.search(says, log.read_text()):
            return found[1]
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())
