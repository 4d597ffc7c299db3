"""The journal of a process in ZooKeeper: append an entry, and read and find entries. An entry
contains one append.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from groupkeeper.storage.backends.journal.driver import JournalEnd, JournalEntry
from groupkeeper.storage.backends.journal.stored import (
    end_data,
    end_of,
    entry_of,
    entry_parts,
    parts_of_entry,
)
from groupkeeper.storage.backends.zookeeper.nodes import PART_BYTES, StoreNodes, is_entry, row_of
from groupkeeper.storage.backends.zookeeper.values import for_each
from groupkeeper.storage.base import StorageError
from groupkeeper.storage.connections.zookeeper import RETRY_S, ZooKeeperSession
from groupkeeper.storage.connections.zookeeper_errors import (
    NodeExists,
    NodeMissing,
    OutcomeUnknown,
    TransactionRefused,
)
from groupkeeper.storage.connections.zookeeper_transaction import CheckNode, CreateNode, SetNode


@dataclass
class OwnLife:
    """The registration of this process with the store (its life), as the process remembers it."""

    life_id: str
    node_data: bytes
    end_path: str
    end_version: int
    """The version of the znode that has the end of the log. Only appends of this life change it."""
    end: JournalEnd


async def end_at(session: ZooKeeperSession, path: str) -> tuple[JournalEnd, int | None]:
    """Return the end of a log, and the version of the znode that stores it. If there is no
    such znode, the log is empty and the version is None.
    """
    try:
        node = await session.get(path)
    except NodeMissing:
        return JournalEnd(None, 1, 0), None
    return end_of(node.data), node.version


async def append_entry(
    session: ZooKeeperSession, nodes: StoreNodes, own: OwnLife, entry: JournalEntry
) -> None:
    """Store a journal entry, in one transaction if it fits into one.

    If the connection breaks, the transaction is sent again. It cannot be executed twice, because it
    compares and raises the version of the znode with the end of the log. Raises TransactionRefused
    if nothing was stored.
    """
    goes_on = CheckNode(nodes.node(own.life_id))
    end = JournalEnd(entry.log_id, entry.first_seq + entry.event_count, entry.ts_ms)
    first, *rest = entry_parts(entry, PART_BYTES)
    others = [
        CreateNode(nodes.entry(own.life_id, entry.row, number), part)
        for number, part in enumerate(rest, 1)
    ]
    node = CreateNode(nodes.entry(own.life_id, entry.row), first)
    moves_end = SetNode(own.end_path, end_data(end), own.end_version)
    is_in_doubt = False
    while True:
        try:
            for part in others:  # nobody reads these without the first part
                await _append_part(session, goes_on, part)
            await session.transact(goes_on, moves_end, node)
            break
        except OutcomeUnknown:
            is_in_doubt = True
            await asyncio.sleep(RETRY_S)
        except TransactionRefused as refused:
            if not is_in_doubt:
                raise
            if await end_at(session, own.end_path) == (end, own.end_version + 1):
                break
            raise StorageError(f"nobody knows whether an append was stored: {refused}") from refused
    own.end, own.end_version = end, own.end_version + 1


async def _append_part(session: ZooKeeperSession, goes_on: CheckNode, part: CreateNode) -> None:
    try:
        await session.transact(goes_on, part)
    except TransactionRefused as refused:
        if not isinstance(refused.error, NodeExists):  # an earlier try was done
            raise


async def read_entry(
    session: ZooKeeperSession, nodes: StoreNodes, life_id: str, row: int
) -> JournalEntry:
    """Return one entry from the journal of a life."""
    first = (await session.get(nodes.entry(life_id, row))).data
    numbers = range(1, parts_of_entry(first))
    paths = [nodes.entry(life_id, row, number) for number in numbers]
    rest = await for_each(session.get, paths)
    return entry_of(row, [first, *(node.data for node in rest)])


async def entry_rows(session: ZooKeeperSession, path: str) -> list[int]:
    """Return the numbers of the entries in a journal, in order."""
    names = (await session.children(path)).names
    return [row_of(name) for name in names if is_entry(name)]


async def folded_names(session: ZooKeeperSession, path: str, trim_row: int) -> list[str]:
    """Return the names of the znodes of a journal up to the entry ``trim_row``."""
    names = (await session.children(path)).names
    return [name for name in names if row_of(name) <= trim_row]
