"""Reads a store with several logs, each with seqs of its own, as one stream.

Most stores have one log. Topics of Kafka have one for each shard. A position in such a store is a
seq for each log.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import takewhile
from types import MappingProxyType
from typing import Final, TypeAlias, Unpack

from groupkeeper.storage.event_log.reader import Asked, read_events
from groupkeeper.storage.event_log.source import OpenRows
from groupkeeper.storage.segment_lines import EventDict

Logs: TypeAlias = Mapping[str, OpenRows]
"""The logs of a store by name, each with the function that opens its rows."""

ONLY_LOG: Final = ""
"""The name of the log of a store that has one."""

Position: TypeAlias = Mapping[str, int]
"""For each log the seq of the last event that was read. 0 for a log that is missing here."""

BEGIN: Final[Position] = MappingProxyType({})
"""The position before all events."""


def read_logs(
    logs: Logs,
    after: Position = BEGIN,
    until: Position | None = None,
    **asked: Unpack[Asked],
) -> Generator[EventDict, None, None]:
    """Yield the events behind a position, up to and including the position ``until``.

    The events of each log are in the order of their seqs. Those of several logs are in the order of
    their times, as far as that keeps the order of each. ``read_events`` describes the other
    arguments and the errors. Blocks.
    """
    with ExitStack() as stack:
        streams = []
        for name, open_rows in logs.items():
            events = read_events(open_rows, after.get(name, 0), **asked)
            stack.enter_context(closing(events))
            streams.append(events if until is None else _up_to(events, until.get(name, 0)))
        yield from heapq.merge(*streams, key=lambda event: event["ts_ms"])


def _up_to(events: Iterator[EventDict], last_seq: int) -> Iterator[EventDict]:
    return takewhile(lambda event: event["seq"] <= last_seq, events)


def end_of(logs: Logs) -> Position:
    """Return the position behind all durable events. Raises StoreRefused if there is no store."""
    with ExitStack() as stack:
        opened = {
            name: stack.enter_context(closing(open_rows())) for name, open_rows in logs.items()
        }
        return {name: rows.ends().last_seq for name, rows in opened.items()}
