"""The requests of a store in Kafka, over one client of aiokafka.

A store has a transactional id for each shard. A producer of aiokafka has only one transactional id,
and connections and tasks of its own. So this module sends the requests of transactions itself, over
one client that all shards share.

A request that fails for a temporary reason is sent again. In a transaction this is safe: the broker
knows the number of each batch of a producer, and refuses a batch that it has already. Only
``write`` uses no transaction, so a retry may write its message twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED, PartitionRecords
from aiokafka.errors import KafkaError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from groupkeeper.storage.backends.kafka_topic.reach import missing_right, why_unreachable
from groupkeeper.storage.backends.kafka_topic.written import Message
from groupkeeper.storage.base import StorageError, StoreBusy
from groupkeeper.storage.turns import in_turns

BATCH_BYTES: Final = 1024 * 1024
"""The approximate size of one batch. A single larger message has its own batch."""
FETCH_BYTES: Final = 4 * 1024 * 1024
MESSAGES_A_TURN: Final = 1_000
"""The number of messages that are made or unpacked before other tasks of the loop can run. They
take about 5 ms."""
FETCH_WAIT_MS: Final = 20
"""The time for which a broker waits for the end of a transaction before it answers a read."""
_ALL: Final = -1
_NO_PRODUCER: Final = -1
_RETRY_S: Final = 0.02
_PATIENCE: Final = 3
"""A call is given up after this many times the time limit of one request."""
_FIELDS_OF_VERSION_11: Final = 5
_FIRST_RETRY_S: Final = 0.002
"""The pause before the first retry. This is usually enough for the broker to finish the previous
transaction."""
_EARLIEST: Final = 0

_TEMPORARY: Final = (
    kafka_errors.ConcurrentTransactions,
    kafka_errors.CoordinatorLoadInProgressError,
    kafka_errors.CoordinatorNotAvailableError,
    kafka_errors.NotCoordinatorError,
    kafka_errors.KafkaConnectionError,
    kafka_errors.NodeNotReadyError,
    kafka_errors.RequestTimedOutError,
)
_FENCED: Final = (
    kafka_errors.InvalidProducerEpoch,
    kafka_errors.ProducerFenced,
    kafka_errors.InvalidProducerIdMapping,
)
_NOT_DONE: Final = (
    kafka_errors.ConcurrentTransactions,
    kafka_errors.CoordinatorLoadInProgressError,
    kafka_errors.NotCoordinatorError,
    kafka_errors.NotLeaderForPartitionError,
)
"""The temporary errors that mean that the broker did nothing. After any other temporary error, such
as a time-out of the replicas, the broker may have executed the request."""
_ALREADY_THERE: Final = kafka_errors.DuplicateSequenceNumber


class Fenced(StorageError):
    """Another process has acquired this shard. Nothing of this append was stored."""


class Fence(NamedTuple):
    """The right to write under a transactional id. The broker refuses it once there is a newer
    fence for the same id.
    """

    transactional_id: str
    producer_id: int
    epoch: int


class Read(NamedTuple):
    """A message that was read."""

    offset: int
    key: bytes
    value: bytes | None


class KafkaLink:
    """One client, and the requests that a store needs."""

    def __init__(self, options: Mapping[str, Any], name: str, round_trips: Counter[str]) -> None:
        """``options`` are those of ``AIOKafkaClient``. ``name`` names the store in messages. In
        ``round_trips`` the link counts its requests, by the name of the call.
        """
        self._options = options
        self._name = name
        self._round_trips = round_trips
        self._client: AIOKafkaClient | None = None
        self._coordinators: dict[str, int] = {}
        self._limit_s: float = _PATIENCE * options["request_timeout_ms"] / 1000

    async def connect(self, topics: Sequence[str] = ()) -> None:
        """Connect, and learn the leaders of these topics. Raises StoreBusy if this fails."""
        self._client = AIOKafkaClient(**self._options)
        try:
            await self._client.bootstrap()
            if topics:
                await self._client.set_topics(topics)
        except (KafkaError, OSError) as error:
            reason = await why_unreachable(self._options)
            raise StoreBusy(f"{self._name}: cannot connect: {reason}") from error

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # --- reading ----------------------------------------------------------------------------------

    async def read(
        self, topic: str, partition: int, position: int = _EARLIEST, *, only_committed: bool = True
    ) -> AsyncIterator[tuple[int, list[Read]]]:
        """Yield the messages from a position to the present end of a partition, in portions. Each
        portion comes with the position after it.

        With ``only_committed``, leave out aborted transactions, and wait for the end of open ones.
        """
        end: int | None = None
        level = READ_COMMITTED if only_committed else READ_UNCOMMITTED
        while end is None or position < end:
            wait_ms = 0 if end is None else FETCH_WAIT_MS
            answer = await self._fetch(topic, partition, position, level, wait_ms)
            highwater, aborted, data = _fetched(answer)
            end = highwater if end is None else end
            place = TopicPartition(topic, partition)
            found, position = await _unpack(place, position, data, aborted, level)
            yield position, found

    async def _fetch(
        self, topic: str, partition: int, position: int, level: int, wait_ms: int
    ) -> Any:
        wanted = [(topic, [(partition, position, FETCH_BYTES)])]
        request = _request(FetchRequest, 4, (-1,), wait_ms, 1, FETCH_BYTES, level, wanted)
        answer = await self._to_leader("fetch", topic, partition, request, lambda a: _only(a)[1])
        return _only(answer)

    # --- writing ----------------------------------------------------------------------------------

    async def write(self, topic: str, partition: int, message: Message) -> int:
        """Write one message without a transaction. Return its offset. A retry may write the message
        twice.
        """
        builder = _builder(None, 0)
        builder.append(0, None, *message, [])
        request = _request(
            ProduceRequest, 3, (), None, _ALL, 5_000, [(topic, [(partition, builder.build())])]
        )
        answer = await self._to_leader("write", topic, partition, request, lambda a: _only(a)[1])
        offset: int = _only(answer)[2]
        return offset

    async def fence(self, transactional_id: str, timeout_ms: int) -> Fence:
        """Acquire a transactional id, and return the right to write under it. The broker then
        refuses writes of all earlier holders, and has aborted their open transactions.
        """
        request = _request(InitProducerIdRequest, 0, (), transactional_id, timeout_ms)
        answer = await self._to_coordinator(
            "fence", transactional_id, request, lambda a: a.error_code
        )
        return Fence(transactional_id, answer.producer_id, answer.producer_epoch)

    async def begin(self, fence: Fence, partitions: Mapping[str, int]) -> None:
        """Begin a transaction that writes one partition of each of these topics."""
        topics = [(topic, [partition]) for topic, partition in partitions.items()]
        request = _request(AddPartitionsToTxnRequest, 0, (), *fence, topics)

        def error_of(answer: Any) -> int:
            codes = [code for _, found in answer.errors for _, code in found]
            worst: int = max(codes, key=lambda code: (code not in (0, _NOT_ATTEMPTED), code))
            return worst

        await self._to_coordinator("begin", fence.transactional_id, request, error_of)

    async def send(
        self, fence: Fence, topic: str, partition: int, messages: Sequence[Message], sequence: int
    ) -> int:
        """Send messages in the open transaction. The first one has the number ``sequence`` (which
        the broker checks). Return the number for the next message.
        """
        for batch, count in _batches(fence, messages, sequence):
            topics = [(topic, [(partition, batch)])]
            request = _request(ProduceRequest, 3, (), fence.transactional_id, _ALL, 5_000, topics)
            await self._to_leader("send", topic, partition, request, lambda a: _only(a)[1])
            sequence = (sequence + count) & 0x7FFF_FFFF
        return sequence

    async def commit(self, fence: Fence) -> None:
        """Commit the open transaction."""
        request = _request(EndTxnRequest, 0, (), *fence, True)
        await self._to_coordinator(
            "commit", fence.transactional_id, request, lambda a: a.error_code
        )

    # --- sending ----------------------------------------------------------------------------------

    async def _to_leader(
        self,
        call: str,
        topic: str,
        partition: int,
        request: Any,
        error_of: Callable[[Any], int],
    ) -> Any:
        place = TopicPartition(topic, partition)

        async def node() -> int | None:
            leader = self._connected().cluster.leader_for_partition(place)
            return None if leader is None or leader < 0 else leader

        def moved() -> None:
            self._connected().force_metadata_update()

        return await self._send(call, node, moved, request, error_of)

    async def _to_coordinator(
        self, call: str, transactional_id: str, request: Any, error_of: Callable[[Any], int]
    ) -> Any:
        async def node() -> int | None:
            if transactional_id not in self._coordinators:
                found: int = await self._connected().coordinator_lookup(
                    CoordinationType.TRANSACTION, transactional_id
                )
                self._coordinators[transactional_id] = found
            return self._coordinators[transactional_id]

        def moved() -> None:
            self._coordinators.pop(transactional_id, None)

        return await self._send(call, node, moved, request, error_of)

    async def _send(
        self, call: str, node: Any, moved: Callable[[], None], request: Any, error_of: Any
    ) -> Any:
        """Send a request until it is answered without a temporary error.

        Raises StoreBusy if this takes too long. A daemon has shorter limits of its own, but a
        command such as ``storage move`` has none. Raises Fenced if another process has acquired the
        transactional id and no attempt can have been executed. Raises StorageError after any other
        permanent error.
        """
        try:
            async with asyncio.timeout(self._limit_s):
                return await self._repeat(call, node, moved, request, error_of)
        except TimeoutError:
            raise StoreBusy(
                f"{self._name}: {call}: no answer from the brokers within {self._limit_s:.1f} s"
            ) from None

    async def _repeat(
        self, call: str, node: Any, moved: Callable[[], None], request: Any, error_of: Any
    ) -> Any:
        """Send a request until it is answered without a temporary error, however long it takes."""
        pause_s, is_in_doubt = _FIRST_RETRY_S, False
        while True:
            self._round_trips[call] += 1
            try:
                target = await node()
                if target is None:
                    raise kafka_errors.LeaderNotAvailableError
                answer = await self._connected().send(target, request)
            except KafkaError as error:
                if not _is_temporary(error):
                    raise StorageError(f"{self._name}: {error!r}") from error
                is_in_doubt = True
                moved()
            else:
                error_type = kafka_errors.for_code(error_of(answer))
                if error_type in (kafka_errors.NoError, _ALREADY_THERE):
                    return answer
                if not _is_temporary(error_type()):
                    raise self._refused(call, error_type, is_in_doubt)
                is_in_doubt = is_in_doubt or not issubclass(error_type, _NOT_DONE)
                if error_type is not kafka_errors.ConcurrentTransactions:
                    moved()
            await asyncio.sleep(pause_s)
            pause_s = _RETRY_S

    def _refused(self, call: str, error: type[KafkaError], is_in_doubt: bool) -> StorageError:
        if issubclass(error, _FENCED) and not is_in_doubt:
            return Fenced(f"{self._name}: {error.__name__}")
        text = missing_right(self._name, error) or error.__name__
        if issubclass(error, kafka_errors.MessageSizeTooLargeError):
            text = (
                "a message is larger than max.message.bytes of its topic, such as the members of a "
                "classic group: raise it, or let members leave"
            )
        return StorageError(f"{self._name}: {call}: {text}")

    def _connected(self) -> AIOKafkaClient:
        if self._client is None:
            raise StorageError(f"{self._name}: is not connected")
        return self._client


_NOT_ATTEMPTED: Final = 55
"""The error code of a partition that was not tried, because the other partition of the request was
refused."""


def _is_temporary(error: KafkaError) -> bool:
    return isinstance(error, _TEMPORARY) or bool(getattr(error, "retriable", False))


def _fetched(answer: Any) -> tuple[int, Any, bytes]:
    """Return the end of a fetched partition, its aborted transactions, and its bytes.

    From version 11 on, a replica's number is between the aborted transactions and the bytes.
    """
    _, _, highwater, *rest = answer
    aborted = rest[2] if len(rest) == _FIELDS_OF_VERSION_11 else rest[-2]
    return highwater, aborted, bytes(rest[-1] or b"")


def _only(answer: Any) -> Any:
    """Return the only partition of the only topic of an answer."""
    ((_, (partition,)),) = answer.topics
    return partition


def _request(kind: Any, version: int, before: tuple[Any, ...], *arguments: Any) -> Any:
    if isinstance(kind, list):  # before aiokafka 0.13 each version had its own class
        return kind[version](*before, *arguments)
    return kind(*arguments)


def _builder(fence: Fence | None, sequence: int) -> DefaultRecordBatchBuilder:
    return DefaultRecordBatchBuilder(
        2,
        0,
        is_transactional=int(fence is not None),
        producer_id=_NO_PRODUCER if fence is None else fence.producer_id,
        producer_epoch=-1 if fence is None else fence.epoch,
        base_sequence=-1 if fence is None else sequence,
        batch_size=BATCH_BYTES,
    )


def _batches(
    fence: Fence, messages: Sequence[Message], sequence: int
) -> Iterator[tuple[bytes, int]]:
    """Yield the messages as batches, each with the number of its messages."""
    builder, count = _builder(fence, sequence), 0
    for key, value in messages:
        if builder.append(count, None, key, value, []) is None:
            yield bytes(builder.build()), count
            sequence = (sequence + count) & 0x7FFF_FFFF
            builder, count = _builder(fence, sequence), 0
            builder.append(0, None, key, value, [])
        count += 1
    yield bytes(builder.build()), count


async def _unpack(
    place: TopicPartition, position: int, data: bytes, aborted: Any, level: int
) -> tuple[list[Read], int]:
    """Return the messages of fetched bytes, and the position after them. Other tasks of the loop
    run in between.
    """
    records = PartitionRecords(
        place, MemoryRecords(data), aborted, position, None, None, True, level
    )
    found = [
        Read(each.offset, each.key or b"", each.value)
        async for each in in_turns(records, MESSAGES_A_TURN)
    ]
    return found, max(position, records.next_fetch_offset)
