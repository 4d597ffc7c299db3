"""The normal daemon in gateway mode, which kills its own process at a chosen step of a transaction.

A test writes ``STEP COUNT`` into the file that the variable ``FAILPOINT_FILE`` names. The process
is killed when the step happens for the COUNT-th time.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from groupkeeper.__main__ import main
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.requests.transactions import EndTransactions
from groupkeeper.coordinator.gateway.journal import journal
from groupkeeper.coordinator.gateway.journal import shard as journal_shard
from groupkeeper.coordinator.gateway.journal import shards as journal_shards
from groupkeeper.coordinator.gateway.journal.shard import (
    JournalCoordinator,
    JournalShard,
    ask_shard,
)
from groupkeeper.coordinator.gateway.journal.writer import JournalWriter
from tests.helpers.daemon.failpoint_daemon import at_step

STEPS: Final = (
    "pending",  # the offsets are durable as pending, and no Produce was sent
    "sent",  # a Produce is on its way
    "unanswered",  # the broker has answered, and nobody has seen it
    "written",  # the record was read again
    "confirmed",  # the store has confirmed the pending offsets, and the client has no answer
    "marker",  # a marker was read, and the transaction has not ended here
    "ended",  # the transaction has ended in the store, and nobody knows
)
SENT_S: Final = 0.002
"""After this time, a Produce was sent, and the broker has not answered yet."""


class FailingWriter(JournalWriter):
    """Dies before, during and after a Produce."""

    async def write(self, *arguments: Any) -> ErrorCode:
        error = await super().write(*arguments)
        at_step("written")
        return error

    async def _produce(self, *arguments: Any) -> tuple[int, int]:
        at_step("pending")
        sending = asyncio.ensure_future(super()._produce(*arguments))
        await asyncio.wait([sending], timeout=SENT_S)
        at_step("sent")
        answer = await sending
        at_step("unanswered")
        return answer


class FailingShard(JournalShard):
    """Dies before the client is answered."""

    async def confirm(self, pending_id: str) -> ErrorCode:
        error = await super().confirm(pending_id)
        at_step("confirmed")
        return error


async def ask_and_fail(coordinator: JournalCoordinator, request: Request) -> Any:
    """Die before or after a transaction ends in its shard."""
    ends = isinstance(request, EndTransactions)
    if ends:
        at_step("marker")
    result = await ask_shard(coordinator, request)
    if ends:
        at_step("ended")
    return result


if __name__ == "__main__":
    # The classes create each other by their names in these modules, so these names are replaced.
    journal.JournalWriter = FailingWriter  # type: ignore[misc]
    journal_shards.JournalShard = FailingShard  # type: ignore[misc]
    journal_shard.ask_shard = ask_and_fail
    main()
