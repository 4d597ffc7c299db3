"""Members of groups. They follow the rules of Kafka's own client (AbstractCoordinator and
ConsumerCoordinator): how it reacts to each answer, and what it does in between.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

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
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.coordinator.core.shard import Shard
from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from tests.simulation.call import Disconnected
from tests.simulation.network import Channel
from tests.simulation.node import EXTRAS, SHARDS, TOPIC
from tests.simulation.world import HEARTBEATS_WHILE_PARKED, SESSION_MS, World

CLOSE_S = 30
"""How long a client that is closing waits for an answer."""

FIND_AGAIN = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
"""Errors after which the client looks for the coordinator again."""

RETRIABLE = FIND_AGAIN | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}

_GENERATION_IS_OVER = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.GROUP_ID_NOT_FOUND})
"""Errors that end a client. The second one comes since OffsetCommit 9, if the group does not exist
(docs/spec/offsets.md#who-may-commit).
"""


class Rejoin(Exception):
    """Errors after which the member has to rebalance."""


class Member:
    """One consumer. Like real ones, it keeps trying until it is stopped."""

    def __init__(self, world: World, group_id: str, instance_id: str | None = None) -> None:
        self.world = world
        self.group_id = group_id
        self.instance_id = instance_id
        self.member_id = ""
        self.generation_id = -1
        self.assignment: list[int] | None = None
        """None if it is not in a generation."""
        self.is_fenced = False
        """True if another member came with its instance id. Its user has to act."""
        self._client = Client(world.mint("client"), "/10.0.0.1")
        self._topics = [TOPIC, EXTRAS[0] if instance_id is None else EXTRAS[1]]
        """One instance always has the same topics. The group would learn other topics only in the
        next generation.
        """
        self._channel: Channel | None = None
        self._is_leader = False
        self._skips = False
        self._shared_out = 0
        """The number of partitions of the topic when this client was last the leader."""
        self._others: list[str] = []
        self._task = asyncio.ensure_future(self._run())

    async def crash(self) -> None:
        """End without a request. Its session has to expire."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.assignment = None

    async def leave(self) -> None:
        """End like a client that was closed. A static member sends nothing (KIP-345)."""
        await self.crash()
        if self.member_id and self.instance_id is None:
            leaving = (LeavingMember(self.member_id, None, "closed"),)
            with suppress(Disconnected, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._ask(LeaveGroup(self.group_id, leaving, self._client))

    def failure(self) -> BaseException | None:
        """Return the error that ended this client, or None."""
        if not self._task.done() or self._task.cancelled():
            return None
        return self._task.exception()

    def cut(self) -> None:
        """Break its connection."""
        if self._channel is not None:
            self._channel.cut()

    async def _ask(self, request: Any) -> Any:
        if self._channel is None or not self._channel.is_open:
            is_static = self.instance_id is not None
            self._channel = await self.world.connect(is_static=is_static)
        return await self.world.send(self._channel, self._client, request)

    async def _run(self) -> None:
        while not self.is_fenced:
            try:
                await self._join()
                await self._work_long(0.03)
                await self._sync()
                await self._resume()
                while True:
                    await self._work()
            except Rejoin:
                self.assignment = None
            except Disconnected:
                self.assignment = None
                await asyncio.sleep(self.world.random.uniform(0.05, 0.5))

    async def _heartbeat_while_parked(self) -> None:
        """Heartbeat once, some time after the join. From then on the session counts."""
        await asyncio.sleep(self.world.random.uniform(0.05, 2.0))
        channel = await self.world.connect(in_process=True)
        shard = channel.node.slot(shard_of(self.group_id, SHARDS)).shard
        group = shard.groups.get(self.group_id) if isinstance(shard, Shard) else None
        if group is not None and self.member_id in group.members:
            heartbeat = self._heartbeat(group.generation_id)
            with suppress(Disconnected):
                await self.world.send(channel, self._client, heartbeat)

    async def _join(self) -> None:
        generation = str(self.generation_id).encode()  # as those do that are sticky
        metadata = encode_subscription(Subscription(1, self._topics, generation))
        request = JoinGroup(
            self.group_id,
            self.member_id,
            self.instance_id,
            "consumer",
            (JoinProtocol("range", metadata), JoinProtocol("roundrobin", metadata)),
            SESSION_MS,
            self.world.rebalance_ms,
            self.world.mint("member"),
            True,
            True,
            self._client,
        )
        if (
            self.world.is_odd(HEARTBEATS_WHILE_PARKED)
            and self.member_id
            and not self.world.is_at_peace
        ):
            self.world.spawn(self._heartbeat_while_parked())
        result = await self._ask(request)
        if result.error is ErrorCode.NONE:
            self.member_id = result.member_id
            self.generation_id = result.generation_id
            self._is_leader = result.leader == result.member_id
            self._skips = result.skip_assignment
            self._others = [member.member_id for member in result.members]
        elif result.error is ErrorCode.MEMBER_ID_REQUIRED:
            if not self._is_unlucky(0.1):  # or it is started anew, and nobody joins with this id
                self.member_id = result.member_id
            raise Rejoin
        else:
            await self._react(result.error)

    async def _sync(self) -> None:
        request = SyncGroup(
            self.group_id,
            self.generation_id,
            self.member_id,
            self.instance_id,
            "consumer",
            "range",
            self._share_out() if self._is_leader and not self._skips else (),
            self._client,
        )
        result = await self._ask(request)
        if result.error is not ErrorCode.NONE:
            await self._react(result.error)
        self.assignment = []
        if result.assignment:
            self.assignment = decode_assignment(result.assignment).partitions.get(TOPIC, [])

    def _share_out(self) -> tuple[tuple[str, bytes], ...]:
        self._shared_out = self.world.partitions
        shares = (
            (name, list(range(number, self._shared_out, len(self._others))))
            for number, name in enumerate(self._others)
        )
        return tuple(
            (name, encode_assignment(ConsumerAssignment(1, {TOPIC: numbers})))
            for name, numbers in shares
        )

    async def _resume(self) -> None:
        """Read the committed offsets before the client consumes."""
        while self.assignment:
            topics = [(TOPIC, "", numbers) for numbers in self.world.entries(self.assignment)]
            found = await self._ask(OffsetFetch(self.group_id, topics, False, True))
            if found.error is ErrorCode.NONE:
                return
            await self._again(found.error)

    async def _work(self) -> None:
        """Heartbeat, and perhaps commit or read."""
        random = self.world.random
        if self.assignment and self._channel and self._is_unlucky(0.03):
            code = await self._commit_alone()
            if code is not ErrorCode.NONE:
                await (self._again(code) if code in RETRIABLE else self._react(code))
        await asyncio.sleep(random.uniform(0.2, 2.0))
        code = await self._ask(self._heartbeat())
        if code is ErrorCode.NONE:
            code = await self._consume()
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            if self.assignment and random.random() < 0.5:
                await self._commit()  # what it did is committed before its partitions go
            await self._work_long(0.05)
        if code in RETRIABLE:
            await self._again(code)
        elif code is not ErrorCode.NONE:
            await self._react(code)
        if self._is_leader and self._shared_out != self.world.partitions:
            raise Rejoin  # the leader sees a topic grow

    async def _work_long(self, likelihood: float) -> None:
        """Be busy, perhaps for longer than a phase of a rebalance. The other thread of the client
        sends heartbeats.
        """
        if self._is_unlucky(likelihood):
            for _ in range(self.world.random.randrange(1, 12)):
                await asyncio.sleep(self.world.random.uniform(0.5, 1.5))
                await self._ask(self._heartbeat())

    def _is_unlucky(self, likelihood: float) -> bool:
        return not self.world.is_at_peace and self.world.random.random() < likelihood

    def _heartbeat(self, generation_id: int | None = None) -> Heartbeat:
        generation_id = self.generation_id if generation_id is None else generation_id
        return Heartbeat(
            self.group_id, generation_id, self.member_id, self.instance_id, self._client
        )

    async def _consume(self) -> ErrorCode:
        choice = self.world.random.random()
        if choice < 0.4 and self.assignment:
            return await self._commit()
        if choice < 0.5:
            result = await self._ask(OffsetFetch(self.group_id, None, False, choice < 0.45))
            code: ErrorCode = result.error
            return code
        return ErrorCode.NONE

    async def _commit_alone(self) -> ErrorCode:
        """Commit for longer than a session, without a heartbeat. A commit keeps the session alive,
        too.
        """
        for _ in range(self.world.random.randrange(4, 9)):
            await asyncio.sleep(self.world.random.uniform(1.0, 2.0))
            code = await self._commit(is_alone=True)
            if code is not ErrorCode.NONE:
                return code
        return ErrorCode.NONE

    async def _commit(self, *, is_alone: bool = False) -> ErrorCode:
        """Commit some partitions, perhaps several times without waiting (commitAsync)."""
        random = self.world.random
        assert self._channel is not None
        assert self.assignment
        waiting = [
            self.world.send(self._channel, self._client, self._commit_request())
            for _ in range(random.choice((1, 1, 1, 2, 4)))
        ]
        if not is_alone and random.random() < 0.3:  # the other thread of the client
            waiting.append(self.world.send(self._channel, self._client, self._heartbeat()))
        codes = [self._code_of(await answer) for answer in waiting]
        return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)

    def _commit_request(self) -> OffsetCommit:
        random = self.world.random
        assert self.assignment
        chosen = random.sample(self.assignment, random.randrange(1, len(self.assignment) + 1))
        return OffsetCommit(
            self.group_id,
            self.generation_id,
            self.member_id,
            self.instance_id,
            [
                (TOPIC, "", [self.world.next_commit(number) for number in numbers])
                for numbers in self.world.entries(chosen)
            ],
            False,
            -1,
            ErrorCode.ILLEGAL_GENERATION,
            self._client,
        )

    def _code_of(self, result: Any) -> ErrorCode:
        """Return the first error of all partitions."""
        if isinstance(result, ErrorCode):
            return result
        # An offset for which its group has no room is lost to its client, which goes on.
        is_full = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        codes = [e for _, _, parts in result.topics or () for _, e in parts if e is not is_full]
        return next((code for code in [result.error, *codes] if code), ErrorCode.NONE)

    async def _again(self, code: ErrorCode) -> None:
        """Try again soon, with another coordinator if the error says so."""
        if code not in RETRIABLE:
            await self._react(code)
        if code in FIND_AGAIN or self.world.random.random() < 0.2:
            self._channel = None
        await asyncio.sleep(0.2)

    async def _react(self, code: ErrorCode) -> None:
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.is_fenced = True
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
            self.generation_id = -1
        elif code in _GENERATION_IS_OVER:
            self.generation_id = -1
        elif code in RETRIABLE:
            await self._again(code)
        elif code is ErrorCode.UNKNOWN_SERVER_ERROR:
            await asyncio.sleep(0.2)  # its user starts it anew: the group cannot be read
        else:
            assert code is ErrorCode.REBALANCE_IN_PROGRESS, code
        raise Rejoin
