"""One world of consumer groups from one seed, from its start to its last check."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from groupkeeper.coordinator.core.consumer import assignment_work, follow_work, rebalance
from tests.helpers.runtime.virtual_loop import run_virtual
from tests.simulation.classic_clients import ClassicClient
from tests.simulation.consumer_clients import ConsumerClient
from tests.simulation.consumer_world import ConsumerWorld, new_topic

GROUPS = 3
ROUNDS = 15
PEACE_S = 300
LAST_S = 100
"""After this time, the sessions of static members that have left have ended."""
MOST_TURNS = 300_000
SUBSCRIPTIONS: tuple[tuple[tuple[str, ...], str | None], ...] = (
    (("orders",), None),
    (("orders", "extra"), None),
    (("later-1", "orders"), None),
    ((), "orders|later-.*"),
    ((), "later-[12]"),  # then only the pattern changes; often it matches nothing
    (("extra",), "later-[12]"),
)


Life: TypeAlias = Callable[[ConsumerWorld], Awaitable[None]]
"""What happens in a world before its peace."""


def run_consumer_world(seed: int) -> Counter[str]:
    """Run the world of a seed. Return how often each answer and fault happened.

    Raises AssertionError if something did not hold, and EndlessError if it never ended.
    """
    return run_life(ConsumerWorld(seed), _life)


def run_life(world: ConsumerWorld, life: Life) -> Counter[str]:
    """Run a world: a life, then peace, then the last checks. Returns and raises what
    ``run_consumer_world`` does.
    """
    with pytest.MonkeyPatch.context() as patch:
        if world.computes_elsewhere:
            patch.setattr(assignment_work, "LARGE_US", -1)
        if world.follows_later:
            patch.setattr(follow_work, "LARGE_BYTES", 0)
            patch.setattr(rebalance, "MANY_NAMES", 0)
        return run_virtual(_run(world, life), MOST_TURNS)


async def _run(world: ConsumerWorld, life: Life) -> Counter[str]:
    await world.start()
    await life(world)
    world.is_at_peace, world.trouble = True, 0.0
    await _replace_fenced(world)
    await asyncio.sleep(PEACE_S)
    world.check()
    world.check_peace()
    for client in world.clients:
        await client.crash()
    await world.check_stored()
    world.check()
    return world.seen


async def _life(world: ConsumerWorld) -> None:
    random = world.random
    for number in range(GROUPS):
        for position in range(random.randrange(1, 5)):
            _add(world, f"group-{number}", f"static-{number}" if position == 0 else None)
    for number in range(ROUNDS):
        if world.replaces_last and number == ROUNDS // 2:
            await _replace_last(world)
        await asyncio.sleep(random.choice((0.1, 2.0, 10.0, 60.0)) * random.random())
        await _trouble(world)
        world.check()


def _add(world: ConsumerWorld, group_id: str, instance_id: str | None = None) -> None:
    topics, pattern = world.random.choice(SUBSCRIPTIONS)
    if world.is_mixed and pattern is None and world.random.random() < 0.5:
        world.clients.append(ClassicClient(world, group_id, instance_id, topics))
    else:
        world.clients.append(ConsumerClient(world, group_id, instance_id, topics, pattern))


async def _trouble(world: ConsumerWorld) -> None:
    """Cause one fault, or one change."""
    random = world.random
    world.trouble = random.choice((0.0, 0.0, 0.0, 0.1, 0.5))
    match random.randrange(8):
        case 0:
            await world.kill()
            await asyncio.sleep(random.choice((0.1, 5.0, 100.0)))
            await world.start()
        case 1:
            await _replace(world, is_clean=False)
        case 2:
            await _replace(world, is_clean=True)
        case 3:
            _add(world, f"group-{random.randrange(GROUPS)}")
        case 4:
            random.choice(world.clients).subscribe(*random.choice(SUBSCRIPTIONS))
        case 5:
            world.partitions["orders"] += 1
            await world.change_topics(grow=(("orders", world.partitions["orders"]),))
        case 6:
            name = f"later-{random.randrange(1, 4)}"
            await world.change_topics(create=(new_topic(world, name, random.randrange(1, 4)),))
        case 7:
            await world.change_topics(delete=((f"later-{random.randrange(1, 4)}", ""),))


async def _replace(world: ConsumerWorld, *, is_clean: bool) -> None:
    """End a client. Another one may come in its place, with its instance id."""
    client = world.clients.pop(world.random.randrange(len(world.clients)))
    await (client.leave() if is_clean else client.crash())
    if client.instance_id is not None or len(world.clients) < GROUPS or world.random.random() < 0.7:
        _add(world, client.group_id, client.instance_id)


async def _replace_last(world: ConsumerWorld) -> None:
    """Leave one member of the consumer protocol in a group, a static one. A classic client comes in
    its place. If the policy allows it, this makes the group a classic one.
    """
    random = world.random
    world.trouble = random.choice((0.0, 0.1))
    group_id = f"group-{random.randrange(GROUPS)}"
    last = ConsumerClient(world, group_id, "last", *SUBSCRIPTIONS[0])
    world.clients += [last, ClassicClient(world, group_id, None, SUBSCRIPTIONS[1][0])]
    for client in [c for c in world.clients if c.group_id == group_id and c is not last]:
        if isinstance(client, ConsumerClient):
            world.clients.remove(client)
            await client.leave()
    await asyncio.sleep(LAST_S)
    world.clients.remove(last)
    await (last.leave() if random.random() < 0.5 else last.crash())
    topics, _ = random.choice(SUBSCRIPTIONS[:2])
    world.clients.append(ClassicClient(world, group_id, last.instance_id, topics))
    await asyncio.sleep(random.choice((0.0, 1.0, 30.0)))


async def _replace_fenced(world: ConsumerWorld) -> None:
    for client in [client for client in world.clients if client.is_fenced]:
        world.clients.remove(client)
        _add(world, client.group_id)
