"""Values of any size in ZooKeeper, which accepts 1 MiB in one request.

A large value is divided into parts, which are children of its znode. The content of the znode names
the parts. The parts are written first. When the znode is written, the parts of the previous value
are deleted, in the same transaction if they fit into it. So a reader finds the old value or the new
one. Parts that an interrupted write has left behind are deleted by the next write of the value.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from groupkeeper.storage.backends.zookeeper.nodes import PART_BYTES
from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.connections.zookeeper import MAX_REQUEST_BYTES, ZooKeeperSession
from groupkeeper.storage.connections.zookeeper_errors import NodeMissing
from groupkeeper.storage.connections.zookeeper_transaction import (
    CheckNode,
    CreateNode,
    DeleteNode,
    Operation,
    SetNode,
    size_of,
)

CALLS_AT_ONCE: Final = 64
"""The largest number of reads that wait for an answer at the same time. An append waits behind
them."""

VALUE_PART_BYTES: Final = 128 * 1024
"""The size of the parts of a large value. Each part is one request. A server has its last 500
requests in memory, so parts of a megabyte would fill its heap."""

READ_TRIES: Final = 3
"""The number of attempts to read a value if its parts are replaced during each read."""

IN_PARTS: Final = b"parts "
"""The first bytes of a znode whose value is in parts. No other value begins with them."""

NO_VALUE: Final = IN_PARTS + b"none 0"
"""The content of a znode whose parts are being deleted. The znode is deleted after them."""

_T = TypeVar("_T")
_R = TypeVar("_R")


async def for_each(call: Callable[[_T], Awaitable[_R]], items: Iterable[_T]) -> list[_R]:
    """Call ``call`` for each item, for some items at a time. Return the results in the order of the
    items.
    """
    waiting = [*items]
    results: list[_R] = []
    for at in range(0, len(waiting), CALLS_AT_ONCE):
        results += await asyncio.gather(*map(call, waiting[at : at + CALLS_AT_ONCE]))
    return results


class FencedBatch:
    """Collects operations, and sends them in transactions that begin with the same checks."""

    def __init__(self, session: ZooKeeperSession, guard: Sequence[CheckNode]) -> None:
        self.session = session
        self._guard = guard
        self._operations: list[Operation] = []
        self._free_bytes = self._room = MAX_REQUEST_BYTES - sum(map(size_of, guard))

    async def add(self, *operations: Operation) -> None:
        """Add operations that must be in one transaction. If they do not fit into the present
        transaction, first send the earlier operations.
        """
        size = sum(map(size_of, operations))
        if size > self._free_bytes:
            await self.send()
        self._operations += operations
        self._free_bytes -= size

    async def send(self) -> None:
        """Send the operations added so far. Raises TransactionRefused if one fails, and
        OutcomeUnknown if the connection breaks.
        """
        operations, self._operations = self._operations, []
        self._free_bytes = self._room
        if operations:
            await self.session.transact(*self._guard, *operations)


async def write_values(batch: FencedBatch, values: Sequence[tuple[str, bytes | None]]) -> None:
    """Add to the batch the operations that replace the values of znodes. A znode with None is
    deleted.
    """
    old = await for_each(lambda each: _children(batch.session, each[0]), values)
    for (path, data), names in zip(values, old, strict=True):
        parts = [f"{path}/{name}" for name in names or ()]
        if data is None:
            if names is not None:
                await _delete_value(batch, path, parts)
            continue
        is_new = names is None
        if len(data) > PART_BYTES or data.startswith(IN_PARTS):
            if parts:
                parts = await _without_leftovers(batch, path, parts)
            data = await _write_parts(batch, path, data, is_new=is_new)
            is_new = False
        await batch.add(CreateNode(path, data) if is_new else SetNode(path, data))
        await _delete(batch, parts)


async def _delete(batch: FencedBatch, paths: Iterable[str]) -> None:
    """Add the deletion of some znodes to the batch. They may be deleted in several transactions."""
    for path in paths:
        await batch.add(DeleteNode(path))


async def _delete_value(batch: FencedBatch, path: str, parts: Sequence[str]) -> None:
    if parts:  # a reader of the znode must not ask for parts of which some are deleted already
        await batch.add(SetNode(path, NO_VALUE))
    await _delete(batch, [*parts, path])


async def _without_leftovers(batch: FencedBatch, path: str, parts: Sequence[str]) -> list[str]:
    """Add the deletion of those parts that the present value does not have. Return the others.

    Each interrupted write leaves parts behind. If the writes of a large value were interrupted
    again and again, these parts would fill the server's memory.
    """
    version = _version_of((await batch.session.get(path)).data)
    valid = [part for part in parts if part.startswith(f"{path}/{version}.")]
    await _delete(batch, [part for part in parts if part not in valid])
    return valid


def _version_of(data: bytes) -> str:
    """Return the version of a value that is in parts; "" for any other value."""
    if not data.startswith(IN_PARTS):
        return ""
    return data.removeprefix(IN_PARTS).decode(errors="replace").partition(" ")[0]


async def _write_parts(batch: FencedBatch, path: str, data: bytes, *, is_new: bool) -> bytes:
    """Write the parts of a value, and return the content for the znode itself. If ``is_new``,
    create the znode first.
    """
    version = uuid.uuid4().hex
    if is_new:
        await batch.add(CreateNode(path, IN_PARTS + f"{version} 0".encode()))
    starts = range(0, len(data), VALUE_PART_BYTES)
    for number, at in enumerate(starts):
        await batch.add(CreateNode(f"{path}/{version}.{number}", data[at : at + VALUE_PART_BYTES]))
        await batch.send()
    return IN_PARTS + f"{version} {len(starts)}".encode()


async def read_value(session: ZooKeeperSession, path: str) -> bytes | None:
    """Return the value of a znode, or None if there is none. Raises StoreRefused if a part is
    missing.
    """
    for _ in range(READ_TRIES):
        try:
            data = (await session.get(path)).data
            if not data.startswith(IN_PARTS):
                return data
        except NodeMissing:
            return None
        try:
            version, count = data.removeprefix(IN_PARTS).decode().split()
            parts = [f"{path}/{version}.{number}" for number in range(int(count))]
            found = await for_each(session.get, parts)
        except NodeMissing:
            continue
        except ValueError:
            break
        if found:
            return b"".join(node.data for node in found)
        return None  # the first write of this value was interrupted
    raise StoreRefused(f"the value of {path} cannot be read: its parts are missing")


async def _children(session: ZooKeeperSession, path: str) -> tuple[str, ...] | None:
    try:
        return (await session.children(path)).names
    except NodeMissing:
        return None
