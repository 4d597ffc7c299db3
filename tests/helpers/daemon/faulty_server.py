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
    """The daemon over a store that does what ``fault`` says."""

    entry = ("-m", "tests.helpers.daemon.faulty_daemon")

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, topics={"orders": 1})
        self._fault = directory / "fault"
        self.environment = {"FAULT_FILE": str(self._fault)}

    def fault(self, name: str) -> None:
        """From now on it misbehaves like this; "" ends it."""
        if name:
            new = self._fault.with_suffix(".new")
            new.write_text(name)
            new.rename(self._fault)
        else:
            self._fault.unlink()

    def events(self) -> list[str]:
        """The events of its log."""
        return [json.loads(line)["event"] for line in self.log.splitlines()]

    def wait_for_log(self, event: str) -> dict[str, Any]:
        """The first line of its log that tells this."""
        wait_until(lambda: event in self.events(), self)
        lines = map(json.loads, self.log.splitlines())
        return next(line for line in lines if line["event"] == event)


def wait_until(condition: Callable[[], bool], daemon: Groupkeeper) -> None:
    """Ask again until the answer is yes. Bounded, and how long it took is nobody's assertion."""
    for _ in range(1_000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(daemon.log)
