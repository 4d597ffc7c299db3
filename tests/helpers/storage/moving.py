"""A move of a store in its own process, which stops at one of its requests to a server.

The process suspends itself there. The test then kills it, or lets it go on after the test has
changed something. So a move can be interrupted at each of its steps.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from tests.helpers.storage.storage_owner import IDENTITY

TTL_MS = 400
TIMEOUT_MS = 3_000
PORTION_BYTES = 64 * 1024
LIMIT_S = 150.0
"""Long enough for a fold that gets no answer, on a busy machine."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__, "groupkeeper.storage.tools.by_url"])


class Outcome(NamedTuple):
    """The outcome of a move."""

    error: str
    """"" if it succeeded."""
    requests: int
    """The number of requests that it has sent."""


class MovingProcess:
    """A move that runs, or is suspended."""

    def __init__(
        self, source: str, target: str, *, stop_at: int = 0, in_flight: bool = False
    ) -> None:
        """Start it. It suspends itself before it sends the request with the number ``stop_at``, or
        if ``in_flight``, a moment after it has begun to send it. 0: nowhere.
        """
        self._results, ours = _context.Pipe(duplex=False)
        self._process = _context.Process(
            target=_move, args=(source, target, stop_at, in_flight, ours)
        )
        self._process.start()
        ours.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def wait_stopped(self) -> bool:
        """Wait until it has suspended itself. Return False if it has ended before."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            if self._results.poll():
                return False
            if _state(self.pid) == "T":
                return True
            time.sleep(0.005)
        raise AssertionError("the move neither stops nor ends")

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._results.close()

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def outcome(self) -> Outcome:
        """Wait until the move ends."""
        try:
            assert self._results.poll(LIMIT_S), "the move does not end"
            found: Outcome = self._results.recv()
        finally:
            self.kill()
        return found


def run_move(source: str, target: str) -> Outcome:
    return MovingProcess(source, target).outcome()


def _state(pid: int) -> str:
    """Return the letter of the state of a process; "" if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


class _StoppingCounter(Counter[str]):
    """Counts requests, as the drivers do, and suspends the process at one of them."""

    stop_at = 0
    in_flight = False
    numbers = count(1)
    sent = 0

    def __setitem__(self, call: str, times: int) -> None:
        super().__setitem__(call, times)
        kind = _StoppingCounter
        kind.sent = next(kind.numbers)
        if kind.sent == kind.stop_at:
            if kind.in_flight:
                asyncio.get_running_loop().call_later(0.002, _stop)
            else:
                _stop()


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _move(source: str, target: str, stop_at: int, in_flight: bool, results: Any) -> None:
    """Run in the process: move, and send the outcome."""
    from groupkeeper.storage.backends.kafka_topic import store as kafka_store
    from groupkeeper.storage.backends.key_value import driver as key_value_driver
    from groupkeeper.storage.backends.postgres import driver as postgres_driver
    from groupkeeper.storage.base import StorageError
    from groupkeeper.storage.tools import move, move_targets
    from groupkeeper.storage.tools.by_url import move_store

    _StoppingCounter.stop_at, _StoppingCounter.in_flight = stop_at, in_flight
    for module in (kafka_store, key_value_driver, postgres_driver):
        module.Counter = _StoppingCounter  # type: ignore[misc, attr-defined]
    for module in (move, move_targets):
        module.PORTION_BYTES = PORTION_BYTES  # type: ignore[misc]
    work = move_store(
        source,
        target,
        IDENTITY,
        append_timeout_ms=TIMEOUT_MS,
        lease_ttl_ms=TTL_MS,
        progress=lambda *_: None,
    )
    error = ""
    try:
        asyncio.run(work)
    except StorageError as failed:
        error = str(failed)
    results.send(Outcome(error, _StoppingCounter.sent))
