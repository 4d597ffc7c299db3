"""The state that a store keeps of one shard that it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from groupkeeper.coordinator.core.events import LogStarted
from groupkeeper.storage.backends.kafka_topic import own
from groupkeeper.storage.backends.kafka_topic.link import Fence
from groupkeeper.storage.backends.kafka_topic.written import Message, ShardKeys
from groupkeeper.storage.base import ShardAppend, ShardId
from groupkeeper.storage.codec.events import batch_events, event_dict
from groupkeeper.storage.event_log.log_clock import LogClock
from groupkeeper.storage.segment_lines import encode_line

_FIRST_SEQ: Final = 1


class ShardLog:
    """The event log of one shard in this life. It has its own log id and its own seqs."""

    def __init__(self, clock: Callable[[], int], new_log_id: Callable[[], str]) -> None:
        self.next_seq = _FIRST_SEQ
        self._clock = LogClock(clock, new_log_id)
        self._written: set[str] = set()
        """The logs that this life has begun here."""
        self._end: own.ShardLogEnd | None = None
        self._is_loaded = False

    def loaded(self, end: own.ShardLogEnd | None) -> None:
        """Go on behind what a load found."""
        is_first, self._is_loaded = not self._is_loaded, True
        if end == self._end and not is_first:
            return
        self._end = end
        self.next_seq = _FIRST_SEQ if end is None else end.next_seq
        if end is not None and end.log_id in self._written:
            self._clock.resume(end.log_id, end.ts_ms)
        elif end is not None:
            self._clock.begin(end.log_id, end.ts_ms, store=end.store)
        elif not is_first:
            self._clock.begin(None, store="")

    def messages(self, item: ShardAppend) -> tuple[list[Message], own.ShardLogEnd | None]:
        """Return the events of an append as messages, and the end of the log behind them. None
        means that there are none.
        """
        stamp = self._clock.stamp()
        events: list[object] = []
        for batch in item.batches:
            events += batch_events(batch.records, batch.events)
        if not events:
            return [], None
        started: LogStarted | None = self._clock.started(self.next_seq - 1)
        if started is not None:
            events.insert(0, started)
        messages: list[Message] = []
        for seq, event in enumerate(events, self.next_seq):
            row = event_dict(stamp, seq, item.shard, item.fence, event)  # type: ignore[arg-type]
            messages.append((str(row["group"]).encode(), encode_line(row)))
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
        """None until the shard is acquired, and after an append in doubt."""
        self.keys: ShardKeys | None = None
        """None until the shard is loaded."""
        self.sequences: dict[str, int] = {}
        """The next sequence number of the producer in each topic."""

    def fenced(self, fence: Fence) -> None:
        """Begin to write under a new fence. Its batches count from 0."""
        self.fence = fence
        self.keys = None
        self.sequences = {}
