"""Readers of single partitions, on a real Kafka with 100,000 messages."""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict

import pytest

from groupkeeper.clients.readers.brokers import KafkaSecurity
from groupkeeper.clients.readers.errors import (
    CannotRead,
    NoSuchPartition,
    NoSuchTopic,
    OffsetOutOfRange,
    ReaderError,
)
from groupkeeper.clients.readers.message_iter import PartitionIter
from groupkeeper.clients.readers.multi_iter import MultiIter
from groupkeeper.clients.readers.partition_log import LATEST
from groupkeeper.clients.readers.reader import Reader
from tests.registry.readers.log_of_messages import (
    CODECS,
    COUNTS,
    MESSAGES,
    PARTITIONS,
    TOPIC,
    Watched,
    compress,
    fill,
    sell,
    value_at,
)

pytestmark = pytest.mark.registry


async def read(iterator: PartitionIter, count: int) -> list[int]:
    return [(await anext(iterator)).offset for _ in range(count)]


@pytest.mark.parametrize("buffer", [0, 500])
async def test_every_message_of_every_partition_is_read_once_and_in_order(
    kafka: Watched, buffer: int
) -> None:
    readers = [Reader(kafka.bootstrap, TOPIC, p, buffer) for p in range(PARTITIONS)]
    expected: dict[int, int] = defaultdict(int)
    async with MultiIter([reader.read(0) for reader in readers]) as messages:
        for _ in range(MESSAGES):
            message = await anext(messages)
            partition, offset = message.partition, message.offset
            assert offset == expected[partition]
            assert (message.key, message.value) == (b"%d" % offset, value_at(partition, offset))
            assert message.timestamp_ms == 1_700_000_000_000 + offset
            expected[partition] += 1
    assert [expected[p] for p in range(PARTITIONS)] == COUNTS


@pytest.mark.parametrize("codec", CODECS)
async def test_compressed_messages_are_read(kafka: Watched, codec: str) -> None:
    await asyncio.to_thread(compress, kafka.bootstrap, codec, 300)
    partition = CODECS.index(codec)
    async with Reader(kafka.bootstrap, "codecs", partition) as reader:
        messages = reader.read(0)
        values = [(await anext(messages)).value for _ in range(300)]
    assert values == [value_at(partition, offset) for offset in range(300)]


async def test_messages_of_all_transactions_are_read_and_their_markers_passed_over(
    kafka: Watched,
) -> None:
    async with Reader(kafka.bootstrap, "sold", 0, max_wait_ms=100) as reader:
        messages = reader.read(0)
        reading = asyncio.create_task(read(messages, 11))  # it waits behind each marker
        await asyncio.to_thread(sell, kafka.bootstrap, "sold", 5, 3, 2)
        await fill(kafka.bootstrap, "sold", [1])
        assert await reading == [0, 1, 2, 3, 4, 6, 7, 8, 10, 11, 13]
        assert messages.position == 14


async def test_without_a_buffer_each_fetch_waits_until_all_was_read_and_more_is_asked_for(
    kafka: Watched,
) -> None:
    async with Reader(kafka.watched, "short", 0, max_bytes=32_768) as reader:
        iterator = reader.read(0)
        await asyncio.sleep(0.3)
        assert kafka.fetches() == 0  # nobody asked
        offset, fetches = 0, 0
        while fetches < 4:
            assert await read(iterator, 1) == [offset]
            offset += 1
            fetched = kafka.fetches()
            if fetched:
                assert fetched == 1
                fetches += 1
                await asyncio.sleep(0.3)
                assert kafka.fetches() == 0  # nothing ahead of the reader
        assert offset > 100


async def test_a_buffer_bounds_how_far_ahead_is_fetched(kafka: Watched) -> None:
    kafka.fetches()
    async with Reader(kafka.watched, "short", 0, buffer=50, max_bytes=16_384) as reader:
        iterator = reader.read(0)
        await read(iterator, 1)
        await asyncio.sleep(0.5)
        ahead = kafka.fetches()
        assert ahead == 1  # a fetch brings more than 50
        await read(iterator, 1_000)
        await asyncio.sleep(0.5)
        fetched = kafka.fetches()
        await asyncio.sleep(0.5)
        assert kafka.fetches() == 0
        assert 2 <= fetched <= 5  # Kafka gives a batch whole: here about 300 messages


async def test_a_leader_that_goes_and_comes_back_loses_and_repeats_nothing(kafka: Watched) -> None:
    async with Reader(kafka.bootstrap, "short", 0, max_bytes=16_384) as reader:
        iterator = reader.read(0)
        assert await read(iterator, 500) == list(range(500))
        kafka.kafka.kill()
        reading = asyncio.create_task(read(iterator, 2_500))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(kafka.kafka.start)
        assert await reading == list(range(500, 3_000))


async def test_reading_goes_on_behind_the_last_message(kafka: Watched) -> None:
    async with Reader(kafka.bootstrap, "empty", 0, max_wait_ms=100) as reader:
        old, new = reader.read(0), reader.read(LATEST)
        waiting = asyncio.create_task(read(old, 5)), asyncio.create_task(read(new, 5))
        await asyncio.sleep(0.5)
        await fill(kafka.bootstrap, "empty", [5])
        assert [await each for each in waiting] == [[0, 1, 2, 3, 4]] * 2
        await fill(kafka.bootstrap, "empty", [3])
        assert await read(old, 3) == [5, 6, 7]
        assert old.position == 8


async def test_each_read_is_an_iterator_of_its_own(kafka: Watched) -> None:
    async with Reader(kafka.bootstrap, "short", 1) as reader:
        first, second = reader.read(0), reader.read(100)
        assert await read(first, 3) == [0, 1, 2]
        assert await read(second, 3) == [100, 101, 102]
        assert await read(first, 1) == [3]
        await first.close()
        assert await read(second, 1) == [103]


async def test_what_cannot_be_read_is_told(kafka: Watched) -> None:
    async def fails(topic: str, partition: int, offset: int) -> ReaderError:
        async with Reader(kafka.bootstrap, topic, partition) as reader:
            with pytest.raises(ReaderError) as raised:
                await anext(reader.read(offset))
        return raised.value

    no_topic, no_partition, beyond = await asyncio.gather(
        fails("nowhere", 0, 0), fails("short", 2, 0), fails("short", 1, 501)
    )
    assert isinstance(no_topic, NoSuchTopic)
    assert isinstance(no_partition, NoSuchPartition)
    assert str(no_partition) == "topic 'short' has no partition 2: it has 2, from 0"
    assert isinstance(beyond, OffsetOutOfRange)
    assert (beyond.offset, beyond.first, beyond.end) == (501, 0, 500)


async def test_over_tls_a_user_with_a_password_reads(kafka: Watched) -> None:
    trusting = ssl.create_default_context(cafile=kafka.authority)

    async def first(password: str, context: ssl.SSLContext) -> int:
        security = KafkaSecurity("SASL_SSL", context, "PLAIN", "admin", password)
        async with Reader(kafka.safe, "short", 0, security=security) as reader:
            return (await anext(reader.read(0))).offset

    assert await first("secret", trusting) == 0
    with pytest.raises(CannotRead, match="Invalid username or password"):
        await first("public", trusting)
    with pytest.raises(CannotRead, match="CERTIFICATE_VERIFY_FAILED"):
        await first("secret", ssl.create_default_context())


async def test_close_tells_every_error_and_leaves_no_task(kafka: Watched) -> None:
    reader = Reader(kafka.bootstrap, "short", 1, buffer=1)
    iterators = [reader.read(501), reader.read(502), reader.read(0)]
    await asyncio.gather(*(each.ready() for each in iterators))
    with pytest.raises(ExceptionGroup) as raised:
        await reader.close()
    offsets = {e.offset for e in raised.value.exceptions if isinstance(e, OffsetOutOfRange)}
    assert offsets == {501, 502}
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancelled_reader_leaves_no_task(kafka: Watched) -> None:
    async def read_for_ever() -> None:
        async with Reader(kafka.bootstrap, "short", 1) as reader, reader.read() as messages:
            async for _ in messages:
                pass

    reading = asyncio.create_task(read_for_ever())
    await asyncio.sleep(0.5)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
