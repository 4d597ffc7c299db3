"""Clients that are not members: administrators, and consumers that commit without a group
membership.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.admin import DeleteGroup, DescribeGroup, ListGroups
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.offsets import (
    FetchTopic,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
)
from groupkeeper.coordinator.core.requests.topics import (
    AlterGroupConfigs,
    ChangeTopics,
    GroupConfigChange,
    NewTopic,
)
from tests.simulation.call import Disconnected
from tests.simulation.network import Direct, Wire
from tests.simulation.node import EXTRAS, TOPIC, Node
from tests.simulation.world import COMMIT_RETENTION_MS, World

SIMPLE = ("simple-0", "simple-1", "simple-2")
"""Groups of clients that commit and are not members. Each group is in a different shard."""
MEMBERS = ("group-0", "group-1", "group-2", "group-3")
"""Groups with members, and one group that never has any."""
MAX_PARTITIONS = 9

GROUP_CONFIGS = (
    {"offsets.retention.minutes": "1"},
    {"offsets.retention.minutes": None},
    {"initial.rebalance.delay.ms": "200", "rebalance.max.join.ms": "2000"},
    {"initial.rebalance.delay.ms": None, "rebalance.max.join.ms": None},
)


class Administrator:
    """Sends a request every moment, over a connection or in process."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._client = Client("admin", "/10.0.0.2")
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while not self._world.is_over:
            await asyncio.sleep(self._world.random.uniform(0.1, 3.0))
            try:
                await self._act()
            except Disconnected:
                continue

    async def _act(self) -> None:
        world = self._world
        random = world.random
        simple = random.choice(SIMPLE)
        if world.has_few_groups and world.is_at_peace:
            await self._ask(DeleteGroup(random.choice((*SIMPLE, MEMBERS[-1])), self._client))
            return  # so that there is room for those with members
        group_id = random.choice((simple, random.choice(MEMBERS)))
        match random.randrange(13):
            case 0:
                await self._ask(random.choice((ListGroups(), DescribeGroup(group_id))))
            case 1:
                await self._change_topics()
            case 2:
                changes = tuple(random.choice(GROUP_CONFIGS).items())
                groups = MEMBERS if random.random() < 0.5 else (simple,)
                altered = tuple(GroupConfigChange(each, changes) for each in groups)
                await self._ask(AlterGroupConfigs(self._client, altered))
            case 3:
                await self._ask(DeleteGroup(group_id, self._client))
            case 4:
                topics = ((random.choice((TOPIC, *EXTRAS)), [0, 1]),)
                await self._ask(OffsetDelete(group_id, topics, self._client))
            case 5 | 6 | 7:
                await self._fetch(group_id)
            case 8:
                await self._read_slowly(group_id)
            case _:
                await self._commit(group_id if random.random() < 0.2 else simple)

    async def _ask(self, request: Any, *, in_process: bool = True) -> Any:
        channel = await self._world.connect(in_process=in_process)
        return await self._world.send(channel, self._client, request)

    async def _change_topics(self) -> None:
        world = self._world
        name = world.random.choice(EXTRAS)
        match world.random.randrange(5):
            case 0 | 1:
                topic = NewTopic(name, 2, world.mint_topic_id())
                request = ChangeTopics(self._client, create=(topic,))
            case 2 | 3:
                request = ChangeTopics(self._client, delete=((name, ""),))
            case _ if not world.is_at_peace:
                more = min(world.partitions + 1, MAX_PARTITIONS)
                request = ChangeTopics(self._client, grow=((TOPIC, more),))
            case _:
                return
        result = await self._ask(request)
        for grown in result.grown:
            if grown.error is ErrorCode.NONE:
                world.partitions = max(world.partitions, grown.partitions)

    async def _fetch(self, group_id: str) -> None:
        """Read offsets of a group, or of several at once, as Kafka's AdminClient does."""
        world = self._world
        random = world.random
        groups = [group_id, *random.choices(SIMPLE + MEMBERS, k=random.choice((0, 0, 1, 5)))]
        is_stable = random.random() < 0.5
        requests = [OffsetFetch(one, self._wanted(), False, is_stable) for one in groups]
        channel = await world.connect()
        await asyncio.gather(*world.send_together(channel, self._client, requests))

    async def _read_slowly(self, group_id: str) -> None:
        """Send many requests and read their answers late."""
        world = self._world
        channel = await world.connect()
        if isinstance(channel, Wire):
            channel.be_slow(world.random.uniform(0.2, 1.0))
        request = OffsetFetch(group_id, None, False, False)
        asked = []
        for _ in range(6):
            asked += [world.send(channel, self._client, request) for _ in range(2)]
            await asyncio.sleep(world.random.uniform(0.0, 0.1))
        await asyncio.gather(*asked)

    def _wanted(self) -> list[FetchTopic] | None:
        """Return all partitions, or some of them and one that does not exist."""
        if self._world.random.random() < 0.5:
            return None
        return [
            (name, "", numbers)
            for name, partitions in ((TOPIC, (0, 1, 2)), (EXTRAS[0], (0, 7)))
            for numbers in self._world.entries(partitions)
        ]

    async def _commit(self, group_id: str) -> None:
        await self._ask(commit_of(self._world, group_id, self._client), in_process=False)


def commit_of(world: World, group_id: str, client: Client) -> OffsetCommit:
    """Return a commit without a member, as assign() and Kafka's reset tool send it."""
    random = world.random
    named = [(TOPIC, random.randrange(1, 4)), (random.choice(EXTRAS), 2)]
    topics = [
        (name, "", [world.next_commit(n) for n in numbers])
        for name, count in named[: random.randrange(1, 3)]
        for numbers in world.entries(range(count))
    ]
    retention_ms = random.choice((-1, -1, COMMIT_RETENTION_MS))
    absent_group_error = ErrorCode.ILLEGAL_GENERATION
    return OffsetCommit(
        group_id, -1, "", None, topics, False, retention_ms, absent_group_error, client
    )


async def rush(world: World, node: Node) -> None:
    """Commit to several groups in one turn of the loop, so that one append stores records of
    several shards.
    """
    client = Client("rush", "/10.0.0.3")
    channel = Direct(node)
    node.channels.append(channel)
    requests = [commit_of(world, group_id, client) for group_id in SIMPLE]
    answers = [world.send(channel, client, request) for request in requests]
    with suppress(Disconnected):
        await asyncio.gather(*answers)
