"""Clients that authenticate themselves at the broker, on its listener and on our own node."""

from __future__ import annotations

import asyncio
import struct

import pytest

from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.wire.connections import fake, heartbeat, make_server
from tests.helpers.wire.own_nodes import OwnNodePeer
from tests.helpers.wire.relays import FETCH, FakeLink, RelayPeer, reply, request
from tests.helpers.wire.sasl import (
    authenticate,
    authenticate_reply,
    handshake,
    handshake_reply,
    proof_reply,
)

DESCRIBE_ACLS = 29
AUTHENTICATION_FAILED = 58
Peers = RelayPeer | OwnNodePeer


def a_relay() -> RelayPeer:
    return RelayPeer(make_server(lambda _: 0), follows_logins=True)


def an_own_node() -> OwnNodePeer:
    return OwnNodePeer(1, 2, follows_logins=True)


both = pytest.mark.parametrize("make", [a_relay, an_own_node])


def closed(peer: Peers) -> dict[str, int]:
    counts = peer.connection._shared.stats.closed
    return {str(reason): count for reason, count in counts.items() if count}


def sent(link: FakeLink) -> bytes:
    """What the broker got since the last call."""
    data = bytes(link.sent)
    link.sent.clear()
    return data


def proof_id(link: FakeLink) -> int:
    return int.from_bytes(sent(link)[8:12], "big")


async def log_in(peer: Peers, lifetime_ms: int = 0, name: bytes = b"alice") -> None:
    """Authenticate, up to the answer of the last token."""
    peer.send(handshake(1))
    if not peer.link.is_open:
        peer.link.open()
    assert sent(peer.link) == handshake(1)
    peer.link.answer(handshake_reply(1))
    await turns(3)
    peer.send(authenticate(2, b"\0" + name + b"\0secret"))
    assert sent(peer.link) == authenticate(2, b"\0" + name + b"\0secret")
    peer.link.answer(authenticate_reply(2, lifetime_ms=lifetime_ms))
    await turns(3)


async def be_known(peer: Peers, lifetime_ms: int = 0) -> None:
    """Authenticate, and have a first heartbeat answered."""
    await log_in(peer, lifetime_ms)
    peer.send(heartbeat(3))
    peer.link.answer(proof_reply(proof_id(peer.link), 1))
    await turns(3)
    assert peer.replies() == [1, 2, 3]


@both
@virtual_time
async def test_a_group_request_before_the_authentication_closes_the_connection(make) -> None:
    peer = make()
    peer.send(heartbeat(1))
    assert peer.transport.is_closed
    assert peer.links == []
    assert closed(peer) == {"not_authenticated": 1}


@both
@virtual_time
async def test_a_passed_request_before_the_authentication_closes_the_connection(make) -> None:
    peer = make()
    peer.send(request(DESCRIBE_ACLS, 3, 1))
    assert peer.transport.is_closed
    assert peer.links == []
    assert closed(peer) == {"not_authenticated": 1}


@both
@virtual_time
async def test_a_group_request_is_served_after_the_proof_and_names_the_client(make) -> None:
    peer = make()
    await log_in(peer)
    peer.send(heartbeat(3), heartbeat(4))
    await turns(3)
    assert peer.replies() == [1, 2], "the broker has not answered the proof"
    peer.link.answer(proof_reply(proof_id(peer.link), 1))
    await turns(3)
    assert peer.replies() == [1, 2, 3, 4]
    assert peer.connection.session.principal == "User:alice"
    requests = fake(peer.connection._shared).requests  # type: ignore[arg-type]
    assert {each.client.principal for each in requests} == {"User:alice"}


@both
@virtual_time
async def test_requests_that_came_with_the_authentication_wait_for_it(make) -> None:
    peer = make()
    peer.send(handshake(1), authenticate(2), heartbeat(3), request(DESCRIBE_ACLS, 3, 4))
    if not peer.link.is_open:
        peer.link.open()
    assert sent(peer.link) == handshake(1)
    peer.link.answer(handshake_reply(1))
    await turns(3)
    assert sent(peer.link) == authenticate(2)
    peer.link.answer(authenticate_reply(2))
    await turns(3)
    peer.link.answer(proof_reply(proof_id(peer.link), 1))
    await turns(3)
    assert sent(peer.link) == request(DESCRIBE_ACLS, 3, 4)
    peer.link.answer(reply(4))
    assert peer.replies() == [1, 2, 3, 4]


@both
@virtual_time
async def test_a_passed_request_goes_over_the_link_that_knows_the_client(make) -> None:
    peer = make()
    await be_known(peer)
    peer.send(request(DESCRIBE_ACLS, 3, 5))
    assert sent(peer.link) == request(DESCRIBE_ACLS, 3, 5)
    assert len(peer.links) == 1


@both
@virtual_time
async def test_a_refused_client_gets_the_answer_and_then_the_end(make) -> None:
    peer = make()
    peer.send(handshake(1))
    if not peer.link.is_open:
        peer.link.open()
    peer.link.answer(handshake_reply(1))
    await turns(3)
    peer.send(authenticate(2), heartbeat(3))
    peer.link.answer(authenticate_reply(2, AUTHENTICATION_FAILED, message="no"))
    assert peer.replies() == [1, 2]
    assert peer.transport.is_closed
    assert closed(peer) == {"authentication_failed": 1}


@both
@virtual_time
async def test_a_client_in_the_middle_of_its_authentication_is_not_served(make) -> None:
    peer = make()
    await log_in(peer)
    peer.send(heartbeat(3))
    peer.link.answer(proof_reply(proof_id(peer.link)))
    assert peer.replies() == [1, 2]
    assert peer.transport.is_closed
    assert closed(peer) == {"authentication_failed": 1}


@both
@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", 13) + b"\0alice\0secret",  # a token without a header (KIP-43)
        struct.pack(">i", 64) + bytes(range(200, 256)) + b"12345678",
        struct.pack(">i", -5),
        struct.pack(">i", 2**31 - 1) + b"\0\x24\0\2",
        authenticate(2)[:3] + b"\x14" + authenticate(2)[4:24],  # it ends within its token
        request(FETCH, 12, 2),
    ],
    ids=["token", "bytes", "negative", "huge", "cut", "fetch"],
)
@virtual_time
async def test_garbage_in_the_middle_of_an_authentication_ends_the_client(make, garbage) -> None:
    peer = make()
    peer.send(handshake(1))
    if not peer.link.is_open:
        peer.link.open()
    peer.link.answer(handshake_reply(1))
    await turns(3)
    link = peer.link
    sent(link)
    peer.send(garbage)
    await turns(3)
    assert peer.transport.is_closed
    peer.connection.connection_lost(None)
    assert link.is_closed
    assert sent(link) == b"", "the broker gets nothing of it"
    assert peer.replies() == [1]


@both
@virtual_time
async def test_nothing_is_served_while_the_broker_does_not_answer_an_authentication(make) -> None:
    peer = make()
    peer.send(handshake(1))
    if not peer.link.is_open:
        peer.link.open()
    peer.link.answer(handshake_reply(1))
    await turns(3)
    sent(peer.link)
    peer.send(authenticate(2), *[heartbeat(each) for each in range(3, 20)])
    await asyncio.sleep(3_600)
    assert sent(peer.link) == authenticate(2)
    assert peer.replies() == [1]
    assert not fake(peer.connection._shared).requests  # type: ignore[arg-type]
    link, shared = peer.link, peer.connection._shared
    peer.connection.connection_lost(None)
    assert link.is_closed
    assert (shared.budget.held_bytes, shared.stats.connections_open) == (0, 0)


@both
@virtual_time
async def test_a_client_cannot_become_another_one(make) -> None:
    peer = make()
    await be_known(peer)
    peer.send(handshake(4))
    peer.link.answer(handshake_reply(4))
    await turns(3)
    peer.send(authenticate(5, b"\0bob\0secret"), heartbeat(6))
    sent(peer.link)
    peer.link.answer(authenticate_reply(5))  # Kafka would refuse it already
    await turns(3)
    peer.link.answer(proof_reply(proof_id(peer.link), 1))
    await turns(3)
    assert peer.replies() == [1, 2, 3, 4, 5]
    assert peer.transport.is_closed
    assert closed(peer) == {"authentication_failed": 1}
    assert peer.connection.session.principal == "User:alice"


@both
@virtual_time
async def test_a_broker_that_closes_instead_of_the_proof_ends_the_client(make) -> None:
    peer = make()
    await log_in(peer)
    peer.send(heartbeat(3))
    peer.link.lose()
    assert peer.transport.is_closed
    assert len(peer.links) == 1
    assert closed(peer) == {"not_authenticated": 1}


@both
@virtual_time
async def test_no_request_passes_over_a_second_link(make) -> None:
    """Another connection to the broker would not know the client, or would know it as us."""
    peer = make()
    await be_known(peer)
    peer.link.lose()
    if not peer.transport.is_closed:
        peer.send(request(DESCRIBE_ACLS, 3, 5))
    assert len(peer.links) == 1
    assert peer.transport.is_closed
    assert closed(peer) == {"idle" if isinstance(peer, RelayPeer) else "upstream_lost": 1}


@virtual_time
async def test_a_link_that_ends_while_a_member_waits_ends_its_connection() -> None:
    server = make_server()
    peer = RelayPeer(server, follows_logins=True)
    await log_in(peer)
    peer.send(heartbeat(3))
    peer.link.answer(proof_reply(proof_id(peer.link), 1))
    assert fake(server).tickets, "it waits for the coordinator"
    peer.link.lose()
    assert peer.transport.is_closed
    assert closed(peer) == {"upstream_lost": 1}


@both
@virtual_time
async def test_a_session_that_is_over_is_not_served(make) -> None:
    peer = make()
    await be_known(peer, lifetime_ms=5_000)
    await asyncio.sleep(4)
    peer.send(heartbeat(4))
    await turns(3)
    assert peer.replies() == [1, 2, 3, 4]
    await asyncio.sleep(1)
    peer.send(heartbeat(5))
    assert peer.replies() == [1, 2, 3, 4]
    assert peer.transport.is_closed
    assert closed(peer) == {"session_expired": 1}


@virtual_time
async def test_groups_of_our_own_node_outlive_the_link() -> None:
    """The broker closes it after connections.max.idle.ms, or with an outage."""
    peer = an_own_node()
    await be_known(peer)
    peer.link.lose()
    peer.send(heartbeat(4))
    await turns(3)
    assert peer.replies() == [1, 2, 3, 4]
    await log_in(peer)
    assert len(peer.links) == 2
    peer.send(request(DESCRIBE_ACLS, 3, 5))
    peer.link.answer(proof_reply(proof_id(peer.link), 1))
    await turns(3)
    assert sent(peer.link) == request(DESCRIBE_ACLS, 3, 5)


@virtual_time
async def test_our_own_node_asks_another_broker_that_can_be_reached() -> None:
    peer = an_own_node()
    peer.send(handshake(1))
    peer.link.lose("refused")
    assert [link.target.broker_id for link in peer.links] == [1, 2]
    peer.link.open()
    assert sent(peer.link) == handshake(1)


@virtual_time
async def test_a_listener_whose_broker_is_down_shows_no_topics() -> None:
    """Only the broker knows which topics the client may see."""
    peer = RelayPeer(make_server(), follows_logins=True, opens=False)
    peer.send(handshake(1))
    peer.link.lose("refused")
    assert peer.replies() == []
    assert closed(peer) == {"upstream_lost": 1}


@virtual_time
async def test_a_large_request_passes_as_it_arrives_once_the_client_is_known() -> None:
    peer = a_relay()
    await be_known(peer)
    frame = request(FETCH, 12, 4, bytes(1_000))
    for byte in frame:
        peer.send(bytes([byte]))
    assert sent(peer.link) == frame
