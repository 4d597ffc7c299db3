"""Our own node in gateway mode: what it answers, and what it asks a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from groupkeeper.coordinator.gateway import own_node
from groupkeeper.coordinator.gateway.addresses import Addresses
from groupkeeper.coordinator.gateway.link import BrokerLink, LinkOwner
from groupkeeper.coordinator.gateway.own_node import Asking, OwnNode
from groupkeeper.coordinator.handlers import metadata
from groupkeeper.coordinator.handlers.routes import Routes
from groupkeeper.coordinator.handlers.services import Endpoint
from groupkeeper.coordinator.handlers.table import APIS_SERVED
from groupkeeper.coordinator.server.listener import Listener
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.protocol.versions import ApiKey
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.wire.connections import Peer, heartbeat, make_server
from tests.helpers.wire.handling import make_services
from tests.helpers.wire.raw_client import encode_request
from tests.helpers.wire.relays import FakeLink, reply, request

CREATE_ACLS = 30
DESCRIBE_ACLS = 29
OURS = (ApiKey.HEARTBEAT, ApiKey.API_VERSIONS, ApiKey.JOIN_GROUP)


class World:
    """Our own node with two brokers, each of which has one link a client connection."""

    def __init__(self, *brokers: int) -> None:
        self.links: list[FakeLink] = []
        self.brokers = brokers
        self.answered: list[int] = []
        addresses = Addresses(1_000_000, lambda host: Endpoint(host, 9092), "")
        addresses.listens(1, 9100)
        node = OwnNode(
            Asking(self._link, addresses, self._offline, self.answered.append, 1_000_000)
        )
        routes = Routes({key: APIS_SERVED[key] for key in OURS}, None, node.forward)
        services = make_services(
            lambda _: 0, leads=False, node_id=1_000_000, other_brokers=addresses.brokers
        )
        self.server: KafkaServer = make_server(services=services)
        self.peer = Peer(self.server, listener=Listener("PLAINTEXT", routes, services))

    def _link(self, owner: LinkOwner, failed: frozenset[int]) -> BrokerLink | None:
        for broker_id in self.brokers:
            if broker_id not in failed:
                link = FakeLink(owner)
                link.target.broker_id = broker_id
                self.links.append(link)
                return cast("BrokerLink", link)
        return None

    def _offline(self, key: int, _version: int) -> Callable[..., Any] | None:
        return metadata.handle if key == ApiKey.METADATA else None

    @property
    def link(self) -> FakeLink:
        return self.links[-1]


def ask_metadata(correlation_id: int) -> bytes:
    return encode_request("metadata", 9, {"topics": [{"name": "orders"}]}, correlation_id, "app")


@virtual_time
async def test_groups_are_served_without_a_broker() -> None:
    world = World(1)
    world.peer.send(heartbeat(1))
    assert world.peer.replies() == [1]
    assert world.links == []


@virtual_time
async def test_other_requests_are_asked_of_a_broker_in_order() -> None:
    world = World(1)
    world.peer.send(request(DESCRIBE_ACLS, 3, 1), heartbeat(2), request(DESCRIBE_ACLS, 3, 3))
    world.link.open()
    assert world.link.sent == request(DESCRIBE_ACLS, 3, 1)
    world.link.answer(reply(1)[:5])
    world.link.answer(reply(1)[5:])
    await turns(3)
    assert world.peer.replies() == [1, 2]
    world.link.answer(reply(3))
    assert world.peer.replies() == [1, 2, 3]
    assert world.answered == [DESCRIBE_ACLS, DESCRIBE_ACLS]
    assert len(world.links) == 1


@virtual_time
async def test_another_broker_is_asked_if_one_fails() -> None:
    world = World(1, 2)
    world.peer.send(ask_metadata(1))
    world.link.lose("refused")
    assert [link.target.broker_id for link in world.links] == [1, 2]
    world.link.open()
    world.link.lose()
    assert world.peer.replies() == [1]
    shown = world.peer.decoded("metadata", 9)
    assert [broker["node_id"] for broker in shown["brokers"]] == [1, 1_000_000]
    assert shown["topics"][0]["partitions"][0]["error_code"] == 5


@virtual_time
async def test_a_change_is_not_sent_twice() -> None:
    world = World(1, 2)
    world.peer.send(request(CREATE_ACLS, 3, 1))
    world.link.open()
    world.link.lose()
    assert len(world.links) == 1
    assert world.peer.transport.is_closed
    assert world.server.stats.closed["upstream_lost"] == 1


@virtual_time
async def test_a_change_is_not_sent_twice_if_its_answer_cannot_be_rewritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(own_node, "rewrite", broken)
    world = World(1, 2)
    world.peer.send(request(CREATE_ACLS, 3, 1))
    world.link.open()
    with pytest.raises(ZeroDivisionError):
        world.link.answer(reply(1))
    world.link.lose("the loop has ended the connection after the exception")
    assert len(world.links) == 1
    assert world.peer.transport.is_closed


@virtual_time
async def test_a_bad_reply_ends_the_connection_and_its_link() -> None:
    world = World(1)
    world.peer.send(request(DESCRIBE_ACLS, 3, 1))
    world.link.open()
    world.link.answer(reply(2))
    assert world.link.is_closed
    assert world.peer.transport.is_closed
    assert world.server.stats.closed["upstream_bad_reply"] == 1


@virtual_time
async def test_bytes_of_a_broker_that_nobody_asked_end_the_link_alone() -> None:
    world = World(1)
    world.peer.send(request(DESCRIBE_ACLS, 3, 1))
    world.link.open()
    world.link.answer(reply(1) + b"\0")
    world.link.answer(b"\0\0\0\0")
    assert world.link.is_closed
    assert not world.peer.transport.is_closed
    world.peer.send(request(DESCRIBE_ACLS, 3, 2))
    assert len(world.links) == 2


@virtual_time
async def test_a_client_that_leaves_ends_its_link() -> None:
    world = World(1)
    world.peer.send(request(DESCRIBE_ACLS, 3, 1))
    world.link.open()
    world.peer.connection.connection_lost(None)
    assert world.link.is_closed
    world = World(1)
    world.peer.send(request(DESCRIBE_ACLS, 3, 1))
    world.link.open()
    world.link.answer(reply(1))
    world.peer.connection.connection_lost(None)
    assert world.link.is_closed
