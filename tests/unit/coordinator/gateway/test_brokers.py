from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from groupkeeper.coordinator.gateway.brokers import UpstreamBrokers, UpstreamCluster
from groupkeeper.coordinator.gateway.client import BrokerError, NotSent
from groupkeeper.coordinator.gateway.observed_topics import ObservedTopics
from groupkeeper.coordinator.gateway.security import Security
from groupkeeper.coordinator.gateway.settings import GatewaySettings
from groupkeeper.coordinator.gateway.topic_list import METADATA_VERSIONS, topics_of
from groupkeeper.coordinator.handlers.services import Endpoint
from groupkeeper.protocol.codec import write_response
from groupkeeper.protocol.writer import Row
from tests.helpers.runtime.virtual_loop import turns
from tests.helpers.wire.loop_server import serving

API_VERSIONS, METADATA = 18, 3


class Topics(ObservedTopics):
    """Counts the looks at the topics."""

    def __init__(self) -> None:
        self.looks = 0

    async def refresh(self) -> None:
        self.looks += 1


class Stored:
    def __init__(self, cluster_id: str = "theirs") -> None:
        self.cluster_id = cluster_id


class FakeCluster:
    """UpstreamBrokers that answer ApiVersions and Metadata."""

    def __init__(self) -> None:
        self.cluster_id = "theirs"
        self.brokers: dict[int, Endpoint] = {}
        self.produce = (3, 13)
        self.transactions = 2
        self.is_silent = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            key, version, number = struct.unpack_from(">hhi", await reader.readexactly(size))
            if self.is_silent:
                writer.close()
                return
            answer = self._versions() if key == API_VERSIONS else self._metadata()
            writer.write(write_response(key, version, number, 0, answer))

    def _versions(self) -> dict[str, object]:
        ranges = {0: self.produce, METADATA: (0, 12), API_VERSIONS: (0, 4)}
        rows = [Row(api_key=k, min_version=a, max_version=b) for k, (a, b) in ranges.items()]
        level = self.transactions
        feature = Row(name="transaction.version", min_version_level=0, max_version_level=level)
        return {"error_code": 0, "api_keys": rows, "finalized_features": [feature]}

    def _metadata(self) -> dict[str, object]:
        rows = [
            Row(node_id=broker_id, host=host, port=port, rack=None)
            for broker_id, (host, port) in self.brokers.items()
        ]
        return {
            "brokers": rows,
            "cluster_id": self.cluster_id,
            "controller_id": 1,
            "topics": [],
            "error_code": 0,
        }


@asynccontextmanager
async def polling(
    *bootstrap: Endpoint, stored: Stored | None = None
) -> AsyncIterator[UpstreamBrokers]:
    settings = GatewaySettings(
        bootstrap=bootstrap,
        ports=range(9100, 9110),
        listen_host="127.0.0.1",
        security=Security(),
        connect_timeout_ms=30_000,
    )
    brokers = UpstreamBrokers(settings, Topics(), stored or Stored())
    try:
        yield brokers
    finally:
        await brokers.stop()


@asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[FakeCluster, Endpoint, Endpoint]]:
    cluster = FakeCluster()
    async with serving(cluster.serve) as one, serving(cluster.serve) as two:
        cluster.brokers = {1: one, 2: two}
        yield cluster, one, two


def looks(brokers: UpstreamBrokers) -> int:
    assert isinstance(brokers.topics, Topics)
    return brokers.topics.looks


@pytest.mark.parametrize("cluster_id", ["theirs", "other"])
async def test_topics_of_another_cluster_are_never_observed(cluster_id: str) -> None:
    """It is behind a bootstrap address, and is asked when all brokers of ours are silent. Topics
    there have the same names and other ids, so all of ours would be deleted, with their offsets.
    """
    other = FakeCluster()
    other.cluster_id = cluster_id
    async with (
        two_brokers() as (ours, one, _),
        serving(other.serve) as address,
        polling(one, address) as brokers,
    ):
        await brokers.poll()
        ours.is_silent = True
        asking = brokers.topics.ask(
            METADATA,
            METADATA_VERSIONS,
            topics=None,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        if cluster_id == "other":
            with pytest.raises(BrokerError, match="belongs to another cluster"):
                await asking
        else:
            version, frame = await asking
            assert [*topics_of(version, frame)] == []
        assert brokers.is_ours


async def test_a_poll_finds_brokers_versions_and_features() -> None:
    async with two_brokers() as (_, one, two), polling(one) as brokers:
        changes: list[UpstreamCluster] = []
        brokers.observers.append(changes.append)
        assert brokers.pick() is None
        await brokers.poll()
        await brokers.poll()
        assert changes == [brokers.cluster]
        (cluster,) = changes
        assert cluster.cluster_id == "theirs"
        assert cluster.brokers == {1: one, 2: two}
        assert cluster.versions[2][0] == (3, 13)
        assert cluster.features == {"transaction.version": 2}
        assert {brokers.pick() for _ in range(4)} == {1, 2}
        assert looks(brokers) == 2


async def test_a_broker_that_is_down_keeps_its_versions_and_is_not_picked() -> None:
    async with two_brokers() as (fake, one, _), serving(fake.serve) as third:
        fake.brokers[3] = third
        async with polling(one) as brokers:
            await brokers.poll()
            brokers.client(3).close()  # the server that ends below waits for its connections
            assert {brokers.pick() for _ in range(6)} == {1, 2, 3}
            await brokers.poll()
            assert {brokers.pick() for _ in range(6)} == {1, 2}
            assert brokers.cluster is not None
            assert set(brokers.cluster.versions) == {1, 2, 3}


async def test_a_broker_that_leaves_or_moves_is_followed() -> None:
    async with two_brokers() as (fake, one, two), polling(one) as brokers:
        await brokers.poll()
        fake.brokers = {1: one, 5: two}
        await brokers.poll()
        assert brokers.cluster is not None
        assert brokers.cluster.brokers == {1: one, 5: two}
        with pytest.raises(NotSent):
            brokers.client(2)
        fake.brokers = {5: one}
        await brokers.poll()
        assert brokers.client(5).endpoint == one


async def test_the_topics_of_another_cluster_are_not_observed() -> None:
    async with two_brokers() as (_, one, _), polling(one, stored=Stored("another")) as brokers:
        await brokers.poll()
        assert brokers.cluster is not None
        assert not brokers.is_ours
        assert looks(brokers) == 0


async def test_the_topics_follow_once_the_cluster_id_is_stored() -> None:
    stored = Stored("")
    async with two_brokers() as (_, one, _), polling(one, stored=stored) as brokers:
        await brokers.poll()
        assert looks(brokers) == 0
        stored.cluster_id = "theirs"
        await brokers.poll()
        assert looks(brokers) == 1


async def test_an_upstream_that_does_not_answer_changes_nothing() -> None:
    async with two_brokers() as (_, one, _), polling(one) as brokers:
        await brokers.poll()
        before = brokers.cluster, brokers.answered_s
        for client in [*brokers._clients.values(), *brokers._bootstrap]:
            client.close()
        with pytest.raises(BrokerError):
            await brokers.poll()
        assert (brokers.cluster, brokers.answered_s) == before
        assert brokers.pick() is not None  # nobody has tried these brokers since


async def test_the_end_of_an_outage_is_logged_once() -> None:
    async with two_brokers() as (fake, one, _), polling(one) as brokers:
        fake.is_silent = True
        with capture_logs() as lines:
            brokers.start()
            await _until(brokers, lambda: bool(lines))
            assert brokers.answered_s is None
            fake.is_silent = False
            await _until(brokers, lambda: looks(brokers) > 2)
        assert [each["event"] for each in lines] == [
            "upstream_does_not_answer",
            "upstream_answers_again",
        ]


async def _until(brokers: UpstreamBrokers, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            brokers.ask_now()
            await turns()
