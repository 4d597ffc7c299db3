"""A process that is many members of one kind: ``python -m tests.soak.client_host FILE``.

The file is JSON: what ``cast`` wrote. SIGTERM means: finish what you are at, commit no more, and
end without leaving the groups.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.soak import raw_members, real_members
from tests.soak.ledger import PULSE_S, Writer

NICE = 10
"""Elsewhere clients have machines of their own: a thousand that come back at once must not take
the CPU from the process that they come back to."""

_closing = threading.Event()


@dataclass(frozen=True)
class Part:
    """A member's part in the soak, and its pen."""

    name: str
    number: int
    group: str
    instance: str | None
    port: int
    topic: str
    partitions: int
    session_ms: int
    heartbeat_ms: int
    rebalance_ms: int
    commit_every_s: float
    ledger: Writer

    @property
    def bootstrap(self) -> str:
        """Where the coordinator is, HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    def closing(self) -> bool:
        return _closing.is_set()

    def identity(self, member_id: str) -> None:
        self.ledger.identity(self.name, member_id)

    def begins_anew(self, why: str) -> None:
        """Write down that a consumer is replaced."""
        self.ledger.begins_anew(self.name, why)

    def sends(self, partitions: list[int]) -> int:
        """Write down that a commit is sent; returns its offset."""
        offset = self.ledger.next_offset(self.number)
        self.ledger.sends(self.name, self.group, offset, partitions)
        return offset

    def has(self, offset: int, partitions: list[int]) -> None:
        """Write down that it was acknowledged."""
        if partitions:
            self.ledger.has(self.name, self.group, offset, partitions)


IN_A_LOOP: dict[str, Callable[[list[Part]], Coroutine[Any, Any, None]]] = {
    "raw": raw_members.live,
    "aiokafka": real_members.live_aiokafka,
}
IN_THREADS: dict[str, Callable[[list[Part]], None]] = {
    "librdkafka": real_members.live_librdkafka,
    "kafka-python": real_members.live_kafka_python,
}


async def _live_in_a_loop(kind: str, parts: list[Part], ledger: Writer) -> None:
    """The loop itself has to find time for the pulse."""

    async def pulse() -> None:
        while not _closing.is_set():
            ledger.pulse()
            await asyncio.sleep(PULSE_S)

    await asyncio.gather(pulse(), IN_A_LOOP[kind](parts))


def _live_in_threads(kind: str, parts: list[Part], ledger: Writer) -> None:
    def pulse() -> None:
        ledger.pulse()
        while not _closing.wait(PULSE_S):
            ledger.pulse()

    threading.Thread(target=pulse, daemon=True).start()
    IN_THREADS[kind](parts)


def main() -> None:
    faulthandler.register(signal.SIGUSR1)  # where every thread is, for a member that hangs
    signal.signal(signal.SIGTERM, lambda *_: _closing.set())
    logging.disable(logging.CRITICAL)
    os.nice(NICE)
    told = json.loads(Path(sys.argv[1]).read_text())
    ledger = Writer(Path(told["ledger"]))
    parts = [Part(**member, **told["common"], ledger=ledger) for member in told["members"]]

    kind = told["kind"]
    if kind in IN_A_LOOP:
        asyncio.run(_live_in_a_loop(kind, parts, ledger))
    else:
        _live_in_threads(kind, parts, ledger)


if __name__ == "__main__":
    main()
