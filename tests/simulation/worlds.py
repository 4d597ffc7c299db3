"""One world from one seed, from its start to its last check."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from tests.helpers.runtime.virtual_loop import run_virtual
from tests.simulation.administrator import Administrator, rush
from tests.simulation.checker import check_history
from tests.simulation.clients import Member
from tests.simulation.failing_disk import FailingDiskBackend
from tests.simulation.network import Wire
from tests.simulation.node import SHARDS
from tests.simulation.without_topics import run_without_topics
from tests.simulation.world import SLOW_READER_S, TOPICS_COME_LATER, StoreKind, World

GROUPS = 3
ROUNDS = 12
PEACE_S = 35
MOST_TURNS = 200_000
"""Turns of the loop in one world. Worlds need some 7,000, and 12,000 at most. The limit counts
turns, not seconds, so that an endless world fails in any process alike.
"""


@dataclass
class Figures:
    """The figures of a world."""

    operations: int
    batches: int
    answers: Counter[str]
    faults: Counter[str]
    seconds: float
    """In virtual time."""


def run_world(seed: int, store: StoreKind = "") -> Figures:
    """Run the world of a seed, with its own store or with this one.

    Raises AssertionError if something did not hold, and EndlessError if it never ended. The same
    seed is the same world in any process. It takes no real time except for its work.
    """
    return run_virtual(_run(seed, store), MOST_TURNS)


async def _run(seed: int, store: StoreKind) -> Figures:
    """Cause trouble for about a minute. After that no fault happens, and everything has
    to recover.
    """
    world = World(seed, store)
    with closing(world.backend):
        members = await _begin(world)
        administrator = Administrator(world)
        for _ in range(ROUNDS):
            await asyncio.sleep(world.random.uniform(0.5, 8.0))
            await _trouble(world, members)
            _check_running(world, members)
        await _make_peace(world, members)
        await asyncio.sleep(PEACE_S)
        _check_running(world, members)
        check_history(world.durable, world.history)
        _check_peace(world, members)
        world.is_over = True
        await administrator.task
        for member in members:
            await member.crash()
        await asyncio.sleep(3)
        _check_running(world, members)
        await world.check_stored()
        await world.stop()
        _check_running(world, members)
        check_history(world.durable, world.history)
        return Figures(
            len(world.history),
            world.durable.position,
            world.answers,
            world.faults,
            world.age_s(),
        )


async def _begin(world: World) -> list[Member]:
    if world.is_odd(TOPICS_COME_LATER):
        await run_without_topics(world)
    for name in world.names:
        if name not in world.nodes:
            world.start(name)
    if world.has_few_groups:  # others are there first
        await asyncio.sleep(1)
        for node in list(world.nodes.values()):  # one of them has the leases
            await rush(world, node)
    random = world.random
    return [
        Member(world, f"group-{group}", f"static-{group}" if number == 0 else None)
        for group in range(GROUPS)
        for number in range(random.randrange(1, 4))
    ]


# --- Faults --------------------------------------------------------------------------------------


async def _trouble(world: World, members: list[Member]) -> None:
    """Cause one fault."""
    random = world.random
    troubles = [*_NODE_TROUBLES, *_DISK_TROUBLES] if world.has_failing_disk else _NODE_TROUBLES
    if world.nodes:
        troubles[random.randrange(len(troubles))](world)
    match random.randrange(6):
        case 0:
            await _replace(world, members, is_clean=False)
        case 1:
            await _replace(world, members, is_clean=True)
        case 2:
            _cut(world)
        case 3:
            _slow_down(world)
        case 4:
            _set_wall_clock(world)
        case 5:
            world.stall(random.uniform(0.5, 15))


def _kill(world: World) -> None:
    world.kill(world.random.choice(list(world.nodes.values())))


def _kill_at_a_point(world: World) -> None:
    """Kill a process between two calls of its store, or between two replies."""
    node = world.random.choice(list(world.nodes.values()))
    node.fate.die_at(world.random.randrange(1, 60))


def _bad_disk(world: World) -> None:
    for node in world.nodes.values():
        node.fate.trouble = world.random.choice((0.05, 0.2, 0.6))


def _outage(world: World) -> None:
    world.faults["outage"] += 1
    for node in world.nodes.values():
        node.fate.trouble = 1.0
    world.loop.call_later(world.random.uniform(0.1, 20), _good_disk, world)


def _good_disk(world: World) -> None:
    world.backend.heal()
    for node in world.nodes.values():
        node.fate.trouble = 0.0


def _steal(world: World) -> None:
    world.faults["stolen lease"] += 1
    shards = world.random.sample(range(-1, SHARDS), world.random.randrange(1, SHARDS + 1))
    if len(world.names) > 1:  # two owners of one lane never share its shards between them
        shards = list(range(-1, SHARDS))
    world.backend.steal(shards)
    for node in world.nodes.values():
        world.spawn(rush(world, node))


def _lapse(world: World) -> None:
    """Let a living owner count as dead. If there is another one, both own the shards for a moment.
    A store without such leases is moved instead.
    """
    name = world.random.choice(world.names)
    if world.backend.lapse(name):
        world.faults["lapsed lease"] += 1
        if name in world.nodes:
            world.nodes[name].is_lapsed = True
    elif name in world.nodes:
        world.move_store(world.nodes[name])


def _restart(world: World) -> None:
    node = world.random.choice(list(world.nodes.values()))
    if node.is_ready:
        world.spawn(world.restart(node))


_NODE_TROUBLES: list[Callable[[World], None]] = [
    _kill,
    _kill_at_a_point,
    _kill_at_a_point,
    _bad_disk,
    _bad_disk,
    _outage,
    _good_disk,
    _good_disk,
    _steal,
    _lapse,
    _lapse,
    _restart,
]


def _fail_sync(world: World) -> None:
    """Let one sync fail. Often the power is cut some time later, perhaps in a later life."""
    assert isinstance(world.backend, FailingDiskBackend)
    of_database = world.random.random() < 0.5
    world.backend.fail_sync(
        0 if of_database else world.random.randrange(4), of_database=of_database
    )
    if world.random.random() < 0.7:
        world.loop.call_later(world.random.uniform(0.1, 10), _cut_power, world)


def _cut_power(world: World) -> None:
    if not world.is_at_peace:
        world.cut_power()


def _fail_a_checkpoint_beside_a_reader(world: World) -> None:
    """Let a checkpoint fail while a reader keeps SQLite's index of the WAL for the next life. Then
    the power is cut in that life.
    """
    assert isinstance(world.backend, FailingDiskBackend)
    world.backend.read_for(0.01, connected_s=30)
    world.backend.fail_sync(0, of_database=True)
    world.loop.call_later(world.random.uniform(5, 25), _cut_power, world)


def _read_long(world: World) -> None:
    """Let another process read, as ``log tail`` or a backup does."""
    assert isinstance(world.backend, FailingDiskBackend)
    seconds = world.random.uniform(1, 10)
    world.backend.read_for(seconds, connected_s=2 * seconds)


_DISK_TROUBLES: list[Callable[[World], None]] = [
    *[_fail_sync] * 8,
    *[_fail_a_checkpoint_beside_a_reader] * 4,
    *[_read_long] * 6,
    *[_cut_power] * 2,
]


async def _replace(world: World, members: list[Member], *, is_clean: bool) -> None:
    member = members.pop(world.random.randrange(len(members)))
    if member.instance_id is not None and world.random.random() < 0.5:
        world.faults["second of an instance"] += 1
        members.append(Member(world, member.group_id, member.instance_id))
        await asyncio.sleep(world.random.uniform(0, 8))  # both live; one of them is fenced
        await member.crash()
        return
    await (member.leave() if is_clean else member.crash())
    members.append(Member(world, member.group_id, member.instance_id))


def _wires(world: World) -> list[Wire]:
    return [w for n in world.nodes.values() for w in n.channels if isinstance(w, Wire)]


def _cut(world: World) -> None:
    for wire in _wires(world):
        if world.random.random() < 0.5:
            world.faults["cut connection"] += 1
            wire.cut()


def _slow_down(world: World) -> None:
    for wire in _wires(world):
        if world.random.random() < 0.5:
            world.faults["slow reader"] += 1
            wire.be_slow(world.random.uniform(0.1, SLOW_READER_S))


def _set_wall_clock(world: World) -> None:
    world.faults["clock set"] += 1
    world.wall_jump_ms += world.random.choice((-30_000, -5_000, 5_000, 20_000, 120_000))


async def _make_peace(world: World, members: list[Member]) -> None:
    """Wait for one process, a good disk, no fault under way, and living members."""
    world.is_at_peace = True
    for name in world.names[1:]:
        if name in world.nodes:
            world.kill(world.nodes[name])
    while world.names[0] not in world.nodes:  # noqa: ASYNC110 - it comes when its time comes
        await asyncio.sleep(0.1)
    for node in world.nodes.values():
        node.fate.die_at(-1)
    _good_disk(world)
    await asyncio.sleep(20)  # for what was begun before: an outage, a restart
    _good_disk(world)
    for position, member in enumerate(members):
        if member.is_fenced:
            members[position] = Member(world, member.group_id, member.instance_id)


# --- What must hold ------------------------------------------------------------------------------


def _check_running(world: World, members: list[Member]) -> None:
    world.check_all()
    for member in members:
        failure = member.failure()
        if failure is not None:
            raise failure
    for node in world.nodes.values():
        assert node.coordinator.stats.bugs == 0
        assert node.coordinator.stats.tickets_failed == 0
        heard, failed = node.coordinator.stats.appends_failed, node.store.appends_failed
        assert heard <= failed, f"{heard} appends were taken for failed, {failed} may have been"


def _check_peace(world: World, members: list[Member]) -> None:
    """Check that no group is stuck: each has rebalanced, and assigns every partition once."""
    (node,) = world.nodes.values()
    assert node.coordinator.is_ready, node.coordinator.not_ready
    for number in range(GROUPS):
        of_group = [member for member in members if member.group_id == f"group-{number}"]
        held = [member.assignment for member in of_group]
        assert None not in held, f"group-{number} is stuck: {held}, so far {world.answers}"
        generations = [member.generation_id for member in of_group]
        assert len(set(generations)) <= 1, f"group-{number}: {held} in {generations}"
        shared_out = sorted(partition for parts in held if parts for partition in parts)
        wanted = list(range(world.partitions)) if of_group else []
        assert shared_out == wanted, f"group-{number}: {held}"


def be_quiet() -> None:
    """Turn off the log, which reports every fault of every world."""
    logging.disable(logging.CRITICAL)
