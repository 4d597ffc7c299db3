"""Which events bronze holds of each log: what is missing, what came twice (pure).

``seq`` has no gaps by construction, so a number that is missing between two that are there is an
event that was lost, or one whose segment has not arrived yet. What follows the last segment is
neither: it has not been sealed.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from typing import NamedTuple


class HeldSegment(NamedTuple):
    """What bronze holds of one segment and day; the columns of ``SEGMENT_SCHEMA``."""

    log_id: str
    segment: str
    dt: date
    first_seq: int
    last_seq: int
    events: int
    seq_sum: int
    batch_id: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether every seq between the first and the last is there, once."""
        span = self.last_seq - self.first_seq + 1
        return self.events == span and 2 * self.seq_sum == span * (self.first_seq + self.last_seq)


class Gap(NamedTuple):
    """Events that are not there, and the days that they may belong to."""

    log_id: str
    first_seq: int
    last_seq: int
    from_day: date
    to_day: date

    def __str__(self) -> str:
        """Say it to a person."""
        if self.first_seq == self.last_seq:
            return f"event {self.first_seq} of log {self.log_id} is missing"
        return f"events {self.first_seq} to {self.last_seq} of log {self.log_id} are missing"


class Coverage:
    """All segments that bronze holds."""

    def __init__(self, segments: Iterable[HeldSegment]) -> None:
        """Take them in any order."""
        self.segments = sorted(set(segments), key=lambda s: (s.log_id, s.first_seq, s.last_seq))
        self._by_log: dict[str, list[HeldSegment]] = defaultdict(list)
        for segment in self.segments:
            self._by_log[segment.log_id].append(segment)

    def stores(self) -> dict[str, str]:
        """Map each log to the first log of its store.

        A clock that is set back starts a new log, and seq goes on counting: a log that does not
        begin with 1 continues the one that ends just before it, or, with a gap, the last one below.
        The log of a snapshot (``<log_id>.<seq>``) belongs to the log that it was taken from.
        """
        by_base: dict[str, list[HeldSegment]] = defaultdict(list)
        for segment in self.segments:
            by_base[_base_log(segment.log_id)].append(segment)
        spans = sorted(
            (min(p.first_seq for p in parts), max(p.last_seq for p in parts), log_id)
            for log_id, parts in by_base.items()
        )
        stores: dict[str, str] = {}
        ends: dict[str, int] = {}
        for first, last, log_id in spans:
            below = [(end, other) for other, end in ends.items() if end < first]
            if first == 1 or not below:
                stores[log_id] = log_id
            else:
                _, previous = max(below)
                stores[log_id] = stores[previous]
                del ends[previous]
            ends[log_id] = last
        return {log_id: stores[_base_log(log_id)] for log_id in self._by_log}

    def gaps(self) -> list[Gap]:
        """Return what is missing, by store and seq."""
        stores = self.stores()
        by_store: dict[str, list[HeldSegment]] = defaultdict(list)
        for segment in self.segments:
            by_store[stores[segment.log_id]].append(segment)
        return [gap for store in sorted(by_store) for gap in _gaps_of(by_store[store])]

    def has_overlaps(self, days: Iterable[date]) -> bool:
        """Tell whether an event of these days may be there twice."""
        wanted = set(days)
        for parts in self._by_log.values():
            last = 0
            for part in parts:
                if part.dt in wanted and (part.first_seq <= last or not part.is_whole):
                    return True
                last = max(last, part.last_seq)
        return False

    def days(self) -> list[date]:
        """Return the days that there are events of, the oldest first."""
        return sorted({segment.dt for segment in self.segments})

    def fingerprint(self, day: date) -> str:
        """Return what changes whenever a segment of the day is added or comes to hold more."""
        held = sorted(
            (s.log_id, s.first_seq, s.last_seq, s.events) for s in self.segments if s.dt == day
        )
        return hashlib.sha256(repr(held).encode()).hexdigest()[:16]

    def events(self, day: date) -> int:
        """Return how many events bronze holds of a day, repeated ones counted again."""
        return sum(segment.events for segment in self.segments if segment.dt == day)


def gaps_by_day(gaps: Iterable[Gap]) -> Mapping[date, list[Gap]]:
    """Return the gaps that a day may have lost events to."""
    by_day: dict[date, list[Gap]] = defaultdict(list)
    for gap in gaps:
        for number in range((gap.to_day - gap.from_day).days + 1):
            by_day[gap.from_day + timedelta(days=number)].append(gap)
    return by_day


def _base_log(log_id: str) -> str:
    """Return the log that a snapshot was taken from; any other log is its own."""
    base, dot, seq = log_id.rpartition(".")
    return base if dot and seq.isdigit() else log_id


def _gaps_of(parts: list[HeldSegment]) -> list[Gap]:
    """Return the gaps of one store."""
    gaps = []
    last, last_day = 0, date.min
    for part in sorted(parts, key=lambda s: (s.first_seq, s.last_seq)):
        if last and part.first_seq > last + 1:
            days = sorted((last_day, part.dt))
            gaps.append(Gap(part.log_id, last + 1, part.first_seq - 1, days[0], days[1]))
        if part.events < part.last_seq - part.first_seq + 1:
            gaps.append(Gap(part.log_id, part.first_seq, part.last_seq, part.dt, part.dt))
        if part.last_seq > last:
            last, last_day = part.last_seq, part.dt
    return gaps
