"""The gaps in the events of a chain: numbers (``seq``) whose events are missing (pure).

A chain is the logs of one node, one after the other. Its ``seq`` counts from 1 without gaps. The
events are in files, the segments. Retention deletes old segments. It first writes a snapshot with
the offsets after the deleted events.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Final, NamedTuple

from groupkeeper.pipeline.log.held_segment import HeldSegment

IN_NO_SNAPSHOT: Final = "no snapshot knows what it told"
"""A text that marks the problem of a segment that retention could not read.

The events of such a segment are missing, although a later snapshot covers their seqs.
"""

NAMED_FILES: Final = 3
"""Number of files that the message of a gap names."""


class Gap(NamedTuple):
    """Missing events, and the days that they may belong to."""

    log_id: str
    first_seq: int
    last_seq: int
    from_day: date
    to_day: date
    in_log: str = ""
    """Another log that has events with the same seqs; "" if there is none. Such a log exists if an
    older copy of a store was restored: the new log begins in the middle of the old one."""
    problems: tuple[str, ...] = ()
    """The problems of the files that should have these events, if such files are known."""

    @property
    def is_in_no_snapshot(self) -> bool:
        """Return True if retention deleted events of this gap that it could not read. No snapshot
        has such events, although a later snapshot covers their seqs.
        """
        return any(IN_NO_SNAPSHOT in problem for problem in self.problems)

    def touches(self, day: date) -> bool:
        """Return True if the day may lack events of this gap."""
        return self.from_day <= day <= self.to_day

    @property
    def days_text(self) -> str:
        """Return the days that may lack events, as text for people."""
        if self.from_day == self.to_day:
            return str(self.from_day)
        return f"{self.from_day} to {self.to_day}"

    def __str__(self) -> str:
        text = missing_text(self.log_id, self.first_seq, self.last_seq)
        if self.problems:
            named = list(self.problems[:NAMED_FILES])
            if more := len(self.problems[NAMED_FILES:]):
                named.append(f"and {more} files more")
            return f"{text} ({'; '.join(named)})"
        if not self.in_log:
            return text
        return (
            f"{text} (or in log {self.in_log}, if an older copy of its store was put in its place "
            f"and wrote {self.log_id}: the daemon's own file knows)"
        )


def missing_text(log_id: str, first_seq: int, last_seq: int) -> str:
    """Return a text such as "events 3 to 7 of log x are missing". ``log_id`` is "" if unknown."""
    of_log = f" of log {log_id}" if log_id else ""
    if first_seq == last_seq:
        return f"event {first_seq}{of_log} is missing"
    return f"events {first_seq} to {last_seq}{of_log} are missing"


def gaps_of(parts: list[HeldSegment], through: int) -> list[Gap]:
    """Return the gaps of one chain. ``parts`` are its segments. A segment with 0 events is one that
    should exist, but was not read. ``through`` is the last seq that a snapshot covers; 0 if there
    is no snapshot.
    """
    held = [part for part in parts if part.events]
    gaps = _lacking(held, [part for part in parts if not part.events], through)
    # ``gaps`` has the gaps whose files are known. Their events count as held below, so that no gap
    # is reported twice. This is not done for a gap before all held events: the seqs after it would
    # then be reported as missing, although a snapshot covers them.
    begins = min((part.first_seq for part in held), default=through + 1)
    held += [_as_if_held(gap) for gap in gaps if gap.last_seq >= min(begins, through + 1)]
    if not held:
        return gaps
    held.sort(key=lambda s: (s.first_seq, s.last_seq))
    last, last_day = min(through, held[0].first_seq - 1), held[0].dt
    for part in held:
        if part.first_seq > last + 1:
            days = sorted((last_day, part.dt))
            gaps.append(Gap(part.log_id, last + 1, part.first_seq - 1, days[0], days[1]))
        if part.events < part.last_seq - part.first_seq + 1:
            gaps.append(Gap(part.log_id, part.first_seq, part.last_seq, part.dt, part.dt))
        if part.last_seq > last:
            last, last_day = part.last_seq, part.dt
    if through > last:
        gaps.append(Gap(held[-1].log_id, last + 1, through, last_day, last_day))
    return sorted(gaps, key=lambda gap: (gap.first_seq, gap.last_seq))


def _as_if_held(gap: Gap) -> HeldSegment:
    events = gap.last_seq - gap.first_seq + 1
    return HeldSegment(gap.log_id, "", gap.to_day, gap.first_seq, gap.last_seq, events, 0)


def _lacking(
    held: Sequence[HeldSegment], expected: Sequence[HeldSegment], through: int
) -> list[Gap]:
    """Return the events of ``expected`` that no segment of ``held`` has. Adjacent events form one
    gap.
    """
    spans = _merged(held)
    begins = spans[0][0] if spans else through + 1
    gaps: list[Gap] = []
    reported_seq = 0
    parts = [
        part
        for part in sorted(expected, key=lambda s: (s.first_seq, s.last_seq, s.problem))
        # any other segment was deleted by retention, and the snapshot covers its events
        if part.last_seq > through or IN_NO_SNAPSHOT in part.problem or part.last_seq >= begins
    ]
    for part in parts:
        for first, last in _uncovered(max(part.first_seq, reported_seq + 1), part.last_seq, spans):
            gap = Gap(part.log_id, first, last, part.dt, part.dt)
            before = gaps[-1] if gaps else None
            if before and (before.log_id, before.last_seq + 1) == (part.log_id, first):
                days = sorted((before.from_day, before.to_day, part.dt))
                gap = gap._replace(
                    first_seq=before.first_seq,
                    from_day=days[0],
                    to_day=days[-1],
                )
                gaps.pop()
            gaps.append(gap)
        reported_seq = max(reported_seq, part.last_seq)
    return [gap._replace(problems=_problems(gap, parts)) for gap in gaps]


def _problems(gap: Gap, expected: Iterable[HeldSegment]) -> tuple[str, ...]:
    """Return the problems of all files, including copies, that should have the events of a gap."""
    about = (
        part.problem
        for part in expected
        if part.log_id == gap.log_id
        and part.first_seq <= gap.last_seq
        and part.last_seq >= gap.first_seq
    )
    return tuple(dict.fromkeys(filter(None, about)))


def _merged(held: Iterable[HeldSegment]) -> list[tuple[int, int]]:
    """Return the seqs of segments as sorted spans. Spans that overlap or touch are joined."""
    spans: list[tuple[int, int]] = []
    for first, last in sorted((part.first_seq, part.last_seq) for part in held):
        if spans and first <= spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], max(spans[-1][1], last))
        else:
            spans.append((first, last))
    return spans


def _uncovered(first: int, last: int, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans of seqs from ``first`` to ``last``, both included, that are in none of
    ``spans``.
    """
    found = []
    for begin, end in spans[max(bisect_right(spans, (first, first)) - 1, 0) :]:
        if begin > last:
            break
        if begin > first:
            found.append((first, begin - 1))
        first = max(first, end + 1)
    if first <= last:
        found.append((first, last))
    return found
