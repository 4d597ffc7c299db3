"""Who answers a request to our own node."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

from groupkeeper.coordinator.gateway.addresses import Addresses
from groupkeeper.coordinator.gateway.brokers import UpstreamCluster
from groupkeeper.coordinator.gateway.own_routes import (
    WAIT_FOR_VERSIONS_S,
    OwnRoutes,
    common_versions,
)
from groupkeeper.coordinator.gateway.splitting import Division
from groupkeeper.coordinator.handlers.services import Endpoint
from groupkeeper.coordinator.handlers.table import APIS_SERVED
from groupkeeper.coordinator.server.connection import Connection
from groupkeeper.coordinator.server.listener import Listener
from groupkeeper.protocol.versions import ApiKey
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.wire.connections import FakeTransport, make_server
from tests.helpers.wire.handling import decode
from tests.helpers.wire.raw_client import encode_request
from tests.helpers.wire.relays import KAFKA_VERSIONS

VERSION = 3
INIT_PRODUCER_ID = 22


class NoBrokers:
    """The brokers before the first metadata."""

    def pick(self) -> None:
        return None


class Site:
    """The listener of our own node, before a broker has answered in this run."""

    def __init__(self) -> None:
        self.server = make_server()
        self.routes = OwnRoutes(
            cast("Any", NoBrokers()),
            {},
            Addresses(1_000_000, lambda host: Endpoint(host, 9092), ""),
            APIS_SERVED,
            lambda *_: Division(b"", None),
            1_000_000,
            follows_logins=False,
        )
        services = replace(self.server.services, offer=lambda: self.routes.offer)
        self.listener = Listener("OURS", self.routes.routes, services)

    def learn(self) -> None:
        self.routes.learn(UpstreamCluster("kafka", {}, 1, {1: KAFKA_VERSIONS}, {}))

    def ask(self) -> FakeTransport:
        """Connect, and ask for the versions."""
        transport = FakeTransport("127.0.0.1")
        connection = Connection(self.server.shared, self.listener)
        connection.connection_made(cast("Any", transport))
        named = {"client_software_name": "test", "client_software_version": "1"}
        connection.data_received(encode_request("api_versions", VERSION, named, 77, "app"))
        return transport


def offered(transport: FakeTransport) -> set[int]:
    """The keys of the answer; empty if there is none yet."""
    if not transport.writes:
        return set()
    answer = decode("api_versions", VERSION, b"".join(transport.writes))
    return {each["api_key"] for each in answer["api_keys"]}


def test_our_own_node_offers_the_versions_that_every_broker_has() -> None:
    assert common_versions([{0: (3, 12), 1: (4, 17), 9: (0, 9)}, {0: (0, 11), 1: (18, 20)}]) == {
        0: (3, 11)
    }
    assert common_versions([]) == {}


@virtual_time
async def test_clients_wait_a_moment_for_the_versions_of_the_brokers() -> None:
    """A transactional producer of librdkafka fails for good if they are missing."""
    site = Site()
    early = site.ask()
    await asyncio.sleep(WAIT_FOR_VERSIONS_S / 2)
    assert offered(early) == set()
    site.learn()
    assert INIT_PRODUCER_ID in offered(early)
    assert INIT_PRODUCER_ID in offered(site.ask())


@virtual_time
async def test_groups_go_on_if_no_broker_answers() -> None:
    site = Site()
    early = site.ask()
    await asyncio.sleep(WAIT_FOR_VERSIONS_S)
    for transport in (early, site.ask()):
        assert ApiKey.JOIN_GROUP in offered(transport)
        assert INIT_PRODUCER_ID not in offered(transport)
        assert not transport.is_closed
    site.learn()
    assert INIT_PRODUCER_ID in offered(site.ask())
