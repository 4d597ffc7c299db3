"""A large value is sent to ZooKeeper in small requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from groupkeeper.storage.backends.zookeeper.values import (
    VALUE_PART_BYTES,
    FencedBatch,
    read_value,
    write_values,
)
from groupkeeper.storage.connections.zookeeper import MAX_REQUEST_BYTES
from groupkeeper.storage.connections.zookeeper_errors import NodeMissing, OutcomeUnknown
from groupkeeper.storage.connections.zookeeper_transaction import (
    CreateNode,
    DeleteNode,
    Operation,
    SetNode,
    size_of,
)


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


class Server:
    """A server with nodes, which accepts only requests that ZooKeeper accepts."""

    def __init__(self) -> None:
        self.nodes: dict[str, bytes] = {}
        self.transactions_left = -1
        """After so many transactions the connection breaks. -1: never."""

    async def get(self, path: str) -> Any:
        if path not in self.nodes:
            raise NodeMissing(path)
        return SimpleNamespace(data=self.nodes[path])

    async def children(self, path: str) -> Any:
        await self.get(path)
        begin = f"{path}/"
        names = (each.removeprefix(begin) for each in self.nodes if each.startswith(begin))
        return SimpleNamespace(names=tuple(names))

    async def transact(self, *operations: Operation) -> None:
        assert sum(map(size_of, operations)) <= MAX_REQUEST_BYTES
        if not self.transactions_left:
            raise OutcomeUnknown("the connection is lost")
        self.transactions_left -= 1
        for operation in operations:
            match operation:
                case CreateNode(path, data):
                    assert path not in self.nodes
                    self.nodes[path] = data
                case SetNode(path, data):
                    assert path in self.nodes
                    self.nodes[path] = data
                case DeleteNode(path):
                    assert not (await self.children(path)).names
                    del self.nodes[path]

    async def write(self, path: str, data: bytes | None) -> None:
        batch = FencedBatch(self, [])  # type: ignore[arg-type]
        await write_values(batch, [(path, data)])
        await batch.send()

    async def read(self, path: str) -> bytes | None:
        return await read_value(self, path)  # type: ignore[arg-type]


LONG_NAME = "g" * 32_000
PARTS = 40


@pytest.mark.parametrize("path", [f"/{LONG_NAME}", "/g"], ids=["long name", "short name"])
async def test_a_large_value_with_a_long_name_is_replaced_and_deleted(path: str) -> None:
    """The deletion of its parts may be larger than a request."""
    server = Server()
    for digit in b"12":
        data = bytes([digit]) * (PARTS * VALUE_PART_BYTES)
        await server.write(path, data)
        assert await server.read(path) == data
        assert len(server.nodes) == 1 + PARTS
    await server.write(path, b"small")
    assert server.nodes == {path: b"small"}
    await server.write(path, bytes(PARTS * VALUE_PART_BYTES))
    await server.write(path, None)
    assert not server.nodes


async def test_a_deletion_that_is_interrupted_leaves_a_value_or_none() -> None:
    path = f"/{LONG_NAME}"
    data = bytes(PARTS * VALUE_PART_BYTES)
    found = []
    for count in range(3):
        server = Server()
        await server.write(path, data)
        server.transactions_left = count
        try:
            await server.write(path, None)
        except OutcomeUnknown:
            found.append(await server.read(path))
        server.transactions_left = -1
        await server.write(path, None)
        assert not server.nodes
    assert found == [data, None]


async def test_interrupted_writes_of_a_large_value_leave_the_parts_of_one_behind() -> None:
    server = Server()
    old, new = bytes(PARTS * VALUE_PART_BYTES), b"n" * (PARTS * VALUE_PART_BYTES)
    await server.write("/g", old)
    for _ in range(5):
        server.transactions_left = PARTS
        with pytest.raises(OutcomeUnknown):
            await server.write("/g", new)
        assert await server.read("/g") == old
        assert len(server.nodes) <= 1 + 2 * PARTS
    server.transactions_left = -1
    await server.write("/g", new)
    assert await server.read("/g") == new
    assert len(server.nodes) == 1 + PARTS
