"""Fetch messages of one partition from its leader, even if the leader changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar

from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.fetch import FetchRequest_v4
from aiokafka.protocol.offset import OffsetRequest_v1
from aiokafka.record.memory_records import MemoryRecords

from groupkeeper.clients.readers.brokers import Brokers, Connection, FixedVersion
from groupkeeper.clients.readers.errors import (
    CannotRead,
    NoSuchPartition,
    NoSuchTopic,
    NotReachable,
    OffsetOutOfRange,
    ReaderError,
)
from groupkeeper.clients.readers.message import Message
from groupkeeper.storage.connections.backoff import Backoff

T = TypeVar("T")

EARLIEST = -2
"""A start offset that means the first message of the partition."""
LATEST = -1
"""A start offset that means the end of the partition."""

UNKNOWN_FOR_S = 3.0
"""How long to retry while brokers answer that they do not know the topic or partition. For a short
time after the creation of a topic, or after its own start, a broker may not know the topic.
"""

OFFSET_OUT_OF_RANGE = 1
RETRIABLE = frozenset({3, 5, 6, 7, 9, 13, 56, 74, 75, 78, 100, 103})
"""Error codes after which a request is sent again: the leader has moved, or is not ready. Kafka
calls all of them retriable. 76 (unsupported compression type) is not among them: before Kafka 4.0,
a broker answers it whenever an old Fetch asks for a topic with zstd.
"""
NAMES = {76: "UnsupportedCompressionType"}
"""Names of error codes that aiokafka does not have."""


@dataclass(frozen=True)
class FetchLimits:
    """The limits of one Fetch. The defaults are those of Kafka's consumers."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1_048_576
    give_up_ms: int | None = None
    """How long to retry while no leader answers. None: for ever, as Kafka's consumers do."""

    def __post_init__(self) -> None:
        for name in ("max_wait_ms", "min_bytes", "max_bytes"):
            value = getattr(self, name)
            if not 0 <= value < 2**31:
                raise ValueError(f"{name} is {value}: must be 0 to 2147483647")
        if self.max_bytes == 0:
            raise ValueError("max_bytes is 0: nothing could be read")


class Batches:
    """The messages of one response. Each batch is unpacked when it is needed."""

    def __init__(self, topic: str, partition: int, offset: int, data: bytes) -> None:
        self.next_offset = offset
        """The offset of the next message to unpack."""
        self._topic = topic
        self._partition = partition
        self._records: Any = MemoryRecords(data)

    def has_more(self) -> bool:
        """Return True if a batch is not unpacked yet."""
        return bool(self._records.has_next())

    def unpack(self) -> Sequence[Message]:
        """Return the messages of the next batch that are not before ``next_offset``; none for a
        control batch.

        Raises CannotRead if the batch's checksum is wrong, or its messages cannot be decompressed.
        """
        batch = self._records.next_batch()
        if not batch.validate_crc():
            raise CannotRead(
                f"the checksum of the batch behind offset {self.next_offset} of "
                f"{self._topic!r}/{self._partition} is wrong"
            )
        first, topic, partition = self.next_offset, self._topic, self._partition
        # compaction removes messages from a batch, but keeps its last offset
        self.next_offset = max(first, batch.next_offset)
        if batch.is_control_batch:
            return []
        try:
            return [
                Message(topic, partition, r.offset, r.key, r.value, r.timestamp, tuple(r.headers))
                for r in batch
                if r.offset >= first
            ]
        except Exception as error:  # the type depends on the library of the compression
            raise CannotRead(
                f"the batch behind offset {first} of {topic!r}/{partition} cannot be unpacked: "
                f"{type(error).__name__}: {error}"
            ) from error


class PartitionLog:
    """Requests messages from the leader. If the leader changes, it finds the new one."""

    def __init__(
        self, brokers: Brokers, topic: str, partition: int, limits: FetchLimits | None = None
    ) -> None:
        self._brokers = brokers
        self._topic = topic
        self._partition = partition
        self._limits = limits or FetchLimits()
        self._connection: Connection | None = None
        self._backoff = Backoff()
        self._asked_s = 0.0
        """When the present request was first sent, by the clock of the event loop."""
        self._unknown_since_s: float | None = None
        self.unsolved: dict[str, Exception] = {}
        """The errors since the last answer: name of the error's type -> the last error of this
        type."""

    async def fetch(self, offset: int) -> Batches:
        """Return the leader's messages from this offset on. There may be none.

        Retries until a leader answers. Raises OffsetOutOfRange, and the errors of ``find``.
        """
        return await self._repeated(partial(self._fetch_once, offset))

    async def find(self, where: int) -> int:
        """Return the present offset of EARLIEST or LATEST. Retries until a leader answers.

        Raises NoSuchTopic, NoSuchPartition or CannotRead if a retry does not help, and NotReachable
        after ``give_up_ms``.
        """
        return await self._repeated(partial(self._find_once, where))

    async def _repeated(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until the leader answers, for at most ``give_up_ms``."""
        now_s = asyncio.get_running_loop().time
        self._asked_s = now_s()
        while True:
            try:
                async with asyncio.timeout_at(self._give_up_s()):
                    answer = await ask()
            except (OSError, KafkaError, NoSuchTopic, NoSuchPartition) as error:
                await self._again_later(error, now_s())
            else:
                self._solved()
                return answer

    def _give_up_s(self) -> float | None:
        """Return the time at which to give up; None for never. A leader may wait ``max_wait_ms``
        for messages before it answers, so this time is added to ``give_up_ms``.
        """
        limits = self._limits
        if limits.give_up_ms is None:
            return None
        return self._asked_s + (limits.give_up_ms + limits.max_wait_ms) / 1000

    async def close(self) -> None:
        """Close the connection, and wait until it is closed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            closed = connection.close()
            if closed is not None:
                await closed

    async def _fetch_once(self, offset: int) -> Batches:
        limits = self._limits
        request = FetchRequest_v4(
            -1,
            limits.max_wait_ms,
            limits.min_bytes,
            limits.max_bytes,
            0,
            [(self._topic, [(self._partition, offset, limits.max_bytes)])],
        )
        answer = await self._ask(request)
        ((_topic, ((_partition, code, *_, data),)),) = answer.topics
        if code == OFFSET_OUT_OF_RANGE:
            first, end = await self._find_once(EARLIEST), await self._find_once(LATEST)
            if not first <= offset <= end:
                raise OffsetOutOfRange(self._topic, self._partition, offset, first, end)
        self._raise_for(code)
        return Batches(self._topic, self._partition, offset, data)

    async def _find_once(self, where: int) -> int:
        request = OffsetRequest_v1(-1, [(self._topic, [(self._partition, where)])])
        answer = await self._ask(request)
        ((_topic, ((_partition, code, _timestamp, offset),)),) = answer.topics
        self._raise_for(code)
        return int(offset)

    async def _ask(self, request: Any) -> Any:
        if self._connection is None:
            self._connection = await self._brokers.connect_to_leader(self._topic, self._partition)
        return await self._connection.send(FixedVersion(request))

    def _raise_for(self, code: int) -> None:
        if code in RETRIABLE or code == OFFSET_OUT_OF_RANGE:
            error: KafkaError = for_code(code)()
            raise error
        if code:
            raise CannotRead(
                f"the broker refuses {self._topic!r}/{self._partition}: "
                f"{NAMES.get(code, for_code(code).__name__)} ({code})"
            )

    def _solved(self) -> None:
        if self.unsolved:
            self.unsolved = {}
            self._unknown_since_s = None
            self._backoff.succeeded()

    async def _again_later(self, error: Exception, now_s: float) -> None:
        """Wait before the next try. Raises if a retry cannot help, or ``give_up_ms`` are over."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if isinstance(error, KafkaError) and _is_final(error):
            raise CannotRead(f"{type(error).__name__}: {error}") from error
        self.unsolved[type(error).__name__] = error
        if self._stays_unknown(error, now_s):
            self.unsolved = {}
            raise error
        give_up_ms = self._limits.give_up_ms
        if give_up_ms is not None and (now_s - self._asked_s) * 1000 >= give_up_ms:
            self._give_up(error)
        await asyncio.sleep(self._backoff.next_s())

    def _stays_unknown(self, error: Exception, now_s: float) -> bool:
        """Return True if all answers for ``UNKNOWN_FOR_S`` were that the topic or partition is
        unknown.

        Any other error begins this time again. After an outage, the first broker that answers may
        not know its topics yet.
        """
        if not isinstance(error, ReaderError):
            self._unknown_since_s = None
            return False
        if self._unknown_since_s is None:
            self._unknown_since_s = now_s
        return now_s - self._unknown_since_s >= UNKNOWN_FOR_S

    def _give_up(self, error: Exception) -> NoReturn:
        self.unsolved = {}
        raise NotReachable(
            f"no leader of {self._topic!r}/{self._partition} answered for "
            f"{self._limits.give_up_ms} ms: {str(error) or type(error).__name__}"
        ) from error


def _is_final(error: KafkaError) -> bool:
    """Return True if the broker would answer the same again. A broken connection is not final."""
    code = getattr(error, "errno", None)
    return not error.retriable and isinstance(code, int) and code not in RETRIABLE | {1, -1}
