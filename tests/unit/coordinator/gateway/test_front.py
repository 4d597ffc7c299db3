"""A broker's listener that is open before the versions of the broker are known."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, cast

from groupkeeper.coordinator.gateway.addresses import Addresses
from groupkeeper.coordinator.gateway.front import Front
from groupkeeper.coordinator.gateway.link import LinkTarget
from groupkeeper.coordinator.gateway.security import Security
from groupkeeper.coordinator.gateway.settings import GatewaySettings
from groupkeeper.coordinator.gateway.splitting import Division
from groupkeeper.coordinator.handlers.services import Endpoint
from groupkeeper.protocol.versions import ApiKey
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.wire.connections import FakeTransport, make_server
from tests.helpers.wire.handling import decode
from tests.helpers.wire.raw_client import encode_request
from tests.helpers.wire.relays import KAFKA_VERSIONS

LIMIT_S = 5.0
VERSION = 3
CORRELATION_ID = 77


class Client:
    """A client of the listener, that asks for its versions."""

    def __init__(self, site: Site, *, values: dict[str, Any] | None = None, cut: int = 0) -> None:
        self.transport = FakeTransport("127.0.0.1")
        self.connection = site.front.connection(site.server.shared, site.front.listener)
        self.connection.connection_made(cast("Any", self.transport))
        named = {"client_software_name": "test", "client_software_version": "1"}
        frame = encode_request("api_versions", VERSION, values or named, CORRELATION_ID, "app")
        if cut:
            frame = struct.pack(">i", len(frame) - 4 - cut) + frame[4:-cut]
        self.connection.data_received(frame)

    def offered(self) -> set[int]:
        """The keys of the answer; empty if there is none yet."""
        if not self.transport.writes:
            return set()
        answer = decode("api_versions", VERSION, b"".join(self.transport.writes))
        return {each["api_key"] for each in answer["api_keys"]}


class Site:
    """The listener, before the first metadata."""

    def __init__(self) -> None:
        self.server = make_server()
        target = LinkTarget(1, Endpoint("", 0), Security(), LIMIT_S)
        settings = GatewaySettings(
            bootstrap=(), ports=range(9100, 9103), listen_host="127.0.0.1", security=Security()
        )
        addresses = Addresses(1_000_000, lambda host: Endpoint(host, 9092), "")
        self.front = Front(
            target,
            self.server.services,
            addresses,
            settings,
            lambda *_: Division(b"", None),
            lambda key: None,
        )


@virtual_time
async def test_clients_wait_for_the_versions_of_the_broker() -> None:
    site = Site()
    early = [Client(site), Client(site)]
    await asyncio.sleep(LIMIT_S / 2)
    assert [client.offered() for client in early] == [set(), set()]
    site.front.learn({}, {})
    assert early[0].offered() == set(), "the broker is in the metadata, and has not answered"
    site.front.learn(KAFKA_VERSIONS, {})
    for client in [*early, Client(site)]:
        assert {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT} <= client.offered()
    await asyncio.sleep(2 * LIMIT_S)
    assert not any(client.transport.is_closed for client in early)


@virtual_time
async def test_connections_end_if_the_broker_does_not_answer_in_time() -> None:
    site = Site()
    client = Client(site)
    await asyncio.sleep(LIMIT_S)
    assert client.transport.is_closed
    assert site.server.stats.closed["upstream_lost"] == 1
    later = Client(site)
    assert not later.transport.is_closed, "each waits"
    site.front.learn(KAFKA_VERSIONS, {})
    assert ApiKey.FETCH in later.offered()


@virtual_time
async def test_clients_that_leave_while_they_wait_are_forgotten() -> None:
    site = Site()
    gone, bad = Client(site), Client(site, cut=2)
    gone.connection.connection_lost(None)
    site.front.learn(KAFKA_VERSIONS, {})
    assert gone.offered() == set()
    assert bad.transport.is_closed, "its request is malformed"
    await asyncio.sleep(2 * LIMIT_S)
    closed = {reason: count for reason, count in site.server.stats.closed.items() if count}
    assert "upstream_lost" not in closed
