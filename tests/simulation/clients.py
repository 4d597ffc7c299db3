"""Clients of the simulated world: members of the classic protocol, and an administrator."""

from __future__ import annotations

import asyncio
from typing import Any

from coordinator.core.errors import ErrorCode
from coordinator.core.requests import (
    ChangeTopics,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    NewTopic,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
)
from tests.simulation.world import PARTITIONS, TOPIC, Disconnected, World

RETRIABLE = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
SESSION_MS = 6_000
REBALANCE_MS = 5_000


class Rejoin(Exception):
    """The member has to go through a rebalance again."""


class Member:
    """One consumer. It keeps trying, as the real ones do, until it is told to end."""

    def __init__(self, world: World, group_id: str, instance_id: str | None = None) -> None:
        self.world = world
        self.group_id = group_id
        self.instance_id = instance_id
        self.member_id = ""
        self.generation_id = -1
        self.assignment: list[int] | None = None
        """None: not in a generation."""
        self._client = world.client(world.mint("client"))
        self._task = asyncio.ensure_future(self._live())

    async def crash(self) -> None:
        """End without a word; its session has to run out."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.assignment = None

    async def leave(self) -> None:
        """End as a client that is closed properly."""
        await self.crash()
        if self.member_id and self.instance_id is None:
            leaving = (LeavingMember(self.member_id, None, "closed"),)
            try:
                await self.world.ask(LeaveGroup(self.group_id, leaving, self._client))
            except Disconnected:
                return

    def failure(self) -> BaseException | None:
        """What ended it, if it was not told to end."""
        if not self._task.done() or self._task.cancelled():
            return None
        return self._task.exception()

    async def _live(self) -> None:
        while True:
            try:
                await self._join()
                await self._sync()
                while True:
                    await self._work()
            except Rejoin:
                self.assignment = None
            except Disconnected:
                self.assignment = None
                await asyncio.sleep(0.3)

    async def _join(self) -> None:
        request = JoinGroup(
            self.group_id,
            self.member_id,
            self.instance_id,
            "consumer",
            (JoinProtocol("range", b"subscription"),),
            SESSION_MS,
            REBALANCE_MS,
            self.world.mint("member"),
            True,
            True,
            self._client,
        )
        result = await self.world.ask(request)
        if result.error is ErrorCode.NONE:
            self.member_id = result.member_id
            self.generation_id = result.generation_id
            self._is_leader = result.leader == result.member_id
            self._others = [member.member_id for member in result.members]
        elif result.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
            raise Rejoin
        else:
            await self._give_way(result.error)

    async def _sync(self) -> None:
        parts: tuple[tuple[str, bytes], ...] = ()
        if self._is_leader:
            parts = tuple(
                (member_id, bytes(range(number, PARTITIONS, len(self._others))))
                for number, member_id in enumerate(self._others)
            )
        request = SyncGroup(
            self.group_id,
            self.generation_id,
            self.member_id,
            self.instance_id,
            "consumer",
            "range",
            parts,
            self._client,
        )
        result = await self.world.ask(request)
        if result.error is not ErrorCode.NONE:
            await self._give_way(result.error)
        self._check_durable(result.assignment)
        self.assignment = list(result.assignment)

    def _check_durable(self, assignment: bytes) -> None:
        """An assignment that was told is stored, or a later generation is."""
        record = self.world.model.assignments[self.group_id]
        assert record.generation_id >= self.generation_id
        if record.generation_id == self.generation_id:
            stored = {member.member_id: member.assignment for member in record.members}
            assert stored.get(self.member_id, assignment) == assignment

    async def _work(self) -> None:
        """Heartbeat, and perhaps commit or read."""
        random = self.world.random
        await asyncio.sleep(random.uniform(0.2, 2.0))
        heartbeat = Heartbeat(
            self.group_id, self.generation_id, self.member_id, self.instance_id, self._client
        )
        code = await self.world.ask(heartbeat)
        choice = random.random()
        if code is ErrorCode.NONE and choice < 0.4 and self.assignment:
            code = await self._commit(random.choice(self.assignment))
        elif code is ErrorCode.NONE and choice < 0.5:
            code = (await self.world.ask(OffsetFetch(self.group_id, None, False, True))).error
        if code is not ErrorCode.NONE and code not in RETRIABLE:
            await self._give_way(code)

    async def _commit(self, partition: int) -> ErrorCode:
        parts = [(partition, self.world.next_offset(), -1, "")]
        request = OffsetCommit(
            self.group_id,
            self.generation_id,
            self.member_id,
            self.instance_id,
            [(TOPIC, "", parts)],
            False,
            -1,
            ErrorCode.ILLEGAL_GENERATION,
            self._client,
        )
        result: Any = await self.world.ask(request)
        code: ErrorCode = result.error
        return code

    async def _give_way(self, code: ErrorCode) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""
            self.generation_id = -1
        elif code is ErrorCode.ILLEGAL_GENERATION:
            self.generation_id = -1
        elif code in RETRIABLE:
            await asyncio.sleep(0.2)
        else:
            assert code is ErrorCode.REBALANCE_IN_PROGRESS, code
        raise Rejoin


async def administer(world: World) -> None:
    """Look, commit to groups without members, make topics and delete them, at random."""
    client = world.client("admin")
    made: list[str] = []
    while not world.is_over:
        await asyncio.sleep(world.random.uniform(0.1, 3.0))
        try:
            match world.random.randrange(6):
                case 0:
                    await world.ask(ListGroups())
                case 1:
                    await world.ask(DescribeGroup(f"group-{world.random.randrange(4)}"))
                case 2:
                    group_id = f"simple-{world.random.randrange(3)}"
                    await world.ask(OffsetFetch(group_id, None, False, True))
                case 3 | 4:
                    await _commit_simply(world, f"simple-{world.random.randrange(3)}")
                case 5 if len(made) < 3:
                    made.append(world.mint("extra"))
                    topic = NewTopic(made[-1], 2, world.mint_topic_id())
                    await world.ask(ChangeTopics(client, create=(topic,)))
                case _:
                    name = made.pop(0)
                    await world.ask(ChangeTopics(client, delete=((name, ""),)))
        except Disconnected:
            continue


async def _commit_simply(world: World, group_id: str) -> None:
    parts = [(p, world.next_offset(), -1, "note") for p in range(world.random.randrange(1, 4))]
    client = world.client("admin")
    request = OffsetCommit(
        group_id,
        -1,
        "",
        None,
        [(TOPIC, "", parts)],
        False,
        -1,
        ErrorCode.ILLEGAL_GENERATION,
        client,
    )
    await world.ask(request)
