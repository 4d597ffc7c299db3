"""The logs of a store as a tree, and the branch on which the store continued (pure).

A log begins with the event ``log_started``. This event names the log that the new log continues,
and the sequence number (``seq``) after which the new log begins. If an older copy of a store is
restored, the tree gets a fork: two logs continue the same log, or a log continues another log from
the middle.

At a fork, the log that began last is valid, together with all logs that it continues. Events of the
other branch are abandoned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class Before(NamedTuple):
    """The predecessor of a log: the log that it continues."""

    log_id: str
    last_seq: int
    """The seq of the last event of ``log_id`` that is still valid."""
    began_ms: int = 0
    """When the log that continues ``log_id`` began (ms since the epoch); 0 if unknown."""


class PutBack(NamedTuple):
    """One restore of an older copy of a store: the copy replaced the store."""

    log_id: str
    """The log that the daemon began when it used the restored copy."""
    before: Before
    abandoned: tuple[tuple[str, int, int], ...]
    """The events that are no longer valid. Each entry is a log, and the first and the last seq of
    its abandoned events.
    """

    def __str__(self) -> str:
        texts = [f"{first} to {last} of log {log_id}" for log_id, first, last in self.abandoned]
        return (
            f"the store was put back to event {self.before.last_seq} of log {self.before.log_id}, "
            f"and log {self.log_id} continues from there: events {', '.join(texts)} no longer count"
        )


@dataclass(frozen=True)
class Branches:
    """All logs of a folder, and which log each one continues."""

    spans: Mapping[str, tuple[int, int]]
    """Maps each log to its first and its last sequence number (seq). If only snapshots of a log are
    left, the last number is below the first.
    """
    befores: Mapping[str, Before]
    """Maps each log to its predecessor. A log that continues no other log has no entry. A log never
    continues itself, not even through other logs.
    """

    def path(self, log_id: str) -> list[str]:
        """Return a log and its predecessors: from this log back to the first log of its store."""
        path = [log_id]
        while (before := self.befores.get(path[-1])) is not None:
            path.append(before.log_id)
        return path

    def limits(self) -> dict[str, int]:
        """Map each log that has abandoned events to its last valid seq. The seq is 0 if all events
        of the log are abandoned.
        """
        return {log_id: limit for path in self._going_on() for log_id, limit in self._of(path)}

    def put_backs(self) -> list[PutBack]:
        """Return each restore of an older copy of a store after which events were abandoned. The
        oldest restore of each store is first.
        """
        found = []
        for path in self._going_on():
            heirs = {before: log_id for log_id, before in pairwise(path)}
            abandoned = defaultdict(list)
            for log_id, limit in sorted(self._of(path)):
                at = next(each for each in self.path(log_id) if each in path)
                first, last = self.spans[log_id]
                if first <= last:  # abandoned events exist, not only snapshots
                    abandoned[heirs[at]].append((log_id, max(limit + 1, first), last))
            found += [
                PutBack(log_id, self.befores[log_id], tuple(abandoned[log_id]))
                for log_id in reversed(path)
                if log_id in abandoned
            ]
        return found

    def _going_on(self) -> Iterator[list[str]]:
        """Yield the valid logs of each store, from the log that began last to the first log."""
        continued = {before.log_id for before in self.befores.values()}
        newest: dict[str, tuple[int, int, str]] = {}
        for log_id in self.spans.keys() - continued:
            path = self.path(log_id)
            said = (self.befores[each].began_ms for each in path if each in self.befores)
            began_ms = next(filter(None, said), 0)
            candidate = (began_ms, self.spans[log_id][0], log_id)
            newest[path[-1]] = max(newest.get(path[-1], candidate), candidate)
        for _, (_, _, log_id) in sorted(newest.items()):
            yield self.path(log_id)

    def _of(self, path: list[str]) -> Iterator[tuple[str, int]]:
        """Yield each log with abandoned events, and its last valid seq. ``path`` has the valid logs
        of one store, from the newest to the first.
        """
        ends = {before: self.befores[log_id].last_seq for log_id, before in pairwise(path)}
        for log_id, (_, last) in self.spans.items():
            if log_id != path[0] and self.path(log_id)[-1] == path[-1]:
                limit = ends.get(log_id, 0)
                if limit < last:
                    yield log_id, limit
