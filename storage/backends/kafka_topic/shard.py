"""The state of a shard that this process writes to topics of Kafka: fence, keys and event log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from groupkeeper.storage.backends.kafka_topic import own
from groupkeeper.storage.backends.kafka_topic.link import MESSAGES_A_TURN, Fence
from groupkeeper.storage.backends.kafka_topic.written import Message, ShardKeys, reads_groups
from groupkeeper.storage.base import Batch, ShardAppend, ShardId
from groupkeeper.storage.codec.events import count_events
from groupkeeper.storage.codec.records import encode_payload
from groupkeeper.storage.event_log.lines import row_lines
from groupkeeper.storage.event_log.log_clock import LogClock
from groupkeeper.storage.event_log.store_names import StoreName
from groupkeeper.storage.turns import in_turns

_FIRST_SEQ: Final = 1
_LARGE_LINE_BYTES: Final = 64 * 1024
"""After a line of this size, other tasks of the loop run. A commit of 20,000 partitions is a line
of 400 KB."""


class ShardLog:
    """The event log of one shard, as this process writes it. Each shard has its own log id and
    sequence numbers (seqs).
    """

    def __init__(
        self, clock: Callable[[], int], new_log_id: Callable[[], str], store: StoreName
    ) -> None:
        """``store`` is the name of the store, with the shard."""
        self.next_seq = _FIRST_SEQ
        self._store = str(store)
        self._clock = LogClock(clock, new_log_id)
        self._written: set[str] = set()
        """The ids of the logs to which this object has written events."""
        self._end: own.ShardLogEnd | None = None
        self._is_loaded = False

    def loaded(self, end: own.ShardLogEnd | None) -> None:
        """Continue after the last event that a load found; None if the shard has no event yet."""
        is_first, self._is_loaded = not self._is_loaded, True
        if end == self._end and not is_first:
            return
        self._end = end
        self.next_seq = _FIRST_SEQ if end is None else end.next_seq
        if end is not None and end.log_id in self._written:
            self._clock.resume(end.log_id, end.ts_ms)
        elif end is not None:
            self._clock.begin(end.log_id, end.ts_ms)
        elif not is_first:
            self._clock.begin(None)
        self._clock.store = self._store

    async def messages(self, item: ShardAppend) -> tuple[list[Message], own.ShardLogEnd | None]:
        """Return the events of an append as messages, and the end of the log after them. The end
        is None if the append has no events. Other tasks of the loop run in between.
        """
        if not any(count_events(batch.records, batch.events) for batch in item.batches):
            return [], None
        stamp = self._clock.stamp()
        started = self._clock.started(self.next_seq - 1)
        if started is not None:
            item = item._replace(batches=[Batch([], [started]), *item.batches])
        messages: list[Message] = []
        for group_id, line in row_lines(self.next_seq, encode_payload(stamp, 0, [item])).lines:
            messages.append((group_id.encode(), line))
            if len(line) > _LARGE_LINE_BYTES:
                await asyncio.sleep(0)
        next_seq = self.next_seq + len(messages)
        return messages, own.ShardLogEnd(stamp.log_id, next_seq, stamp.ts_ms, self._clock.store)

    def written(self, end: own.ShardLogEnd) -> None:
        """Record that the events up to this end are durable."""
        self._end = end
        self._written.add(end.log_id)
        self._clock.written()
        self.next_seq = end.next_seq


class HeldShard:
    """A shard that this process has acquired."""

    def __init__(self, shard: ShardId, log: ShardLog) -> None:
        self.shard = shard
        self.log = log
        self.fence: Fence | None = None
        """None until the shard is acquired, and after an append that may or may not be stored."""
        self.keys: ShardKeys | None = None
        """None until the shard is loaded."""
        self.sequences: dict[str, int] = {}
        """The next sequence number of the producer in each topic."""

    def fenced(self, fence: Fence) -> None:
        """Begin to write under a new fence, after the next load. Its sequence numbers begin at
        0.
        """
        self.fence = fence
        self.keys = None
        self.sequences = {}

    def begin_write(self, item: ShardAppend) -> Iterable[Message]:
        """Return the messages of the records of an append. If they depend on the state of groups,
        they are made now, before the groups change again.
        """
        assert self.keys is not None
        messages = self.keys.messages(item)
        return [*messages] if reads_groups(item) else messages

    async def messages(
        self, item: ShardAppend, state: Iterable[Message]
    ) -> tuple[list[Message], list[Message], own.ShardLogEnd | None]:
        """Return all messages of an append: its records, which are in ``state``, and its events.
        Also return the end of the event log after these events; None if there are no events.

        Other tasks of the loop run in between: a client may commit 20,000 partitions.
        """
        newest = [message async for message in in_turns(state, MESSAGES_A_TURN)]
        events, end = await self.log.messages(item)
        if end is not None:
            newest.append((own.LOG_END_KEY, own.encode_end(end)))
        return newest, events, end
