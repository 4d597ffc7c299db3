"""Limits of connections, idle connections, and the end of a listener."""

from __future__ import annotations

import asyncio

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests import JoinGroupResult
from tests.helpers.connections import Peer, fake, heartbeat, join, make_listener

JOINED = JoinGroupResult(ErrorCode.NOT_COORDINATOR, "m")
IDLE_S = 600.0


async def test_connections_beyond_the_limit_are_closed_at_once() -> None:
    listener = make_listener(lambda _: ErrorCode.NONE, max_connections=2)
    peers = [Peer(listener, f"10.0.0.{i}") for i in range(3)]
    assert [peer.transport.is_closed for peer in peers] == [False, False, True]
    assert listener.stats.closed["too_many_connections"] == 1
    assert listener.stats.connections_open == 2
    peers[2].send(heartbeat(1))
    assert peers[2].transport.writes == []
    peers[2].connection.connection_lost(None)
    peers[0].connection.connection_lost(None)
    assert listener.stats.connections_open == 1
    assert not Peer(listener).transport.is_closed
    assert listener.stats.connections_accepted == 4


async def test_connections_of_one_address_are_limited() -> None:
    listener = make_listener(max_connections_per_address=1)
    first, second, other = (Peer(listener, a) for a in ("10.0.0.1", "10.0.0.1", "10.0.0.2"))
    assert [p.transport.is_closed for p in (first, second, other)] == [False, True, False]
    assert listener.stats.closed["too_many_connections_of_address"] == 1
    second.connection.connection_lost(None)
    first.connection.connection_lost(None)
    assert not Peer(listener, "10.0.0.1").transport.is_closed


async def test_an_idle_connection_is_closed_and_an_active_one_is_not() -> None:
    listener = make_listener(lambda _: ErrorCode.NONE)
    idle, active = Peer(listener), Peer(listener)
    listener.sweep(0, IDLE_S)
    active.send(heartbeat(1))
    listener.sweep(IDLE_S - 1, IDLE_S)
    assert not idle.transport.is_closed
    listener.sweep(IDLE_S, IDLE_S)
    assert idle.transport.is_closed
    assert not active.transport.is_closed
    assert listener.stats.closed["idle"] == 1


async def test_a_parked_request_is_not_idle() -> None:
    listener = make_listener()
    peer = Peer(listener)
    peer.send(join(1))
    for now in range(0, 100_000, 500):
        listener.sweep(now, IDLE_S)
    assert not peer.transport.is_closed
    fake(listener).tickets[0].resolve(JOINED)
    assert peer.replies() == [1]
    listener.sweep(now + IDLE_S - 1, IDLE_S)
    assert not peer.transport.is_closed
    listener.sweep(now + IDLE_S, IDLE_S)
    assert peer.transport.is_closed


async def test_a_request_that_never_becomes_whole_is_not_activity() -> None:
    listener = make_listener()
    peer = Peer(listener)
    frame = heartbeat(1)
    for index, now in enumerate(range(0, int(IDLE_S) + 1, 50)):
        peer.send(frame[index : index + 1])
        listener.sweep(now, IDLE_S)
    assert peer.transport.is_closed
    assert listener.stats.closed["incomplete_frame"] == 1


async def test_a_peer_that_takes_no_replies_is_cut_off() -> None:
    listener = make_listener()
    peer = Peer(listener)
    peer.send(join(1))
    peer.connection.pause_writing()
    listener.sweep(0, IDLE_S)
    listener.sweep(IDLE_S, IDLE_S)
    assert peer.transport.is_aborted
    assert listener.stats.closed["not_reading"] == 1


async def test_a_drain_begins_nothing_more_and_still_answers_what_was_parked() -> None:
    listener = make_listener()
    parked, quiet = Peer(listener), Peer(listener)
    parked.send(join(1), heartbeat(2))
    listener.stop_accepting()
    assert not quiet.transport.is_reading
    quiet.send(heartbeat(3))
    assert len(fake(listener).requests) == 1
    assert not await listener.wait_answered(0)
    fake(listener).tickets[0].resolve(JOINED)
    assert await listener.wait_answered(0)
    await asyncio.sleep(0)
    assert parked.replies() == [1]
    assert parked.decoded("join_group", 9)["error_code"] == 16
    assert not parked.transport.is_closed
    listener.close_all()
    assert parked.transport.is_closed
    assert quiet.transport.is_closed
    assert listener.stats.closed["shutdown"] == 2


async def test_closing_a_connection_that_takes_nothing_does_not_wait_for_it_forever() -> None:
    listener = make_listener()
    peer = Peer(listener)
    peer.send(b"\xff\xff\xff\xff")
    assert peer.transport.is_closed
    assert not peer.transport.is_aborted
    listener.sweep(IDLE_S, IDLE_S)
    assert peer.transport.is_aborted
