from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from groupkeeper.coordinator.gateway.client import (
    BrokerClient,
    BrokerError,
    NoAnswer,
    NotSent,
    UnsupportedApi,
)
from groupkeeper.coordinator.gateway.security import Security
from groupkeeper.protocol.codec import write_response
from groupkeeper.protocol.writer import Row
from tests.helpers.wire.loop_server import serving

API_VERSIONS, FIND_COORDINATOR, LIST_TRANSACTIONS = 18, 10, 66
RANGES = {API_VERSIONS: (0, 3), FIND_COORDINATOR: (0, 2)}
OF_OLD_BROKER = {API_VERSIONS: (0, 0), FIND_COORDINATOR: (0, 2)}

Act = Callable[["Broker", int, int, int], Awaitable[bytes | None]]


class Broker:
    """Answers ApiVersions as a real one, and everything else as a test says."""

    def __init__(self, act: Act, ranges: dict[int, tuple[int, int]]) -> None:
        self.act = act
        self.ranges = ranges
        self.connections = 0
        self.asked: list[tuple[int, int]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.waited_for = 0
        self.all_asked = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            key, version, number = struct.unpack_from(">hhi", await reader.readexactly(size))
            self.asked.append((key, version))
            if len(self.asked) == self.waited_for:
                self.all_asked.set()
            if key == API_VERSIONS:
                writer.write(self.versions(version, number))
            elif answer := await self.act(self, key, version, number):
                writer.write(answer)

    def versions(self, version: int, number: int) -> bytes:
        served = self.ranges[API_VERSIONS][1]
        rows = [Row(api_key=k, min_version=a, max_version=b) for k, (a, b) in self.ranges.items()]
        feature = Row(name="transaction.version", min_version_level=0, max_version_level=2)
        return write_response(
            API_VERSIONS,
            min(version, served) if version <= served else 0,
            number,
            0,
            {
                "error_code": 0 if version <= served else 35,
                "api_keys": rows,
                "finalized_features": [feature],
            },
        )


def coordinator(version: int, number: int, node_id: int) -> bytes:
    values = {
        "error_code": 0,
        "error_message": None,
        "node_id": node_id,
        "host": "h",
        "port": 1,
    }
    return write_response(FIND_COORDINATOR, version, number, 0, values)


async def find_it(_broker: Broker, _key: int, version: int, number: int) -> bytes:
    return coordinator(version, number, number)


@asynccontextmanager
async def connected(
    act: Act, ranges: dict[int, tuple[int, int]] = RANGES, request_timeout_s: float = 30
) -> AsyncIterator[tuple[Broker, BrokerClient]]:
    broker = Broker(act, ranges)
    async with serving(broker.serve) as endpoint:
        client = BrokerClient(
            endpoint,
            Security(),
            connect_timeout_s=30,
            request_timeout_s=request_timeout_s,
            max_answer_bytes=65_536,
        )
        yield broker, client
        client.close()


async def ask(client: BrokerClient) -> int:
    answer = await client.ask(
        FIND_COORDINATOR, range(3), key="g", key_type=0, coordinator_keys=["g"]
    )
    return int(answer.node_id)


async def test_one_connection_serves_many_requests() -> None:
    async with connected(find_it) as (broker, client):
        first = await ask(client)
        assert await asyncio.gather(*[ask(client) for _ in range(5)]) == [
            first + number for number in range(1, 6)
        ]
        assert broker.connections == 1
        assert broker.asked[-1] == (FIND_COORDINATOR, 2)


@pytest.mark.parametrize("ranges", [RANGES, OF_OLD_BROKER])
async def test_versions_are_negotiated_with_old_and_new_brokers(
    ranges: dict[int, tuple[int, int]],
) -> None:
    async with connected(find_it, ranges) as (_, client):
        apis = await client.apis()
        assert apis.ranges == ranges
        assert apis.newest(FIND_COORDINATOR, range(5)) == 2
        assert apis.newest(FIND_COORDINATOR, range(3, 5)) is None
        expected = {"transaction.version": 2} if ranges is RANGES else {}
        assert apis.features == expected


async def test_an_api_that_the_broker_lacks_is_not_sent() -> None:
    async with connected(find_it) as (broker, client):
        with pytest.raises(UnsupportedApi, match="API 66"):
            await client.ask(LIST_TRANSACTIONS, range(2))
        assert {key for key, _ in broker.asked} == {API_VERSIONS}


async def test_a_connection_that_ends_is_opened_again_for_the_next_request() -> None:
    async def close(broker: Broker, _key: int, version: int, number: int) -> bytes | None:
        if broker.connections == 1:
            broker.writers[0].close()
            return None
        return coordinator(version, number, 7)

    async with connected(close) as (broker, client):
        with pytest.raises(NoAnswer, match="closed the connection"):
            await ask(client)
        assert await ask(client) == 7
        assert broker.connections == 2


async def test_a_request_without_an_answer_ends_the_connection() -> None:
    async def hang(broker: Broker, _key: int, version: int, number: int) -> bytes | None:
        return None if broker.connections == 1 else coordinator(version, number, 7)

    async with connected(hang, request_timeout_s=0.2) as (broker, client):
        results = await asyncio.gather(*[ask(client) for _ in range(3)], return_exceptions=True)
        assert [type(each) for each in results] == [NoAnswer] * 3
        assert await client.ask(
            FIND_COORDINATOR, range(3), key="g", key_type=0, coordinator_keys=["g"], timeout_s=30
        )
        assert broker.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff\xff\xff\xff",
        b"\0\1\0\1",
        b"\0\0\0\4\0\0\0\x63",
        b"\0\0\0\2\0\0",
        b"\0\0\0\0",
        b"GET / HTTP/1.1\r\n",
    ],
    ids=["negative", "too long", "another request", "short", "empty", "text"],
)
async def test_bytes_that_are_no_answer_end_the_connection_alone(answer: bytes) -> None:
    async def misbehave(broker: Broker, _key: int, version: int, number: int) -> bytes:
        return answer if broker.connections == 1 else coordinator(version, number, 7)

    async with connected(misbehave) as (_, client):
        with pytest.raises(NoAnswer):
            await ask(client)
        assert await ask(client) == 7


async def test_an_answer_to_nothing_ends_the_connection() -> None:
    async def twice(_broker: Broker, _key: int, version: int, number: int) -> bytes:
        return 2 * coordinator(version, number, 7)

    async with connected(twice) as (broker, client):
        assert await ask(client) == 7
        assert await ask(client) == 7
        assert broker.connections == 2


async def test_a_cancelled_request_leaves_the_others_their_answers() -> None:
    may_answer = asyncio.Event()

    async def wait(_broker: Broker, _key: int, version: int, number: int) -> bytes:
        await may_answer.wait()
        return coordinator(version, number, number)

    async with connected(wait) as (broker, client):
        broker.waited_for = 3  # the first two ask for versions
        cancelled, other = (asyncio.create_task(ask(client)) for _ in range(2))
        await broker.all_asked.wait()
        cancelled.cancel()
        may_answer.set()
        assert await other > 0
        assert broker.connections == 1


async def test_a_closed_client_sends_nothing() -> None:
    async with connected(find_it) as (broker, client):
        await ask(client)
        client.close()
        with pytest.raises(NotSent):
            await ask(client)
        assert broker.connections == 1


async def test_nobody_there_is_an_error_that_says_so() -> None:
    async with connected(find_it) as (_, client):
        pass
    fresh = BrokerClient(client.endpoint, Security(), connect_timeout_s=30, request_timeout_s=30)
    with pytest.raises(BrokerError, match="cannot connect"):
        await ask(fresh)
