"""Reads a store with several logs as one stream. Each log has its own sequence numbers (seqs).

A file has one log. In PostgreSQL, ZooKeeper and Consul each node has one, in topics of Kafka each
shard. A position in such a store is a seq for each log.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from itertools import takewhile
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeAlias, Unpack

from groupkeeper.storage.event_log.merging import by_epochs, by_times
from groupkeeper.storage.event_log.reader import Asked, read_events
from groupkeeper.storage.event_log.source import OpenRows
from groupkeeper.storage.segment_lines import EventDict

Logs: TypeAlias = Mapping[str, OpenRows]
"""The logs of a store by name, each with the function that opens its rows."""

ONLY_LOG: Final = ""
"""The name of the log in a store that always has exactly one log."""

Position: TypeAlias = Mapping[str, int]
"""For each log the seq of the last event that was read. 0 for a log that is missing here."""

BEGIN: Final[Position] = MappingProxyType({})
"""The position before all events."""

AskedIn: TypeAlias = Callable[[str], Asked]
"""Returns, for the name of a log, the arguments of ``read_events`` that only this log has."""


class LogStore(Protocol):
    """The logs of a store, for a reader that is not the process that writes them."""

    @property
    def has_files(self) -> bool:
        """False if no event was moved into a file. Then retention deletes the oldest events. May
        connect to the store.
        """

    @property
    def is_shared(self) -> bool:
        """True if the store is on a server. There, retention may delete events that no file has."""

    def logs(self) -> Logs:
        """Return the logs that the store has now. A later call may return more, because a new node
        adds a log. Raises StoreRefused if there is no store.
        """

    def store_name(self, log: str) -> str:
        """Return the name of the store for files of this log (``store_names``). Return "" if the
        rows of the log have the name (``LogNote.store``).
        """

    def kept_open(self) -> AbstractContextManager[None]:
        """Return a context in which all reads use one connection."""


class OneLog(NamedTuple):
    """A store with one log."""

    open_rows: OpenRows
    has_files: bool = True
    is_shared: bool = False

    def logs(self) -> Logs:
        return {ONLY_LOG: self.open_rows}

    def store_name(self, log: str) -> str:
        return ""

    def kept_open(self) -> AbstractContextManager[None]:
        return nullcontext()


def _same_in_each(name: str) -> Asked:
    return {}


def read_logs(
    logs: Logs,
    after: Position = BEGIN,
    until: Position | None = None,
    asked_in: AskedIn = _same_in_each,
    **asked: Unpack[Asked],
) -> Generator[EventDict, None, None]:
    """Yield the events after the position ``after``, up to and including the position ``until``.

    The events of each log are in the order of their seqs. With ``group_id``, events of different
    logs are in the order of their lease epochs, which is the order in which they happened. Without
    it, they are in the order of their times, unless this would mix up the events of a shard
    (``merging.by_times``). ``read_events`` describes the other arguments and the errors. Blocks.
    """
    with ExitStack() as stack:
        streams = []
        for name, open_rows in logs.items():
            events = read_events(open_rows, after.get(name, 0), **asked | asked_in(name))
            stack.enter_context(closing(events))
            streams.append(events if until is None else _up_to(events, until.get(name, 0)))
        is_one_group = asked.get("group_id") is not None
        yield from by_epochs(streams) if is_one_group else by_times(streams)


def _up_to(events: Iterator[EventDict], last_seq: int) -> Iterator[EventDict]:
    return takewhile(lambda event: event["seq"] <= last_seq, events)


def end_of(logs: Logs) -> Position:
    """Return the position after all durable events. Raises StoreRefused if there is no store."""
    with ExitStack() as stack:
        opened = {
            name: stack.enter_context(closing(open_rows())) for name, open_rows in logs.items()
        }
        return {name: rows.ends().last_seq for name, rows in opened.items()}
