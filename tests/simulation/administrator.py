"""Everybody who is no member: administrators, and consumers that commit without a group."""

from __future__ import annotations

import asyncio
from typing import Any

from coordinator.core.errors import ErrorCode
from coordinator.core.requests import (
    AlterGroupConfigs,
    ChangeTopics,
    Client,
    DeleteGroup,
    DescribeGroup,
    GroupConfigChange,
    ListGroups,
    NewTopic,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
)
from tests.simulation.call import Disconnected
from tests.simulation.world import COMMIT_RETENTION_MS, TOPIC, World

EXTRAS = ("extra-1", "extra-2")
"""Topics that come and go."""

SIMPLE_GROUPS = 3
MAX_PARTITIONS = 9

GROUP_CONFIGS = (
    {"offsets.retention.minutes": "1"},
    {"offsets.retention.minutes": None},
    {"initial.rebalance.delay.ms": "200", "rebalance.max.join.ms": "4000"},
    {"initial.rebalance.delay.ms": None, "rebalance.max.join.ms": None},
)


class Administrator:
    """Does something every moment, over a connection or in process."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._client = Client("admin", "/10.0.0.2")
        self.task = asyncio.ensure_future(self._live())

    async def _live(self) -> None:
        while not self._world.is_over:
            await asyncio.sleep(self._world.random.uniform(0.1, 3.0))
            try:
                await self._act()
            except Disconnected:
                continue

    async def _act(self) -> None:
        world = self._world
        random = world.random
        simple = f"simple-{random.randrange(SIMPLE_GROUPS)}"
        group_id = random.choice((simple, f"group-{random.randrange(4)}"))
        match random.randrange(12):
            case 0:
                await self._ask(random.choice((ListGroups(), DescribeGroup(group_id))))
            case 1:
                await self._change_topics()
            case 2:
                groups = (GroupConfigChange(group_id, tuple(random.choice(GROUP_CONFIGS).items())),)
                await self._ask(AlterGroupConfigs(self._client, groups))
            case 3:
                await self._ask(DeleteGroup(group_id, self._client))
            case 4:
                topics = ((random.choice((TOPIC, *EXTRAS)), [0, 1]),)
                await self._ask(OffsetDelete(group_id, topics, self._client))
            case 5 | 6 | 7:
                topics = random.choice((None, [(TOPIC, "", [0, 1, 2]), (EXTRAS[0], "", [0, 7])]))
                request = OffsetFetch(group_id, topics, False, random.random() < 0.5)
                await self._ask(request, in_process=False)
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

    async def _commit(self, group_id: str) -> None:
        """Commit without a member, as assign() and Kafka's reset tool do."""
        world = self._world
        random = world.random
        topics = [
            (name, "", [world.next_commit(n) for n in range(count)])
            for name, count in ((TOPIC, random.randrange(1, 4)), (random.choice(EXTRAS), 2))
        ]
        request = OffsetCommit(
            group_id,
            -1,
            "",
            None,
            topics[: random.randrange(1, 3)],
            False,
            random.choice((-1, -1, COMMIT_RETENTION_MS)),
            ErrorCode.ILLEGAL_GENERATION,
            self._client,
        )
        await self._ask(request, in_process=False)
