"""What all connections together do in one turn of the loop, by a clock that only work moves."""

from __future__ import annotations

import asyncio

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.coordinator.server.watch import CallbackWatch
from tests.helpers.runtime.virtual_loop import run_virtual
from tests.helpers.wire.connections import Peer
from tests.helpers.wire.handling import make_services
from tests.helpers.wire.raw_client import encode_request

WORK_S = 0.004
CONNECTIONS = 50
PIPELINED = 20
MOST_A_TURN = 2 * 3
"""10 ms as bytes come in and 10 ms for what was left: three requests of 4 ms each."""


class Busy:
    """A server whose every request takes 4 ms."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.begun = 0
        watch = CallbackWatch(read_s=lambda: self.now_s)
        self.server = KafkaServer(make_services(self.answer), ServerLimits(), watch=watch)
        self.peers = [Peer(self.server) for _ in range(CONNECTIONS)]

    def answer(self, _request: object) -> ErrorCode:
        self.begun += 1
        self.now_s += WORK_S
        return ErrorCode.NONE

    async def turn(self) -> int:
        """Let the loop turn once; return how many requests were begun in it."""
        before = self.begun
        await asyncio.sleep(0)
        return self.begun - before


def beat(number: int) -> bytes:
    values = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
    return encode_request("heartbeat", 4, values, number, "app")


def test_many_pipelining_connections_share_the_time_of_one_turn() -> None:
    async def scenario() -> None:
        busy = Busy()
        for peer in busy.peers:
            peer.send(*map(beat, range(PIPELINED)))
        at_once = busy.begun
        a_turn = [await busy.turn() for _ in range(CONNECTIONS * PIPELINED)]
        assert at_once <= MOST_A_TURN
        assert max(a_turn) <= MOST_A_TURN
        assert [peer.replies() for peer in busy.peers] == [list(range(PIPELINED))] * CONNECTIONS

    run_virtual(scenario())


def test_single_requests_of_many_connections_share_it_too() -> None:
    async def scenario() -> None:
        busy = Busy()
        for peer in busy.peers:
            peer.send(beat(1))
        at_once = busy.begun
        a_turn = [await busy.turn() for _ in range(CONNECTIONS)]
        assert at_once <= MOST_A_TURN
        assert max(a_turn) <= MOST_A_TURN
        assert all(peer.replies() == [1] for peer in busy.peers)

    run_virtual(scenario())


def test_who_sends_on_has_no_more_turns_than_others() -> None:
    async def scenario() -> None:
        busy = Busy()
        flooding, waiting = busy.peers[0], busy.peers[1]
        for peer in busy.peers:
            peer.send(*map(beat, range(PIPELINED)))
        for _ in range(CONNECTIONS):
            flooding.send(*map(beat, range(5)))
            await busy.turn()
        assert waiting.replies()
        assert len(flooding.replies()) <= 2 * len(waiting.replies()) + MOST_A_TURN

    run_virtual(scenario())


def test_what_was_cancelled_is_not_called() -> None:
    async def scenario() -> None:
        busy = Busy()
        called: list[str] = []
        cancel = busy.server.shared.turns.soon(lambda: called.append("cancelled"))
        busy.server.shared.turns.soon(lambda: called.append("called"))
        cancel()
        await busy.turn()
        assert called == ["called"]

    run_virtual(scenario())


def test_what_a_call_adds_waits_for_the_next_turn() -> None:
    async def scenario() -> None:
        busy = Busy()
        turns, called = busy.server.shared.turns, 0

        def again() -> None:
            nonlocal called
            called += 1
            if called < 10:
                turns.soon(again)

        turns.soon(again)
        for turn in range(1, 4):
            await busy.turn()
            assert called == turn

    run_virtual(scenario())


def test_a_turn_uses_its_time_and_ends_when_it_is_used_up() -> None:
    async def scenario() -> None:
        busy = Busy()
        turns, called = busy.server.shared.turns, 0

        def work() -> None:
            nonlocal called
            called += 1
            busy.now_s += ServerLimits().max_turn_s / 4

        for _ in range(12):
            turns.soon(work)
        for turn in range(1, 4):
            await busy.turn()
            assert called == 4 * turn, "the fourth ends exactly at the limit"

    run_virtual(scenario())


def test_what_was_whole_before_a_bad_frame_is_answered_in_a_full_turn_as_well() -> None:
    async def scenario() -> None:
        busy = Busy()
        for peer in busy.peers[:-1]:
            peer.send(beat(1))
        last = busy.peers[-1]
        last.send(beat(7), b"\xff\xff\xff\xff")
        assert last.replies() == [7]
        assert last.transport.is_closed

    run_virtual(scenario())
