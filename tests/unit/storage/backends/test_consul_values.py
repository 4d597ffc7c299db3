"""Large values in Consul, whose writes are interrupted."""

from __future__ import annotations

import pytest

from groupkeeper.storage.backends.consul.keys import StoreKeys
from groupkeeper.storage.backends.consul.operations import Operation, check
from groupkeeper.storage.backends.consul.values import (
    VALUE_PART_BYTES,
    ConsulBatch,
    Parts,
    read_values,
)
from groupkeeper.storage.connections.consul import MOST_OPERATIONS, ConsulEntry
from groupkeeper.storage.connections.consul_errors import ConsulUnavailable, TransactionFailed

KEYS = StoreKeys("kafka")
LIFE, MARK = KEYS.life("life"), KEYS.fold("life")
GROUP = KEYS.value(0, True, "g")
PARTS = 4
OLD, NEW = (bytes([number]) * (PARTS * VALUE_PART_BYTES) for number in (1, 2))


class Server:
    """The transactions of one agent."""

    def __init__(self) -> None:
        self.values = {LIFE: b"", MARK: b""}
        self.transactions_left = -1
        """After so many transactions nobody answers. -1: never."""

    async def execute(self, *operations: Operation) -> list[ConsulEntry]:
        assert len(operations) <= MOST_OPERATIONS
        if not self.transactions_left:
            raise ConsulUnavailable("no answer")
        self.transactions_left -= 1
        absent = {
            position: "missing"
            for position, operation in enumerate(operations)
            if operation["Verb"] == "get" and operation["Key"] not in self.values
        }
        if absent:
            raise TransactionFailed(absent)
        found = []
        for operation in operations:
            key = operation["Key"]
            match operation["Verb"]:
                case "cas" | "set":
                    self.values[key] = operation["Value"]
                case "delete":
                    self.values.pop(key, None)
                case "delete-tree":
                    for each in self.below(key):
                        del self.values[each]
            if key in self.values:
                found.append(ConsulEntry(key, self.values[key], 1, None))
        return found

    def below(self, prefix: str) -> list[str]:
        return [key for key in self.values if key.startswith(prefix)]

    async def write(self, data: bytes | None) -> None:
        batch = ConsulBatch(self, check(LIFE, 1), MARK, 1)  # type: ignore[arg-type]
        await Parts(KEYS, self.below(KEYS.parts)).replace(batch, [(GROUP, data)])
        await batch.send()

    async def read(self) -> bytes | None:
        found = await read_values(self, KEYS, [GROUP])  # type: ignore[arg-type]
        return found.get(GROUP)


async def test_interrupted_writes_of_a_large_value_leave_the_parts_of_one_behind() -> None:
    server = Server()
    await server.write(OLD)
    for _ in range(MOST_OPERATIONS):
        server.transactions_left = PARTS - 1
        with pytest.raises(ConsulUnavailable):
            await server.write(NEW)
        server.transactions_left = -1
        assert await server.read() == OLD
        assert len(server.below(KEYS.parts)) < 2 * PARTS
    await server.write(NEW)
    assert await server.read() == NEW
    assert len(server.below(KEYS.parts)) == PARTS
    await server.write(None)
    assert not server.below(KEYS.parts)


async def test_parts_of_many_interrupted_writes_are_removed() -> None:
    """An older version has left them."""
    server = Server()
    for number in range(2 * MOST_OPERATIONS):
        server.values[f"{KEYS.parts_of(GROUP)}{number:032x}.0"] = b""
    await server.write(NEW)
    assert await server.read() == NEW
    assert len(server.below(KEYS.parts)) == PARTS
