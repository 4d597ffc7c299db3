"""The first life of some worlds: a host without topics. Its offsets have no topic id."""

from __future__ import annotations

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit
from tests.simulation.network import Direct
from tests.simulation.node import EXTRAS, PARTITIONS, TOPIC
from tests.simulation.world import World

UNKNOWN = "never-made"
GROUPS = ("group-0", "group-1", "simple-0", "simple-1")
"""Groups of this life. Some of them get members later, and some never do."""


async def run_without_topics(world: World) -> None:
    """Commit to topics that will exist, that are created and deleted, and that never exist. Then
    end, cleanly or not.
    """
    node = world.start(world.names[0], has_topics=False)
    await node.starting
    host = Client("host", "")
    channel = Direct(node)
    for group_id in GROUPS:
        numbers = world.random.sample(range(PARTITIONS), 3)
        topics = [
            (name, "", [world.next_commit(number) for number in numbers])
            for name in (TOPIC, *EXTRAS, UNKNOWN)
        ]
        request = OffsetCommit(
            group_id, -1, "", None, topics, False, -1, ErrorCode.ILLEGAL_GENERATION, host
        )
        result = await world.send(channel, host, request)
        assert result.error is ErrorCode.NONE, result
    if world.random.random() < 0.5:
        await world.restart(node)
    else:
        world.kill(node)
