"""The logs of a store as a tree, and the branch of it that the store went on with (pure).

A log names the one that it continues, and at which ``seq`` (``log_started``). When an older copy of
a store is put in its place, its next log continues a log before that one's end, or beside another.
The log that began last counts, with all that it continues; what the others hold is abandoned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class Before(NamedTuple):
    """What a log continues."""

    log_id: str
    last_seq: int
    """The last event of that log which is of the store still."""
    began_ms: int = 0
    """When the log began that continues it; 0 where it does not say so."""


class PutBack(NamedTuple):
    """Where an older copy took the place of a store."""

    log_id: str
    """The log that goes on."""
    before: Before
    abandoned: tuple[tuple[str, int, int], ...]
    """Logs, and the first and last seq of what does not count of each."""

    def __str__(self) -> str:
        """Say it to a person, in one line."""
        texts = [f"{first} to {last} of log {log_id}" for log_id, first, last in self.abandoned]
        return (
            f"the store was put back to event {self.before.last_seq} of log {self.before.log_id}, "
            f"and log {self.log_id} goes on from there: events {', '.join(texts)} count no more"
        )


@dataclass(frozen=True)
class Branches:
    """What is known of all logs."""

    spans: Mapping[str, tuple[int, int]]
    """The first and last seq of each log."""
    befores: Mapping[str, Before]
    """Of the logs that continue another. No log comes before itself."""

    def path(self, log_id: str) -> list[str]:
        """Return a log and all that it continues, up to the first of its store."""
        path = [log_id]
        while (before := self.befores.get(path[-1])) is not None:
            path.append(before.log_id)
        return path

    def limits(self) -> dict[str, int]:
        """Return the last seq that counts of each log that has others; 0 where none does."""
        return {log_id: limit for path in self._going_on() for log_id, limit in self._of(path)}

    def put_backs(self) -> list[PutBack]:
        """Return where older copies took the place of a store, in the order of the logs."""
        found = []
        for path in self._going_on():
            heirs = {before: log_id for log_id, before in pairwise(path)}
            abandoned = defaultdict(list)
            for log_id, limit in sorted(self._of(path)):
                at = next(each for each in self.path(log_id) if each in path)
                first, last = self.spans[log_id]
                if first <= last:  # there is more of it than snapshots
                    abandoned[heirs[at]].append((log_id, max(limit + 1, first), last))
            found += [
                PutBack(log_id, self.befores[log_id], tuple(abandoned[log_id]))
                for log_id in reversed(path)
                if log_id in abandoned
            ]
        return found

    def _going_on(self) -> Iterator[list[str]]:
        """Yield the path of the log that each store went on with."""
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
        """Yield the logs of a store that hold what does not count, with the last seq that does."""
        ends = {before: self.befores[log_id].last_seq for log_id, before in pairwise(path)}
        for log_id, (_, last) in self.spans.items():
            if log_id != path[0] and self.path(log_id)[-1] == path[-1]:
                limit = ends.get(log_id, 0)
                if limit < last:
                    yield log_id, limit
