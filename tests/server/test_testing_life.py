"""A server for tests lives in one loop, and is started and stopped in the order of the calls."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from groupkeeper.coordinator.testkit.server import GroupkeeperServer, TestingError

DAY_MS = 24 * 60 * 60 * 1000
OFFSETS = {("orders", 0): 7}
MAX_STEPS = 100
"""Turns of the loop that none of these calls takes."""

COROUTINES: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("start", ()),
    ("stop", ()),
    ("restart", ()),
    ("create_topic", ("more", 1)),
    ("commit", ("g", {("orders", 0): 8})),
    ("committed", ("g",)),
    ("advance", (1,)),
    ("evict", ("g", "m")),
)
OTHERS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("events", ("g",)),
    ("fail_storage", ()),
    ("delay", ("OffsetCommit", 1)),
)


def called(server: GroupkeeperServer, call: str, arguments: tuple[Any, ...]) -> None:
    """Call it in a loop of its own."""

    async def done() -> None:
        result = getattr(server, call)(*arguments)
        if inspect.isawaitable(result):
            await result

    asyncio.run(done())


@pytest.mark.parametrize(("call", "arguments"), [*COROUTINES, *OTHERS])
async def test_a_call_from_another_loop_is_refused_before_it_does_anything(call, arguments):
    async with GroupkeeperServer(topics={"orders": 1}) as server:
        await server.commit("g", OFFSETS)
        with pytest.raises(RuntimeError, match=r"another event loop.*SyncGroupkeeperServer"):
            await asyncio.to_thread(called, server, call, arguments)
        await server.commit("h", OFFSETS)  # no fault was begun
        assert await server.committed("g") == OFFSETS
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.close()


@pytest.mark.parametrize(("call", "arguments"), OTHERS)
async def test_a_call_from_a_thread_without_a_loop_is_refused_too(call, arguments):
    async with GroupkeeperServer() as server:
        with pytest.raises(RuntimeError, match="another event loop"):
            await asyncio.to_thread(getattr(server, call), *arguments)


@pytest.mark.parametrize(("call", "arguments"), [*COROUTINES, *OTHERS])
def test_a_server_whose_loop_has_ended_says_so(call, arguments):
    server = GroupkeeperServer()

    async def left_behind() -> None:
        await server.start()
        assert server._kafka is not None
        server._kafka.stop_accepting()  # its socket is no affair of this test

    asyncio.run(left_behind())
    with pytest.raises(RuntimeError, match="the event loop that the server was started in has"):
        called(server, call, arguments)


def test_what_needs_no_loop_may_be_called_between_two_runs_of_it():
    server = GroupkeeperServer(topics={"orders": 1})
    with asyncio.Runner() as runner:
        runner.run(server.start())
        runner.run(server.commit("g", OFFSETS))
        assert [e["kind"] for e in server.events("g")] == ["group_created", "commit"]
        runner.run(server.stop())


def test_one_that_has_stopped_may_be_started_in_another_loop():
    server = GroupkeeperServer(topics={"orders": 1})

    async def once() -> None:
        async with server:
            await asyncio.gather(server.restart(), server.restart())
            await server.commit("g", OFFSETS)

    for _ in range(2):
        asyncio.run(once())
    asyncio.run(server.stop())


@pytest.mark.parametrize(
    ("calls", "refused", "runs"),
    [
        (("stop", "start"), (), True),
        (("restart", "stop"), (), False),
        (("restart", "restart"), (), True),
        (("stop", "stop"), (), False),
        (("stop", "restart"), ("restart",), False),
        (("start", "stop"), ("start",), False),
        (("restart", "stop", "start", "restart"), (), True),
        (("stop", "start", "start"), ("start",), True),
    ],
)
async def test_starts_and_stops_happen_one_after_another_in_their_order(calls, refused, runs):
    server = GroupkeeperServer(topics={"orders": 1})
    await server.start()
    done = await asyncio.gather(*(getattr(server, c)() for c in calls), return_exceptions=True)
    failed = {c: r for c, r in zip(calls, done, strict=True) if r is not None}
    assert {c: type(r) for c, r in failed.items()} == dict.fromkeys(refused, RuntimeError)
    if runs:
        await server.commit("g", OFFSETS)
        await server.stop()
    assert_stopped(server)


async def test_a_call_behind_a_restart_waits_for_it_and_one_behind_a_stop_is_refused():
    server = GroupkeeperServer(topics={"orders": 1})
    await asyncio.gather(server.start(), server.commit("g", OFFSETS))
    _, committed = await asyncio.gather(server.restart(), server.committed("g"))
    assert committed == OFFSETS
    _, refused = await asyncio.gather(server.stop(), server.committed("g"), return_exceptions=True)
    assert isinstance(refused, RuntimeError)


@pytest.mark.parametrize("end", ["stop", "restart"])
@pytest.mark.parametrize("heartbeats", [False, True])
async def test_time_that_passes_ends_with_the_server_and_says_so(end, heartbeats):
    async with GroupkeeperServer(topics={"orders": 1}) as server:
        for group in "abcde":  # each goes on a day of its own, and the storage is asked then
            await server.commit(group, OFFSETS)
            await server.advance(DAY_MS)
        weeks = server.advance(14 * DAY_MS, heartbeats=heartbeats)
        told, _ = await asyncio.gather(weeks, getattr(server, end)(), return_exceptions=True)
        assert isinstance(told, TestingError)
        assert "NOT_COORDINATOR" in str(told)


async def test_who_reads_while_a_write_fails_is_told_as_by_all_other_calls():
    async with GroupkeeperServer(topics={"orders": 1}) as server:
        server.fail_storage(appends=1)
        told = await asyncio.gather(
            server.commit("g", OFFSETS), server.committed("g"), return_exceptions=True
        )
        assert [type(each) for each in told] == [TestingError, TestingError]


async def cancelled_at(step: int, call: Callable[[], Awaitable[None]]) -> bool:
    """Cancel a call after so many turns of the loop; False where it was done by then."""
    task = asyncio.ensure_future(call())
    for _ in range(step):
        await asyncio.sleep(0)
    was_under_way = task.cancel()
    await asyncio.wait([task])
    return was_under_way


def assert_stopped(server: GroupkeeperServer) -> None:
    with pytest.raises(RuntimeError, match="the server is not running"):
        _ = server.coordinator
    socket.create_server(("127.0.0.1", server.port)).close()  # the port is free


@pytest.mark.parametrize("call", ["stop", "restart"])
async def test_a_stop_after_one_that_was_cancelled_ends_the_server_wherever_that_was(call):
    for step in range(1, MAX_STEPS):
        server = GroupkeeperServer(topics={"orders": 1})
        await server.start()
        was_under_way = await cancelled_at(step, getattr(server, call))
        await server.stop()
        assert_stopped(server)
        async with server:  # the store was given back
            assert await server.committed("g") == {}
        if not was_under_way:
            return
    raise AssertionError(f"{call} takes more turns of the loop than this test")


async def test_a_start_that_was_cancelled_leaves_nothing_started_wherever_that_was():
    for step in range(1, MAX_STEPS):
        server = GroupkeeperServer(topics={"orders": 1})
        was_under_way = await cancelled_at(step, server.start)
        if not was_under_way:
            await server.stop()
            return
        with pytest.raises(RuntimeError, match="the server is not running"):
            _ = server.coordinator
        async with server:
            assert await server.committed("g") == {}
    raise AssertionError("start takes more turns of the loop than this test")


async def test_a_start_that_was_cancelled_before_its_turn_does_not_happen():
    server = GroupkeeperServer()
    await server.start()
    stopping = asyncio.ensure_future(server.stop())
    starting = asyncio.ensure_future(server.start())
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([stopping, starting])
    assert starting.cancelled()
    assert_stopped(server)
