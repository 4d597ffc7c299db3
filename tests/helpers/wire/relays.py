"""Relay connections without sockets. The test is the client and the broker."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, cast

from groupkeeper.coordinator.gateway.addresses import Addresses
from groupkeeper.coordinator.gateway.apis import treatments
from groupkeeper.coordinator.gateway.client_login import ClientLogin, no_login
from groupkeeper.coordinator.gateway.front import WITHOUT_BROKER
from groupkeeper.coordinator.gateway.link import BrokerLink, LinkOwner, LinkTarget
from groupkeeper.coordinator.gateway.relay import RelayConnection
from groupkeeper.coordinator.gateway.relay_rules import RelayRules
from groupkeeper.coordinator.gateway.reply_stream import Change
from groupkeeper.coordinator.gateway.request_stream import WholeRequest
from groupkeeper.coordinator.gateway.security import Security
from groupkeeper.coordinator.gateway.splitting import Division
from groupkeeper.coordinator.handlers.services import Endpoint
from groupkeeper.coordinator.server.listener import Listener
from groupkeeper.coordinator.server.server import KafkaServer
from tests.helpers.wire.connections import FakeTransport
from tests.helpers.wire.handling import make_services

UPSTREAM = Endpoint("upstream.example", 9092)
KAFKA_VERSIONS = dict.fromkeys(range(82), (0, 13))
"""API key -> (lowest, highest version) of a broker that has every API."""
FETCH, METADATA, PRODUCE, LIST_OFFSETS, DESCRIBE_CONFIGS = 1, 3, 0, 2, 32


def request(key: int, version: int, correlation_id: int, body: bytes = b"body") -> bytes:
    """Return a request frame with the client id ``app`` and any bytes as its body."""
    flexible = {0: 9, 1: 12, 2: 6, 3: 9}.get(key, 99) <= version
    header = struct.pack(">hhih", key, version, correlation_id, 3) + b"app" + b"\0" * flexible
    return struct.pack(">i", len(header) + len(body)) + header + body


def produce(correlation_id: int, acks: int, records: bytes = b"records", version: int = 9) -> bytes:
    """Return a Produce without a transactional id."""
    transactional_id = b"\0" if version >= 9 else struct.pack(">h", -1)
    body = transactional_id + struct.pack(">hi", acks, 30_000) + records
    return request(PRODUCE, version, correlation_id, body)


def reply(correlation_id: int, body: bytes = b"reply") -> bytes:
    """Return a reply frame with any bytes as its body."""
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


class FakeLink:
    """The link of a relay to a broker. The test acts as the broker."""

    def __init__(self, owner: LinkOwner) -> None:
        self.owner: LinkOwner | None = owner
        self.target = LinkTarget(1, UPSTREAM, Security(), 5.0)
        self.sent = bytearray()
        self.writes = 0
        self.is_open = False
        self.is_over = False
        self.is_writable = True
        self.is_reading = True
        self.is_closed = False
        self.unsent_bytes = 0

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        assert self.is_open, "written to a link that is not open"
        self.writes += 1
        self.sent += b"".join(pieces)

    def read(self, wanted: bool) -> None:
        self.is_reading = wanted

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True
        self.owner = None

    # --- what the broker does ---

    def open(self) -> None:
        """Accept the connection."""
        self.is_open = True
        assert self.owner is not None
        self.owner.link_opened()

    def answer(self, data: bytes) -> None:
        """Send bytes to the relay."""
        assert self.owner is not None
        assert self.is_reading, "bytes that nobody reads"
        self.owner.link_received(data)

    def lose(self, error: str = "the broker closed the connection") -> None:
        """Close the connection, or refuse it."""
        owner, self.owner = self.owner, None
        assert owner is not None
        self.is_open = False
        owner.link_lost(error)

    def stall(self, unsent_bytes: int) -> None:
        """Stop reading, with this number of unsent bytes at the relay. With 0, read everything."""
        self.unsent_bytes = unsent_bytes
        self.is_writable = not unsent_bytes
        assert self.owner is not None
        self.owner.link_flows()


class RelayPeer:
    """The client of a relay connection, with the broker behind it."""

    def __init__(
        self,
        server: KafkaServer,
        *,
        window_bytes: int = 262_144,
        max_passed_bytes: int = 104_857_600,
        change: Callable[[str, int, int], Change | None] = lambda *_: None,
        divide: Callable[[str, WholeRequest], Division] | None = None,
        opens: bool = True,
        follows_logins: bool = False,
    ) -> None:
        """With ``opens`` every link is open at once."""
        self.links: list[FakeLink] = []
        self.passed: list[int] = []
        self._opens = opens
        table = treatments(KAFKA_VERSIONS, follows_logins=follows_logins)
        addresses = Addresses(1_000_000, lambda host: Endpoint(host, 9092), "")
        addresses.listens(1, 9100)
        services = make_services(
            coordinator=server.services.coordinator,
            leads=False,
            node_id=1_000_000,
            other_brokers=addresses.brokers,
        )
        rules = RelayRules(
            open_link=self._open,
            treatments=lambda: table,
            own=addresses.own,
            change=change,
            divide=divide or (lambda _, piece: Division(None, piece.frame)),
            passed=self.passed.append,
            offline=WITHOUT_BROKER,
            max_passed_bytes=max_passed_bytes,
            window_bytes=window_bytes,
            login=(lambda: ClientLogin(table, server.loop.time)) if follows_logins else no_login,
        )
        listener = Listener("BROKER-1", services=services)
        self.transport = FakeTransport("127.0.0.1")
        self.connection = RelayConnection(server.shared, listener, rules)
        self.connection.connection_made(cast("Any", self.transport))

    def _open(self, owner: LinkOwner) -> BrokerLink:
        link = FakeLink(owner)
        link.is_open = self._opens
        self.links.append(link)
        return cast("BrokerLink", link)

    @property
    def link(self) -> FakeLink:
        return self.links[-1]

    def send(self, *frames: bytes) -> None:
        """Deliver the frames in one call."""
        assert self.transport.is_reading, "bytes that nobody reads"
        self.connection.data_received(b"".join(frames))

    @property
    def received(self) -> bytes:
        """Return all bytes that the client got."""
        return b"".join(self.transport.writes)

    def replies(self) -> list[int]:
        """Return the correlation ids of all whole replies, in order."""
        data, found = self.received, []
        while data:
            size, correlation_id = struct.unpack_from(">ii", data)
            found.append(correlation_id)
            data = data[4 + size :]
        return found
