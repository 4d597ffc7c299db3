"""Topics in memory with the transactions and fences of Kafka, in place of ``KafkaLink``.

``pause`` is awaited before and after each request, so that a test can hold it, fail it, or let
other requests run in between.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from groupkeeper.storage.backends.kafka_topic.link import Fence, Fenced, Read
from groupkeeper.storage.backends.kafka_topic.topics import TopicsLook
from groupkeeper.storage.backends.kafka_topic.written import Message
from groupkeeper.storage.base import StorageError
from groupkeeper.storage.segment_lines import EventDict, decode_line

Pause = Callable[[str, bool], Awaitable[None]]
"""A function of (name of the request, True if it is done)."""


async def no_pause(call: str, is_done: bool) -> None:
    """Wait for one turn of the loop."""
    await asyncio.sleep(0)


@dataclass
class Entry:
    """One message of a partition."""

    key: bytes
    value: bytes | None
    is_open: bool = False
    is_aborted: bool = False


@dataclass
class Transaction:
    """The entries that a transactional id has written in its open transaction, and its epoch."""

    epoch: int = -1
    partitions: set[tuple[str, int]] = field(default_factory=set)
    entries: list[Entry] = field(default_factory=list)
    sequences: Counter[tuple[str, int]] = field(default_factory=Counter)


class FakeKafka:
    """The stored messages. They outlive all connections."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[str, int], list[Entry]] = defaultdict(list)
        self.transactions: dict[str, Transaction] = defaultdict(Transaction)

    def committed(self, topic: str, partition: int) -> list[Entry]:
        return [e for e in self.partitions[topic, partition] if not (e.is_open or e.is_aborted)]

    def events(self, topic: str, partitions: int) -> list[EventDict]:
        """Return all events, partition by partition."""
        return [
            decode_line(entry.value)
            for partition in range(partitions)
            for entry in self.committed(topic, partition)
            if entry.value is not None
        ]

    def check(self, fence: Fence) -> Transaction:
        """Return the transaction of a fence. Raises Fenced if there is a newer one."""
        transaction = self.transactions[fence.transactional_id]
        if transaction.epoch != fence.epoch:
            raise Fenced(f"fake: {fence.transactional_id} has a newer writer")
        return transaction

    def end(self, transaction: Transaction, *, is_aborted: bool) -> None:
        for entry in transaction.entries:
            entry.is_open, entry.is_aborted = False, is_aborted
        transaction.entries.clear()
        transaction.partitions.clear()


class FakeLink:
    """One connection to a cluster."""

    def __init__(self, cluster: FakeKafka, pause: Pause = no_pause) -> None:
        self.cluster = cluster
        self.pause = pause
        self._is_open = False

    async def connect(self, topics: Sequence[str] = ()) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    async def _call(self, name: str, work: Callable[[], Any]) -> Any:
        await self.pause(name, False)
        if not self._is_open:
            raise StorageError("fake: is not connected")
        result = work()
        await self.pause(name, True)
        return result

    async def read(
        self, topic: str, partition: int, position: int = 0, *, only_committed: bool = True
    ) -> AsyncIterator[tuple[int, list[Read]]]:
        entries = self.cluster.partitions[topic, partition]
        end = len(entries)
        while position < end:
            await self.pause("read", False)
            stable = end
            if only_committed:
                held = [at for at, entry in enumerate(entries[:end]) if entry.is_open]
                stable = min(held, default=end)
            found = [
                Read(at, entry.key, entry.value)
                for at, entry in enumerate(entries[position:stable], position)
                if not (only_committed and entry.is_aborted)
            ]
            position = stable
            yield position, found

    async def write(self, topic: str, partition: int, message: Message) -> int:
        def write() -> int:
            self.cluster.partitions[topic, partition].append(Entry(*message))
            return len(self.cluster.partitions[topic, partition]) - 1

        return await self._call("write", write)  # type: ignore[no-any-return]

    async def fence(self, transactional_id: str, timeout_ms: int) -> Fence:
        def fence() -> Fence:
            transaction = self.cluster.transactions[transactional_id]
            self.cluster.end(transaction, is_aborted=True)
            transaction.epoch += 1
            transaction.sequences.clear()
            return Fence(transactional_id, 1, transaction.epoch)

        return await self._call("fence", fence)  # type: ignore[no-any-return]

    async def begin(self, fence: Fence, partitions: Mapping[str, int]) -> None:
        def begin() -> None:
            self.cluster.check(fence).partitions |= {*partitions.items()}

        await self._call("begin", begin)

    async def send(
        self, fence: Fence, topic: str, partition: int, messages: Sequence[Message], sequence: int
    ) -> int:
        def send() -> int:
            transaction = self.cluster.check(fence)
            place = topic, partition
            assert place in transaction.partitions, "the partition is not in the transaction"
            assert transaction.sequences[place] == sequence, "out of sequence"
            transaction.sequences[place] += len(messages)
            entries = [Entry(*message, is_open=True) for message in messages]
            transaction.entries += entries
            self.cluster.partitions[place] += entries
            return sequence + len(messages)

        return await self._call("send", send)  # type: ignore[no-any-return]

    async def commit(self, fence: Fence) -> None:
        def commit() -> None:
            self.cluster.end(self.cluster.check(fence), is_aborted=False)

        await self._call("commit", commit)


class FakeAdmin:
    """An admin client for a cluster that has all topics."""

    def __init__(self, *arguments: object) -> None: ...

    async def prepare_cluster(self) -> None: ...

    async def prepare_shards(self, shards: int) -> None: ...

    async def look(self, shards: int) -> TopicsLook:
        return TopicsLook([], [], [])
