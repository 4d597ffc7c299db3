"""Worlds whose groups roll between the protocols, both ways, while cooperative members give up
partitions. Members come and go in quick succession.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.simulation.consumer_clients import ConsumerClient
from tests.simulation.consumer_world import ConsumerWorld
from tests.simulation.consumer_worlds import run_life
from tests.simulation.cooperative_clients import CooperativeClient

GROUPS = ("group-0", "group-1", "group-2")
ROUNDS = 40
MOST_MEMBERS = 6
"""The most clients of a group."""
TOPICS = ("orders", "extra")


def run_rolling_world(seed: int) -> Counter[str]:
    """Run the world of a seed. Return how often each answer and fault happened.

    Raises AssertionError if something did not hold, and EndlessError if it never ended.
    """
    world = ConsumerWorld(seed)
    world.is_mixed, world.is_uniform, world.policy = True, True, "bidirectional"
    return run_life(world, _life)


async def _life(world: ConsumerWorld) -> None:
    random = world.random
    for group_id in GROUPS:
        for position in range(random.randrange(1, 4)):
            is_static = position == 0 and random.random() < 0.4
            _add_any(world, group_id, f"static-{group_id}" if is_static else None)
    for _ in range(ROUNDS):
        await asyncio.sleep(random.choice((0.1, 1.0, 5.0, 20.0)) * random.random())
        world.trouble = random.choice((0.0, 0.0, 0.0, 0.0, 0.1))
        await _change(world, random.choice(GROUPS))
        world.check()
    # A restart follows so soon that no member has noticed that its group is a classic one.
    for group_id in GROUPS:
        await _end_consumers(world, group_id)
    await _restart(world)


async def _change(world: ConsumerWorld, group_id: str) -> None:
    """Change one group, or restart the process."""
    random = world.random
    clients = [client for client in world.clients if client.group_id == group_id]
    match random.randrange(7):
        case 0:
            await _restart(world)
        case 1 | 2 if len(clients) < MOST_MEMBERS:
            _add(world, ConsumerClient, group_id)
        case 3 | 4 if len(clients) < MOST_MEMBERS:
            _add(world, CooperativeClient, group_id)
        case 5:
            await _end_consumers(world, group_id)
        case 6 if len(clients) > 1:
            await _end(world, random.choice(clients))


async def _restart(world: ConsumerWorld) -> None:
    await world.kill()
    await asyncio.sleep(world.random.choice((0.1, 1.0, 5.0)))
    await world.start()


async def _end_consumers(world: ConsumerWorld, group_id: str) -> None:
    """End the members of the consumer protocol. This makes the group a classic one."""
    for client in world.clients[:]:
        if client.group_id == group_id and isinstance(client, ConsumerClient):
            await _end(world, client)


async def _end(world: ConsumerWorld, client: ConsumerClient | CooperativeClient) -> None:
    """End a client. If it is a static one, another one comes in its place."""
    world.clients.remove(client)
    await (client.leave() if world.random.random() < 0.7 else client.crash())
    if client.instance_id is not None:
        _add_any(world, client.group_id, client.instance_id)


def _add_any(world: ConsumerWorld, group_id: str, instance_id: str | None = None) -> None:
    kind = world.random.choice((ConsumerClient, CooperativeClient, CooperativeClient))
    _add(world, kind, group_id, instance_id)


def _add(
    world: ConsumerWorld,
    kind: type[ConsumerClient | CooperativeClient],
    group_id: str,
    instance_id: str | None = None,
) -> None:
    world.clients.append(kind(world, group_id, instance_id, TOPICS))
