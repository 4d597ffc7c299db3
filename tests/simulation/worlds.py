"""One world from one seed, from its start to its last check."""

from __future__ import annotations

import asyncio

from tests.helpers.virtual_loop import run_virtual
from tests.simulation.clients import Member, administer
from tests.simulation.world import PARTITIONS, World

GROUPS = 3
ROUNDS = 12


def run_world(seed: int) -> None:
    """Live the world of a seed; raises AssertionError where something did not hold.

    The same seed is the same world, in any process; it takes no real time but the work.
    """
    run_virtual(live(seed))


async def live(seed: int) -> None:
    """Trouble for about a minute, then peace, in which everything has to come right."""
    world = World(seed)
    random = world.random
    await world.start()
    members = [
        Member(world, f"group-{group}", f"static-{group}" if number == 0 else None)
        for group in range(GROUPS)
        for number in range(random.randrange(1, 4))
    ]
    admin = asyncio.ensure_future(administer(world))
    for _ in range(ROUNDS):
        await asyncio.sleep(random.uniform(0.5, 8.0))
        await trouble(world, members)
        for member in members:
            assert member.failure() is None, member.failure()
    world.store.trouble = 0.0
    await asyncio.sleep(60)
    check_peace(world, members)
    world.is_over = True
    await admin
    for member in members:
        await member.crash()
    await asyncio.sleep(1)
    await world.check_end()
    await world.stop()


async def trouble(world: World, members: list[Member]) -> None:
    """Do one bad thing."""
    random = world.random
    match random.randrange(8):
        case 0:
            await world.kill()
            await asyncio.sleep(random.uniform(0, 5))
            await world.start(random.choice((0.0, 0.1)))
        case 1:
            world.store.trouble = random.choice((0.05, 0.2, 0.6))
        case 2:
            world.store.trouble = 1.0
            await asyncio.sleep(random.uniform(0.1, 20))
            world.store.trouble = 0.0
        case 3:
            world.store.fence(random.sample(range(-1, 4), random.randrange(1, 5)))
        case 4:
            member = members.pop(random.randrange(len(members)))
            await member.crash()
            members.append(Member(world, member.group_id, member.instance_id))
        case 5:
            member = members.pop(random.randrange(len(members)))
            await member.leave()
            members.append(Member(world, member.group_id, member.instance_id))
        case _:
            world.store.trouble = 0.0


def check_peace(world: World, members: list[Member]) -> None:
    """Every group has come together again, and shares out every partition once."""
    for number in range(GROUPS):
        of_group = [member for member in members if member.group_id == f"group-{number}"]
        held = [m.assignment for m in of_group]
        assert None not in held, f"{held}, answers so far: {world.answers}"
        assert len({member.generation_id for member in of_group}) == 1
        shared_out = sorted(partition for parts in held if parts for partition in parts)
        assert shared_out == list(range(PARTITIONS)), held
    assert world.coordinator.is_ready
    assert world.coordinator.stats.bugs == 0
    assert world.coordinator.stats.tickets_failed == 0
