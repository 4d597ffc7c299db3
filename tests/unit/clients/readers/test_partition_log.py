"""Fetches over leaders that move, fail and come back; the cluster is a fake."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.fetch import FetchResponse_v4
from aiokafka.protocol.offset import OffsetResponse_v1
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from groupkeeper.clients.readers.brokers import BrokerAddress, Brokers
from groupkeeper.clients.readers.errors import (
    CannotRead,
    NoSuchPartition,
    NoSuchTopic,
    NotReachable,
    OffsetOutOfRange,
)
from groupkeeper.clients.readers.partition_log import UNKNOWN_FOR_S, FetchLimits, PartitionLog
from tests.helpers.runtime.virtual_loop import virtual_time

NOT_LEADER, NOT_ALLOWED, OUT_OF_RANGE, NO_ZSTD_BEFORE_V10 = 6, 29, 1, 76


def batch(*offsets: int) -> bytes:
    """One batch; what lies between the offsets was compacted."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, 0, 100_000)
    for offset in offsets:
        builder.append(offset, timestamp=5, key=b"k", value=b"v", headers=[("h", b"x")])
    return bytes(builder.build())


def marker(offset: int) -> bytes:
    """The end of a transaction, as Kafka writes it: a batch with one message for nobody."""
    data = bytearray(batch(offset))
    data[21:23] = struct.pack(">h", 0b11_0000)  # transactional, and control
    data[17:21] = struct.pack(">I", calc_crc32c(memoryview(data)[21:]))
    return bytes(data)


class FakeConnection:
    """Gives one answer after the other; an error is raised."""

    def __init__(self, *answers: bytes | int | Exception) -> None:
        self.answers = list(answers)
        self.is_closed = False

    async def send(self, request: Any) -> Any:
        await asyncio.sleep(0.001)
        if request.API_KEY == 2:
            ((_, ((_, where),)),) = request.topics
            return OffsetResponse_v1([("events", [(0, 0, -1, {-2: 20, -1: 30}[where])])])
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        code, data = (answer, b"") if isinstance(answer, int) else (0, answer)
        return FetchResponse_v4(0, [("events", [(0, code, 0, 0, [], data)])])

    def close(self) -> None:
        self.is_closed = True


class SilentConnection(FakeConnection):
    """Never answers."""

    async def send(self, request: Any) -> Any:
        await asyncio.get_running_loop().create_future()


IMPATIENT = FetchLimits(max_wait_ms=10_000, give_up_ms=1_000)


class SlowConnection(FakeConnection):
    """Answers when a leader without messages does."""

    async def send(self, request: Any) -> Any:
        await asyncio.sleep(IMPATIENT.max_wait_ms / 1000)
        return await super().send(request)


class FakeBrokers(Brokers):
    """Gives one connection after the other, the last one again and again."""

    def __init__(self, *connections: FakeConnection | Exception) -> None:
        super().__init__("localhost", None, "test")
        self.connections = list(connections)

    async def connect_to_leader(self, topic: str, partition: int) -> Any:
        found = self.connections[0]
        if len(self.connections) > 1:
            self.connections.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


@virtual_time
async def test_a_new_leader_is_found_after_the_old_one_said_no_and_after_it_was_gone():
    first, second = FakeConnection(NOT_LEADER), FakeConnection(OSError("gone"))
    third = FakeConnection(batch(0, 1))
    log = PartitionLog(FakeBrokers(first, KafkaConnectionError(), second, third), "events", 0)
    fetched = await log.fetch(0)
    whole = [(m.offset, m.key, m.value, m.timestamp_ms, m.headers) for m in fetched.unpack()]
    assert whole == [(n, b"k", b"v", 5, (("h", b"x"),)) for n in (0, 1)]
    assert (first.is_closed, second.is_closed, third.is_closed) == (True, True, False)
    assert log.unsolved == {}


@virtual_time
async def test_messages_before_the_wanted_offset_are_left_out_and_the_next_is_behind_the_batch():
    log = PartitionLog(FakeBrokers(FakeConnection(batch(0, 1, 2, 8))), "events", 0)
    fetched = await log.fetch(2)
    assert [m.offset for m in fetched.unpack()] == [2, 8]
    assert fetched.next_offset == 9
    assert not fetched.has_more()


@virtual_time
async def test_the_end_of_a_transaction_is_no_message_and_is_not_fetched_again():
    log = PartitionLog(FakeBrokers(FakeConnection(batch(4) + marker(5))), "events", 0)
    fetched = await log.fetch(4)
    assert [m.offset for m in fetched.unpack()] == [4]
    assert list(fetched.unpack()) == []
    assert fetched.next_offset == 6
    assert not fetched.has_more()


@virtual_time
async def test_a_wrong_checksum_is_told():
    spoilt = batch(0)[:-1] + b"?"
    fetched = await PartitionLog(FakeBrokers(FakeConnection(spoilt)), "events", 0).fetch(0)
    with pytest.raises(CannotRead, match="checksum"):
        fetched.unpack()


@virtual_time
async def test_messages_that_cannot_be_decompressed_are_told(monkeypatch):
    gzip = DefaultRecordBatchBuilder(2, 1, False, -1, -1, 0, 100_000)
    for offset in range(50):
        gzip.append(offset, timestamp=5, key=b"k", value=b"v" * 50, headers=[])
    log = PartitionLog(FakeBrokers(FakeConnection(bytes(gzip.build()))), "events", 0)
    fetched = await log.fetch(0)
    monkeypatch.setattr("aiokafka.codec.has_gzip", lambda: False)
    with pytest.raises(CannotRead, match=r"behind offset 0 of 'events'/0 .* gzip"):
        fetched.unpack()


@virtual_time
async def test_an_offset_out_of_range_is_told_with_the_range():
    log = PartitionLog(FakeBrokers(FakeConnection(OUT_OF_RANGE)), "events", 0)
    with pytest.raises(OffsetOutOfRange, match="20 to 30"):
        await log.fetch(5)


@virtual_time
async def test_a_leader_that_lags_behind_the_offset_is_asked_again():
    lagging = FakeConnection(OUT_OF_RANGE)  # though its range, 20 to 30, has the offset by now
    log = PartitionLog(FakeBrokers(lagging, FakeConnection(batch(25))), "events", 0)
    fetched = await log.fetch(25)
    assert fetched.has_more()


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (NOT_ALLOWED, "TopicAuthorizationFailed"),
        (NO_ZSTD_BEFORE_V10, "UnsupportedCompressionType"),
    ],
)
@virtual_time
async def test_what_the_broker_will_refuse_again_is_told_at_once(code, name):
    log = PartitionLog(FakeBrokers(FakeConnection(code)), "events", 0)
    with pytest.raises(CannotRead, match=name):
        await log.fetch(5)


@virtual_time
async def test_an_unknown_partition_is_told_when_it_stays_unknown():
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    log = PartitionLog(FakeBrokers(NoSuchPartition("events", 0, 0)), "events", 0)
    with pytest.raises(NoSuchPartition):
        await log.fetch(0)
    assert UNKNOWN_FOR_S <= loop.time() - began_s < UNKNOWN_FOR_S + 2


@virtual_time
async def test_a_partition_that_becomes_known_is_read():
    known = FakeConnection(batch(0))
    log = PartitionLog(FakeBrokers(NoSuchPartition("events", 0, 0), known), "events", 0)
    assert (await log.fetch(0)).has_more()


@virtual_time
async def test_a_broker_that_does_not_know_the_topic_right_after_an_outage_is_asked_again():
    away = [KafkaConnectionError("away")] * 20  # much longer than UNKNOWN_FOR_S
    known = FakeConnection(batch(0))
    log = PartitionLog(FakeBrokers(*away, NoSuchTopic("events"), known), "events", 0)
    assert (await log.fetch(0)).has_more()


@virtual_time
async def test_it_tries_for_as_long_as_it_was_told():
    away = FakeBrokers(KafkaConnectionError("away"))
    log = PartitionLog(away, "events", 0, FetchLimits(give_up_ms=10_000))
    with pytest.raises(NotReachable, match="10000 ms"):
        await log.fetch(0)


@virtual_time
async def test_a_leader_that_is_silent_is_given_up_as_one_that_refuses():
    began_s = asyncio.get_running_loop().time()
    log = PartitionLog(FakeBrokers(SilentConnection()), "events", 0, FetchLimits(give_up_ms=5_000))
    with pytest.raises(NotReachable, match="5000 ms: TimeoutError"):
        await log.fetch(0)
    assert asyncio.get_running_loop().time() - began_s < 6


@virtual_time
async def test_a_leader_that_waits_for_messages_is_not_given_up():
    log = PartitionLog(FakeBrokers(slow := SlowConnection(batch(0))), "events", 0, IMPATIENT)
    assert (await log.fetch(0)).has_more()
    assert not slow.is_closed


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("kafka", ("kafka", 9092)),
        ("kafka:19092", ("kafka", 19092)),
        ("[::1]:19092", ("::1", 19092)),
        ("[::1]", ("::1", 9092)),
    ],
)
def test_an_address_may_leave_out_its_port(text, address):
    assert BrokerAddress.parse(text) == address


@pytest.mark.parametrize("text", ["", ":9092", "kafka:", "kafka:x", "kafka:0", "kafka:65536"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match="no address"):
        BrokerAddress.parse(text)
