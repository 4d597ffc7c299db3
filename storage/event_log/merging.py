"""Merges the logs of a store into one stream (pure).

A shard has one owner at a time, and each owner gets a higher epoch. So epochs give the order of the
events of a shard in different logs. Times do not: two nodes have two clocks.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from groupkeeper.storage.event_log.snapshot_logs import SNAPSHOT_KIND
from groupkeeper.storage.segment_lines import EventDict

CLOCKS_DIFFER_MS: Final = 60_000
"""The largest difference between the clocks of two nodes that ``by_times`` allows for. When a shard
changes its owner, ``by_times`` has the events of this time in memory."""


def by_epochs(streams: Sequence[Iterator[EventDict]]) -> Iterator[EventDict]:
    """Merge events of one group by the epochs of their leases."""
    return heapq.merge(*streams, key=lambda event: event["lease_epoch"])


def by_times(streams: Sequence[Iterator[EventDict]]) -> Iterator[EventDict]:
    """Merge events of many groups by their times. The events of each shard are nevertheless in the
    order of their lease epochs.
    """
    if len(streams) == 1:
        yield from streams[0]
        return
    ahead = [each for each in map(_Ahead, streams) if each.head() is not None]
    reached: dict[int, int] = {}
    """For each shard an epoch. No stream has an event of the shard with a lower epoch."""
    while ahead:
        stream = min(ahead, key=_Ahead.ts_ms)
        seen = [stream]
        while (earlier := _with_earlier(stream, ahead, reached)) not in (None, *seen):
            assert earlier is not None
            stream = earlier
            seen.append(stream)
        yield stream.next()
        if stream.head() is None:
            ahead.remove(stream)


def _with_earlier(
    stream: _Ahead, others: Sequence[_Ahead], reached: dict[int, int]
) -> _Ahead | None:
    """Return another stream that must be read before ``stream``. Return None if there is none.

    The next event of ``stream`` belongs to a shard. The other stream has an event of the same shard
    with a lower lease epoch.
    """
    event = stream.first()
    shard, epoch = event["shard"], event["lease_epoch"]
    if epoch <= reached.get(shard, -1) or event["kind"] == SNAPSHOT_KIND:
        return None
    for other in others:
        if other is not stream and other.has_earlier(shard, epoch, event["ts_ms"]):
            return other
    reached[shard] = epoch
    return None


class _Ahead:
    """A stream, and the events of it that were read ahead."""

    def __init__(self, events: Iterator[EventDict]) -> None:
        self._events = events
        self._read: deque[EventDict] = deque()

    def head(self) -> EventDict | None:
        """Return the next event; None at the end."""
        if not self._read:
            self._read.extend(_next_of(self._events))
        return self._read[0] if self._read else None

    def first(self) -> EventDict:
        """Return the next event. The caller has checked with ``head`` that there is one."""
        return self._read[0]

    def ts_ms(self) -> int:
        """Return the time of the next event."""
        ts_ms: int = self._read[0]["ts_ms"]
        return ts_ms

    def next(self) -> EventDict:
        return self._read.popleft()

    def has_earlier(self, shard: int, epoch: int, ts_ms: int) -> bool:
        """Return True if this stream has an event of the shard with a lower epoch. Read ahead up to
        ``CLOCKS_DIFFER_MS`` after ``ts_ms``.
        """
        while self._read[-1]["ts_ms"] <= ts_ms + CLOCKS_DIFFER_MS:
            more = _next_of(self._events)
            if not more:
                break
            self._read.extend(more)
        return any(
            each["shard"] == shard
            and each["lease_epoch"] < epoch
            and each["kind"] != SNAPSHOT_KIND  # its shard is always -1, not that of its group
            for each in self._read
        )


def _next_of(events: Iterator[EventDict]) -> list[EventDict]:
    event = next(events, None)
    return [] if event is None else [event]
