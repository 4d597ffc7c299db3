"""A reader while the leader of its partition changes, between two real Kafka brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from groupkeeper.clients.readers.message_iter import PartitionIter
from groupkeeper.clients.readers.reader import Reader
from tests.helpers.clients.kafka_pair import FIRST, SECOND, KafkaPair

pytestmark = pytest.mark.registry

TOPIC = "events"
AT_LEAST = 100
"""Messages that are read after each change."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[KafkaPair]:
    brokers = KafkaPair(tmp_path / "pair", TOPIC)
    try:
        yield brokers.start()
    finally:
        brokers.stop()


async def produce(bootstrap: str, stop: asyncio.Event) -> int:
    """Write numbered messages, each to all replicas. Return their number."""
    count = 0
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, request_timeout_ms=5_000
    ) as producer:
        while not stop.is_set():
            await producer.send_and_wait(TOPIC, b"%d" % count, partition=0)
            count += 1
            await asyncio.sleep(0.005)
    return count


async def read(messages: PartitionIter, values: list[int]) -> None:
    async for message in messages:
        assert message.offset == len(values)
        assert message.value is not None
        values.append(int(message.value))


async def have_read(count: int, values: Sequence[list[int]]) -> None:
    """Wait until each reader has read so many messages."""
    async with asyncio.timeout(60):
        while min(map(len, values)) < count:  # noqa: ASYNC110  other tasks fill the lists
            await asyncio.sleep(0.05)


async def more(values: Sequence[list[int]]) -> None:
    """Wait until each reader has read more messages."""
    await have_read(max(map(len, values)) + AT_LEAST, values)


async def change_leaders(pair: KafkaPair, values: Sequence[list[int]]) -> None:
    """The leader is killed and comes back, leads again, and is shut down in order."""
    await more(values)
    await asyncio.to_thread(pair.second.kill)
    await asyncio.to_thread(pair.wait, FIRST, 1)
    await more(values)
    await asyncio.to_thread(pair.second.start)
    await asyncio.to_thread(pair.wait, SECOND, 2)  # the other one still runs, and leads no more
    await more(values)
    await asyncio.to_thread(pair.second.terminate)
    await asyncio.to_thread(pair.wait, FIRST, 1)
    await more(values)


async def test_readers_follow_the_leader_and_lose_and_repeat_nothing(pair: KafkaPair) -> None:
    stop = asyncio.Event()
    producing = asyncio.create_task(produce(pair.bootstrap, stop))
    buffers = (0, 50)
    values: list[list[int]] = [[] for _ in buffers]
    async with AsyncExitStack() as stack:
        readers = [Reader(pair.bootstrap, TOPIC, 0, each, max_bytes=4_096) for each in buffers]
        for reader in readers:
            await stack.enter_async_context(reader)
        pairs = zip(readers, values, strict=True)
        reading = [asyncio.create_task(read(reader.read(0), seen)) for reader, seen in pairs]
        await change_leaders(pair, values)
        stop.set()
        count = await producing
        await have_read(count, values)
        for task in reading:
            assert not task.done()
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    assert values == [list(range(count))] * len(buffers)
