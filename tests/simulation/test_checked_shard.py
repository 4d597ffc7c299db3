"""The shards of worlds check their invariants after every step, whatever its cause."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.membership import Heartbeat
from groupkeeper.coordinator.core.shard import Shard
from groupkeeper.coordinator.core.work import Work
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.simulation.checked_shard import CheckedShard
from tests.simulation.node import SHARDS
from tests.simulation.world import World

NOW = Now(1_000, 1_000)
STEPS = {
    "handle": (Heartbeat("g", 1, "m", None, Client("app", "/10.0.0.1")), None, NOW),
    "expire": (NOW,),
    "work_done": (Work(group_id="g", epoch=1), None, NOW),
    "topics_changed": (TopicImage({}, {}), NOW),
    "configs_changed": ({}, NOW),
    "loaded": (NOW,),
    "load_group": ("g", (), NOW),
}


@virtual_time
async def test_every_shard_of_groups_in_a_world_is_checked():
    world = World(0)
    node = world.start("a")
    await node.starting
    shards = [node.slot(number).shard for number in range(SHARDS)]
    assert [type(shard) for shard in shards] == [CheckedShard] * SHARDS
    await world.stop()


@pytest.mark.parametrize("name", STEPS)
@virtual_time
async def test_what_a_step_breaks_is_noted_at_once(name):
    """Called before the next step can repair it."""
    world = World(0)
    node = world.start("a")
    await node.starting
    shard = node.slot(0).shard
    getattr(shard, name)(*STEPS[name])
    assert world.durable.problems == []
    step = getattr(Shard, name)

    def broken(self, *arguments):
        self.offsets_held += 1
        return step(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shard, name, broken)
        getattr(shard, name)(*STEPS[name])
    shard.offsets_held -= 1
    (problem,) = world.durable.problems
    assert problem.startswith("shard 0: 1 offsets are counted, 0 are held")  # pytest may say more
    await world.stop()
