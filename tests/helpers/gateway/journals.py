"""A journal over a broker in memory and a coordinator, on a virtual loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.offsets import OffsetFetch
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.requests.transactions import (
    EndedTransaction,
    EndTransactions,
    ReadPending,
    TxnOffsetCommit,
    TxnOffsetCommitResult,
)
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.gateway.journal.journal import Journal, JournalSettings
from groupkeeper.coordinator.gateway.journal.links import JournalLinks
from groupkeeper.coordinator.handlers.services import Endpoint
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.runtime.tickets import Awaited
from groupkeeper.storage.base import OffsetStorage
from tests.helpers.core.shard_driver import CLIENT
from tests.helpers.gateway.journal_broker import TOPIC, JournalBroker
from tests.helpers.runtime.virtual_loop import VirtualClock, virtual_timer
from tests.helpers.storage.faulty_storage import FaultyStorage

SHARDS = 4


@dataclass
class JournalSite:
    """The broker, the store, and the process that uses both."""

    broker: JournalBroker
    storage: OffsetStorage
    coordinator: GroupCoordinator = field(init=False)
    journal: Journal = field(init=False)
    minted: int = 0

    async def begin(self, *, waits: bool = True) -> None:
        """Start the process."""
        config = CoordinatorConfig(shards=SHARDS)
        topics = Topics((ConfiguredTopic("orders", 12),))
        self.coordinator = GroupCoordinator(
            self.storage, config, topics, clock=VirtualClock(), timer=virtual_timer
        )
        await self.coordinator.start()
        links = JournalLinks(lambda: {1: Endpoint("broker", 1)}, lambda _: self.broker)
        self.journal = Journal(JournalSettings(TOPIC, SHARDS), self.coordinator, links)
        self.journal.start()
        if waits:
            await self.journal.opened.wait()

    async def die(self) -> None:
        """Stop the journal during its work, and then the coordinator."""
        await self.journal.stop()
        await self.coordinator.stop()

    async def restart(self) -> None:
        """End the process, and start another one over the same store."""
        await self.die()
        await self.begin()

    async def ask(self, request: Request) -> Any:
        """Return the answer to a request."""
        ticket = Awaited()
        self.coordinator.submit(request, ticket)
        return await ticket.future

    def send(
        self, producer_id: int, offset: int, *, group_id: str = "g", version: int = 5, epoch: int
    ) -> asyncio.Future[TxnOffsetCommitResult]:
        """Send a TxnOffsetCommit for partition 0 of ``orders``."""
        self.minted += 1
        done: asyncio.Future[TxnOffsetCommitResult] = asyncio.get_running_loop().create_future()
        topics = [("orders", "", [(0, offset, -1, "")])]
        request = TxnOffsetCommit(
            group_id, -1, "", None, topics, producer_id, epoch, f"p{self.minted}", CLIENT
        )
        self.journal.submit(request, f"txn-{producer_id}", version, done.set_result)
        return done

    async def commit(self, producer_id: int, offset: int, **changes: Any) -> ErrorCode:
        """Send a TxnOffsetCommit in the producer's present epoch. Return the partition's error."""
        changes.setdefault("epoch", self.broker.epochs[producer_id])
        return error_of(await self.send(producer_id, offset, **changes))

    async def offset(self, group_id: str = "g") -> int | ErrorCode:
        """Return the offset, or the error, that a fetch of stable offsets gets."""
        request = OffsetFetch(group_id, [("orders", "", [0])], False, True)
        result = await self.ask(request)
        ((_, _, ((_, offset, _, _, error),)),) = result.topics
        return error or offset

    async def stable_offset(self, group_id: str = "g") -> int:
        """Return the offset as soon as it is stable."""
        for _ in range(1_000):
            found = await self.offset(group_id)
            if not isinstance(found, ErrorCode):
                return found
            await asyncio.sleep(0.1)
        raise AssertionError(f"{group_id} never becomes stable")

    async def pending(self, group_id: str = "g") -> int:
        """Return how many TxnOffsetCommits are pending in the shard of a group."""
        result = await self.ask(ReadPending(shard_of(group_id, SHARDS)))
        return len(result.pending)

    async def end_by_hand(self, group_id: str = "g", *, commit: bool) -> None:
        """End all that is pending in the shard of a group, as ``groupkeeper upstream resolve``."""
        number = shard_of(group_id, SHARDS)
        result = await self.ask(ReadPending(number))
        ended = tuple(
            EndedTransaction(each.producer_id, (each.pending_id,), commit)
            for each in result.pending
        )
        await self.ask(
            EndTransactions(number, ended, result.journal.topic_id, result.journal.position)
        )

    def partition(self, group_id: str = "g") -> int:
        """Return the number of the partition of the journal for a group."""
        return shard_of(group_id, SHARDS)


def groups_of_one_partition(count: int) -> list[str]:
    """Return the ids of some groups that share a partition of the journal."""
    names = (f"group-{number}" for number in itertools.count())
    return list(itertools.islice((name for name in names if shard_of(name, SHARDS) == 0), count))


def error_of(result: TxnOffsetCommitResult) -> ErrorCode:
    """Return the error of the one partition."""
    if result.topics is None:
        return result.error
    ((_, _, ((_, error),)),) = result.topics
    return error


@asynccontextmanager
async def a_journal(**broker: Any) -> AsyncIterator[JournalSite]:
    """Run a journal over an empty topic until the end of the block."""
    site = JournalSite(JournalBroker(SHARDS), FaultyStorage())
    for name, value in broker.items():
        setattr(site.broker, name, value)
    await site.begin()
    try:
        yield site
    finally:
        await site.die()
