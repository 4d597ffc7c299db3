"""Commit at a steady rate to simple groups, one commit at a time, and record each result."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tests.helpers.core.group_view import commit
from tests.helpers.wire.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Sequence

Key = tuple[str, str, int]
"""(group, topic, partition)."""


class CommitLoader:
    """Commits one request after the other in a thread. After a crash of the server, each offset
    must be the last acknowledged one or the one in flight.
    """

    def __init__(
        self, port: int, groups: Sequence[str], topic: str, partitions: int, rate: float
    ) -> None:
        self.acknowledged: dict[Key, int] = {}
        self.in_flight: dict[Key, int] = {}
        """The offsets of the last request while it has no answer."""
        self.count = 0
        """The number of acknowledged requests."""
        self._port = port
        self._groups = groups
        self._topic = topic
        self._partitions = partitions
        self._period_s = 1 / rate
        self._next = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Continue after a restart of the server."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the commit in flight. Raises AssertionError if a commit was answered with an
        error.
        """
        assert self._thread is not None
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise AssertionError("a commit was answered with an error") from self.failure

    def check(self, found: dict[Key, int]) -> None:
        """Assert that each offset of the server is the last acknowledged one or the one in
        flight.
        """
        for key in self.acknowledged.keys() | self.in_flight.keys():
            allowed = {self.acknowledged.get(key), self.in_flight.get(key)} - {None}
            if key not in self.acknowledged:
                allowed.add(None)  # the very first commit may be lost if it was not acknowledged
            assert found.get(key) in allowed, f"{key}: has {found.get(key)}, may have {allowed}"
        # In both cases it counts as acknowledged from now on.
        self.acknowledged.update({key: found[key] for key in self.in_flight if key in found})
        self.in_flight.clear()

    def _run(self) -> None:
        try:
            with RawClient(self._port, client_id="loader") as client:
                self._commit_until_stopped(client)
        except OSError:
            return  # the server was killed: ``in_flight`` keeps the open request
        except BaseException as error:  # noqa: BLE001 - stop() raises it in the test
            self.failure = error

    def _commit_until_stopped(self, client: RawClient) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self._next += 1
            group = self._groups[self._next % len(self._groups)]
            offsets = dict.fromkeys(range(self._partitions), self._next)
            keys = [(group, self._topic, partition) for partition in offsets]
            self.in_flight = dict.fromkeys(keys, self._next)
            codes = commit(client, group, self._topic, offsets)
            assert codes == dict.fromkeys(offsets, 0)
            self.acknowledged.update(self.in_flight)
            self.in_flight = {}
            self.count += 1
            due = max(due + self._period_s, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))
