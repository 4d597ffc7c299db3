"""A large value is sent to ZooKeeper in small requests."""

from __future__ import annotations

from typing import Any

from groupkeeper.storage.backends.zookeeper.values import (
    VALUE_PART_BYTES,
    FencedBatch,
    write_values,
)
from groupkeeper.storage.connections.zookeeper_errors import NodeMissing
from groupkeeper.storage.connections.zookeeper_transaction import CreateNode, Operation, size_of


class EmptyServer:
    """A server without nodes, which remembers the requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[Operation, ...]] = []

    async def children(self, path: str) -> None:
        raise NodeMissing(path)

    async def transact(self, *operations: Operation) -> None:
        self.requests.append(operations)


async def test_no_request_for_a_large_value_is_large() -> None:
    """A server has its last 500 requests in memory. 500 of a megabyte would fill its heap."""
    server: Any = EmptyServer()
    data = bytes(range(256)) * 40_000
    batch = FencedBatch(server, [])
    await write_values(batch, [("/large", data)])
    await batch.send()
    sizes = [sum(map(size_of, operations)) for operations in server.requests]
    assert max(sizes) < 2 * VALUE_PART_BYTES
    created = [each for request in server.requests for each in request]
    parts = [each.data for each in created if isinstance(each, CreateNode) and "." in each.path]
    assert b"".join(parts) == data
