"""The logs of a store as a chain: each log names the log before it, its predecessor, and the last
sequence number (seq) of the predecessor (pure).

If the last events of a log are missing, its own seqs have no gap. Only the next log shows that the
events existed. If two logs name the same predecessor, an older copy replaced the store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from groupkeeper.storage.event_log.segments import LogBegin
from groupkeeper.storage.event_log.snapshot_logs import parse_snapshot_log


class MissingEnd(NamedTuple):
    """A range of seqs at the end of a log whose events are in no file."""

    log_id: str
    first_seq: int
    last_seq: int


class Fork(NamedTuple):
    """The sign that an older copy replaced the store: the predecessor of ``log_id`` has events
    after ``previous_seq``, or the predecessor has another successor.
    """

    log_id: str
    previous_log_id: str
    previous_seq: int
    abandoned: str
    """A text that names the events and logs that the new history does not contain."""


@dataclass(frozen=True)
class Chain:
    """The beginnings and ends of all logs of a directory."""

    begins: Mapping[str, LogBegin]
    """The beginning of each log whose first event is ``log_started``."""
    ends: Mapping[str, int]
    """Log -> the last seq in its files, or in files that the manifest records as damaged. A log
    that has neither is not here (``listed``)."""
    snapshots: Collection[str]
    """The ids of the logs of which the directory has a snapshot."""
    listed: Mapping[str, int] = field(default_factory=dict)
    """The first seq of each log that has no file left but is still in the manifest."""

    def missing_ends(self) -> Iterator[MissingEnd]:
        """Yield the events that are missing at the end of each log. The next log says that they
        existed, but no file has them and no snapshot covers them.
        """
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
        """Yield each fork: an older copy replaced a store that had later events."""
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
        """Return the logs of one store: this log, and each log that is linked to it by predecessors
        and successors.
        """
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
        """Return the last seq that a snapshot of this log's store covers; 0 if there is none. A
        snapshot has the offsets of deleted segments.

        If no file of the log is left, we cannot know which store it belongs to. Then the snapshots
        of all stores count.
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
        """Return the seq before the first event of a log that has no file left; 0 if nothing shows
        where the log began. ``last_seq`` is the seq of the log's last event.

        The manifest may still list the first seq of the log. Otherwise the predecessor of the log
        is unknown: it may be any log in the directory that no other log continues. Of the ends of
        these logs the smallest counts, because it is better to report too many events as missing
        than too few.
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
