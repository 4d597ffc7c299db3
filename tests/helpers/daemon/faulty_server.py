"""The daemon over a store that a test lets fail, hang or never close."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from tests.helpers.daemon.servers import Groupkeeper

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class FaultyDaemon(Groupkeeper):
    """The daemon over a store with the fault that a test sets (``faulty_daemon.FAULTS``)."""

    entry = ("-m", "tests.helpers.daemon.faulty_daemon")

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, topics={"orders": 1})
        self._fault = directory / "fault"
        self.environment = {"FAULT_FILE": str(self._fault)}

    def fault(self, name: str) -> None:
        """Begin a fault. "" ends the present one."""
        if name:
            new = self._fault.with_suffix(".new")
            new.write_text(name)
            new.rename(self._fault)
        else:
            self._fault.unlink()

    def events(self) -> list[str]:
        """Return the event names of all lines of its log."""
        return [json.loads(line)["event"] for line in self.log.splitlines()]

    def wait_for_log(self, event: str) -> dict[str, Any]:
        """Wait for the first line of its log with this event, and return the line."""
        wait_until(lambda: event in self.events(), self)
        lines = map(json.loads, self.log.splitlines())
        return next(line for line in lines if line["event"] == event)


def wait_until(condition: Callable[[], bool], daemon: Groupkeeper) -> None:
    """Wait until the condition is true. Raises AssertionError with the daemon's log after a time
    limit.
    """
    for _ in range(1_000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(daemon.log)
