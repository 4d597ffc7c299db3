"""A coordinator on a virtual loop, over a storage with faults.

Its tickets record their answers:

    async with a_coordinator() as world:
        commit = world.commit("g", 5)
        await turns(3)
        assert commit.error is ErrorCode.NONE
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.membership import (
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit, OffsetFetch
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.base import OffsetStorage
from tests.helpers.runtime.virtual_loop import VirtualClock, turns, virtual_timer
from tests.helpers.storage.faulty_storage import FaultyStorage

CLIENT = Client("app", "/10.0.0.1")
TOPICS = (ConfiguredTopic("orders", 12), ConfiguredTopic("payments", 4))


class RecordingTicket:
    """Records its answers. A test that reads the answer fails unless there is exactly one."""

    def __init__(self, request: Request | None = None) -> None:
        self.request = request
        self.answers: list[Any] = []
        self.aborted = 0
        self.order: list[RecordingTicket] | None = None

    def resolve(self, result: Any) -> None:
        self.answers.append(result)
        if self.order is not None:
            self.order.append(self)

    def abort(self) -> None:
        self.aborted += 1

    @property
    def is_waiting(self) -> bool:
        """True if there is no answer yet."""
        return not self.answers

    @property
    def result(self) -> Any:
        """Return the only answer. Fails if there is none, or more than one."""
        assert len(self.answers) == 1, f"{len(self.answers)} answers: {self.request}"
        return self.answers[0]

    @property
    def error(self) -> ErrorCode:
        """Return the error of the whole request in the only answer."""
        result = self.result
        return result if isinstance(result, ErrorCode) else result.error

    def offsets(self) -> dict[tuple[str, int], int]:
        """Return the offsets of an OffsetFetch's answer."""
        return {(name, p[0]): p[1] for name, _, parts in self.result.topics for p in parts}


@dataclass
class World:
    """A coordinator, its storage, and all requests."""

    coordinator: GroupCoordinator
    storage: FaultyStorage
    clock: VirtualClock
    tickets: list[RecordingTicket] = field(default_factory=list)
    order: list[RecordingTicket] = field(default_factory=list)
    """Tickets in the order of their answers."""
    minted: int = 0

    def send(self, request: Request) -> RecordingTicket:
        """Submit a request."""
        ticket = RecordingTicket(request)
        ticket.order = self.order
        self.tickets.append(ticket)
        self.coordinator.submit(request, ticket)
        return ticket

    def commit(
        self, group_id: str = "g", offset: int = 5, partition: int = 0, **changes: Any
    ) -> RecordingTicket:
        """Commit one partition of ``orders``, by default as an administrator."""
        return self.send(a_commit(group_id, offset, partition, **changes))

    def fetch(self, group_id: str = "g", *, require_stable: bool = False) -> RecordingTicket:
        """Fetch all offsets of a group."""
        return self.send(OffsetFetch(group_id, None, False, require_stable))

    def join(self, group_id: str = "g", member_id: str = "", **changes: Any) -> RecordingTicket:
        """Join with one request, like a client from before KIP-394."""
        self.minted += 1
        fields: dict[str, Any] = {
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": (JoinProtocol("range", b"subscription"),),
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "new_member_id": f"member-{self.minted}",
            "requires_known_member_id": False,
            "supports_skip_assignment": True,
            "client": CLIENT,
        }
        return self.send(JoinGroup(group_id=group_id, member_id=member_id, **{**fields, **changes}))

    def sync(
        self,
        group_id: str,
        member_id: str,
        generation_id: int,
        assignments: tuple[tuple[str, bytes], ...] = (),
    ) -> RecordingTicket:
        """Send a SyncGroup, with all assignments if the member is the leader."""
        return self.send(
            SyncGroup(
                group_id, generation_id, member_id, None, "consumer", "range", assignments, CLIENT
            )
        )

    def heartbeat(
        self, group_id: str = "g", member_id: str = "", generation_id: int = 1
    ) -> RecordingTicket:
        """Send a Heartbeat."""
        return self.send(Heartbeat(group_id, generation_id, member_id, None, CLIENT))

    def leave(self, group_id: str, member_id: str) -> RecordingTicket:
        """Leave a group."""
        return self.send(LeaveGroup(group_id, (LeavingMember(member_id, None),), CLIENT))

    async def a_stable_group(self, group_id: str = "g", members: int = 2) -> list[str]:
        """Let members join and sync. Return their ids, the leader first."""
        joins = [self.join(group_id) for _ in range(members)]
        await self.until(*joins)
        generation_id = joins[-1].result.generation_id
        if any(j.result.generation_id != generation_id for j in joins):
            joins = [self.join(group_id, j.result.member_id) for j in joins]
            await self.until(*joins)
            generation_id = joins[0].result.generation_id
        leader = joins[0].result.leader
        ids = sorted((j.result.member_id for j in joins), key=lambda m: m != leader)
        parts = tuple((member_id, f"part of {member_id}".encode()) for member_id in ids)
        syncs = [self.sync(group_id, leader, generation_id, parts)]
        syncs += [self.sync(group_id, m, generation_id) for m in ids[1:]]
        await self.until(*syncs)
        assert [s.error for s in syncs] == [ErrorCode.NONE] * members
        return ids

    async def until(self, *tickets: RecordingTicket) -> None:
        """Let time pass until all tickets are answered."""
        # Polled, because these tickets have no event to wait for, and virtual time costs nothing.
        async with asyncio.timeout(600):
            while any(ticket.is_waiting for ticket in tickets):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def until_ready(self) -> None:
        """Let time pass until every shard is loaded."""
        async with asyncio.timeout(600):
            while not self.coordinator.is_ready:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return the durable events of a kind."""
        return [event for event in self.storage.inner.events() if event["kind"] == kind]


def a_commit(
    group_id: str = "g", offset: int = 5, partition: int = 0, **changes: Any
) -> OffsetCommit:
    """Return a commit of one partition of ``orders``."""
    fields: dict[str, Any] = {
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [("orders", "", [(partition, offset, -1, "")])],
        "by_topic_id": False,
        "retention_ms": -1,
        "absent_group_error": ErrorCode.ILLEGAL_GENERATION,
        "client": CLIENT,
    }
    return OffsetCommit(group_id=group_id, **{**fields, **changes})


def a_config(**changes: Any) -> CoordinatorConfig:
    """Return a config with four shards."""
    return CoordinatorConfig(**{"shards": 4, **changes})


@asynccontextmanager
async def a_world(
    storage: OffsetStorage, topics: Topics | None = None, **config: Any
) -> AsyncIterator[World]:
    """Start a coordinator over a store, and stop it at the end.

    Each ticket must then have exactly one answer.
    """
    clock = VirtualClock()
    coordinator = GroupCoordinator(
        storage, a_config(**config), topics, clock=clock, timer=virtual_timer
    )
    await coordinator.start()
    world = World(coordinator, storage, clock)  # type: ignore[arg-type]
    try:
        yield world
    finally:
        await coordinator.stop()
    await turns(3)
    for ticket in world.tickets:
        assert len(ticket.answers) + ticket.aborted == 1, (ticket.request, ticket.answers)


@asynccontextmanager
async def a_coordinator(
    storage: FaultyStorage | None = None,
    topics: Topics | None = None,
    *,
    without_topics: bool = False,
    **config: Any,
) -> AsyncIterator[World]:
    """Start a coordinator with topics of static mode, and stop it at the end."""
    if topics is None and not without_topics:
        topics = Topics(TOPICS)
    async with a_world(storage or FaultyStorage(), topics, **config) as world:
        await asyncio.sleep(0.2)  # the start's records and events are durable after this
        yield world
