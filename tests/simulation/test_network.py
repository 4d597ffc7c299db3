"""The connections of worlds have only the faults that real connections have."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.simulation.call import Disconnected
from tests.simulation.client_codec import NEW, encode
from tests.simulation.network import Wire
from tests.simulation.node import TOPIC
from tests.simulation.world import World

T = TypeVar("T")

TORN = 0.001
WHOLE = 0.9
IN_TWO_PIECES = 0.1


class Luck(Random):
    """Makes no random choice: no latency, and broken connections are cut after half a second."""

    def __init__(self) -> None:
        super().__init__(1)
        self.told: list[float] = []
        """The numbers that ``random`` returns next. They decide about the faults of the next
        requests."""
        self.cut_at = 1
        """The length of the first piece of a request that arrives in two pieces."""

    def random(self) -> float:
        return self.told.pop(0)

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return self.cut_at

    def choice(self, seq: Sequence[T]) -> T:
        return seq[0]


CLIENT = Client("app", "/10.0.0.1")


def a_commit(offset: int) -> OffsetCommit:
    topics = [(TOPIC, "", [(0, offset, -1, "")])]
    return OffsetCommit(
        "simple", -1, "", None, topics, False, -1, ErrorCode.ILLEGAL_GENERATION, CLIENT
    )


async def a_world() -> tuple[World, Luck]:
    """A world whose process answers, and whose connections have only the chosen faults."""
    world = World(0)
    await world.start("a").starting
    world.random = luck = Luck()
    return world, luck


def a_wire(world: World) -> Wire:
    (node,) = world.nodes.values()
    wire = Wire(world, node, NEW)
    node.channels.append(wire)
    return wire


PLACES = range(1, len(encode([a_commit(1)], NEW, 1)))
"""The positions at which the bytes of a commit can be divided."""


def stored(world: World) -> list[int]:
    return [row.offset for row in world.durable.values["simple", TOPIC, 0]]


@virtual_time
async def test_a_request_in_two_pieces_is_one_request():
    world, luck = await a_world()
    for luck.cut_at in PLACES:
        luck.told = [IN_TWO_PIECES]
        result = await world.send(a_wire(world), CLIENT, a_commit(luck.cut_at))
        assert result.topics == [(TOPIC, "", [(0, ErrorCode.NONE)])]
    assert stored(world) == [*PLACES]
    await world.stop()
    assert world.durable.problems == []


@virtual_time
async def test_nothing_comes_behind_a_request_that_was_half_written():
    """Otherwise its second half would become part of the next request: a commit that
    nobody sent.
    """
    world, luck = await a_world()
    for luck.cut_at in PLACES:
        wire = a_wire(world)
        luck.told = [TORN, WHOLE, WHOLE]
        sent = [world.send(wire, CLIENT, a_commit(offset)) for offset in (1, 2, 3)]
        for lost in sent:
            with pytest.raises(Disconnected):
                await lost
    assert stored(world) == []
    await world.stop()
    assert world.durable.problems == []
