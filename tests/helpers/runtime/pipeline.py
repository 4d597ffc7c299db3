"""The runtime over fake shards: group commit, order and loading without the logic of groups."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from groupkeeper.coordinator.cluster.feed import NoTopics
from groupkeeper.coordinator.core.requests.membership import Heartbeat, JoinGroup, LeaveGroup
from groupkeeper.coordinator.core.requests.offsets import OffsetFetch
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.runtime.owner import ShardOwner
from groupkeeper.storage.base import ShardId, StorageLimits, StoreIdentity
from tests.helpers.core.fake_shard import FakeShard
from tests.helpers.runtime.coordinator import CLIENT, RecordingTicket, a_commit, a_config
from tests.helpers.runtime.virtual_loop import VirtualClock, turns, virtual_timer
from tests.helpers.storage.faulty_storage import FaultyStorage


class Pipeline:
    """Slots with fake shards over a storage with faults."""

    def __init__(self, storage: FaultyStorage, shards: Iterable[ShardId], **config: Any) -> None:
        self.storage = storage
        self.clock = VirtualClock()
        self.order: list[RecordingTicket] = []
        self.tickets: list[RecordingTicket] = []
        makers = dict.fromkeys(shards, FakeShard)
        self.owner = ShardOwner(
            storage, a_config(**config), self.clock, NoTopics(), makers, virtual_timer
        )

    def send(self, request: Request, shard_id: int = 0) -> RecordingTicket:
        ticket = RecordingTicket(request)
        ticket.order = self.order
        self.tickets.append(ticket)
        self.owner.slots[shard_id].submit(request, ticket, self.clock.now())
        return ticket

    def commit(self, offset: int = 5, shard_id: int = 0, group_id: str = "g") -> RecordingTicket:
        return self.send(a_commit(group_id, offset), shard_id)

    def fetch(self, shard_id: int = 0) -> RecordingTicket:
        return self.send(OffsetFetch("g", None, False, False), shard_id)

    def heartbeat(self, shard_id: int = 0, member_id: str = "m") -> RecordingTicket:
        return self.send(Heartbeat("g", 1, member_id, None, CLIENT), shard_id)

    def join(self, shard_id: int = 0, group_id: str = "g") -> RecordingTicket:
        request = JoinGroup(
            group_id, "", None, "consumer", (), 10_000, 60_000, "minted", True, True, CLIENT
        )
        return self.send(request, shard_id)

    def leave(self, shard_id: int = 0) -> RecordingTicket:
        return self.send(LeaveGroup("g", (), CLIENT), shard_id)

    def shard(self, shard_id: int = 0) -> FakeShard:
        shard = self.owner.slots[shard_id].shard
        assert isinstance(shard, FakeShard)
        return shard

    def offsets_in_append(self, number: int) -> list[int]:
        """Return the offsets of an append, in order."""
        return [
            record.topics[0].partitions[0][1]
            for item in self.storage.appends[number]
            for batch in item.batches
            for record in batch.records
        ]

    def events_in_append(self, number: int) -> list[str]:
        """Return the kinds of the events without a record in an append."""
        return [
            type(event).__name__
            for item in self.storage.appends[number]
            for batch in item.batches
            for event in batch.events
        ]


@asynccontextmanager
async def a_pipeline(
    storage: FaultyStorage | None = None,
    shards: Sequence[ShardId] = (0, 1),
    *,
    one_lane: bool = True,
    shared: bool = False,
    **config: Any,
) -> AsyncIterator[Pipeline]:
    """Start the runtime, and stop it at the end. Every ticket must then have exactly one answer."""
    storage = storage or FaultyStorage()
    storage.limits = StorageLimits(max_step_bytes=1 << 20, one_lane=one_lane, shared=shared)
    await storage.open(StoreIdentity("test", len(shards)))
    pipeline = Pipeline(storage, shards, **config)
    await pipeline.owner.start()
    yield pipeline
    pipeline.owner.drain()
    await pipeline.owner.finish(10_000)
    await pipeline.owner.release()
    await storage.close()
    await turns(3)
    for ticket in pipeline.tickets:
        assert len(ticket.answers) + ticket.aborted == 1, (ticket.request, ticket.answers)
