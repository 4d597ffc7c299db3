"""Batches come from wherever the leader is, as long as somebody answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    KafkaConnectionError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
)
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from groupkeeper.pipeline.kafka_history.fetch import FetchStalledError, fetch_batches
from tests.helpers.runtime.virtual_loop import virtual_time

TOPIC = "t"
WAIT_S = 0.5


def a_batch(base_offset: int, *values: bytes) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 10_000)
    for number, value in enumerate(values):
        builder.append(number, 100, b"k", value, [])
    data = builder.build()
    data[:8] = base_offset.to_bytes(8, "big")  # the checksum does not cover it
    return bytes(data)


class Brokers(AIOKafkaClient):  # type: ignore[misc]
    """One log a partition, as batches; it says what it was told to, once, before it answers."""

    def __init__(self, *logs: list[bytes]) -> None:
        self.logs = logs
        self.leaders = dict.fromkeys(range(len(logs)), 1)
        self.troubles: list[type[Exception] | tuple[int, type[Any]]] = []
        self.updates = 0
        self.cluster = SimpleNamespace(leader_for_partition=self._leader)

    def __del__(self) -> None:
        """There is no connection to close."""

    def _leader(self, partition: TopicPartition) -> int:
        return self.leaders[partition.partition]

    def force_metadata_update(self) -> Any:
        self.updates += 1

    async def send(self, node_id: int, request: FetchRequest) -> Any:
        trouble = self.troubles.pop(0) if self.troubles else None
        if isinstance(trouble, type):
            raise trouble
        failing, error = trouble or (-1, None)
        ((topic, asked),) = request.topics
        answers = []
        for number, position, _ in asked:
            data = next((each for each in self.logs[number] if reaches(each, position)), b"")
            code = 0
            if number == failing:
                assert error is not None
                code, data = error.errno, b""
            elif self.leaders[number] != node_id:
                code, data = NotLeaderForPartitionError.errno, b""
            answers.append((number, code, 99, 99, [], data))
        if not any(data for *_, data in answers):
            await asyncio.sleep(WAIT_S)
        return SimpleNamespace(topics=[(topic, answers)])


def reaches(batch: bytes, position: int) -> bool:
    return int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big") >= position


async def fetched(brokers: Brokers, *ends: int, stalled_s: float = 30) -> list[tuple[int, int]]:
    """Partition and base offset of what came."""
    found = []
    starts = dict.fromkeys(range(len(ends)), 0)
    async for batches in fetch_batches(brokers, TOPIC, starts, dict(enumerate(ends)), stalled_s):
        found += [(number, batch.base_offset) for number, batch in batches]
    return found


@virtual_time
async def test_every_batch_comes_once_and_gaps_are_no_hindrance() -> None:
    brokers = Brokers([a_batch(0, b"a", b"b"), a_batch(7, b"c")], [a_batch(3, b"d")], [])
    assert await fetched(brokers, 8, 4, 0) == [(0, 0), (1, 3), (0, 7)]


@virtual_time
async def test_what_passes_by_itself_is_waited_for() -> None:
    brokers = Brokers([a_batch(0, b"a")], [a_batch(0, b"b"), a_batch(1, b"c")])
    brokers.leaders = {0: 1, 1: 2}
    brokers.troubles = [KafkaConnectionError, (1, NotLeaderForPartitionError)]
    assert sorted(await fetched(brokers, 1, 2)) == [(0, 0), (1, 0), (1, 1)]
    assert brokers.updates == 2


@virtual_time
async def test_an_error_of_one_partition_takes_nothing_from_the_others() -> None:
    brokers = Brokers([a_batch(0, b"a")], [a_batch(0, b"b")])
    brokers.troubles = [(1, NotLeaderForPartitionError)]
    assert await fetched(brokers, 1, 1) == [(0, 0), (1, 0)]


@virtual_time
async def test_what_does_not_pass_ends_it() -> None:
    brokers = Brokers([a_batch(0, b"a")])
    brokers.troubles = [(0, OffsetOutOfRangeError)]
    with pytest.raises(OffsetOutOfRangeError):
        await fetched(brokers, 1)


@virtual_time
async def test_when_nothing_comes_any_more_it_says_where() -> None:
    with pytest.raises(FetchStalledError, match="t-1 returned nothing for 5 s"):
        await fetched(Brokers([a_batch(0, b"a")], []), 1, 1, stalled_s=5)
    leaderless = Brokers([a_batch(0, b"a")])
    leaderless.leaders = {0: -1}
    with pytest.raises(FetchStalledError, match="t-0 returned nothing"):
        await fetched(leaderless, 1, stalled_s=5)
