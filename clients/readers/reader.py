"""A reader of one partition of Kafka, without a group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from groupkeeper.clients.readers.brokers import Brokers, KafkaSecurity
from groupkeeper.clients.readers.closing import Closing, raise_all
from groupkeeper.clients.readers.message import MOST_OFFSET
from groupkeeper.clients.readers.message_iter import Guard, PartitionIter, closed
from groupkeeper.clients.readers.partition_log import EARLIEST, LATEST, FetchLimits, PartitionLog

CLIENT_ID = "groupkeeper-reader"
MOST_BUFFER = 1_000_000
"""The largest number of messages that may be buffered. A larger number is probably a mistake, and
needs too much memory."""


class Reader(Closing):
    """Reads one partition, from any offset and any number of times.

    Each iterator has its own connection, so no iterator waits for another. An iterator connects
    when its first message is requested.
    """

    def __init__(  # noqa: PLR0913 - what a Fetch has, by its names
        self,
        brokers: str | Sequence[str],
        topic: str,
        partition: int,
        buffer: int = 0,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 1_048_576,
        *,
        give_up_ms: int | None = None,
        security: KafkaSecurity | None = None,
        client_id: str = CLIENT_ID,
    ) -> None:
        if not 0 <= buffer <= MOST_BUFFER:
            raise ValueError(f"buffer is {buffer}: must be 0 to {MOST_BUFFER} messages")
        if partition < 0:
            raise ValueError(f"partition is {partition}: must be 0 or more")
        if not topic:
            raise ValueError("no topic is named")
        self.topic = topic
        self.partition = partition
        self._buffer = buffer
        self._limits = FetchLimits(max_wait_ms, min_bytes, max_bytes, give_up_ms)
        self._brokers = Brokers(brokers, security, client_id, max_wait_ms)
        self._open: set[PartitionIter] = set()
        self.is_closed = False

    def read(self, offset: int = EARLIEST) -> PartitionIter:
        """Return a new iterator that starts at ``offset``.

        By default it starts at the first message of the partition. LATEST starts after the last
        one. The iterator raises NoSuchTopic, NoSuchPartition, OffsetOutOfRange, CannotRead and
        NotReachable. This call raises ReaderClosed after a close.
        """
        return self._iterate(checked_start(offset))

    async def close(self) -> None:
        """End every iterator. Raises an ExceptionGroup of the errors that no call has raised."""
        raise_all(await self._end_all())

    async def _end_all(self) -> list[Exception]:
        self.is_closed = True
        ended = await asyncio.gather(*(each.end() for each in list(self._open)))
        return [error for errors in ended for error in errors]

    def _iterate(
        self, start: int | Callable[[], Awaitable[int]], guard: Guard | None = None
    ) -> PartitionIter:
        if self.is_closed:
            raise closed()
        partition_log = PartitionLog(self._brokers, self.topic, self.partition, self._limits)
        iterator = PartitionIter(partition_log, start, self._buffer, self._open.discard, guard)
        self._open.add(iterator)
        return iterator


def checked_start(offset: int) -> int:
    """Return the offset. Raises ValueError if no read can start there."""
    if offset not in (EARLIEST, LATEST) and not 0 <= offset <= MOST_OFFSET:
        raise ValueError(f"offset is {offset}: must be 0 to {MOST_OFFSET}, or EARLIEST or LATEST")
    return offset
