"""Lives of a coordinator on virtual time, told by their event logs, with what was true meanwhile.

A real ``GroupCoordinator`` over the memory storage does what a seed says: members come, commit, go
back, fall silent; administrators reset and delete; topics go; days pass. At quiet moments every
offset is fetched, and kept with the last seq and its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit, OffsetDelete
from groupkeeper.coordinator.core.requests.topics import ChangeTopics, NewTopic
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.segment_lines import EventDict
from tests.helpers.runtime.coordinator import World, a_coordinator
from tests.helpers.runtime.virtual_loop import START_WALL_MS, VirtualClock, run_virtual
from tests.helpers.storage.faulty_storage import FaultyStorage

DAY_MS = 24 * 60 * 60 * 1000
GROUPS = ("billing", "audit", "search")
TOPICS = {"orders": 4, "clicks": 2}

Offsets = dict[tuple[str, str, int], tuple[int, int, str]]
"""(group, topic, partition) -> offset, leader epoch, metadata."""


class Snapshot(NamedTuple):
    """What the coordinator answered at a moment at which nothing was under way."""

    ts_ms: int
    """The time of the last event before it; the next event is later."""
    seq: int
    offsets: Offsets


@dataclass
class History:
    """One life."""

    events: list[EventDict] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)


def a_history(seed: int, days: int = 2, steps: int = 25) -> History:
    """Live the life of a seed; ``steps`` things happen on each of ``days`` days."""
    return run_virtual(_live(Random(seed), days, steps))


async def _live(random: Random, days: int, steps: int) -> History:
    clock = VirtualClock()
    storage = FaultyStorage(MemoryOffsetStorage(clock=lambda: clock.now().wall_ms))
    history = History()
    clock.wall_offset_ms = -START_WALL_MS % DAY_MS
    async with a_coordinator(storage, offsets_retention_ms=DAY_MS) as world:
        world.clock.wall_offset_ms = clock.wall_offset_ms
        for day in range(days):
            for _ in range(steps):
                await _step(world, random)
                await asyncio.sleep(random.uniform(0.5, 40))
                if random.random() < 0.2:
                    await _snapshot(world, storage, history)
            if day + 1 < days:
                world.clock.wall_offset_ms += DAY_MS
                clock.wall_offset_ms += DAY_MS
        await _snapshot(world, storage, history)
        history.events = storage.inner.events()
    return history


async def _step(world: World, random: Random) -> None:
    group = random.choice(GROUPS)
    match random.randrange(12):
        case 0 | 1:
            await world.until(world.join(group, group_instance_id=random.choice((None, "one"))))
        case 2:
            await world.a_stable_group(f"{group}-{random.randrange(10**6)}", 1)
        case 3:
            parts = [random.randrange(4)]
            gone = OffsetDelete(f"simple-{group}", (("orders", parts),), Client("admin", "/9"))
            await world.until(world.send(gone))
        case 4:
            await _change_topics(world, random)
        case 5 if random.random() < 0.3:
            await world.until(world.send(DeleteGroup(f"simple-{group}", Client("admin", "/9"))))
        case 6:
            zombie = world.send(_commit(random, group, 7, "gone"))
            await world.until(zombie)
        case _:
            await world.until(world.send(_commit(random, f"simple-{group}", -1, "")))


async def _change_topics(world: World, random: Random) -> None:
    """Make a topic, commit to it, and let it go: its offsets go with it."""
    name, admin = f"extra-{random.randrange(10**6)}", Client("admin", "/9")
    topic = NewTopic(name, 2, name.ljust(22, "A"))
    await world.until(world.send(ChangeTopics(admin, create=(topic,))))
    await world.until(world.send(_commit(random, "simple-billing", -1, "", name)))
    await asyncio.sleep(random.uniform(0.5, 5))
    if random.random() < 0.7:
        await world.until(world.send(ChangeTopics(admin, delete=((name, ""),))))


def _commit(
    random: Random, group: str, generation: int, member: str, topic: str = "orders"
) -> OffsetCommit:
    numbers = random.sample(range(TOPICS.get(topic, 2)), random.randrange(1, 3))
    parts = [(n, random.randrange(1000), random.choice((-1, 3)), f"note {n}") for n in numbers]
    client = Client(random.choice(("app", "groupkeeper-restore/p1")), "/10.0.0.1")
    topics = [(topic, "", parts)]
    return OffsetCommit(
        group, generation, member, None, topics, False, -1, ErrorCode.ILLEGAL_GENERATION, client
    )


async def _snapshot(world: World, storage: FaultyStorage, history: History) -> None:
    await asyncio.sleep(1)
    events = storage.inner.events()
    groups = {event["group"] for event in events if event["kind"] == "commit"}
    offsets: Offsets = {}
    for group in sorted(groups):
        ticket = world.fetch(group)
        await world.until(ticket)
        for topic, _, parts in ticket.result.topics:
            for number, offset, leader_epoch, metadata, *_ in parts:
                offsets[group, topic, number] = (offset, leader_epoch, metadata)
    assert len(storage.inner.events()) == len(events), "something was under way"
    history.snapshots.append(Snapshot(events[-1]["ts_ms"], events[-1]["seq"], offsets))
    await asyncio.sleep(0.1)


def in_one_log(histories: Iterable[History]) -> list[EventDict]:
    """The events of many lives: each is a log of its own."""
    return [event for history in histories for event in history.events]


def told(rows: Iterable[Any]) -> Offsets:
    """Rows of ``offsets_as_of`` as a snapshot has them."""
    return {
        (row["group"], row["topic"], row["partition"]): (
            row["offset"],
            row["leader_epoch"],
            row["metadata"],
        )
        for row in rows
    }
