"""A host's own store of offsets: four methods over a dict, which may be slow or fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from groupkeeper.storage.backends.metadata_store import GroupOffsets, OffsetAndMetadata
from tests.helpers.storage.faulty_storage import Gate


class DictStore:
    """A synchronous store."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, dict[int, OffsetAndMetadata]]] = {}
        self.calls: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        """Method -> how many of its next calls fail."""

    def store(self, group_id: str, topic: str, partition: int, offset: OffsetAndMetadata) -> None:
        self.called("store")
        self.groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = offset

    def fetch(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        self.called("fetch")
        return self.groups.get(group_id, {}).get(topic, {}).get(partition)

    def fetch_all(self, group_id: str) -> GroupOffsets:
        self.called("fetch_all")
        return self.groups.get(group_id, {})

    def delete(self, group_id: str) -> None:
        self.called("delete")
        self.groups.pop(group_id, None)

    def called(self, method: str) -> None:
        self.calls[method] += 1
        if self.failures[method]:
            self.failures[method] -= 1
            raise ConnectionError(f"{method} failed")


class AsyncDictStore:
    """A store with ``async`` methods. Each call takes a turn of the loop, and reads may wait."""

    def __init__(self) -> None:
        self.inner = DictStore()
        self.gates: list[Gate] = []
        """A gate for each of the next calls of ``fetch_all``."""

    async def store(
        self, group_id: str, topic: str, partition: int, offset: OffsetAndMetadata
    ) -> None:
        await asyncio.sleep(0)
        self.inner.store(group_id, topic, partition, offset)

    async def fetch(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        await asyncio.sleep(0)
        return self.inner.fetch(group_id, topic, partition)

    async def fetch_all(self, group_id: str) -> GroupOffsets:
        if self.gates:
            await self.gates.pop(0).wait()
        await asyncio.sleep(0)
        return self.inner.fetch_all(group_id)

    async def delete(self, group_id: str) -> None:
        await asyncio.sleep(0)
        self.inner.delete(group_id)


class ThreadedDictStore(AsyncDictStore):
    """Writes as threads do (``asyncio.to_thread``): a cancelled call still finishes its work.

    Any write may wait for a gate.
    """

    def __init__(self) -> None:
        super().__init__()
        self.write_gates: list[Gate] = []
        """A gate for each of the next calls of ``store`` and ``delete``."""

    async def store(self, *args: Any) -> None:
        await self._in_a_thread(super().store(*args))

    async def delete(self, group_id: str) -> None:
        await self._in_a_thread(super().delete(group_id))

    async def _in_a_thread(self, call: Coroutine[Any, Any, None]) -> None:
        gate = self.write_gates.pop(0) if self.write_gates else None
        await asyncio.shield(asyncio.ensure_future(_after(gate, call)))


async def _after(gate: Gate | None, call: Coroutine[Any, Any, None]) -> None:
    if gate is not None:
        await gate.wait()
    await call
