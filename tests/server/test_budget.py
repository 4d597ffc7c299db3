"""One budget of memory over all connections: who is read no further, who is closed, who never
notices.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.membership import Heartbeat, JoinGroupResult
from groupkeeper.coordinator.core.requests.offsets import OffsetFetchResult
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.server.budget import STALLED_TICKS, TICK_S
from groupkeeper.coordinator.server.connection import Connection
from groupkeeper.coordinator.server.memory import cost_bytes
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.coordinator.server.stats import CloseReason
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.wire.connections import Peer, commit, heartbeat, join, make_server
from tests.helpers.wire.handling import make_services
from tests.helpers.wire.raw_client import encode_request

MIB = 1_048_576
BUDGET = 8 * MIB
JOINED = JoinGroupResult(ErrorCode.UNKNOWN_MEMBER_ID, "m")


class Parking:
    """A coordinator that answers heartbeats at once and parks everything else."""

    def __init__(self) -> None:
        self.tickets: list[Any] = []

    def submit(self, request: Request, ticket: Any) -> None:
        if isinstance(request, Heartbeat):
            ticket.resolve(ErrorCode.NONE)
        else:
            self.tickets.append(ticket)


def make(**limits: int) -> tuple[KafkaServer, Parking]:
    coordinator = Parking()
    limits.setdefault("max_buffered_bytes", BUDGET)
    return make_server(services=make_services(coordinator=coordinator), **limits), coordinator


def unfinished(size: int) -> bytes:
    """The first bytes of a frame that never becomes whole."""
    return (8 * MIB - 1).to_bytes(4, "big") + bytes(size - 4)


def large_join(size: int, correlation_id: int = 1) -> bytes:
    values = {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "m",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": bytes(size)}],
    }
    return encode_request("join_group", 9, values, correlation_id, "app")


def takes_nothing(peer: Peer) -> Peer:
    """A peer that reads no reply: the transport keeps what it is given."""
    peer.transport.takes = peer.connection.pause_writing
    return peer


def drips(peer: Peer, size: int, step: int = 65_536) -> None:
    """Send so much of a frame, a read at a time, for as long as the peer is read."""
    peer.send(unfinished(min(size, step)))
    for _ in range(1, size // step):
        if not peer.transport.is_reading or peer.transport.is_closed:
            return
        peer.send(bytes(step))


def open_peers(peers: list[Peer]) -> int:
    return sum(not peer.transport.is_closed for peer in peers)


async def test_frames_that_never_become_whole_stay_within_the_budget() -> None:
    server, _ = make()
    peers = [Peer(server) for _ in range(40)]
    for peer in peers:
        drips(peer, MIB)
        assert server.budget.held_bytes <= BUDGET
    held = sum(peer.connection._splitter.waiting_bytes for peer in peers)
    assert abs(held - server.budget.held_bytes) <= 40 * 4_096
    assert server.stats.reading_paused > 0
    assert server.stats.buffered_bytes == server.budget.held_bytes


async def test_who_holds_little_is_read_and_answered_while_others_fill_the_budget() -> None:
    server, coordinator = make()
    hostile = [Peer(server) for _ in range(60)]
    innocent = Peer(server)
    for index, peer in enumerate(hostile):
        drips(peer, MIB)
        innocent.send(heartbeat(2 * index))
        innocent.send(commit(2 * index + 1))
        coordinator.tickets.pop().send(commit(2 * index + 1))  # any bytes with the id in them
        assert innocent.transport.is_reading
        assert not innocent.transport.is_closed
    assert len(innocent.transport.writes) == 2 * len(hostile)


async def test_replies_that_are_not_taken_stay_within_the_budget() -> None:
    server, coordinator = make()
    peers = [takes_nothing(Peer(server)) for _ in range(60)]
    for peer in peers:
        peer.send(commit(1))
        coordinator.tickets.pop().send(bytes(MIB))
        assert server.budget.held_bytes <= BUDGET
    assert server.stats.closed["memory_budget"] >= 60 - 8
    assert all(peer.transport.is_aborted for peer in peers if peer.transport.is_closed)


async def test_a_reply_counts_whole_until_its_last_byte_is_taken() -> None:
    server, coordinator = make()
    peer = takes_nothing(Peer(server))
    peer.send(commit(1))
    coordinator.tickets.pop().send(bytes(MIB))
    assert server.budget.held_bytes == MIB
    assert peer.transport.low == 0
    peer.connection.resume_writing()
    assert server.budget.held_bytes == 0


async def test_parked_joins_stay_within_the_budget() -> None:
    server, _ = make()
    peers = [Peer(server) for _ in range(30)]
    for peer in peers:
        peer.send(large_join(100_000))
        assert server.budget.held_bytes <= BUDGET
    assert 0 < open_peers(peers) < 30
    assert server.stats.closed["memory_budget"] == 30 - open_peers(peers)


async def test_above_the_budget_the_largest_goes_and_is_told_with_its_reason() -> None:
    server, _ = make()
    small, large = Peer(server), Peer(server)
    small.send(unfinished(MIB))
    large.send(unfinished(5 * MIB))
    with capture_logs() as logs:
        small.send(bytes(3 * MIB))
    assert large.transport.is_closed
    assert not small.transport.is_closed
    assert server.budget.held_bytes == 4 * MIB
    assert [log["event"] for log in logs][:1] == ["memory_budget_pressed"]
    assert [log["reason"] for log in logs if "reason" in log] == ["memory_budget"]


async def test_what_a_join_is_charged_is_given_back_with_its_answer() -> None:
    server, coordinator = make()
    peer = Peer(server)
    frame = large_join(100_000)
    peer.send(frame, heartbeat(2))
    assert server.budget.held_bytes >= cost_bytes(len(frame))
    coordinator.tickets.pop().resolve(JOINED)
    await asyncio.sleep(0)
    assert peer.replies() == [1, 2]
    assert server.budget.held_bytes == 0


async def test_replies_that_wait_for_an_earlier_one_count() -> None:
    server, coordinator = make()
    peer = Peer(server)
    peer.send(commit(1), commit(2))
    coordinator.tickets[1].send(bytes(MIB))
    assert server.budget.held_bytes >= MIB
    coordinator.tickets[0].send(bytes(100))
    assert server.budget.held_bytes == 0


async def test_frames_behind_a_parked_join_count() -> None:
    server, coordinator = make()
    peer = Peer(server)
    peer.send(join(1), *[heartbeat(i) for i in range(2, 1002)])
    assert server.budget.held_bytes > 1000 * len(heartbeat(1))
    coordinator.tickets[0].resolve(JOINED)
    await turns(20)
    assert server.budget.held_bytes == 0


@pytest.mark.parametrize("closed_by", ["peer", "us"])
async def test_a_closed_connection_holds_nothing_though_its_join_stays_parked(
    closed_by: str,
) -> None:
    """Without the collector: a cycle would keep all of it for a minute under load."""
    server, coordinator = make()
    peer = Peer(server)
    peer.send(commit(1), large_join(100_000, 2), heartbeat(3), unfinished(MIB))
    assert server.budget.held_bytes > MIB
    committed, kept = coordinator.tickets
    await turns(2)
    if closed_by == "us":
        server.sweep(0, 1)
        peer.connection.abort(CloseReason.IDLE)
        assert server.budget.held_bytes == 0
    gc.collect()
    gc.disable()
    try:
        peer.connection.connection_lost(None)
        connection = weakref.ref(_Canary.on(peer.connection))
        del peer
        assert connection() is None, gc.get_referrers(connection())
    finally:
        gc.enable()
    assert server.budget.held_bytes == 0
    assert committed.frame == b""
    assert (kept.frame, kept.asked, kept.reply) == (b"", None, None)
    kept.resolve(JOINED)  # the member's life goes on, and nobody hears of it
    assert kept.reply is None


class _Canary:
    """A connection has no weak references: this dies with it."""

    @classmethod
    def on(cls, connection: Connection) -> _Canary:
        connection.memory = canary = cls()  # type: ignore[assignment]
        return canary


@virtual_time
async def test_who_keeps_memory_from_others_is_closed_after_a_few_seconds() -> None:
    server, _ = make()
    peers = [Peer(server) for _ in range(7)]
    for peer in peers:
        drips(peer, MIB)
    assert open_peers(peers) == 7
    await asyncio.sleep((STALLED_TICKS + 2) * TICK_S)
    assert server.budget.held_bytes <= BUDGET * 3 // 4
    assert 0 < server.stats.closed["memory_budget"] < 7
    server.close_all()


@virtual_time
async def test_who_waits_for_its_peer_counts_as_larger_than_who_waits_for_us() -> None:
    server, _ = make()
    stalled, parked, last = Peer(server), Peer(server), Peer(server)
    stalled.send(unfinished(3 * MIB))
    parked.send(large_join(300_000))  # it costs 4 MiB more when it is decoded
    await asyncio.sleep(2.5 * TICK_S)
    last.send(unfinished(MIB))
    assert stalled.transport.is_closed
    assert not parked.transport.is_closed
    server.close_all()


@virtual_time
async def test_a_client_that_fills_the_memory_again_and_again_is_one_line_a_minute() -> None:
    server, _ = make()
    with capture_logs() as logs:
        for wait_s in [1.0] * 9 + [60.0, 1.0]:
            peer = Peer(server)
            peer.send(unfinished(7 * MIB))
            peer.connection.connection_lost(None)
            await asyncio.sleep(wait_s)
    lines = [log for log in logs if log["event"] == "memory_budget_pressed"]
    assert [line["left_out"] for line in lines] == [0, 9]
    server.close_all()


@virtual_time
async def test_the_smallest_is_read_on_first() -> None:
    server, _ = make()
    large, small = Peer(server), Peer(server)
    others = [Peer(server) for _ in range(10)]
    large.send(unfinished(3 * MIB))
    for peer in others:
        peer.send(unfinished(35 * MIB // 100))
    large.send(b"x" * 8_192)
    small.send(unfinished(55 * MIB // 100))
    assert not large.transport.is_reading
    assert not small.transport.is_reading
    for peer in others[:2]:  # more is held than the soft limit still, by fewer
        peer.connection.connection_lost(None)
    await asyncio.sleep(2 * TICK_S)
    assert small.transport.is_reading
    assert not large.transport.is_reading
    server.close_all()


@pytest.mark.parametrize(("size", "times"), [(3 * MIB, 1), (3 * MIB // 2, 0)])
async def test_memory_is_returned_once_little_is_held_after_much(size: int, times: int) -> None:
    server, _ = make()
    freed: list[int] = []
    server.budget.freed = lambda: freed.append(server.budget.held_bytes)
    for _ in range(2):
        peer = Peer(server)
        peer.send(unfinished(size))
        assert freed == []
        peer.connection.connection_lost(None)
        assert freed == [0] * times
        freed.clear()


@virtual_time
async def test_who_was_read_no_further_is_read_on_when_there_is_room() -> None:
    server, coordinator = make()
    others = [Peer(server) for _ in range(20)]
    for peer in others:
        peer.send(unfinished(3 * MIB // 10))
    slow = Peer(server)
    frame = large_join(MIB)
    slow.send(frame[: MIB // 2])
    assert not slow.transport.is_reading
    for peer in others[:10]:
        peer.connection.connection_lost(None)
    await asyncio.sleep(2 * TICK_S)
    assert slow.transport.is_reading
    slow.send(frame[MIB // 2 :])
    assert [ticket.key for ticket in coordinator.tickets] == [11]
    server.close_all()


async def test_one_group_makes_no_larger_reply_than_many() -> None:
    """OffsetFetch of one group, by 23 bytes: its connection is closed, and the log names it."""
    topics = [("t", "", [(p, 1, -1, "m" * 4_000, ErrorCode.NONE) for p in range(600)])]

    class Huge:
        def submit(self, request: Request, ticket: Any) -> None:
            ticket.resolve(OffsetFetchResult(ErrorCode.NONE, topics))

    services = make_services(coordinator=Huge(), max_reply_bytes=2 * MIB)
    server = make_server(services=services)
    peer = Peer(server)
    with capture_logs() as logs:
        fetch_all = {"group_id": "big", "topics": None, "require_stable": False}
        peer.send(encode_request("offset_fetch", 7, fetch_all, 1, "app"))
    assert peer.transport.is_closed
    assert peer.transport.writes == []
    assert server.stats.closed["reply_too_large"] == 1
    (line,) = logs
    assert (line["reason"], line["group"], line["api_key"]) == ("reply_too_large", "big", 9)


async def test_answers_that_are_gathered_count_while_the_rest_is_missing() -> None:
    class Half:
        def __init__(self) -> None:
            self.last: Any = None

        def submit(self, request: Any, ticket: Any) -> None:
            if request.group_id == "last":
                self.last = ticket
                return
            topics = [("t", "", [(p, 1, -1, "m" * 4_000, ErrorCode.NONE) for p in range(300)])]
            ticket.resolve(OffsetFetchResult(ErrorCode.NONE, topics))

    coordinator = Half()
    server = make_server(services=make_services(coordinator=coordinator))
    peer = Peer(server)
    named = [{"name": "t", "partition_indexes": [0]}]
    groups = [{"group_id": name, "topics": named} for name in ("last", "a")]
    peer.send(
        encode_request("offset_fetch", 8, {"groups": groups, "require_stable": False}, 1, "app")
    )
    assert server.budget.held_bytes > MIB
    coordinator.last.resolve(OffsetFetchResult(ErrorCode.NONE, []))
    assert peer.replies() == [1]
    assert server.budget.held_bytes == 0
