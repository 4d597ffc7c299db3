"""Many iterators as one: whose turn it is, and what happens to those that fail."""

from __future__ import annotations

import asyncio

import pytest

from groupkeeper.clients.readers.errors import CannotRead
from groupkeeper.clients.readers.message import Message
from groupkeeper.clients.readers.message_iter import MessageIter
from groupkeeper.clients.readers.multi_iter import MultiIter
from tests.helpers.clients.fake_log import FakeLog, iterate, message, take
from tests.helpers.runtime.virtual_loop import turns, virtual_time


class Endless(MessageIter):
    """Always has a message."""

    def take(self) -> Message:
        return message(0)

    async def ready(self) -> None:
        pass

    async def close(self) -> None:
        pass


@virtual_time
async def test_many_give_their_messages_in_turns():
    logs = [FakeLog(end=6, partition=n) for n in range(3)]
    async with MultiIter([iterate(log, buffer=20) for log in logs]) as merged:
        first = await anext(merged)
        await asyncio.sleep(1)
        read = [await anext(merged) for _ in range(17)]
    assert [[m.partition for m in read[:9]].count(p) for p in range(3)] == [3, 3, 3]
    assert {m[1:3] for m in [first, *read]} == {(p, o) for p in range(3) for o in range(6)}


@virtual_time
async def test_one_that_waits_does_not_hold_up_the_others():
    busy, idle = FakeLog(end=50), FakeLog(end=0, partition=1)
    async with MultiIter([iterate(idle), iterate(busy)]) as merged:
        assert [(await anext(merged)).partition for _ in range(50)] == [0] * 50
        later = asyncio.create_task(take(merged, 1))
        await asyncio.sleep(1)
        idle.end = 1
        assert await later == [0]


@virtual_time
async def test_others_that_always_have_a_message_leave_nobody_without_a_turn():
    calm = FakeLog(end=30, partition=1)
    async with MultiIter([Endless(), iterate(calm)]) as merged:
        read = []
        for _ in range(2_000):
            read.append((await anext(merged)).partition)
            await asyncio.sleep(0.001)
    assert read.count(1) == 30


@virtual_time
async def test_merged_iterators_fetch_nothing_ahead_of_who_reads():
    logs = [FakeLog(partition=n) for n in range(3)]
    async with MultiIter([iterate(log) for log in logs]) as merged:
        await take(merged, 1)
        await asyncio.sleep(10)
        assert [log.asked for log in logs] == [[0], [0], [0]]


@virtual_time
async def test_one_that_fails_ends_the_others_with_its_error():
    bad = FakeLog(partition=1)
    bad.error = CannotRead("no")
    merged = MultiIter([iterate(FakeLog(end=0)), iterate(bad)])
    with pytest.raises(CannotRead):
        await take(merged, 10)
    with pytest.raises(StopAsyncIteration):
        await anext(merged)
    await merged.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual_time
async def test_those_that_fail_are_left_out_if_asked_and_raised_by_close():
    logs = [FakeLog(end=20, partition=n) for n in range(3)]
    logs[1].error, logs[2].error = CannotRead("one"), CannotRead("two")
    merged = MultiIter([iterate(log) for log in logs], leave_out_failing=True)
    assert await take(merged, 20) == list(range(20))
    with pytest.raises(ExceptionGroup) as raised:
        await merged.close()
    assert {str(each) for each in raised.value.exceptions} == {"one", "two"}


@virtual_time
async def test_it_ends_when_all_have_ended():
    iterators = [iterate(FakeLog(end=0)), iterate(FakeLog(end=0))]
    merged = MultiIter(iterators)

    async def read() -> list[Message]:
        return [each async for each in merged]

    reading = asyncio.create_task(read())
    await asyncio.sleep(1)
    for iterator in iterators:
        await iterator.close()
    assert await reading == []


@virtual_time
async def test_closing_who_merges_ends_who_waits_and_closes_all():
    logs = [FakeLog(end=0), FakeLog(end=0)]
    merged = MultiIter([MultiIter([iterate(logs[0])]), iterate(logs[1])])
    reading = asyncio.create_task(take(merged, 1))
    await turns(20)
    await merged.close()
    with pytest.raises(StopAsyncIteration):
        await reading
    assert [log.is_closed for log in logs] == [True, True]
    assert asyncio.all_tasks() == {asyncio.current_task()}
