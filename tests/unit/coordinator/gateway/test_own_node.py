"""Our own node in gateway mode: what it answers, and what it asks a broker."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.gateway import own_node
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.wire.connections import heartbeat
from tests.helpers.wire.own_nodes import OwnNodePeer
from tests.helpers.wire.raw_client import encode_request
from tests.helpers.wire.relays import reply, request

CREATE_ACLS = 30
DESCRIBE_ACLS = 29


def ask_metadata(correlation_id: int) -> bytes:
    return encode_request("metadata", 9, {"topics": [{"name": "orders"}]}, correlation_id, "app")


@virtual_time
async def test_groups_are_served_without_a_broker() -> None:
    world = OwnNodePeer(1)
    world.send(heartbeat(1))
    assert world.replies() == [1]
    assert world.links == []


@virtual_time
async def test_other_requests_are_asked_of_a_broker_in_order() -> None:
    world = OwnNodePeer(1)
    world.send(request(DESCRIBE_ACLS, 3, 1), heartbeat(2), request(DESCRIBE_ACLS, 3, 3))
    world.link.open()
    assert world.link.sent == request(DESCRIBE_ACLS, 3, 1)
    world.link.answer(reply(1)[:5])
    world.link.answer(reply(1)[5:])
    await turns(3)
    assert world.replies() == [1, 2]
    world.link.answer(reply(3))
    assert world.replies() == [1, 2, 3]
    assert world.answered == [DESCRIBE_ACLS, DESCRIBE_ACLS]
    assert len(world.links) == 1


@virtual_time
async def test_another_broker_is_asked_if_one_fails() -> None:
    world = OwnNodePeer(1, 2)
    world.send(ask_metadata(1))
    world.link.lose("refused")
    assert [link.target.broker_id for link in world.links] == [1, 2]
    assert not world.link.target.traffic.failures
    world.link.open()
    world.link.lose()
    assert world.links[1].target.traffic.failures == {"lost": 1}
    assert world.replies() == [1]
    shown = world.decoded("metadata", 9)
    assert [broker["node_id"] for broker in shown["brokers"]] == [1, 1_000_000]
    assert shown["topics"][0]["partitions"][0]["error_code"] == 5


@virtual_time
async def test_a_change_is_not_sent_twice() -> None:
    world = OwnNodePeer(1, 2)
    world.send(request(CREATE_ACLS, 3, 1))
    world.link.open()
    world.link.lose()
    assert len(world.links) == 1
    assert world.transport.is_closed
    assert world.server.stats.closed["upstream_lost"] == 1


@virtual_time
async def test_a_change_is_not_sent_twice_if_its_answer_cannot_be_rewritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(own_node, "rewrite", broken)
    world = OwnNodePeer(1, 2)
    world.send(request(CREATE_ACLS, 3, 1))
    world.link.open()
    with pytest.raises(ZeroDivisionError):
        world.link.answer(reply(1))
    world.link.lose("the loop has ended the connection after the exception")
    assert len(world.links) == 1
    assert world.transport.is_closed


@virtual_time
async def test_a_bad_reply_ends_the_connection_and_its_link() -> None:
    world = OwnNodePeer(1)
    world.send(request(DESCRIBE_ACLS, 3, 1))
    world.link.open()
    world.link.answer(reply(2))
    assert world.link.is_closed
    assert world.transport.is_closed
    assert world.server.stats.closed["upstream_bad_reply"] == 1


@virtual_time
async def test_bytes_of_a_broker_that_nobody_asked_end_the_link_alone() -> None:
    world = OwnNodePeer(1)
    world.send(request(DESCRIBE_ACLS, 3, 1))
    world.link.open()
    world.link.answer(reply(1) + b"\0")
    world.link.answer(b"\0\0\0\0")
    assert world.link.is_closed
    assert not world.transport.is_closed
    world.send(request(DESCRIBE_ACLS, 3, 2))
    assert len(world.links) == 2


@virtual_time
async def test_a_client_that_leaves_ends_its_link() -> None:
    world = OwnNodePeer(1)
    world.send(request(DESCRIBE_ACLS, 3, 1))
    world.link.open()
    world.connection.connection_lost(None)
    assert world.link.is_closed
    world = OwnNodePeer(1)
    world.send(request(DESCRIBE_ACLS, 3, 1))
    world.link.open()
    world.link.answer(reply(1))
    world.connection.connection_lost(None)
    assert world.link.is_closed


@virtual_time
async def test_a_link_whose_session_ends_is_replaced() -> None:
    world = OwnNodePeer(1)
    world.send(request(CREATE_ACLS, 3, 1))
    world.link.open()
    world.link.answer(reply(1))
    old = world.link
    old.is_over = True
    world.send(request(CREATE_ACLS, 3, 2))
    assert old.is_closed
    world.link.open()
    assert world.link.sent == request(CREATE_ACLS, 3, 2)
    world.link.answer(reply(2))
    assert world.replies() == [1, 2]
