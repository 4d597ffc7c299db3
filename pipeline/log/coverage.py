"""Finds out which events of each log the pipeline has read (its table bronze), which are missing,
and which are there twice (pure).

In a store, ``seq`` counts from 1 without gaps, even if the store has several logs, one after the
other. So if a number before the last one is missing, its event is lost, or the segment (a file of
events) has not arrived yet.

Events of two kinds are not missing:

- Events after the last segment: they are not in a file yet. They are missing only if a manifest
  lists their file, or if their file was refused.
- Events that retention deleted: a snapshot, ``<log_id>.<seq>``, has the offsets after all events up
  to its ``seq``. But events that retention could not read are missing.

In imported logs, too, ``seq`` counts from 1.

If several nodes used a store, each node wrote logs of its own. The logs of one node, one after the
other, are called a chain. Each chain has its own ``seq``. In topics of Kafka each shard has a
chain.

This file is long because each way in which numbers can be missing is a case of its own.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from functools import cached_property
from typing import Final, NamedTuple

from groupkeeper.pipeline.log.branches import Before, Branches, PutBack
from groupkeeper.storage.event_log.event_kinds import DATA_LOG_PREFIX
from groupkeeper.storage.event_log.snapshot_logs import base_log
from groupkeeper.storage.event_log.store_names import StoreName, parse_store_name

IN_NO_SNAPSHOT: Final = "no snapshot knows what it told"
"""A text that marks the problem of a segment that retention could not read.

The events of such a segment are missing, although a later snapshot covers their seqs.
"""

_UNNAMED: Final = StoreName("", "")

NAMED_FILES: Final = 3
"""Number of files that the message of a gap names."""


class HeldSegment(NamedTuple):
    """The events that bronze has of one segment and one day: a row of ``SEGMENT_SCHEMA``."""

    log_id: str
    segment: str
    dt: date
    first_seq: int
    last_seq: int
    events: int
    """The number of events. 0 if the segment is expected and bronze has none of its events."""
    seq_sum: int
    batch_id: str = ""
    file: str = ""
    """The path below the log's folder; "" if it did not come from a file (an import)."""
    sha256: str = ""
    """The checksum of the file when it was read."""
    problem: str = ""
    """Why bronze has no events of this segment: the file, and what is wrong with it."""
    previous_log_id: str = ""
    """The log that ``log_id`` continues, if this segment has the event ``log_started`` that names
    it."""
    began_ms: int = 0
    """When ``log_id`` began (ms since the epoch), if this segment has ``log_started``; else 0."""
    with_rest: int = 0
    """Number of events with fields that were unknown when the segment was read."""
    store: str = ""
    """The name of the store that wrote the log, with the node (``event_log.store_names``); "" if
    neither the manifest nor ``log_started`` has a name. Logs with different names are of different
    stores, unless one log names the other as its predecessor."""

    @property
    def number(self) -> int:
        """Return ``batch_id`` as a number; -1 for an import, whose ``batch_id`` is a name."""
        return int(self.batch_id) if self.batch_id.isdecimal() else -1

    @property
    def is_whole(self) -> bool:
        """Return True if the segment has every seq from the first to the last exactly once."""
        span = self.last_seq - self.first_seq + 1
        return self.events == span and 2 * self.seq_sum == span * (self.first_seq + self.last_seq)


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
        """Return True if retention deleted events of this gap without reading them. No snapshot has
        such events, although a later snapshot covers their seqs.
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


class _Held(NamedTuple):
    """The events that bronze has from one chain (the logs of one node), and the missing events."""

    gaps: list[Gap]
    """The missing events. Some of them may be covered by a snapshot."""
    last_seq: int
    """The seq of the last event that bronze has; 0 if it has none."""
    snapshots: set[int]
    """The last seq of each snapshot."""


class Coverage:
    """Computes which events of each log bronze has, and which are missing.

    The input is the segments that bronze has, and the segments that it should have.
    """

    def __init__(self, segments: Iterable[HeldSegment]) -> None:
        """The segments may be in any order."""
        self.segments = sorted(set(segments), key=lambda s: (s.log_id, s.first_seq, s.last_seq))
        by_base = _by_base(self.segments)
        self._names = _names(by_base)
        self._branches = _branches(by_base, self._names)
        self._limits = self._branches.limits()
        self._counting = [part for each in self.segments if (part := self._what_counts(each))]
        self._by_log = _by_log(self.segments)
        self._by_base = _by_base(self._counting)

    def stores(self) -> dict[str, str]:
        """Map each log to the first log of its store. If several nodes used the store, the first
        log of the node with the lowest number counts as the first log of the store. If each shard
        of the store has logs of its own, the logs map to the name that the shards share: a shard
        with a lower number may write its first event at any time.

        A snapshot (``<log_id>.<seq>``) belongs to the store of ``<log_id>``.
        """
        return {log_id: self._first_of_store[chain] for log_id, chain in self._chains.items()}

    def chains(self) -> dict[str, str]:
        """Map each log to the first log of its chain. A chain is the logs that one node wrote, one
        after the other.
        """
        return self._chains

    def several_nodes(self) -> bool:
        """Return True if several nodes wrote logs of the same store. Each node counts its own seqs,
        so seqs alone do not order the events of such a store.

        The shards of a store are no such nodes. Each shard counts its own seqs too, but a group is
        in one shard.
        """
        names = self._names
        return any(
            chain != self._first_of_store[chain] and not names[base_log(log_id)].is_of_shard
            for log_id, chain in self._chains.items()
        )

    def limits(self) -> dict[str, int]:
        """Map each log with abandoned events to its last valid seq.

        Events are abandoned when an older copy of their store is restored and continues from there.
        """
        return {
            log_id: 0 if base_log(log_id) != log_id else self._limits[log_id]
            for log_id in self._by_log
            if self._is_beyond(log_id, max(part.last_seq for part in self._by_log[log_id]))
        }

    def put_backs(self) -> list[PutBack]:
        """Return the restores of older copies of stores."""
        return self._branches.put_backs()

    def _is_beyond(self, log_id: str, seq: int) -> bool:
        limit = self._limits.get(base_log(log_id))
        return limit is not None and seq > limit

    def _what_counts(self, segment: HeldSegment) -> HeldSegment | None:
        """Return the segment without its abandoned events. Return None if all are abandoned."""
        if not self._is_beyond(segment.log_id, segment.last_seq):
            return segment
        last = self._limits[base_log(segment.log_id)]
        if last < segment.first_seq or base_log(segment.log_id) != segment.log_id:
            return None
        events = max(segment.events - (segment.last_seq - last), 0)
        return segment._replace(last_seq=last, events=events)

    def gaps(self) -> list[Gap]:
        """Return the missing events of all logs, in the order of their seqs within each chain.

        Events at the beginning of a store are not missing if a snapshot covers them.
        """
        by_chain = self._by_chain()
        return [
            self._explained(gap)
            for chain in sorted(by_chain)
            for gap in _gaps_of(self._events(by_chain[chain]), self._through(by_chain[chain]))
        ]

    def _explained(self, gap: Gap) -> Gap:
        """Return the gap, with ``in_log`` set if another log may have the missing events. This is
        possible only for a gap that begins at seq 1.
        """
        if gap.first_seq > 1:
            return gap
        names = self._names
        for log_id, (first, last) in self._branches.spans.items():
            if not names.get(gap.log_id, _UNNAMED).may_be_one_chain(names[log_id]):
                continue
            if log_id != gap.log_id and first <= gap.last_seq < last:
                return gap._replace(in_log=log_id)
        return gap

    def gaps_as_of(self, last_seqs: Mapping[str, int]) -> list[Gap]:
        """Return the missing events that affect the offsets at a moment.

        ``last_seqs`` has the last seq of each log at this moment. A log that had not begun has no
        entry. Missing events of three kinds are not returned:

        - events after the moment
        - events that a snapshot from before the moment covers
        - events that only a later snapshot covers, if no event of the chain is known from before
          the moment: then nothing is known of that time in any case
        """
        missing = []
        for _, logs in sorted(self._by_chain().items()):
            seen = {log_id: seq for log_id, seq in last_seqs.items() if base_log(log_id) in logs}
            known = max(seen.values(), default=0)
            through = max((seq for log_id, seq in seen.items() if log_id not in logs), default=0)
            horizon = through if known else self._through(logs)
            for gap in _gaps_of(self._events(logs), horizon):
                first_seq = gap.first_seq
                if not gap.is_in_no_snapshot:
                    first_seq = max(first_seq, through + 1)
                if first_seq <= gap.last_seq and first_seq - 1 <= known:
                    missing.append(self._explained(gap._replace(first_seq=first_seq)))
        return missing

    def _by_chain(self) -> dict[str, set[str]]:
        """Map the first log of each chain to all logs of the chain, without snapshots."""
        logs: dict[str, set[str]] = defaultdict(set)
        for log_id, chain in self._chains.items():
            logs[chain].add(base_log(log_id))
        return logs

    def _events(self, logs: Collection[str]) -> list[HeldSegment]:
        """Return the segments of some logs, without abandoned events and without snapshots."""
        return [part for log in logs for part in self._by_base.get(log, ()) if part.log_id == log]

    def _through(self, logs: Collection[str]) -> int:
        """Return the last seq that a snapshot of these logs covers; 0 if there is no snapshot."""
        return max(self._snapshots(logs), default=0)

    def _snapshots(self, logs: Collection[str]) -> set[int]:
        parts = (part for log in logs for part in self._by_base.get(log, ()))
        return {part.last_seq for part in parts if part.log_id != base_log(part.log_id)}

    def has_overlaps(self, days: Iterable[date]) -> bool:
        """Return True if bronze may have an event of these days twice."""
        wanted = set(days)
        for parts in self._by_log.values():
            last = 0
            for part in parts:
                if not part.events:
                    continue
                if part.dt in wanted and (part.first_seq <= last or not part.is_whole):
                    return True
                last = max(last, part.last_seq)
        return False

    def days(self) -> list[date]:
        """Return the days with events, oldest first."""
        return sorted({segment.dt for segment in self.segments})

    def fingerprint(self, day: date) -> str:
        """Return a hash of the day's segments. The hash changes if a segment is added, grows or
        gets other content.

        A snapshot without new information does not change the hash. This matters because every day
        brings a new snapshot.
        """
        held = sorted(
            (s.log_id, s.first_seq, s.last_seq, s.events, s.sha256)
            for s in self._counting
            if s.dt == day and s.events and not self.tells_nothing_new(s)
        )
        return hashlib.sha256(repr(held).encode()).hexdigest()[:16]

    def tells_nothing_new(self, segment: HeldSegment) -> bool:
        """Return True if a segment is a snapshot without new information.

        A snapshot has no new information if bronze has each event that the snapshot covers, or an
        earlier snapshot that covers the event.
        """
        if base_log(segment.log_id) == segment.log_id:
            return False
        held, through = self._held[self._chains[segment.log_id]], segment.last_seq
        earlier = max((seq for seq in held.snapshots if seq < through), default=0)
        return held.last_seq >= through and not any(
            gap.first_seq <= through and gap.last_seq > earlier for gap in held.gaps
        )

    @cached_property
    def _chains(self) -> dict[str, str]:
        return {log_id: self._branches.path(base_log(log_id))[-1] for log_id in self._by_log}

    @cached_property
    def _first_of_store(self) -> dict[str, str]:
        """Map each chain to the first log of its store: of the node with the lowest number. Map the
        chain of a shard to the name of its store.
        """
        nodes: dict[str, list[tuple[tuple[int, str], str]]] = defaultdict(list)
        shards: dict[str, str] = {}
        for log_id, chain in self._chains.items():
            name = self._names[base_log(log_id)]
            if name.is_of_shard:
                shards[chain] = name.store
            elif name.node:
                nodes[name.store].append((name.place(), chain))
        first = {chain: chain for chain in self._chains.values()} | shards
        for store in sorted(nodes):
            first |= dict.fromkeys((chain for _, chain in nodes[store]), min(nodes[store])[1])
        return first

    @cached_property
    def _held(self) -> dict[str, _Held]:
        held = {}
        for chain, logs in self._by_chain().items():
            events = self._events(logs)
            last_seq = max((part.last_seq for part in events), default=0)
            held[chain] = _Held(_gaps_of(events, 0), last_seq, self._snapshots(logs))
        return held

    def events(self, day: date) -> int:
        """Return the number of events of a day. Abandoned events and duplicates do not count."""
        return sum(
            _distinct_events([part for part in parts if part.dt == day])
            for parts in _by_log(self._counting).values()
        )


def missing_text(log_id: str, first_seq: int, last_seq: int) -> str:
    """Return a text such as "events 3 to 7 of log x are missing". ``log_id`` is "" if unknown."""
    of_log = f" of log {log_id}" if log_id else ""
    if first_seq == last_seq:
        return f"event {first_seq}{of_log} is missing"
    return f"events {first_seq} to {last_seq}{of_log} are missing"


def _by_log(segments: Iterable[HeldSegment]) -> dict[str, list[HeldSegment]]:
    found: dict[str, list[HeldSegment]] = defaultdict(list)
    for segment in segments:
        found[segment.log_id].append(segment)
    return found


def _distinct_events(parts: Iterable[HeldSegment]) -> int:
    """Return the number of different events in some segments of a log. Events with the same seq
    count once.
    """
    count, last = 0, 0
    for part in sorted(parts, key=lambda each: (each.first_seq, each.last_seq)):
        new = part.last_seq - max(part.first_seq, last + 1) + 1
        count += max(0, min(part.events, new))
        last = max(last, part.last_seq)
    return count


def _by_base(segments: Iterable[HeldSegment]) -> dict[str, list[HeldSegment]]:
    """Return the segments of each log, together with those of its snapshots."""
    found: dict[str, list[HeldSegment]] = defaultdict(list)
    for segment in segments:
        found[base_log(segment.log_id)].append(segment)
    return found


def _branches(
    by_base: Mapping[str, Sequence[HeldSegment]], names: Mapping[str, StoreName]
) -> Branches:
    """Find the log that each log continues, its predecessor.

    Some logs name their predecessor (``log_started``). A log that does not was written before
    0.2.0, or its beginning is missing. The predecessor of such a log is found by its first seq:

    - A log that begins with seq 1 has no predecessor.
    - Otherwise the predecessor is the log with the highest last seq below the first seq.
    - If events are missing between the two logs, and a snapshot of the later log covers these
      events, the later log has no predecessor.

    A log of a named store prefers a predecessor of the same name to one without a name. It never
    continues a log of another name or node.
    """
    spans = {log_id: _span(log_id, parts) for log_id, parts in by_base.items()}
    befores: dict[str, Before] = {}
    named = [s for parts in by_base.values() for s in parts if s.previous_log_id in by_base]
    begins = {part.log_id: part.first_seq for part in named}
    for part in named:
        if begins.get(part.previous_log_id, 0) < part.first_seq:  # a log never continues itself
            befores[part.log_id] = Before(part.previous_log_id, part.first_seq - 1, part.began_ms)
    branches = Branches(spans, befores)
    ends: dict[str, int] = {}
    for (first, last), log_id in sorted((span, log_id) for log_id, span in spans.items()):
        if log_id.startswith(DATA_LOG_PREFIX):  # no store continues samples of ends
            continue
        if log_id not in befores:
            below = [
                (names[other] == names[log_id] != _UNNAMED, end, other)
                for other, end in ends.items()
                if end < first
                and log_id not in branches.path(other)
                and names[other].may_be_one_chain(names[log_id])
            ]
            _, end, previous = max(below, default=(False, 0, log_id))
            has_own = end + 1 != first and _through_own(log_id, by_base[log_id]) + 1 >= first
            if previous != log_id and not has_own:
                befores[log_id] = Before(previous, first - 1)
        if log_id in befores:
            ends.pop(befores[log_id].log_id, None)
        ends[log_id] = last
    return branches


def _names(by_base: Mapping[str, Sequence[HeldSegment]]) -> dict[str, StoreName]:
    """Map each log to the name of its store, which includes the node."""
    return {
        log_id: parse_store_name(max(part.store for part in parts))
        for log_id, parts in by_base.items()
    }


def _span(log_id: str, parts: Iterable[HeldSegment]) -> tuple[int, int]:
    """Return the first and last seq of a log. If only snapshots of the log are left, the span is
    empty: its first seq is the one after the last snapshot.
    """
    own = [part for part in parts if part.log_id == log_id]
    if not own:
        through = _through_own(log_id, parts)
        return through + 1, through
    return min(part.first_seq for part in own), max(part.last_seq for part in own)


def _through_own(log_id: str, parts: Iterable[HeldSegment]) -> int:
    """Return the last seq that a snapshot of this log covers."""
    return max((part.last_seq for part in parts if part.log_id != log_id), default=0)


def _gaps_of(parts: list[HeldSegment], through: int) -> list[Gap]:
    """Return the gaps of one chain. ``through`` is the last seq that a snapshot covers, or 0."""
    held = [part for part in parts if part.events]
    gaps = _lacking(held, [part for part in parts if not part.events], through)
    # gaps that a file explains are not reported twice; after the covered seqs nothing is missing up
    # to the gap's end
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
    """Return the expected events that no segment has. Adjacent events form one gap."""
    spans = _merged(held)
    begins = spans[0][0] if spans else through + 1
    gaps: list[Gap] = []
    reported_seq = 0
    parts = [
        part
        for part in sorted(expected, key=lambda s: (s.first_seq, s.last_seq, s.problem))
        # otherwise retention deleted it, and the snapshot covers it
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
    """Return the runs of seqs from ``first`` to ``last``, both included, that no span contains."""
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
