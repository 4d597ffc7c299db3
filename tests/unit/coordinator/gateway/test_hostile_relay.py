"""Clients and brokers that break the rules of a relay: memory stays small, others are served."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.gateway.apis import Treatment
from groupkeeper.coordinator.gateway.request_stream import WholeRequest
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.coordinator.server.memory import GRAIN_BYTES
from groupkeeper.coordinator.server.stats import UPSTREAM_BAD_REPLY
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.wire.connections import heartbeat, make_server
from tests.helpers.wire.relays import (
    DESCRIBE_CONFIGS,
    FETCH,
    LIST_OFFSETS,
    RelayPeer,
    produce,
    reply,
    request,
)

READ_BYTES = 262_144
MANY = 10_000


def feed(peer: RelayPeer, data: bytes) -> int:
    """Send as much as the relay reads. Return how many bytes that were."""
    sent = 0
    while peer.transport.is_reading and sent < len(data):
        peer.send(data[sent : sent + READ_BYTES])
        sent += READ_BYTES
    return min(sent, len(data))


def reads_nothing(peer: RelayPeer) -> None:
    """Let the client read no more replies: its socket and our write buffer are full."""
    peer.transport.unsent_bytes = GRAIN_BYTES + 1
    peer.connection.pause_writing()


def reads_again(peer: RelayPeer) -> None:
    peer.transport.unsent_bytes = 0
    peer.connection.resume_writing()


@virtual_time
async def test_client_that_never_reads_gets_no_more_answers_of_ours() -> None:
    server = make_server(lambda _: 0)
    peer, other = RelayPeer(server), RelayPeer(server)
    reads_nothing(peer)
    frames = [heartbeat(n) for n in range(MANY)]
    sent = feed(peer, b"".join(frames))
    await turns(1_000)
    assert peer.replies() == [], "answers that nobody reads"
    assert not peer.transport.is_reading
    assert server.budget.held_bytes < 2 * READ_BYTES
    other.send(heartbeat(1), request(FETCH, 12, 2))
    other.link.answer(reply(2))
    assert other.replies() == [1, 2]

    reads_again(peer)
    await turns(1_000)
    while sent < len(b"".join(frames)):
        sent += feed(peer, b"".join(frames)[sent:])
        await turns(1_000)
    assert peer.replies() == list(range(MANY))


@virtual_time
async def test_client_that_never_reads_still_sends_the_rest_of_a_request() -> None:
    """Otherwise the broker would wait for the rest of a Produce, and close the connection."""
    peer = RelayPeer(make_server())
    frame = produce(2, acks=1, records=bytes(READ_BYTES))
    peer.send(request(FETCH, 12, 1), frame[:1_000])
    peer.link.answer(reply(1, bytes(100_000)))
    reads_nothing(peer)
    assert peer.transport.is_reading
    peer.send(frame[1_000:])
    assert peer.link.sent.endswith(frame)


@virtual_time
async def test_ten_thousand_pipelined_requests_pass_in_order_and_a_few_at_a_time() -> None:
    server = make_server()
    peer = RelayPeer(server)
    data = b"".join(request(LIST_OFFSETS, 6, n) for n in range(MANY))
    sent, most_owed, answered = 0, 0, 0
    while answered < MANY:
        sent += feed(peer, data[sent:])
        await turns(10)
        owed = peer.connection.owes
        most_owed = max(most_owed, owed)
        assert server.budget.held_bytes < 2 * READ_BYTES
        peer.link.answer(b"".join(reply(n) for n in range(answered, answered + owed)))
        answered += owed
    assert most_owed <= ServerLimits().max_waiting_requests
    assert peer.replies() == list(range(MANY))
    assert server.budget.held_bytes == 0


@virtual_time
async def test_produce_without_acks_waits_at_the_client_while_the_broker_reads_nothing() -> None:
    server = make_server()
    peer = RelayPeer(server)
    data = b"".join(produce(n, acks=0, records=bytes(1_000)) for n in range(MANY))
    peer.send(data[:READ_BYTES])
    peer.link.stall(READ_BYTES)
    taken = READ_BYTES + feed(peer, data[READ_BYTES:])
    assert not peer.transport.is_reading
    assert taken <= 3 * READ_BYTES
    assert len(peer.link.sent) <= 2 * READ_BYTES
    assert server.budget.held_bytes < 3 * READ_BYTES


@pytest.mark.parametrize("version", [1, 4])
@virtual_time
async def test_broker_that_answers_byte_by_byte_is_understood(version: int) -> None:
    """A reply that passes, and one that is gathered because it must be changed."""
    server = make_server()
    changed: list[bytes] = []

    def change(data: bytes) -> bytes:
        changed.append(data)
        return data

    peer = RelayPeer(server, change=lambda _, key, __: change if key == DESCRIBE_CONFIGS else None)
    peer.connection.pass_whole(request(DESCRIBE_CONFIGS, version, 1), _piece(version), change)
    peer.send(request(FETCH, 12, 2))
    both = reply(1, bytes(500)) + reply(2, bytes(500))
    for at in range(len(both)):
        peer.link.answer(both[at : at + 1])
        assert server.budget.held_bytes == 0
    assert peer.received == both
    assert changed == [reply(1, bytes(500))]


def _piece(version: int) -> WholeRequest:
    frame = request(DESCRIBE_CONFIGS, version, 1)
    return WholeRequest(frame, DESCRIBE_CONFIGS, version, Treatment.REWRITTEN)


@virtual_time
async def test_replies_in_the_wrong_order_end_the_pair_before_the_first_wrong_one() -> None:
    server = make_server()
    peer, other = RelayPeer(server), RelayPeer(server)
    other.send(request(FETCH, 12, 9))
    peer.send(*[request(FETCH, 12, n) for n in (1, 2, 3)])
    peer.link.answer(reply(1) + reply(3) + reply(2))
    assert peer.received == reply(1)
    assert peer.transport.is_closed
    assert server.shared.stats.closed[UPSTREAM_BAD_REPLY] == 1
    other.link.answer(reply(9))
    assert other.replies() == [9]


@virtual_time
async def test_bytes_behind_the_last_reply_end_the_pair_after_that_reply() -> None:
    server = make_server()
    peer = RelayPeer(server)
    peer.send(request(FETCH, 12, 1))
    peer.link.answer(reply(1) + b"\0")
    assert peer.received == reply(1)
    assert peer.transport.is_closed
    assert server.budget.held_bytes == 0
