"""Members that are killed, stopped, cut off or left alone by Consul: who reads what then."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from groupkeeper.clients.readers.consul_group import ConsulGroup
from groupkeeper.clients.readers.errors import PartitionLost
from groupkeeper.clients.readers.group_reader import GroupReader
from tests.helpers.clients.real_consul import RealConsul
from tests.helpers.wire.cutting_proxy import CuttingProxy
from tests.registry.readers.log_of_messages import COUNTS, MESSAGES, PARTITIONS, TOPIC, Watched
from tests.registry.readers.reader_process import AT_ONCE
from tests.registry.readers.started_process import LONGEST_S, TTL_S, ReaderProcess

pytestmark = pytest.mark.registry


@pytest.fixture
def processes(kafka: Watched, consul: RealConsul, tmp_path: Path) -> Iterator[list[ReaderProcess]]:
    group = f"group-{uuid4().hex[:8]}"
    arguments = [consul.address, kafka.bootstrap, group, TOPIC, str(PARTITIONS)]
    started: list[ReaderProcess] = []
    try:
        started += [ReaderProcess(arguments, tmp_path / f"{n}.txt") for n in range(3)]
        yield started
    finally:
        for each in started:
            each.end()


async def until_all_is_read(processes: list[ReaderProcess]) -> None:
    async with asyncio.timeout(60):
        while True:
            seen = {(p, o) for each in processes for _, p, o in await asyncio.to_thread(each.read)}
            if len(seen) == MESSAGES:
                return
            await asyncio.sleep(0.5)


async def test_of_three_processes_one_is_killed_and_one_stopped_past_its_ttl(
    processes: list[ReaderProcess],
) -> None:
    killed, stopped, left = processes
    for each in processes:
        assert await asyncio.to_thread(each.hear) == "settled"
    for each in processes:
        each.say("go")
    await asyncio.sleep(2)
    stopped.signal(signal.SIGSTOP)
    killed.signal(signal.SIGKILL)
    killed_ns = time.monotonic_ns()
    killed.wait()
    others = {p for _, p, _ in killed.read() + stopped.read()}
    assert len(others) == 8
    async with asyncio.timeout(LONGEST_S + 10):
        while len({p for _, p, _ in left.read()} & others) < 8:  # noqa: ASYNC110 - files are mute
            await asyncio.sleep(0.2)
    taken = [t for t, p, _ in left.read() if p in others]
    assert TTL_S * 2 / 3 < (min(taken) - killed_ns) / 1e9 < LONGEST_S + 5
    read_before = len(stopped.read())
    stopped.signal(signal.SIGCONT)
    left.say("fast")
    assert (await asyncio.to_thread(stopped.hear)).startswith("lost ")
    assert len(stopped.read()) - read_before <= 1  # the message that it held as it was stopped
    await until_all_is_read(processes)
    left.say("stop")
    assert await asyncio.to_thread(left.hear) == "stopped"
    _each_message_was_read_and_no_partition_by_two_at_once(processes)


def _each_message_was_read_and_no_partition_by_two_at_once(processes: list[ReaderProcess]) -> None:
    reads = sorted((t, p, o, n) for n, each in enumerate(processes) for t, p, o in each.read())
    for partition, count in enumerate(COUNTS):
        of_it = [(o, n) for _, p, o, n in reads if p == partition]
        assert {o for o, _ in of_it} == set(range(count))
        turns = [(n, [o for o, _ in turn]) for n, turn in groupby(of_it, lambda each: each[1])]
        assert len(turns) <= 3  # owners follow each other; two at once would take turns for ever
        for _, offsets in turns:
            assert offsets == list(range(offsets[0], offsets[-1] + 1))  # in order, none left out
        for (_, before), (_, after) in pairwise(turns):
            assert before[-1] + 1 - AT_ONCE <= after[0] <= before[-1] + 1  # from the last commit on


async def read_until_lost(reader: GroupReader) -> tuple[float, float]:
    """When the last message came, and when the reader ended."""
    last = 0.0
    try:
        async for _ in reader.read(0):
            last = time.monotonic()
            await asyncio.sleep(0.01)
    except PartitionLost:
        pass
    return last, time.monotonic()


async def test_without_consul_reading_goes_on_until_the_session_must_be_taken_for_lost(
    kafka: Watched, consul: RealConsul, tmp_path: Path
) -> None:
    """One group's server is killed; another's connection is cut, and another's swallowed."""
    own = await asyncio.to_thread(RealConsul(tmp_path / "own").start)
    async with CuttingProxy(consul.port) as cut, CuttingProxy(consul.port) as swallowed:
        await _until_lost(kafka, own, cut, swallowed)


async def _until_lost(
    kafka: Watched, own: RealConsul, cut: CuttingProxy, swallowed: CuttingProxy
) -> None:
    addresses = [own.address, f"127.0.0.1:{cut.port}", f"127.0.0.1:{swallowed.port}"]
    groups = [ConsulGroup(f"alone-{uuid4().hex[:8]}", each) for each in addresses]
    try:
        readers = [await group.new_reader(kafka.bootstrap, "short", 1) for group in groups]
        tasks = [asyncio.create_task(read_until_lost(reader)) for reader in readers]
        await asyncio.sleep(1)
        gone = time.monotonic()
        own.kill()
        cut.refuse()
        swallowed.swallow()
        for last, ended in await asyncio.gather(*tasks):
            assert last - gone > TTL_S / 2  # it was renewed at most a third of its TTL before
            assert ended - gone < TTL_S + 2
        for reader in readers:
            with pytest.raises(PartitionLost):
                await reader.commit(1)
    finally:
        for group in groups:
            await group.close()
        own.stop()


async def test_consul_that_comes_back_in_time_changes_nothing(
    kafka: Watched, tmp_path: Path
) -> None:
    own = await asyncio.to_thread(RealConsul(tmp_path / "own").start)
    group = ConsulGroup("patient", own.address)
    try:
        reader = await group.new_reader(kafka.bootstrap, "short", 1)
        messages = reader.read(0)
        await anext(messages)
        own.kill()
        committing = asyncio.create_task(reader.commit(1))
        await asyncio.sleep(1)
        assert (await anext(messages)).offset == 1
        assert not committing.done()
        await asyncio.to_thread(own.start)
        await committing
        assert await reader.position() == 1
        assert (await anext(messages)).offset == 2
    finally:
        await group.close()
        own.stop()
