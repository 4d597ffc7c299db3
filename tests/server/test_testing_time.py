"""Time that passes at once: what clients send meanwhile is begun when it has passed."""

from __future__ import annotations

import asyncio
import struct
from functools import partial
from typing import Any

from groupkeeper.coordinator.testkit.faults import Delays, FaultGate, FaultyConnection
from groupkeeper.coordinator.testkit.server import GroupkeeperServer
from tests.helpers.wire.connections import Peer, heartbeat, make_server
from tests.helpers.wire.raw_client import decode_response, encode_request

SESSION_MS = 10_000
DAY_MS = 24 * 3600 * 1000


async def received(reader: asyncio.StreamReader, api: str, version: int) -> dict[str, Any]:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return decode_response(api, version, await reader.readexactly(length))[1]


async def join_as_static_member(
    server: GroupkeeperServer,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, and ask to join without waiting for the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    values = {
        "group_id": "g",
        "group_instance_id": "i",
        "session_timeout": SESSION_MS,
        "rebalance_timeout": 60_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    writer.write(encode_request("join_group", 9, values, 1, "app"))
    return reader, writer


async def test_what_a_client_sends_while_time_passes_is_begun_afterwards() -> None:
    async with GroupkeeperServer(topics={"orders": 1}) as server:
        await server.commit("g", {("orders", 0): 1})
        reader, writer = await join_as_static_member(server)
        await server.advance(8 * DAY_MS)
        happened = [event["kind"] for event in server.events("g")]
        assert happened[-2:] == ["offset_expired", "group_deleted"]
        assert "member_join" not in happened
        assert (await received(reader, "join_group", 9))["error_code"] == 0
        writer.close()


async def test_requests_behind_one_that_is_answered_while_time_passes_wait_too() -> None:
    async with GroupkeeperServer(initial_rebalance_delay_ms=3_000) as server:
        reader, writer = await join_as_static_member(server)
        leave = {"group_id": "g", "members": [{"member_id": "", "group_instance_id": "i"}]}
        writer.write(encode_request("leave_group", 5, leave, 2, "app"))
        while True:
            await asyncio.sleep(0)
            if server.events("g"):  # the join waits for others, and the leave behind it
                break
        await server.advance(3_000)
        assert "member_leave" not in [event["kind"] for event in server.events("g")]
        for api, version in (("join_group", 9), ("leave_group", 5)):
            assert (await received(reader, api, version))["error_code"] == 0
        assert "member_leave" in [event["kind"] for event in server.events("g")]
        writer.close()


async def test_a_peer_that_does_not_take_its_replies_waits_on_when_time_has_passed() -> None:
    gate = FaultGate()
    peer = Peer(
        make_server(), make_connection=partial(FaultyConnection, delays=Delays(), gate=gate)
    )
    with gate.closed():
        with gate.closed():
            peer.connection.pause_writing()
        peer.send(heartbeat(1))
    await asyncio.sleep(0)
    assert peer.connection.requests == 0
    peer.connection.resume_writing()
    await asyncio.sleep(0)
    assert peer.connection.requests == 1


async def test_a_peer_that_takes_its_replies_waits_while_time_passes() -> None:
    gate = FaultGate()
    peer = Peer(
        make_server(), make_connection=partial(FaultyConnection, delays=Delays(), gate=gate)
    )
    with gate.closed():
        with gate.closed():
            peer.send(heartbeat(1))
        peer.connection.pause_writing()
        peer.connection.resume_writing()
        await asyncio.sleep(0)
        assert peer.connection.requests == 0
        assert not peer.transport.is_reading
    await asyncio.sleep(0)
    assert peer.connection.requests == 1
    assert peer.transport.is_reading
    peer.connection.connection_lost(None)
    assert not gate.connections


async def test_a_connection_that_is_made_while_time_passes_waits_too() -> None:
    gate = FaultGate()
    with gate.closed():
        peer = Peer(
            make_server(),
            make_connection=partial(FaultyConnection, delays=Delays(), gate=gate),
        )
        peer.send(heartbeat(1))
        assert peer.connection.requests == 0
    await asyncio.sleep(0)
    assert peer.connection.requests == 1
