"""Members that speak the classic protocol, in worlds whose groups change their type. Each is eager:
it gives up all its partitions before it joins.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

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
from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tests.simulation.consumer_clients import RETRIABLE, Disconnected, Held

if TYPE_CHECKING:
    from tests.simulation.consumer_world import ConsumerWorld

SESSION_MS = 10_000
REBALANCE_MS = 30_000
INTERVAL_S = 2.0
JOIN_AGAIN = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
)


class Rejoin(Exception):
    """The member has to join again."""


class ClassicClient:
    """One consumer of the classic protocol. It keeps trying until it is stopped."""

    pattern = None
    assignor = "range"

    def __init__(
        self,
        world: ConsumerWorld,
        group_id: str,
        instance_id: str | None = None,
        topics: tuple[str, ...] = (),
    ) -> None:
        self.world = world
        self.group_id = group_id
        self.instance_id = instance_id
        self.topics = topics
        self.member_id = ""
        self.held: Held = set()
        self.is_fenced = False
        """True if another client came with its instance id."""
        self._generation_id = -1
        self._members: dict[str, bytes] = {}
        """Member -> subscription, if it leads a classic group."""
        self._assigned_counts: dict[str, int] = {}
        """Topic -> number of partitions when this client was last the leader."""
        self._is_changed = False
        self._client = Client(world.mint("client"), "/10.0.0.1")
        self._task = asyncio.ensure_future(self._run())

    def subscribe(self, topics: tuple[str, ...], pattern: str | None) -> None:
        """Change its subscription. The client joins again."""
        if topics and pattern is None:
            self.topics, self._is_changed = topics, True

    def reads(self, topic: str) -> bool:
        """Return whether it subscribes to a topic."""
        return topic in self.topics

    async def crash(self) -> None:
        """End without a request. Its session has to expire."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._abandon()

    async def leave(self) -> None:
        """End like a client that was closed. A static member sends nothing (KIP-345)."""
        await self.crash()
        if self.member_id and self.instance_id is None:
            leaving = (LeavingMember(self.member_id, None, "closed"),)
            with suppress(Disconnected):
                await self.world.ask(LeaveGroup(self.group_id, leaving, self._client))

    @property
    def leads(self) -> bool:
        """True if the answer to its last join said that it leads a classic group. Then it watches
        the topics of all members.
        """
        return bool(self._members)

    def failure(self) -> BaseException | None:
        """Return the error that ended this client, or None."""
        if not self._task.done() or self._task.cancelled():
            return None
        return self._task.exception()

    def removed(self) -> None:
        """Note that the group has removed this client. Other members may now get its partitions."""
        self.world.released(self, self.held)

    async def _run(self) -> None:
        while not self.is_fenced:
            try:
                await self._join()
                await self._sync()
                while True:
                    await self._work()
            except Rejoin:
                self._end_generation()
            except Disconnected:
                self._end_generation()
                await asyncio.sleep(self.world.random.uniform(0.1, 1.0))

    async def _ask(self, request: Any) -> Any:
        result = await self.world.ask(request)
        if self.world.is_unlucky(0.03):
            raise Disconnected  # the answer is lost
        return result

    async def _join(self) -> None:
        self._is_changed = False
        metadata = encode_subscription(self._subscription())
        request = JoinGroup(
            self.group_id,
            self.member_id,
            self.instance_id,
            "consumer",
            (JoinProtocol(self.assignor, metadata),),
            SESSION_MS,
            REBALANCE_MS,
            self.world.mint("member"),
            True,
            True,
            self._client,
        )
        result = await self._ask(request)
        if result.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
        await self._react(result.error)
        self.member_id = result.member_id
        self._generation_id = result.generation_id
        leads = result.leader == result.member_id
        self._members = {m.member_id: m.metadata for m in result.members} if leads else {}

    async def _sync(self) -> None:
        request = SyncGroup(
            self.group_id,
            self._generation_id,
            self.member_id,
            self.instance_id,
            "consumer",
            self.assignor,
            self._share_out(),
            self._client,
        )
        result = await self._ask(request)
        await self._react(result.error)
        if result.assignment:
            by_name = self.world.topics_by_name()
            found = decode_assignment(result.assignment).partitions
            await self._take(
                {
                    (by_name[t].topic_id, n)
                    for t, parts in found.items()
                    if t in by_name
                    for n in parts
                }
            )

    def _subscription(self) -> Subscription:
        return Subscription(1, [*self.topics])

    async def _take(self, assigned: Held) -> None:
        self.world.took(self, assigned)
        self.held = assigned

    def _share_out(self) -> tuple[tuple[str, bytes], ...]:
        """As a leader, assign the partitions of each topic in turns."""
        self._assigned_counts = self._counts()
        topics = {who: decode_subscription(data).topics for who, data in self._members.items()}
        shares: dict[str, dict[str, list[int]]] = {who: {} for who in topics}
        for name, info in self.world.topics_by_name().items():
            readers = sorted(who for who, names in topics.items() if name in names)
            for number in range(info.partitions if readers else 0):
                shares[readers[number % len(readers)]].setdefault(name, []).append(number)
        return tuple(
            (who, encode_assignment(ConsumerAssignment(1, share))) for who, share in shares.items()
        )

    def _counts(self) -> dict[str, int]:
        """Return the existing topics to which members of its group subscribe, with their
        partitions.
        """
        names = {t for data in self._members.values() for t in decode_subscription(data).topics}
        by_name = self.world.topics_by_name()
        return {name: by_name[name].partitions for name in names if name in by_name}

    async def _work(self) -> None:
        await asyncio.sleep(INTERVAL_S * self.world.random.uniform(0.9, 1.1))
        if self.world.is_unlucky(0.01):  # its machine is paused
            await asyncio.sleep(self.world.random.uniform(1, 60))
        heartbeat = Heartbeat(
            self.group_id, self._generation_id, self.member_id, self.instance_id, self._client
        )
        code = await self._ask(heartbeat)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            await asyncio.sleep(self.world.user_takes_s())  # its user finishes something first
        if code not in RETRIABLE:
            await self._react(code)
        if self._is_changed or self._counts() != self._assigned_counts:
            raise Rejoin

    async def _react(self, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            return
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.is_fenced = True
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            self.world.refused(self)
            await asyncio.sleep(1)  # its user starts it again
        else:
            assert code in JOIN_AGAIN or code in RETRIABLE, code
            await asyncio.sleep(self.world.random.uniform(0.1, 0.5))
        raise Rejoin

    def _end_generation(self) -> None:
        """Prepare for the next join."""
        self._abandon()

    def _abandon(self) -> None:
        self.world.released(self, self.held)
        self.held = set()
        self._generation_id = -1
