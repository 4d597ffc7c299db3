"""A broker in memory with one topic, producers and transactions: what the journal needs.

It answers like Apache Kafka (ProducerAppendInfo, TransactionCoordinator), but it is a single broker
that loses nothing. ``faults`` decide what happens to the next Produce requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c

from groupkeeper.coordinator.gateway.client import NoAnswer, NotSent
from groupkeeper.coordinator.gateway.journal.records import encode_batch
from groupkeeper.protocol.codec import uuid_to_topic_id
from groupkeeper.protocol.record_batches import Sender
from groupkeeper.protocol.writer import Row

TOPIC = "__journal"
_ATTRIBUTES = slice(21, 23)
_CRC = slice(17, 21)
_CONTROL = 0x20
_KEPT_BATCHES = 5
OUT_OF_ORDER, INVALID_EPOCH, INVALID_TXN_STATE, ABORTABLE = 45, 47, 48, 120
OUT_OF_RANGE, UNKNOWN_TOPIC = 1, 3
EARLIEST = -2
NO_PRODUCER = (-1, -1)


@dataclass
class Partition:
    """One partition: its batches, and the epochs and sequences of its producers."""

    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    epochs: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, deque[tuple[int, int]]] = field(default_factory=dict)
    """Producer -> (sequence, offset) of its last batches in this epoch."""
    grew: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, batch: bytes) -> int:
        offset = len(self.batches)
        self.batches.append(offset.to_bytes(8, "big") + batch[8:])
        self.grew.set()
        self.grew = asyncio.Event()
        return offset


class JournalBroker:
    """The broker. A test adds producers, ends their transactions, and adds faults."""

    def __init__(self, partitions: int = 4) -> None:
        self.partitions = partitions
        self.topic_id = UUID(int=1)
        self.logs: dict[int, Partition] | None = None
        """Number of a partition -> the partition. None if the topic does not exist."""
        self.policy = "delete"
        self.compression = "producer"
        self.faults: deque[str | int] = deque()
        """The fault of each next Produce. "" means no fault. With "lost" the answer is lost, and
        with "dropped" the request. With "late" the batch is written after the client has stopped
        waiting. A number is the error of the answer.
        """
        self.produced: list[tuple[int, int]] = []
        """(version, sequence) of each Produce that arrived."""
        self.epochs: dict[int, int] = {}
        self.open: dict[int, set[int]] = {}
        """Producer -> the partitions of its open transaction."""
        self.is_down = False
        self.empty: set[int] = set()
        """API keys whose answers have empty arrays."""
        self.hides_records = False
        """True if a fetch finds nothing."""
        self.leaderless: set[int] = set()
        """The partitions whose leader is not elected yet."""
        self._late: set[asyncio.Task[None]] = set()

    # --- for tests --------------------------------------------------------------------------------

    def add_producer(self, producer_id: int) -> None:
        """Add a producer with epoch 0, or fence the existing one, as InitProducerId does."""
        self.epochs[producer_id] = self.epochs.get(producer_id, -1) + 1

    def add_partition(self, producer_id: int, partition: int) -> None:
        """Add a partition to the producer's transaction (AddPartitionsToTxn)."""
        self.open.setdefault(producer_id, set()).add(partition)

    def end(self, producer_id: int, *, commit: bool, bumps: bool = True, markers: int = 1) -> None:
        """End the producer's transaction. ``bumps`` its epoch in transaction version 2."""
        if bumps:
            self.epochs[producer_id] += 1
        for number in self.open.pop(producer_id, set()):
            for _ in range(markers):
                self.write_marker(number, producer_id, commit=commit)

    def write_marker(self, number: int, producer_id: int, *, commit: bool) -> None:
        """Write a marker into a partition."""
        log = self.log(number)
        epoch = self.epochs[producer_id]
        log.add(marker(producer_id, epoch, commit=commit))
        if log.epochs.get(producer_id, -1) < epoch:
            log.epochs[producer_id] = epoch
            log.sequences[producer_id] = deque(maxlen=_KEPT_BATCHES)

    def write(self, number: int, producer_id: int, pending_id: str) -> None:
        """Write a record of a pending commit, as a client with rights to the topic could do."""
        sender = Sender(producer_id, self.epochs[producer_id])
        self._append(12, number, encode_batch(pending_id, "g", sender, 0, 1))

    def delete_topic(self) -> None:
        """Delete the topic. A new topic of the same name will have another id."""
        self.logs = None
        self.topic_id = UUID(int=self.topic_id.int + 1)

    def cut(self, number: int) -> None:
        """Remove all records of a partition, as retention does."""
        log = self.log(number)
        log.start = len(log.batches)

    def log(self, number: int) -> Partition:
        """Return a partition of the topic."""
        assert self.logs is not None
        return self.logs[number]

    # --- the client's side ------------------------------------------------------------------------

    async def ask(
        self, api_key: int, versions: range, *, timeout_s: float | None = None, **values: Any
    ) -> Any:
        """Answer a request, as ``BrokerClient.ask``."""
        await asyncio.sleep(0)
        if self.is_down:
            raise NotSent("the broker is down")
        if api_key in self.empty:
            return Row(error_code=0, topics=[], responses=[], results=[])
        answer = {
            0: self._produce,
            1: self._fetch,
            2: self._list_offsets,
            3: self._metadata,
            19: self._create,
            32: self._describe_configs,
            61: self._describe_producers,
        }[api_key]
        return await answer(versions[-1], **values)

    def close(self) -> None:
        """Do nothing: there is no connection."""

    async def _metadata(self, _version: int, topics: Any, **_: Any) -> Any:
        if self.logs is None:
            absent = Row(error_code=3, topic_id=None, partitions=())
            return Row(controller_id=1, topics=[absent])
        partitions = [
            Row(partition_index=number, leader_id=-1 if number in self.leaderless else 1)
            for number in self.logs
        ]
        return Row(topics=[Row(error_code=0, topic_id=self.topic_id, partitions=partitions)])

    async def _create(self, _version: int, topics: Any, **_: Any) -> Any:
        (topic,) = topics
        assert topic.num_partitions == self.partitions
        self.logs = {number: Partition() for number in range(self.partitions)}
        return Row(topics=[Row(error_code=0, error_message=None)])

    async def _describe_configs(self, _version: int, **_: Any) -> Any:
        values = {"cleanup.policy": self.policy, "compression.type": self.compression}
        configs = [Row(name=name, value=value) for name, value in values.items()]
        return Row(results=[Row(configs=configs)])

    async def _list_offsets(self, _version: int, topics: Any, **_: Any) -> Any:
        asked = topics[0].partitions[0]
        if self.logs is None:
            found = Row(error_code=UNKNOWN_TOPIC, offset=-1)
        else:
            log = self.logs[asked.partition_index]
            offset = log.start if asked.timestamp == EARLIEST else len(log.batches)
            found = Row(error_code=0, offset=offset)
        return Row(topics=[Row(partitions=[found])])

    async def _describe_producers(self, _version: int, topics: Any) -> Any:
        if self.logs is None:
            unknown = Row(error_code=UNKNOWN_TOPIC, active_producers=[])
            return Row(topics=[Row(partitions=[unknown])])
        log = self.log(topics[0].partition_indexes[0])
        producers = [
            Row(
                producer_id=producer_id,
                producer_epoch=epoch,
                last_sequence=known[-1][0] if known else -1,
            )
            for producer_id, epoch in log.epochs.items()
            for known in [log.sequences[producer_id]]
        ]
        partition = Row(error_code=0, active_producers=producers)
        return Row(topics=[Row(partitions=[partition])])

    async def _fetch(self, _version: int, max_wait: int, topics: Any, **_: Any) -> Any:
        (topic,) = topics
        if topic.topic_id != uuid_to_topic_id(self.topic_id) or self.logs is None:
            rows = [Row(partition_index=p.partition, error_code=100) for p in topic.partitions]
            return Row(error_code=0, responses=[Row(partitions=rows)])
        logs = [self.logs[row.partition] for row in topic.partitions]
        if self.hides_records:
            await asyncio.sleep(max_wait / 1000)
        elif not any(
            row.fetch_offset < len(log.batches)
            for row, log in zip(topic.partitions, logs, strict=True)
        ):
            waits = [asyncio.ensure_future(log.grew.wait()) for log in logs]
            await asyncio.wait(waits, timeout=max_wait / 1000, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        if self.is_down:
            raise NoAnswer("the broker is down")
        found = []
        for row, log in zip(topic.partitions, logs, strict=True):
            in_range = log.start <= row.fetch_offset <= len(log.batches)
            found.append(
                Row(
                    partition_index=row.partition,
                    error_code=0 if in_range else OUT_OF_RANGE,
                    high_watermark=len(log.batches),
                    records=b""
                    if self.hides_records
                    else b"".join(log.batches[row.fetch_offset :]),
                )
            )
        return Row(error_code=0, responses=[Row(partitions=found)])

    async def _produce(self, version: int, topic_data: Any, **_: Any) -> Any:
        (partition,) = topic_data[0].partition_data
        fault = self.faults.popleft() if self.faults else ""
        if fault == "dropped":
            raise NoAnswer("the request was lost")
        if fault == "late":
            self._late.add(asyncio.ensure_future(self._append_later(version, partition)))
            raise NoAnswer("no answer within 30 s")
        if self.logs is None:
            code, offset = UNKNOWN_TOPIC, -1
        elif isinstance(fault, int):
            code, offset = fault, -1
        else:
            code, offset = self._append(version, partition.index, partition.records)
        if fault == "lost":
            raise NoAnswer("the answer was lost")
        row = Row(error_code=code, base_offset=offset)
        return Row(responses=[Row(partition_responses=[row])])

    async def _append_later(self, version: int, partition: Any) -> None:
        await asyncio.sleep(0.5)
        self._append(version, partition.index, partition.records)

    def _append(self, version: int, number: int, data: bytes) -> tuple[int, int]:
        batch = MemoryRecords(data).next_batch()
        assert batch is not None
        producer_id, epoch, sequence = batch.producer_id, batch.producer_epoch, batch.base_sequence
        self.produced.append((version, sequence))
        if epoch != self.epochs[producer_id]:
            return INVALID_EPOCH, -1
        if version >= 12:
            self.add_partition(producer_id, number)
        elif number not in self.open.get(producer_id, set()):
            return (ABORTABLE if version == 11 else INVALID_TXN_STATE), -1
        log = self.log(number)
        known = log.sequences.get(producer_id, deque(maxlen=_KEPT_BATCHES))
        if log.epochs.get(producer_id, -1) != epoch:
            known = deque(maxlen=_KEPT_BATCHES)
        again = [offset for each, offset in known if each == sequence]
        if again:
            return 0, again[0]
        if sequence != (known[-1][0] + 1 if known else 0):
            return OUT_OF_ORDER, -1
        offset = log.add(data)
        known.append((sequence, offset))
        log.epochs[producer_id], log.sequences[producer_id] = epoch, known
        return 0, offset


def marker(producer_id: int, epoch: int, *, commit: bool) -> bytes:
    """Return a control batch with the marker that ends a transaction."""
    builder = DefaultRecordBatchBuilder(
        2,
        0,
        is_transactional=1,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=-1,
        batch_size=1024,
    )
    key = (0).to_bytes(2, "big") + int(commit).to_bytes(2, "big")
    builder.append(0, timestamp=1, key=key, value=b"\0\0\0\0\0\0", headers=[])
    batch = bytearray(builder.build())
    attributes = int.from_bytes(batch[_ATTRIBUTES], "big") | _CONTROL
    batch[_ATTRIBUTES] = attributes.to_bytes(2, "big")
    batch[_CRC] = calc_crc32c(bytes(batch[_ATTRIBUTES.start :])).to_bytes(4, "big")
    return bytes(batch)
