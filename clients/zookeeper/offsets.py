"""Committed offsets in ZooKeeper: one znode for each partition, with the offset in digits."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Final

from groupkeeper.clients.zookeeper.errors import CommitConflict
from groupkeeper.clients.zookeeper.names import MAX_PARTITION, GroupPaths, number_of, text_of
from groupkeeper.storage.connections.zookeeper import ZooKeeperSession
from groupkeeper.storage.connections.zookeeper_errors import (
    NodeChanged,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
)

COMMIT_TRIES: Final = 50
"""The largest number of attempts to commit. An attempt fails only if another client changes the
same offset during it."""
CONFLICT_PAUSE_S: Final = 0.01
"""The longest pause before a retry. The pause is random, so that two clients do not collide again.
"""


async def commit(session: ZooKeeperSession, path: str, offset: int) -> None:
    """Create or replace an offset. Raises CommitConflict if ``COMMIT_TRIES`` attempts fail."""
    data = str(offset).encode()
    for _ in range(COMMIT_TRIES):
        with contextlib.suppress(NodeChanged, NodeExists, NodeMissing):
            try:
                node = await session.get(path)
            except NodeMissing:
                await session.create(path, data)
            else:
                await session.set(path, data, node.version)
            return
        await asyncio.sleep(random.uniform(0, CONFLICT_PAUSE_S))  # noqa: S311  no secret
    raise CommitConflict(f"{path}: {COMMIT_TRIES} times another client committed first")


async def fetch(session: ZooKeeperSession, path: str) -> int | None:
    """Return the offset in a znode, or None if the znode does not exist. Raises BrokenNode if its
    content is no number.
    """
    try:
        node = await session.get(path)
    except NodeMissing:
        return None
    return number_of(path, text_of(path, node.data))


async def fetch_all(session: ZooKeeperSession, paths: GroupPaths) -> dict[str, dict[int, int]]:
    """Return every offset of a group: topic -> partition -> offset.

    Raises BrokenNode if the name or the content of a znode is not a number.
    """
    topics = await names_below(session, paths.offsets)
    found = await asyncio.gather(*(_of_topic(session, paths, topic) for topic in topics))
    return dict(zip(topics, found, strict=True))


async def _of_topic(session: ZooKeeperSession, paths: GroupPaths, topic: str) -> dict[int, int]:
    root = f"{paths.offsets}/{topic}"
    nodes = [f"{root}/{name}" for name in await names_below(session, root)]
    partitions = [number_of(node, node.rpartition("/")[2], MAX_PARTITION) for node in nodes]
    offsets = await asyncio.gather(*(fetch(session, node) for node in nodes))
    pairs = zip(partitions, offsets, strict=True)
    return {partition: offset for partition, offset in sorted(pairs) if offset is not None}


async def reset(session: ZooKeeperSession, paths: GroupPaths) -> None:
    """Delete every offset of a group, and the znodes of their topics."""
    for topic in await names_below(session, paths.offsets):
        await delete_below(session, f"{paths.offsets}/{topic}")


async def names_below(session: ZooKeeperSession, path: str) -> tuple[str, ...]:
    """Return the names of a znode's children, sorted. Return () if the znode does not exist."""
    try:
        return (await session.children(path)).names
    except NodeMissing:
        return ()


async def leaves(session: ZooKeeperSession, path: str) -> list[str]:
    """Return the paths of all znodes below a znode that have no children. If the znode itself has
    no children, return only its path.
    """
    names = await names_below(session, path)
    found = [await leaves(session, f"{path}/{name}") for name in names]
    return [leaf for below in found for leaf in below] if names else [path]


async def delete_below(session: ZooKeeperSession, path: str) -> None:
    """Delete a znode and everything below it, including znodes that others create there during the
    call.
    """
    while True:
        for name in await names_below(session, path):
            await delete_below(session, f"{path}/{name}")
        try:
            await session.delete(path)
        except NodeMissing:
            return
        except NodeNotEmpty:
            continue
        return
