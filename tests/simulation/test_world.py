"""The last check of a world: a load of the store returns everything that became durable."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.simulation.network import Direct
from tests.simulation.node import TOPIC
from tests.simulation.world import KINDS, World

CLIENT = Client("app", "/10.0.0.1")


def a_commit(group_id: str, offset: int) -> OffsetCommit:
    topics = [(TOPIC, "", [(0, offset, -1, "")])]
    return OffsetCommit(
        group_id, -1, "", None, topics, False, -1, ErrorCode.ILLEGAL_GENERATION, CLIENT
    )


GROUPS = [f"simple-{number}" for number in range(8)]


async def commit_everywhere(world: World, offset: int) -> None:
    """A world in which every shard has stored something."""
    (node,) = world.nodes.values()
    for group_id in GROUPS:
        await world.send(Direct(node), CLIENT, a_commit(group_id, offset))


@pytest.mark.parametrize("seed", range(len(KINDS)))
def test_what_is_committed_while_the_store_is_read_waits_for_the_end_of_that(seed):
    @virtual_time
    async def scenario():
        world = World(seed)
        with closing(world.backend):
            await world.start("a").starting
            await commit_everywhere(world, 1)
            beside = asyncio.ensure_future(commit_everywhere(world, 2))
            for _ in range(5):
                await asyncio.sleep(0)
                await world.check_stored()
            await asyncio.wait_for(beside, 30)
            await world.check_stored()
            assert {world.durable.value((group_id, TOPIC, 0)) for group_id in GROUPS} == {2}
            await world.stop()
        assert world.durable.problems == []

    scenario()


@pytest.mark.parametrize("seed", range(len(KINDS)))
@pytest.mark.parametrize("group_id", [GROUPS[0], GROUPS[-1]])
def test_a_store_that_lost_something_is_told(seed, group_id):
    @virtual_time
    async def scenario():
        world = World(seed)
        with closing(world.backend):
            await world.start("a").starting
            await commit_everywhere(world, 1)
            offsets = world.durable.saved[group_id].offsets[TOPIC]
            offsets[1] = offsets[0]  # as if the store had taken this, and shows it no more
            with pytest.raises(AssertionError, match=f"loaded .*{group_id}.*, stored"):
                await world.check_stored()
            del offsets[1]
            await world.check_stored()
            await world.stop()

    scenario()
