"""The znodes that interrupted writes of values have left behind. Nobody reads them."""

from __future__ import annotations

from typing import NamedTuple

from groupkeeper.storage.backends.zookeeper.values import IN_PARTS, FencedBatch, for_each
from groupkeeper.storage.connections.zookeeper import ZooKeeperSession
from groupkeeper.storage.connections.zookeeper_errors import NodeMissing
from groupkeeper.storage.connections.zookeeper_transaction import DeleteNode


class ValueLeftovers(NamedTuple):
    """The znodes of one value that nobody needs any more."""

    path: str
    parts: tuple[str, ...]
    """The names of the parts that the present value does not have."""
    is_unwritten: bool
    """True if the znode has no value: its first write was interrupted."""

    def __str__(self) -> str:
        if self.is_unwritten:
            return f"{self.path}: has no value, its first write was interrupted"
        return f"{self.path}: parts of replaced values: {len(self.parts)}"


async def value_leftovers(session: ZooKeeperSession, parent: str) -> list[ValueLeftovers]:
    """Return the leftovers of the values below a znode. No process may write values at the same
    time.
    """
    try:
        names = (await session.children(parent)).names
    except NodeMissing:
        return []

    async def look(path: str) -> ValueLeftovers | None:
        data = (await session.get(path)).data
        parts = (await session.children(path)).names
        valid, is_unwritten = _parts_of(data)
        gone = tuple(name for name in parts if valid is not None and name not in valid)
        return ValueLeftovers(path, gone, is_unwritten) if gone or is_unwritten else None

    found = await for_each(look, [f"{parent}/{name}" for name in names])
    return [each for each in found if each is not None]


def _parts_of(data: bytes) -> tuple[frozenset[str] | None, bool]:
    """Return the names of the parts of a value, and whether the znode has no value. Return None
    instead of the names if the value cannot be read.
    """
    if not data.startswith(IN_PARTS):
        return frozenset(), False
    try:
        version, count = data.removeprefix(IN_PARTS).decode().split()
        return frozenset(f"{version}.{number}" for number in range(int(count))), count == "0"
    except ValueError:
        return None, False


async def remove_value_leftovers(batch: FencedBatch, leftovers: ValueLeftovers) -> None:
    """Add to a batch the operations that delete leftovers."""
    for name in leftovers.parts:
        await batch.add(DeleteNode(f"{leftovers.path}/{name}"))
    if leftovers.is_unwritten:
        await batch.add(DeleteNode(leftovers.path))
