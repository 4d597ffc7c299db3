"""Limits of connections, idle connections, and the end of a server."""

from __future__ import annotations

import asyncio

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.membership import JoinGroupResult
from tests.helpers.wire.connections import Peer, fake, heartbeat, join, make_server

JOINED = JoinGroupResult(ErrorCode.NOT_COORDINATOR, "m")
IDLE_S = 600.0


async def test_connections_beyond_the_limit_are_closed_at_once() -> None:
    server = make_server(lambda _: ErrorCode.NONE, max_connections=2)
    peers = [Peer(server, f"10.0.0.{i}") for i in range(3)]
    assert [peer.transport.is_closed for peer in peers] == [False, False, True]
    assert server.stats.closed["too_many_connections"] == 1
    assert server.stats.connections_open == 2
    peers[2].send(heartbeat(1))
    assert peers[2].transport.writes == []
    peers[2].connection.connection_lost(None)
    peers[0].connection.connection_lost(None)
    assert server.stats.connections_open == 1
    assert not Peer(server).transport.is_closed
    assert server.stats.connections_accepted == 4


async def test_connections_of_one_address_are_limited() -> None:
    server = make_server(max_connections_per_address=1)
    first, second, other = (Peer(server, a) for a in ("10.0.0.1", "10.0.0.1", "10.0.0.2"))
    assert [p.transport.is_closed for p in (first, second, other)] == [False, True, False]
    assert server.stats.closed["too_many_connections_of_address"] == 1
    second.connection.connection_lost(None)
    first.connection.connection_lost(None)
    assert not Peer(server, "10.0.0.1").transport.is_closed


async def test_an_address_without_a_connection_is_forgotten() -> None:
    server = make_server(max_connections_per_address=1)
    for number in range(3):
        first, refused = (Peer(server, f"10.0.0.{number}") for _ in range(2))
        refused.connection.connection_lost(None)
        first.connection.connection_lost(None)
    assert not server.shared._of_address


async def test_an_idle_connection_is_closed_and_an_active_one_is_not() -> None:
    server = make_server(lambda _: ErrorCode.NONE)
    idle, active = Peer(server), Peer(server)
    server.sweep(0, IDLE_S)
    active.send(heartbeat(1))
    server.sweep(IDLE_S - 1, IDLE_S)
    assert not idle.transport.is_closed
    server.sweep(IDLE_S, IDLE_S)
    assert idle.transport.is_closed
    assert not active.transport.is_closed
    assert server.stats.closed["idle"] == 1


async def test_a_parked_request_is_not_idle() -> None:
    server = make_server()
    peer = Peer(server)
    peer.send(join(1))
    for now in range(0, 100_000, 500):
        server.sweep(now, IDLE_S)
    assert not peer.transport.is_closed
    fake(server).tickets[0].resolve(JOINED)
    assert peer.replies() == [1]
    server.sweep(now + IDLE_S - 1, IDLE_S)
    assert not peer.transport.is_closed
    server.sweep(now + IDLE_S, IDLE_S)
    assert peer.transport.is_closed


async def test_a_request_that_never_becomes_whole_is_not_activity() -> None:
    server = make_server()
    peer = Peer(server)
    frame = heartbeat(1)
    for index, now in enumerate(range(0, int(IDLE_S) + 1, 50)):
        peer.send(frame[index : index + 1])
        server.sweep(now, IDLE_S)
    assert peer.transport.is_closed
    assert server.stats.closed["incomplete_frame"] == 1


async def test_a_peer_that_takes_no_replies_is_cut_off() -> None:
    server = make_server()
    peer = Peer(server)
    peer.send(join(1))
    peer.connection.pause_writing()
    server.sweep(0, IDLE_S)
    server.sweep(IDLE_S, IDLE_S)
    assert peer.transport.is_aborted
    assert server.stats.closed["not_reading"] == 1


async def test_a_drain_begins_nothing_more_and_still_answers_what_was_parked() -> None:
    server = make_server()
    parked, quiet = Peer(server), Peer(server)
    parked.send(join(1), heartbeat(2))
    server.stop_accepting()
    assert not quiet.transport.is_reading
    quiet.send(heartbeat(3))
    assert len(fake(server).requests) == 1
    assert not await server.wait_answered(0)
    fake(server).tickets[0].resolve(JOINED)
    assert await server.wait_answered(0)
    await asyncio.sleep(0)
    assert parked.replies() == [1]
    assert parked.decoded("join_group", 9)["error_code"] == 16
    assert not parked.transport.is_closed
    server.close_all()
    assert parked.transport.is_closed
    assert quiet.transport.is_closed
    assert server.stats.closed["shutdown"] == 2


async def test_closing_a_connection_that_takes_nothing_does_not_wait_for_it_forever() -> None:
    server = make_server()
    peer = Peer(server)
    peer.send(b"\xff\xff\xff\xff")
    assert peer.transport.is_closed
    assert not peer.transport.is_aborted
    server.sweep(IDLE_S, IDLE_S)
    assert peer.transport.is_aborted
