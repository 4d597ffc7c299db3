"""A topic shared by 1 to 5 processes that come, go and are killed: even shares with the fewest
moves, and one reader of each partition at a time."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from itertools import groupby, pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from groupkeeper.clients.readers.group_keys import GroupKeys
from groupkeeper.storage.connections.consul import ConsulClient
from tests.helpers.clients.real_consul import RealConsul
from tests.registry.readers.log_of_messages import PARTITIONS, TOPIC, Watched
from tests.registry.readers.started_process import LONGEST_S, ReaderProcess

pytestmark = pytest.mark.registry

AT_ONCE = 50
PAUSE_S = "0.5"
"""So slow that no partition ends while the test runs."""


class Crowd:
    """The processes of one group, and what Consul said after each change of them."""

    def __init__(self, arguments: list[str], client: ConsulClient, folder: Path) -> None:
        self.running: list[ReaderProcess] = []
        self.gone: list[ReaderProcess] = []
        self.history: list[dict[int, int]] = []
        """For each change: partition -> pid of its owner."""
        self._arguments = arguments
        self._keys = GroupKeys(arguments[2])
        self._client = client
        self._folder = folder

    async def start(self) -> None:
        """One more process, from its start to its first messages."""
        path = self._folder / f"{len(self.running) + len(self.gone)}.txt"
        process = ReaderProcess(self._arguments, path, str(AT_ONCE), PAUSE_S)
        self.running.append(process)
        assert await asyncio.to_thread(process.hear) == "settled"
        process.say("go")
        await self._settled()

    async def stop(self) -> None:
        """One process less, which closes its group."""
        process = self._leaves()
        process.say("stop")
        assert await asyncio.to_thread(process.hear) == "stopped"
        assert await asyncio.to_thread(process.wait) == 0
        await self._settled()

    async def kill(self, count: int) -> None:
        """So many processes less, at once and without a word."""
        for process in [self._leaves() for _ in range(count)]:
            process.signal(signal.SIGKILL)
            await asyncio.to_thread(process.wait)
        await self._settled()

    def end(self) -> None:
        """For the fixture: leave no process."""
        for process in (*self.running, *self.gone):
            process.end()

    def _leaves(self) -> ReaderProcess:
        process = self.running.pop(0)
        self.gone.append(process)
        return process

    async def _settled(self) -> None:
        """Wait for even shares, and for messages of each partition in them; look at the moves."""
        async with asyncio.timeout(LONGEST_S + 30):
            owners = await self._even_owners()
            settled_ns = time.monotonic_ns()
            wanted = set(owners.items())
            while not wanted <= self._read_since(settled_ns):  # noqa: ASYNC110 - files are mute
                await asyncio.sleep(0.2)
        if self.history:
            before = self.history[-1]
            moved = sum(before[partition] != owners[partition] for partition in owners)
            assert moved == fewest_moves(Counter(before.values()), [p.pid for p in self.running])
        self.history.append(owners)

    async def _even_owners(self) -> dict[int, int]:
        async for seen in self._client.watch(self._keys.live):
            owned = self._keys.view(seen.at_index, seen.entries).owners.get(TOPIC, {})
            owners = {p: int(each.member.split(":")[1]) for p, each in owned.items()}
            if self._is_even(owners):
                return owners
        raise AssertionError("the watch has ended")

    def _is_even(self, owners: dict[int, int]) -> bool:
        sizes = Counter({process.pid: 0 for process in self.running})
        sizes.update(owners.values())
        return (
            len(owners) == PARTITIONS
            and len(sizes) == len(self.running)
            and max(sizes.values()) - min(sizes.values()) <= 1
        )

    def _read_since(self, since_ns: int) -> set[tuple[int, int]]:
        """The partitions that were read since then, and by whom."""
        return {(p, each.pid) for each in self.running for t, p, _ in each.read() if t > since_ns}

    def reads(self) -> list[tuple[int, int, int, int]]:
        """When, which partition, which offset, by whom: all in the order of time."""
        processes = (*self.running, *self.gone)
        return sorted((t, p, o, each.pid) for each in processes for t, p, o in each.read())


def fewest_moves(held: Counter[int], members: list[int]) -> int:
    """How many partitions must change their owner: all that no member can keep. The larger shares
    are for those who have the most."""
    least, more = divmod(PARTITIONS, len(members))
    most_first = sorted((held[member] for member in members), reverse=True)
    return PARTITIONS - sum(min(n, least + (i < more)) for i, n in enumerate(most_first))


@pytest.fixture
async def crowd(kafka: Watched, consul: RealConsul, tmp_path: Path) -> AsyncIterator[Crowd]:
    group = f"group-{uuid4().hex[:8]}"
    arguments = [consul.address, kafka.bootstrap, group, TOPIC, str(PARTITIONS)]
    async with ConsulClient(consul.address) as client:
        crowd = Crowd(arguments, client, tmp_path)
        try:
            yield crowd
        finally:
            crowd.end()


async def test_processes_come_and_go_with_the_fewest_moves_and_never_two_read_one_partition(
    crowd: Crowd,
) -> None:
    for _ in range(5):
        await crowd.start()
    await crowd.stop()
    await crowd.kill(2)
    await crowd.start()
    await crowd.stop()
    await crowd.stop()
    assert [len(set(owners.values())) for owners in crowd.history] == [1, 2, 3, 4, 5, 4, 2, 3, 2, 1]
    reads = crowd.reads()
    for partition in range(PARTITIONS):
        _one_owner_after_the_other(
            [pid for pid, _ in groupby(owners[partition] for owners in crowd.history)],
            [(offset, pid) for _, p, offset, pid in reads if p == partition],
        )


def _one_owner_after_the_other(owners: list[int], reads: list[tuple[int, int]]) -> None:
    """Two readers at once would take turns, and then there are more turns than owners."""
    turns = [(pid, [o for o, _ in turn]) for pid, turn in groupby(reads, lambda each: each[1])]
    assert [pid for pid, _ in turns] == owners
    for _, offsets in turns:
        assert offsets == list(range(offsets[0], offsets[-1] + 1))
    for (_, before), (_, after) in pairwise(turns):
        assert before[-1] + 1 - AT_ONCE <= after[0] <= before[-1] + 1
