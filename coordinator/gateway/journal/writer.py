"""Writes records to the journal in the name of clients' producers.

The journal is a topic of ours in the upstream, the Kafka cluster behind the gateway. The upstream
treats such a record as any other record of the producer: it checks the transaction, fences old
epochs, and later writes the marker. An attempt whose outcome is unknown is repeated with the same
sequence number, so the broker writes it at most once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

import structlog

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.gateway.client import BrokerError, NotSent, UnsupportedApi
from groupkeeper.coordinator.gateway.journal.links import (
    ADMIN_LANE,
    WRITE_LANES,
    JournalLinks,
    only,
)
from groupkeeper.coordinator.gateway.journal.records import encode_batch
from groupkeeper.coordinator.gateway.journal.shard import JournalLost, JournalShard
from groupkeeper.protocol.record_batches import Sender
from groupkeeper.protocol.writer import Row

log = structlog.get_logger(__name__)

PRODUCE: Final = 0
DESCRIBE_PRODUCERS: Final = 61, range(1)
LIST_OFFSETS: Final = 2, range(1, 8)

PRODUCE_TIMEOUT_MS: Final = 10_000
FIRST_RETRY_S: Final = 0.02
LAST_RETRY_S: Final = 1.0
MAX_NUMBERINGS: Final = 5
"""The largest number of times that the sequence number of one record is corrected because the
broker refused it.
"""

_LATEST: Final = -1
_EARLIEST: Final = -2
_ALL_REPLICAS: Final = -1


def produce_versions(txn_offset_commit_version: int) -> range:
    """Return the versions of Produce with the same behaviour as this version of TxnOffsetCommit.

    v5 and Produce 12 add the partition to the transaction (KIP-890, transaction version 2). v4 and
    Produce 11 answer TRANSACTION_ABORTABLE if the transaction cannot be verified.
    """
    if txn_offset_commit_version >= 5:
        return range(12, 13)
    return range(11, 12) if txn_offset_commit_version == 4 else range(3, 11)


class JournalWrite(NamedTuple):
    """A record to write into the journal, for the pending offsets with the id ``pending_id``."""

    pending_id: str
    group_id: str
    transactional_id: str
    sender: Sender
    versions: range
    """The versions of Produce to use."""


class WriteOutcome(Enum):
    """The result of an attempt to write a record, according to the answer to Produce."""

    WRITTEN = "it is in the log"
    UNKNOWN = "it may be in the log"
    LATER = "it is not in the log, and another attempt may succeed"
    RENUMBER = "another sequence number is due"
    REFUSED = "it is not in the log, and the client must know why"


_OUTCOMES: Final[Mapping[int, WriteOutcome]] = {
    ErrorCode.NONE: WriteOutcome.WRITTEN,
    ErrorCode.REQUEST_TIMED_OUT: WriteOutcome.UNKNOWN,
    13: WriteOutcome.UNKNOWN,  # NETWORK_EXCEPTION
    20: WriteOutcome.UNKNOWN,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: WriteOutcome.LATER,
    5: WriteOutcome.LATER,  # LEADER_NOT_AVAILABLE
    ErrorCode.NOT_LEADER_OR_FOLLOWER: WriteOutcome.LATER,
    19: WriteOutcome.LATER,  # NOT_ENOUGH_REPLICAS
    ErrorCode.CONCURRENT_TRANSACTIONS: WriteOutcome.LATER,
    56: WriteOutcome.LATER,  # KAFKA_STORAGE_ERROR
    45: WriteOutcome.RENUMBER,  # OUT_OF_ORDER_SEQUENCE_NUMBER
    46: WriteOutcome.RENUMBER,  # DUPLICATE_SEQUENCE_NUMBER
    59: WriteOutcome.RENUMBER,  # UNKNOWN_PRODUCER_ID
}
"""Error of Produce -> outcome. Every other error is a refusal."""

_ANSWERS: Final[Mapping[int, ErrorCode]] = {
    int(code): code
    for code in (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
    )
}
"""The errors of Produce that TxnOffsetCommit has too. Every other one is an error of the journal,
which clients retry as COORDINATOR_NOT_AVAILABLE."""


def error_of_commit(code: int) -> ErrorCode:
    """Return the error of TxnOffsetCommit for this error of Produce."""
    return _ANSWERS.get(code, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class _Attempts:
    """The state of the attempts to write one record."""

    def __init__(self, markers: int) -> None:
        """``markers`` is the number of the producer's markers before the first attempt."""
        self.sequence: int | None = None
        self.may_be_written = False
        self.numberings = 0
        self._markers = markers
        self._pause_s = FIRST_RETRY_S

    def are_over(self, outcome: WriteOutcome, markers: int) -> bool:
        """Return True if no further attempt to write the record may begin.

        After a marker of the producer its transaction has ended. In transaction version 1 the next
        transaction may have the same epoch. So a further attempt could write the record into that
        next transaction.
        """
        if outcome is WriteOutcome.WRITTEN:
            return False
        is_ended = markers != self._markers
        return outcome is WriteOutcome.REFUSED or is_ended or self.numberings > MAX_NUMBERINGS

    def next_pause_s(self) -> float:
        """Return the pause before the next attempt. It doubles with each call, up to
        ``LAST_RETRY_S``.
        """
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, LAST_RETRY_S)
        return pause_s


class JournalWriter:
    """Writes records into one topic. For each producer and shard, it writes one record at a
    time.
    """

    def __init__(
        self,
        links: JournalLinks,
        topic: str,
        leader_of: Callable[[int], int | None],
        leaders_changed: Callable[[], None],
    ) -> None:
        """``leader_of`` returns the leader of a partition. ``leaders_changed`` is called if a
        broker says that it is not the leader, or does not answer."""
        self._links = links
        self._topic = topic
        self._leader_of = leader_of
        self._leaders_changed = leaders_changed
        self._turns: dict[tuple[int, int], tuple[asyncio.Lock, int]] = {}

    async def write(self, shard: JournalShard, what: JournalWrite) -> ErrorCode:
        """Write a record. Return NONE if it is in the journal. Otherwise return the error for the
        client. Then the record is not in the journal and never will be, unless the shard is lost.
        """
        key = shard.shard_id, what.sender.producer_id
        lock, users = self._turns.get(key, (asyncio.Lock(), 0))
        self._turns[key] = lock, users + 1
        shard.watch(what.sender.producer_id)
        seen = shard.expect(what.sender.producer_id, what.pending_id)
        try:
            async with lock:
                return await self._attempts(shard, what, seen)
        except JournalLost:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        finally:
            shard.forget(what.pending_id)
            lock, users = self._turns[key]
            if users == 1:
                del self._turns[key]
                shard.unwatch(what.sender.producer_id)
            else:
                self._turns[key] = lock, users - 1

    async def _attempts(
        self, shard: JournalShard, what: JournalWrite, seen: asyncio.Future[bool]
    ) -> ErrorCode:
        attempts = _Attempts(shard.markers(what.sender.producer_id))
        while not seen.done():
            if shard.lost:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            if attempts.sequence is None:
                attempts.sequence = await self._sequence(shard, what.sender)
            outcome, code = await self._attempt(shard, what, attempts.sequence, seen)
            if outcome is WriteOutcome.RENUMBER:
                attempts.numberings += 1
            if attempts.are_over(outcome, shard.markers(what.sender.producer_id)):
                # An earlier attempt may have succeeded. Then its record lies before the end.
                if attempts.may_be_written and await self._is_settled(shard, seen):
                    return ErrorCode.NONE
                log.debug(
                    "journal_write_refused",
                    group=what.group_id,
                    producer_id=what.sender.producer_id,
                    error=code,
                )
                return error_of_commit(code)
            if outcome is WriteOutcome.RENUMBER:
                if await self._is_settled(shard, seen):
                    return ErrorCode.NONE
                shard.sequences.forget()
                attempts.sequence = None
            elif outcome is not WriteOutcome.WRITTEN:
                attempts.may_be_written |= outcome is WriteOutcome.UNKNOWN
                self._leaders_changed()
                await asyncio.wait([seen], timeout=attempts.next_pause_s())
        return ErrorCode.NONE

    async def _attempt(
        self, shard: JournalShard, what: JournalWrite, sequence: int, seen: asyncio.Future[bool]
    ) -> tuple[WriteOutcome, int]:
        """Send the record once. If the broker accepts it, wait until it is read. Return the outcome
        and the error code.
        """
        try:
            code, offset = await self._produce(shard, what, sequence)
        except UnsupportedApi:
            return WriteOutcome.REFUSED, ErrorCode.COORDINATOR_NOT_AVAILABLE
        except NotSent:
            return WriteOutcome.LATER, ErrorCode.NOT_LEADER_OR_FOLLOWER
        except BrokerError:
            return WriteOutcome.UNKNOWN, ErrorCode.REQUEST_TIMED_OUT
        outcome = _OUTCOMES.get(code, WriteOutcome.REFUSED)
        if outcome is WriteOutcome.WRITTEN:
            shard.sequences.used(what.sender, sequence)
            if not await self._is_read(shard, seen, offset):
                # The broker has another batch with this number, and did not write ours. An earlier
                # process of ours sent that batch. It arrived after we asked for the numbers.
                return WriteOutcome.RENUMBER, 46
        return outcome, code

    async def _produce(
        self, shard: JournalShard, what: JournalWrite, sequence: int
    ) -> tuple[int, int]:
        """Send the record once. Return the error code and the offset.

        Raises BrokerError if there is no valid answer.
        """
        batch = encode_batch(
            what.pending_id, what.group_id, what.sender, sequence, int(time.time() * 1000)
        )
        partition = Row(index=shard.shard_id, records=batch)
        answer = await self._links.ask(
            self._leader(shard),
            what.sender.producer_id % WRITE_LANES,
            PRODUCE,
            what.versions,
            transactional_id=what.transactional_id,
            acks=_ALL_REPLICAS,
            timeout=PRODUCE_TIMEOUT_MS,
            topic_data=[Row(name=self._topic, partition_data=[partition])],
        )
        result = only(only(answer.responses).partition_responses)
        return result.error_code, result.base_offset

    def _leader(self, shard: JournalShard) -> int:
        leader = self._leader_of(shard.shard_id)
        if leader is None:
            raise NotSent(f"partition {shard.shard_id} of {self._topic} has no leader")
        return leader

    async def _is_read(self, shard: JournalShard, seen: asyncio.Future[bool], offset: int) -> bool:
        """Wait until the partition is read up to an acknowledged record. Return False if another
        record is at its offset. Raises JournalLost if the shard is lost.
        """
        passed = asyncio.ensure_future(shard.reached(offset + 1))
        try:
            either: list[asyncio.Future[Any]] = [seen, passed]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            passed.cancel()
        if not seen.done():
            passed.result()  # raises JournalLost if the shard is lost
        elif passed.done() and not passed.cancelled():
            passed.exception()  # otherwise asyncio would log it
        return seen.done()

    async def _is_settled(self, shard: JournalShard, seen: asyncio.Future[bool]) -> bool:
        """Wait until the partition is read to its end. Return True if the record was read."""
        await shard.reached(await self.end(shard))
        return seen.done()

    async def end(self, shard: JournalShard) -> int:
        """Return the end offset of the partition. Retry until its leader answers.

        Raises JournalLost if the shard is lost.
        """
        return await self._offset(shard, _LATEST)

    async def start(self, shard: JournalShard) -> int:
        """Return the offset of the oldest record. Retry until the leader answers.

        Raises JournalLost if the shard is lost.
        """
        return await self._offset(shard, _EARLIEST)

    async def _offset(self, shard: JournalShard, timestamp: int) -> int:
        row = Row(partition_index=shard.shard_id, current_leader_epoch=-1, timestamp=timestamp)
        topics = [Row(name=self._topic, partitions=[row])]

        async def ask() -> int | None:
            answer = await self._links.ask(
                self._leader(shard),
                ADMIN_LANE,
                *LIST_OFFSETS,
                replica_id=-1,
                isolation_level=0,
                topics=topics,
            )
            result = only(only(answer.topics).partitions)
            return None if result.error_code else result.offset

        return int(await self._until_answered(shard, ask))

    async def _sequence(self, shard: JournalShard, sender: Sender) -> int:
        """Return the sequence number of the producer's next batch. Ask the broker if it is not
        known.
        """
        async with shard.asking:
            if not shard.sequences.is_known:
                shard.sequences.learn(await self._producers(shard))
        return shard.sequences.next(sender)

    async def _producers(self, shard: JournalShard) -> list[tuple[int, int, int]]:
        async def ask() -> list[tuple[int, int, int]] | None:
            answer = await self._links.ask(
                self._leader(shard),
                ADMIN_LANE,
                *DESCRIBE_PRODUCERS,
                topics=[Row(name=self._topic, partition_indexes=[shard.shard_id])],
            )
            result = only(only(answer.topics).partitions)
            if result.error_code:
                return None
            return [
                (each.producer_id, each.producer_epoch, each.last_sequence)
                for each in result.active_producers
            ]

        producers: list[tuple[int, int, int]] = await self._until_answered(shard, ask)
        return producers

    async def _until_answered(self, shard: JournalShard, ask: Callable[[], Any]) -> Any:
        pause_s = FIRST_RETRY_S
        while True:
            if shard.lost:
                raise JournalLost(shard.lost)
            try:
                answer = await ask()
            except BrokerError:
                answer = None
            if answer is not None:
                return answer
            self._leaders_changed()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_RETRY_S)
