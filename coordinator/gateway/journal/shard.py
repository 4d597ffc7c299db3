"""Processes the entries of one partition of the journal, and ends the transactions of its shard.

The journal is a topic of ours, with a record for each TxnOffsetCommit. The offsets of the request
are pending until the transaction ends. When we read the marker of the transaction, the shard
commits or drops them. An entry of the journal is such a record, or a marker.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import structlog

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.requests.transactions import (
    ConfirmPending,
    DropPending,
    EndedTransaction,
    EndTransactions,
    MoveJournal,
    ReadPending,
    ReadPendingResult,
)
from groupkeeper.coordinator.gateway.journal.partition import JournalPartition
from groupkeeper.coordinator.gateway.journal.records import TransactionEntry
from groupkeeper.coordinator.gateway.journal.sequences import Sequences
from groupkeeper.coordinator.runtime.tickets import Awaited, Ticket

log = structlog.get_logger(__name__)

RETRY_S: Final = 0.2
"""The pause before a shard that is loading is asked again."""

MAX_WAITING: Final = 1_000
"""The number of ended transactions of one shard that may wait for the store. If this many wait, the
partition of the shard is not read.
"""

MAX_ENDED_AT_ONCE: Final = 200
"""The largest number of transactions in one request to the shard."""

MAX_RECORDS: Final = 10_000
"""If more records of open transactions are kept, those without pending offsets are forgotten. Any
client that may write to the topic can write such records."""

MOVE_AFTER: Final = 1_000
"""If no transaction ends, the restart position is stored whenever it has moved by this many
entries.
"""


class JournalCoordinator(Protocol):
    """A coordinator, with only the method that the journal uses."""

    def submit(self, request: Request, ticket: Ticket) -> None: ...


async def ask_shard(coordinator: JournalCoordinator, request: Request) -> Any:
    """Submit a request, and retry it while it fails, such as while its shard is loading. Return the
    answer.
    """
    while True:
        ticket = Awaited()
        coordinator.submit(request, ticket)
        result = await ticket.future
        if result.error is ErrorCode.NONE:
            return result
        await asyncio.sleep(RETRY_S)


class JournalLost(Exception):
    """The partition is no longer read, or entries were removed before we read them."""


class JournalShard:
    """The partition of the journal that belongs to one shard."""

    def __init__(
        self, shard_id: int, topic_id: str, position: int, coordinator: JournalCoordinator
    ) -> None:
        self.shard_id = shard_id
        self.topic_id = topic_id
        self.partition = JournalPartition(position)
        self.sequences = Sequences()
        self.asking = asyncio.Lock()
        """Held while the broker is asked for sequence numbers."""
        self.lost = ""
        """The reason why the journal cannot decide about all pending offsets, so that a person must
        decide. Empty if it can.
        """
        self.is_gone = False
        """True if the shard is lost because its topic was deleted or replaced."""
        self.is_cut = False
        """True if records were removed that we had not read. Then no pending offsets are dropped.
        The stored position does not move, because nothing else shows after a restart that records
        are missing.
        """
        self._coordinator = coordinator
        self._records: dict[str, tuple[int, asyncio.Future[bool]]] = {}
        """Pending id -> its producer, and a future that is done when its record is read."""
        self._markers: Counter[int] = Counter()
        """Watched producer -> the number of its markers that were read."""
        self._positions: list[tuple[int, asyncio.Future[None]]] = []
        self._ended: list[EndedTransaction] = []
        self._worker: asyncio.Task[None] | None = None
        self._forgetting: asyncio.Task[None] | None = None
        self._most_records = MAX_RECORDS
        self.ended_transactions = 0
        self.end = 0
        """The end offset of the partition at the last fetch."""

    @property
    def is_full(self) -> bool:
        """True if the partition must not be read now: too many ended transactions wait for the
        store, or records are being forgotten.
        """
        return len(self._ended) >= MAX_WAITING or self._forgetting is not None

    @property
    def lag(self) -> int:
        """The number of entries of the partition that are not read yet."""
        return max(0, self.end - self.partition.position)

    # --- for the reader ---------------------------------------------------------------------------

    def read(self, entries: Sequence[TransactionEntry], position: int) -> None:
        """Process entries of the partition. ``position`` is the offset of the next read."""
        ended = self.partition.take(entries, position)
        for entry in entries:
            if entry.is_commit is not None and entry.producer_id in self._markers:
                self._markers[entry.producer_id] += 1
            producer_id, waiting = self._records.get(entry.pending_id, (-1, None))
            if waiting is not None and producer_id == entry.producer_id and not waiting.done():
                waiting.set_result(True)
        self._ended += ended
        reached = [future for offset, future in self._positions if offset <= position]
        self._positions = [each for each in self._positions if each[0] > position]
        for future in reached:
            if not future.done():
                future.set_result(None)
        if self._ended or self._is_far():
            self._work()
        if self.partition.records > self._most_records and self._forgetting is None:
            forget = self._forget_unknown(position)
            self._forgetting = asyncio.get_running_loop().create_task(forget)
            self._forgetting.add_done_callback(self._forgotten)

    async def _forget_unknown(self, before: int) -> None:
        """Forget the records before this position that belong to no pending offsets.

        Offsets are pending before their record is written, so the shard already knows them.
        """
        pending = await self.read_pending()
        self.partition.keep(pending, before)
        self._most_records = max(MAX_RECORDS, 2 * self.partition.records)

    def _forgotten(self, task: asyncio.Task[None]) -> None:
        self._forgetting = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("journal_shard_failed", shard=self.shard_id, exc_info=error)

    def _is_far(self) -> bool:
        if self.is_cut:
            return False
        return self.partition.restart_position() - self.partition.saved >= MOVE_AFTER

    def _work(self) -> None:
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._write())
            self._worker.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._worker = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("journal_shard_failed", shard=self.shard_id, exc_info=error)
        elif self._ended:
            self._work()  # they came after the last check of the task that ended

    async def _write(self) -> None:
        """Write ended transactions and the position to the shard, until nothing is left.

        Each request has the position at which a restart would begin. While ended transactions are
        left for a later request, a restart must read them again. So the position stays.
        """
        while self._ended or self._is_far():
            ended = tuple(self._ended[:MAX_ENDED_AT_ONCE])
            may_move = len(ended) == len(self._ended) and not self.is_cut
            position = self.partition.restart_position() if may_move else self.partition.saved
            request: Request
            if ended:
                request = EndTransactions(self.shard_id, ended, self.topic_id, position)
            else:
                request = MoveJournal(self.shard_id, self.topic_id, position)
            await ask_shard(self._coordinator, request)
            del self._ended[: len(ended)]
            self.ended_transactions += len(ended)
            self.partition.saved = position

    @property
    def is_read(self) -> bool:
        """True if the partition must be read. Even if its first records were removed, the others
        may end transactions.
        """
        return not self.lost or self.is_cut

    def lose(self, reason: str, *, is_gone: bool = False) -> None:
        """Mark the shard as lost. Writers refuse its records from now on, and calls that wait in
        ``reached`` raise JournalLost.
        """
        self.lost, self.is_gone = reason, is_gone
        waiting, self._positions = self._positions, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(JournalLost(reason))

    # --- for writers ------------------------------------------------------------------------------

    def expect(self, producer_id: int, pending_id: str) -> asyncio.Future[bool]:
        """Return a future that becomes True when the record of these pending offsets is read."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._records[pending_id] = producer_id, future
        return future

    def forget(self, pending_id: str) -> None:
        """Stop waiting for this record."""
        self._records.pop(pending_id, None)

    def watch(self, producer_id: int) -> None:
        """Begin to count the markers of a producer."""
        self._markers.setdefault(producer_id, 0)

    def unwatch(self, producer_id: int) -> None:
        """Stop counting the markers of a producer."""
        del self._markers[producer_id]

    def markers(self, producer_id: int) -> int:
        """Return how many markers of a watched producer were read."""
        return self._markers[producer_id]

    async def reached(self, position: int) -> None:
        """Wait until everything before this offset is read. Raises JournalLost if the shard is
        lost.
        """
        if self.lost:
            raise JournalLost(self.lost)
        if self.partition.position >= position:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = position, future
        self._positions.append(waiting)
        try:
            await future
        finally:
            with suppress(ValueError):  # it was reached
                self._positions.remove(waiting)

    async def drained(self) -> None:
        """Wait until all transactions that are known to have ended are stored."""
        while self._worker is not None or self._ended:
            self._work()
            assert self._worker is not None
            await asyncio.wait([self._worker])

    async def drop(self, pending_ids: Sequence[str]) -> None:
        """Drop pending offsets that the journal does not have."""
        await ask_shard(self._coordinator, DropPending(self.shard_id, tuple(pending_ids)))

    async def confirm(self, pending_id: str) -> ErrorCode:
        """Return NONE if these offsets are still pending, otherwise the error for the client.

        NONE also means that the store has accepted a write for this answer. So no other process
        owns the shard, and none can have dropped the offsets.
        """
        ticket = Awaited()
        self._coordinator.submit(ConfirmPending(self.shard_id, pending_id), ticket)
        result = await ticket.future
        if result.error is ErrorCode.NONE:
            return ErrorCode.NONE
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def unwritten(self, end: Callable[[], Any], in_flight: Collection[str]) -> set[str]:
        """Return the ids of pending offsets that have no record in the journal, and for which
        nobody writes a record at the moment. Raises JournalLost if the shard is lost.

        ``end`` returns the end of the partition. An earlier process that was killed may have left
        such offsets. Their client got no answer.
        """
        # The shard is asked before ``in_flight`` is read. While the shard loads, its answer takes
        # long, and then also has the offsets of commits that began in the meantime.
        pending = await self.read_pending()
        for each in in_flight:
            pending.pop(each, None)
        if not self._unread(pending):
            return set()
        # Nobody writes these any more. So a record of them lies before the end, if there is one.
        last = await end()
        if last < self.partition.position:
            raise JournalLost("the partition ends before what was read")  # the reader handles this
        await self.reached(last)
        missing = self._unread(pending)
        await self.drained()  # offsets whose transaction has just ended are not pending after this
        return missing & (await self.read_pending()).keys()

    def _unread(self, pending: Mapping[str, int]) -> set[str]:
        has = self.partition.has
        return {each for each, producer_id in pending.items() if not has(producer_id, each)}

    async def read_pending(self) -> dict[str, int]:
        """Return the ids of all pending offsets of the shard, with their producers."""
        result: ReadPendingResult = await ask_shard(self._coordinator, ReadPending(self.shard_id))
        return {each.pending_id: each.producer_id for each in result.pending}

    def stop(self) -> None:
        """Stop the work. Nothing is lost: a restart reads the partition again."""
        for task in (self._worker, self._forgetting):
            if task is not None:
                task.cancel()
        for _, record in self._records.values():
            record.cancel()
        for _, reached in self._positions:
            reached.cancel()
