"""Worlds of a journal: transactions of several producers, while requests are lost, answers come
late, markers are written twice, appends fail, old records are removed, and the process starts
again.

An offset counts if and only if its TxnOffsetCommit was acknowledged and its transaction committed.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit
from tests.helpers.core.shard_driver import CLIENT
from tests.helpers.gateway.journals import JournalSite, a_journal, error_of, groups_of_one_partition
from tests.helpers.runtime.virtual_loop import run_virtual
from tests.helpers.storage.faulty_storage import FaultyStorage, fail

FAULTS: Final = ("lost", "dropped", "late", 6, 7, 19, 51)
TRANSACTIONS: Final = 25
GROUPS: Final = groups_of_one_partition(5)
PATIENCE_S: Final = 40.0
"""How long a client waits for an answer. Then it fences itself, as after a crash."""


class Copier:
    """A client that copies with exactly-once: one group, one producer."""

    def __init__(self, site: JournalSite, number: int, drawn: random.Random) -> None:
        self.site = site
        self.producer_id = number
        self.group_id = GROUPS[number]
        self.version = drawn.choice((3, 4, 5))
        self.drawn = drawn
        self.position = 0
        """The offset that must be committed."""
        self.copied = 0

    async def run(self) -> None:
        broker = self.site.broker
        broker.add_producer(self.producer_id)
        for _ in range(TRANSACTIONS):
            if await self._copy():
                self.copied += 1
            found = await self.site.stable_offset(self.group_id)
            assert max(found, 0) == self.position, f"{self.group_id}: {found}, not {self.position}"

    async def _copy(self) -> bool:
        """Run one transaction. Return whether it committed."""
        broker, drawn = self.site.broker, self.drawn
        if self.version < 5:
            broker.add_partition(self.producer_id, self.site.partition(self.group_id))
        if drawn.random() < 0.3:
            broker.faults += [drawn.choice(FAULTS) for _ in range(drawn.randint(1, 4))]
        following = self.position + drawn.randint(1, 9)
        commits = [following - 1, following] if drawn.random() < 0.3 else [following]
        for offset in commits:
            if not await self._commit(offset):
                # It does not know whether the offset is there. So the transaction is aborted.
                broker.end(self.producer_id, commit=False)
                return False
        if drawn.random() < 0.3:
            await asyncio.sleep(drawn.random() * 20)
        commit = drawn.random() < 0.67
        markers = 2 if drawn.random() < 0.2 else 1
        broker.end(self.producer_id, commit=commit, bumps=self.version == 5, markers=markers)
        if commit:
            self.position = following
        return commit

    async def _commit(self, offset: int) -> bool:
        epoch = self.site.broker.epochs[self.producer_id]
        for _ in range(5):
            answer = self.site.send(
                self.producer_id,
                offset,
                group_id=self.group_id,
                version=self.version,
                epoch=epoch,
            )
            try:
                error = error_of(await asyncio.wait_for(answer, PATIENCE_S))
            except TimeoutError:  # the process died
                return False
            if error is ErrorCode.NONE:
                return True
            await asyncio.sleep(0.1)
        return False


async def trouble(site: JournalSite, drawn: random.Random) -> None:
    """Break things now and then."""
    assert isinstance(site.storage, FaultyStorage)
    while True:
        await asyncio.sleep(drawn.expovariate(1 / 20))
        what = drawn.choice(("restart", "append", "down", "plain", "retention"))
        if what == "restart":
            await site.restart()
        elif what == "append":
            fault = fail()
            fault.stores = drawn.random() < 0.5
            site.storage.script("append", fault)
        elif what == "down":
            site.broker.is_down = True
            await asyncio.sleep(drawn.random() * 10)
            site.broker.is_down = False
        elif what == "retention":
            for shard in site.journal.shards.by_id.values():
                if not shard._ended:
                    start = shard.partition.restart_position()
                    log = site.broker.log(shard.shard_id)
                    log.start = max(log.start, start)
        else:
            topics = [("orders", "", [(1, drawn.randint(0, 99), -1, "")])]
            request = OffsetCommit(
                GROUPS[1], -1, "", None, topics, False, -1, ErrorCode.GROUP_ID_NOT_FOUND, CLIENT
            )
            await site.ask(request)


async def world(seed: int) -> None:
    """Run one world to its end."""
    drawn = random.Random(seed)
    async with a_journal() as site:
        copiers = [Copier(site, number, drawn) for number in range(1, 5)]
        breaking = asyncio.ensure_future(trouble(site, drawn))
        try:
            async with asyncio.TaskGroup() as clients:
                for copier in copiers:
                    clients.create_task(copier.run())
        finally:
            breaking.cancel()
            await asyncio.wait([breaking])
        assert not breaking.done() or breaking.cancelled(), breaking.exception()
        site.broker.is_down = False
        site.broker.faults.clear()
        await site.restart()
        await asyncio.sleep(30)
        for copier in copiers:
            assert max(await site.stable_offset(copier.group_id), 0) == copier.position
            assert copier.copied, "nothing was ever copied"
            assert await site.pending(copier.group_id) == 0
        assert site.journal.in_flight == 0


@pytest.mark.parametrize("seed", range(6))
def test_acknowledged_offsets_of_committed_transactions_count_and_no_others(seed: int) -> None:
    run_virtual(world(seed), most_turns=5_000_000)
