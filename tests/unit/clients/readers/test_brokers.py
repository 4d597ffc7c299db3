"""Which broker is asked for the leader, and which connection a reader gets: fake brokers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, LeaderNotAvailableError
from aiokafka.protocol.metadata import MetadataResponse_v4

from groupkeeper.clients.readers.brokers import (
    METADATA_TIMEOUT_S,
    BrokerAddress,
    Brokers,
    KafkaSecurity,
)
from groupkeeper.clients.readers.errors import NoSuchPartition, NoSuchTopic, NotReachable
from groupkeeper.clients.readers.reader import Reader
from tests.helpers.runtime.virtual_loop import virtual_time

NO_ERROR, UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE = 0, 3, 5
ONE, TWO = BrokerAddress("one", 1), BrokerAddress("two", 2)


class FakeConnection:
    """A connection to one broker of a cluster of two."""

    def __init__(self, to: BrokerAddress, topic: tuple[Any, ...], *, is_silent: bool) -> None:
        self.to = to
        self._is_silent = is_silent
        self.is_closed = False
        self._topic = topic

    async def send(self, request: Any) -> Any:
        if self._is_silent:
            await asyncio.get_running_loop().create_future()
        nodes = [(1, *ONE, None), (2, *TWO, None)]
        return MetadataResponse_v4(0, nodes, "cluster", 1, [self._topic])

    def close(self) -> None:
        self.is_closed = True


def topic(leader: int, error: int = NO_ERROR) -> tuple[Any, ...]:
    """The topic in the metadata, with one partition."""
    return (error, "events", False, [(0, 0, leader, [1, 2], [1, 2])] if not error else [])


class TwoBrokers(Brokers):
    """Some of two brokers are away; the others know the topic."""

    def __init__(
        self, known: tuple[Any, ...], away: tuple[BrokerAddress, ...], bootstrap: str
    ) -> None:
        super().__init__(bootstrap, None, "test")
        self.away = away
        self.made: list[FakeConnection] = []
        self.silent: BrokerAddress | None = None
        self._known = known

    async def _connect(self, address: BrokerAddress) -> FakeConnection:
        if address in self.away:
            raise KafkaConnectionError(f"{address.host} is away")
        is_silent = address == self.silent
        self.made.append(FakeConnection(address, self._known, is_silent=is_silent))
        return self.made[-1]

    async def leader(self) -> BrokerAddress:
        """Connect, and see that only the connection to the leader stays open."""
        connection: FakeConnection = await self.connect_to_leader("events", 0)
        assert [each for each in self.made if not each.is_closed] == [connection]
        return connection.to


async def test_the_leader_is_found_through_any_broker():
    for _ in range(20):  # the broker that is asked first is drawn
        assert await TwoBrokers(topic(leader=2), (), "one:1,two:2").leader() == TWO


async def test_a_broker_that_is_away_is_passed_over():
    for _ in range(20):
        assert await TwoBrokers(topic(leader=2), (ONE,), "one:1,two:2").leader() == TWO


@virtual_time
async def test_a_broker_that_hangs_is_left_for_the_next_one():
    began_s = asyncio.get_running_loop().time()
    for _ in range(20):
        brokers = TwoBrokers(topic(leader=2), (), "one:1,two:2")
        brokers.silent = ONE
        assert await brokers.leader() == TWO
    assert asyncio.get_running_loop().time() - began_s <= 20 * METADATA_TIMEOUT_S


async def test_a_broker_that_only_the_metadata_named_is_asked_when_the_others_are_away():
    brokers = TwoBrokers(topic(leader=2), (), "one:1")
    assert await brokers.leader() == TWO
    brokers.away = (ONE,)
    brokers.made.clear()
    assert await brokers.leader() == TWO


async def test_without_any_broker_each_one_is_named():
    with pytest.raises(KafkaConnectionError, match=r"(one:1.*two:2|two:2.*one:1)"):
        await TwoBrokers(topic(leader=2), (ONE, TWO), "one:1,two:2").leader()


@pytest.mark.parametrize(
    ("known", "partition", "error"),
    [
        (topic(1, UNKNOWN_TOPIC), 0, NoSuchTopic),
        (topic(1), 1, NoSuchPartition),
        (topic(1, LEADER_NOT_AVAILABLE), 0, LeaderNotAvailableError),
        (topic(-1), 0, KafkaConnectionError),
    ],
)
async def test_what_the_metadata_lacks_is_told_and_the_connection_closed(known, partition, error):
    brokers = TwoBrokers(known, (), "one:1")
    with pytest.raises(error):
        await brokers.connect_to_leader("events", partition)
    assert [each.is_closed for each in brokers.made] == [True]


async def test_a_connection_waits_longer_for_an_answer_than_a_leader_may(monkeypatch):
    made = []

    async def create_conn(*_: Any, **settings: Any) -> None:
        made.append(settings["request_timeout_ms"])
        raise KafkaConnectionError

    monkeypatch.setattr("groupkeeper.clients.readers.brokers.create_conn", create_conn)
    reader = Reader("one:1", "events", 0, max_wait_ms=60_000, give_up_ms=0)
    with pytest.raises(NotReachable):
        await anext(reader.read(0))
    assert made == [90_000]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"protocol": "SSL"}, "SSL needs an ssl_context"),
        ({"protocol": "SASL_SSL", "username": "a", "password": "b"}, "needs an ssl_context"),
        ({"protocol": "SASL_PLAINTEXT", "username": "a"}, "needs a username and a password"),
    ],
)
def test_security_that_lacks_something_is_refused_at_once(settings, problem):
    with pytest.raises(ValueError, match=problem):
        KafkaSecurity(**settings)
