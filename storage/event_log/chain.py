"""The logs of a store as a chain: each begins with where the one before it ended (pure).

So a log's end is known once the next one has begun: what is missing there is found, though no
number after it is. Two logs that begin behind the same one tell that an older copy of the store was
put in its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from groupkeeper.storage.event_log.segments import LogBegin
from groupkeeper.storage.event_log.snapshots import parse_snapshot_log


class MissingEnd(NamedTuple):
    """The last events of a log are in no file."""

    log_id: str
    first_seq: int
    last_seq: int


class Fork(NamedTuple):
    """A log that goes on before the end of the one that it names."""

    log_id: str
    previous_log_id: str
    previous_seq: int
    abandoned: str
    """What was written after that, for a person."""


@dataclass(frozen=True)
class Chain:
    """What is known of all logs of a directory."""

    begins: Mapping[str, LogBegin]
    """The beginning of each log that tells one."""
    ends: Mapping[str, int]
    """The last seq that is known of each log, in a file or lost for good."""
    snapshots: Collection[str]
    """The logs of snapshots."""
    listed: Mapping[str, int] = field(default_factory=dict)
    """The first seq of each log that has no file left, where the list of files has it still."""

    def missing_ends(self) -> Iterator[MissingEnd]:
        """Yield what the next log says was there and is not."""
        expected: dict[str, int] = {}
        for begin in self.begins.values():
            before = begin.previous_log_id
            if before is not None:
                expected[before] = max(expected.get(before, 0), begin.previous_seq)
        for log_id, last_seq in sorted(expected.items()):
            known = max(self._through(log_id), self.ends.get(log_id, 0))
            if log_id not in self.ends:
                known = max(known, self._before(log_id, last_seq))
            if known < last_seq:
                yield MissingEnd(log_id, known + 1, last_seq)

    def forks(self) -> Iterator[Fork]:
        """Yield where a store that an older copy took the place of had gone further."""
        heirs: dict[str, list[str]] = {}
        for log_id, begin in self.begins.items():
            if begin.previous_log_id is not None:
                heirs.setdefault(begin.previous_log_id, []).append(log_id)
        for before, log_ids in sorted(heirs.items()):
            log_ids.sort(key=lambda log_id: self.begins[log_id].ts_ms)
            newest = self.begins[log_ids[-1]]
            others = [f"log {log_id}" for log_id in log_ids[:-1]]
            if (end := self.ends.get(before, 0)) > newest.previous_seq:
                others.insert(0, f"events {newest.previous_seq + 1} to {end} of log {before}")
            if others:
                yield Fork(log_ids[-1], before, newest.previous_seq, ", ".join(others))

    def _store(self, log_id: str) -> set[str]:
        """The logs that are linked to one, on whichever branch."""
        neighbours: dict[str, list[str]] = {}
        for one, begin in self.begins.items():
            if begin.previous_log_id is not None:
                neighbours.setdefault(one, []).append(begin.previous_log_id)
                neighbours.setdefault(begin.previous_log_id, []).append(one)
        linked, waiting = {log_id}, [log_id]
        while waiting:
            for other in neighbours.get(waiting.pop(), ()):
                if other not in linked:
                    linked.add(other)
                    waiting.append(other)
        return linked

    def _through(self, log_id: str) -> int:
        """Up to where a snapshot of the store stands for everything. What linked a log of which
        nothing is left may have gone as well: then any snapshot may be of its store.
        """
        linked = self._store(log_id) if log_id in self.ends else None
        through = (
            found.through_seq
            for snapshot in self.snapshots
            if (found := parse_snapshot_log(snapshot)) is not None
            and (linked is None or found.log_id in linked)
        )
        return max(through, default=0)

    def _before(self, log_id: str, last_seq: int) -> int:
        """The last seq before a log that has no file left.

        Where the list of files does not say, it is the end of a log that nobody went on with: this
        one did. Several may be such, of other stores in the directory: then the first of them, so
        that rather more is called missing than less.
        """
        if log_id in self.listed:
            return self.listed[log_id] - 1
        after = self._store(log_id)
        continued = {begin.previous_log_id for begin in self.begins.values()}
        ends = (
            end
            for other, end in self.ends.items()
            if other not in after and other not in continued and end < last_seq
        )
        return min(ends, default=0)
