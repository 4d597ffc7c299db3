"""A partition without a broker, for tests of iterators."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from groupkeeper.clients.readers.message import Message
from groupkeeper.clients.readers.message_iter import MessageIter, PartitionIter
from groupkeeper.clients.readers.partition_log import EARLIEST, Batches


def message(offset: int, partition: int = 0) -> Message:
    """Return the message at this offset."""
    return Message("events", partition, offset, None, b"%d" % offset, 0, ())


class FakeBatches:
    """Messages in batches of two."""

    def __init__(self, messages: list[Message], offset: int) -> None:
        self._messages = messages
        self.next_offset = offset

    def has_more(self) -> bool:
        return bool(self._messages)

    def unpack(self) -> Sequence[Message]:
        batch, self._messages = self._messages[:2], self._messages[2:]
        self.next_offset = batch[-1].offset + 1
        return batch


class FakeLog:
    """A partition with ``end`` messages. A fetch returns ten of them. At the end it waits half a
    second.
    """

    def __init__(self, end: int = 100, partition: int = 0) -> None:
        self.end = end
        self.asked: list[int] = []
        self.unsolved: dict[str, Exception] = {}
        self.error: Exception | None = None
        self.is_closed = False
        self._partition = partition

    async def fetch(self, offset: int) -> Batches:
        self.asked.append(offset)
        await asyncio.sleep(0.01 if offset < self.end else 0.5)
        if self.error is not None:
            raise self.error
        last = min(offset + 10, self.end)
        found = [message(n, self._partition) for n in range(offset, last)]
        return cast("Batches", FakeBatches(found, offset))

    async def find(self, where: int) -> int:
        return 7 if where == EARLIEST else self.end

    async def close(self) -> None:
        self.is_closed = True


def iterate(log: FakeLog, start: int = 0, buffer: int = 0) -> PartitionIter:
    """Return an iterator over the messages of a log."""
    return PartitionIter(log, start, buffer, lambda _: None)


async def take(iterator: MessageIter, count: int) -> list[int]:
    """Return the offsets of the next messages."""
    return [(await anext(iterator)).offset for _ in range(count)]
