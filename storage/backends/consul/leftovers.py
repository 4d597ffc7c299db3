"""The keys that interrupted writes of large values have left behind. Nobody reads them."""

from __future__ import annotations

from typing import NamedTuple

from groupkeeper.storage.backends.consul.keys import StoreKeys
from groupkeeper.storage.backends.consul.operations import delete_all
from groupkeeper.storage.backends.consul.values import ConsulBatch, Parts, read_keys, version_of
from groupkeeper.storage.connections.consul import ConsulClient


class PartLeftovers(NamedTuple):
    """The parts of one value that nobody needs any more."""

    key: str
    """The key of the value. It may not exist."""
    versions: tuple[str, ...]
    """The versions that were not written completely, or were replaced."""

    def __str__(self) -> str:
        return f"{self.key}: parts of versions that it does not have: {len(self.versions)}"


async def part_leftovers(client: ConsulClient, keys: StoreKeys) -> list[PartLeftovers]:
    """Return the leftovers of all values. No process may write values at the same time."""
    parts = Parts(keys, await client.keys(keys.parts, consistent=True))
    found = []
    values = await read_keys(client, sorted(parts.versions))
    for key, versions in sorted(parts.versions.items()):
        gone = versions - {version_of(values.get(key, b""))}
        if gone:
            found.append(PartLeftovers(key, tuple(sorted(gone))))
    return found


async def remove_part_leftovers(
    batch: ConsulBatch, keys: StoreKeys, leftovers: PartLeftovers
) -> None:
    """Add to a batch the operations that delete leftovers."""
    parts = keys.parts_of(leftovers.key)
    for version in leftovers.versions:
        await batch.add(delete_all(f"{parts}{version}."))
