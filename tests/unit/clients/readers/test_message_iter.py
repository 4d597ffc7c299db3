"""What an iterator asks for, when, and how it ends; the log behind it is a fake."""

from __future__ import annotations

import asyncio

import pytest

from groupkeeper.clients.readers.errors import CannotRead, OffsetOutOfRange, PartitionLost
from groupkeeper.clients.readers.message import Message
from groupkeeper.clients.readers.partition_log import EARLIEST
from tests.helpers.clients.fake_log import FakeLog, iterate, take
from tests.helpers.runtime.virtual_loop import virtual_time


@virtual_time
async def test_without_a_buffer_nothing_is_fetched_before_somebody_waits_for_it():
    log = FakeLog()
    async with iterate(log) as iterator:
        await asyncio.sleep(10)
        assert log.asked == []
        assert await take(iterator, 10) == list(range(10))
        await asyncio.sleep(10)
        assert log.asked == [0]
        assert await take(iterator, 1) == [10]
        await asyncio.sleep(10)
        assert log.asked == [0, 10]


@virtual_time
async def test_a_buffer_is_filled_again_when_no_more_than_it_holds_is_left():
    log = FakeLog()
    async with iterate(log, buffer=3) as iterator:
        await take(iterator, 6)
        await asyncio.sleep(10)
        assert log.asked == [0]  # four wait
        await take(iterator, 3)
        await asyncio.sleep(10)
        assert log.asked == [0, 10]


@virtual_time
async def test_reading_goes_on_behind_the_last_message_when_the_partition_grows():
    log = FakeLog(end=12)
    async with iterate(log) as iterator:
        assert await take(iterator, 12) == list(range(12))
        later = asyncio.create_task(take(iterator, 1))
        await asyncio.sleep(3)
        log.end = 13
        assert await later == [12]
        assert iterator.position == 13


@virtual_time
async def test_a_reader_that_gave_up_waiting_misses_nothing():
    log = FakeLog(end=0)
    async with iterate(log) as iterator:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(iterator), 0.1)
        log.end = 3
        await asyncio.sleep(10)
        assert len(log.asked) <= 2  # the one in flight; nobody waits for another
        assert await take(iterator, 3) == [0, 1, 2]


@virtual_time
async def test_earliest_is_asked_for_and_known_as_the_position():
    async with iterate(FakeLog(), EARLIEST) as iterator:
        assert iterator.position is None
        assert await take(iterator, 2) == [7, 8]


@virtual_time
async def test_an_error_is_raised_behind_the_messages_before_it_and_once():
    log = FakeLog()
    iterator = iterate(log, buffer=1)
    await take(iterator, 8)
    log.error = OffsetOutOfRange("events", 0, 10, 20, 30)
    with pytest.raises(OffsetOutOfRange, match="20 to 30"):
        await take(iterator, 3)
    assert iterator.position == 10
    with pytest.raises(StopAsyncIteration):
        await anext(iterator)
    assert log.is_closed
    await iterator.close()


@virtual_time
async def test_close_raises_all_errors_that_nobody_was_given_and_leaves_no_task():
    log = FakeLog()
    log.error, log.unsolved = CannotRead("no"), {"OSError": OSError("away")}
    iterator = iterate(log, buffer=1)
    await iterator.ready()
    with pytest.raises(ExceptionGroup) as raised:
        await iterator.close()
    assert [type(each) for each in raised.value.exceptions] == [CannotRead, OSError]
    await iterator.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual_time
async def test_close_ends_who_waits():
    iterator = iterate(FakeLog(end=0))

    async def read() -> list[Message]:
        return [each async for each in iterator]

    reading = asyncio.create_task(read())
    await asyncio.sleep(1)
    await iterator.close()
    assert await reading == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual_time
async def test_cancelling_who_reads_ends_everything():
    log = FakeLog(end=0)

    async def read() -> None:
        async with iterate(log) as iterator:
            await anext(iterator)

    reading = asyncio.create_task(read())
    await asyncio.sleep(1)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert log.is_closed
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual_time
async def test_what_fails_from_outside_gives_none_of_what_waited():
    iterator = iterate(FakeLog(), buffer=50)
    await take(iterator, 1)
    await asyncio.sleep(1)
    iterator.fail(PartitionLost("events", 0, "handed over"))
    with pytest.raises(PartitionLost, match="handed over"):
        await anext(iterator)
    await iterator.close()
