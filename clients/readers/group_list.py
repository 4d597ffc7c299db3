"""List and describe groups of readers in Consul, without joining them."""

from __future__ import annotations

from typing import NamedTuple

from groupkeeper.clients.readers.group_keys import (
    PREFIX,
    GroupKeys,
    is_partition,
    read_position,
)
from groupkeeper.storage.connections.consul import ConsulClient


class PartitionRow(NamedTuple):
    """One row of a group's description. It is a partition that has an owner or a position, or, if
    ``partition`` is None, a member without a partition of the topic.
    """

    topic: str
    partition: int | None
    member: str | None
    position: int | None


async def list_groups(client: ConsulClient, prefix: str = PREFIX) -> list[tuple[str, int]]:
    """Return the name of each group, and the number of its present members."""
    roots = await client.keys(f"{prefix}/", "/")
    names = sorted(root.removeprefix(f"{prefix}/").rstrip("/") for root in roots)
    return [(name, await _member_count(client, GroupKeys(name, prefix))) for name in names]


async def _member_count(client: ConsulClient, keys: GroupKeys) -> int:
    """Count the members of a group. Positions are not decoded, because an invalid one must not hide
    the other groups."""
    seen = await client.list(keys.root)
    view = keys.view(seen.at_index, seen.entries)
    waiting = {member for of_topic in view.members.values() for member in of_topic}
    owners = {claim.member for of_topic in view.owners.values() for claim in of_topic.values()}
    return len(waiting | owners)


async def describe_group(
    client: ConsulClient, name: str, prefix: str = PREFIX
) -> list[PartitionRow]:
    """Return the partitions and members of a group. The list is empty if Consul has no such group.

    Raises BadPosition with the key if a position is invalid.
    """
    keys = GroupKeys(name, prefix)
    seen = await client.list(keys.root)
    view = keys.view(seen.at_index, seen.entries)
    positions: dict[tuple[str, int], int] = {}
    for entry in seen.entries:
        match entry.key.removeprefix(keys.root).split("/"):
            case ["positions", topic, partition] if is_partition(partition):
                positions[topic, int(partition)] = read_position(entry)
            case _:
                pass
    owners = {(t, p): each.member for t, of_it in view.owners.items() for p, each in of_it.items()}
    rows = [
        PartitionRow(*at, owners.get(at), positions.get(at)) for at in sorted({*owners, *positions})
    ]
    busy = {(row.topic, row.member) for row in rows}
    idle = [(t, m) for t, of_it in view.members.items() for m in of_it if (t, m) not in busy]
    return [*rows, *(PartitionRow(topic, None, member, None) for topic, member in sorted(idle))]
