"""Finds out which events of each log the pipeline has read (its table bronze), which are missing,
and which are there twice (pure).

In a store, ``seq`` counts from 1 without gaps, even if the store has several logs, one after the
other. So if a number before the last one is missing, its event is lost, or the segment (a file of
events) has not arrived yet.

Events of two kinds are not missing:

- Events after the last segment: they are not in a file yet. They are missing only if a manifest
  (the daemon's list of segments) lists their file, or if their file was refused.
- Events that retention deleted because of their age: a snapshot, ``<log_id>.<seq>``, has the
  offsets after all events up to its ``seq``. But events that retention could not read are missing.

In imported logs, too, ``seq`` counts from 1.

If several nodes used a store, each node wrote logs of its own. The logs of one node, one after the
other, are called a chain. Each chain has its own ``seq``. In topics of Kafka each shard has a
chain.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from functools import cached_property
from typing import NamedTuple

from groupkeeper.pipeline.log.branches import PutBack
from groupkeeper.pipeline.log.gaps import Gap, gaps_of
from groupkeeper.pipeline.log.held_segment import HeldSegment
from groupkeeper.pipeline.log.predecessors import UNNAMED, branches_of
from groupkeeper.storage.event_log.snapshot_logs import base_log
from groupkeeper.storage.event_log.store_names import StoreName, parse_store_name


class _Held(NamedTuple):
    """The events that bronze has from one chain (the logs of one node), and the missing events."""

    gaps: list[Gap]
    """The missing events. Some of them may be covered by a snapshot."""
    last_seq: int
    """The seq of the last event that bronze has; 0 if it has none."""
    snapshots: set[int]
    """For each snapshot of the log, the seq of the last event that the snapshot covers."""


class Coverage:
    """Computes which events of each log bronze has, and which are missing.

    The input is the segments that bronze has, and the segments that it should have.
    """

    def __init__(self, segments: Iterable[HeldSegment]) -> None:
        """The segments may be in any order."""
        self.segments = sorted(set(segments), key=lambda s: (s.log_id, s.first_seq, s.last_seq))
        by_base = _by_base(self.segments)
        self._names = _names(by_base)
        self._branches = branches_of(by_base, self._names)
        self._limits = self._branches.limits()
        self._counting = [part for each in self.segments if (part := self._what_counts(each))]
        self._by_log = _by_log(self.segments)
        self._by_base = _by_base(self._counting)

    def stores(self) -> dict[str, str]:
        """Map each log to the name of its store in the tables. A snapshot (``<log_id>.<seq>``)
        belongs to the store of ``<log_id>``.

        The name is the first log of the store. If several nodes used the store, it is the first log
        of the node with the lowest number. If each shard of the store has its own logs, it is the
        name that the shards share. It is not the first log of the shard with the lowest number,
        because another shard, with a lower number, may write its first event later.
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

        Shards do not count as nodes. Each shard counts its own seqs too, but all events of a group
        are in one shard.
        """
        names = self._names
        return any(
            chain != self._first_of_store[chain] and not names[base_log(log_id)].is_of_shard
            for log_id, chain in self._chains.items()
        )

    def limits(self) -> dict[str, int]:
        """Map each log with abandoned events to its last valid seq. The seq is 0 if all are
        abandoned.

        Events are abandoned if an older copy of their store, without these events, is restored.
        """
        return {
            log_id: 0 if base_log(log_id) != log_id else self._limits[log_id]
            for log_id in self._by_log
            if self._is_beyond(log_id, max(part.last_seq for part in self._by_log[log_id]))
        }

    def put_backs(self) -> list[PutBack]:
        """Return each restore of an older copy of a store after which events were abandoned."""
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
            for gap in gaps_of(self._events(by_chain[chain]), self._through(by_chain[chain]))
        ]

    def _explained(self, gap: Gap) -> Gap:
        """Return the gap, with ``in_log`` set if another log may have the missing events. This is
        possible only for a gap that begins at seq 1.
        """
        if gap.first_seq > 1:
            return gap
        names = self._names
        for log_id, (first, last) in self._branches.spans.items():
            if not names.get(gap.log_id, UNNAMED).may_be_one_chain(names[log_id]):
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
        - events that a later snapshot covers, if no event of the chain from before the moment is
          known. The offsets of that moment are unknown then, with or without these events
        """
        missing = []
        for _, logs in sorted(self._by_chain().items()):
            seen = {log_id: seq for log_id, seq in last_seqs.items() if base_log(log_id) in logs}
            known = max(seen.values(), default=0)
            through = max((seq for log_id, seq in seen.items() if log_id not in logs), default=0)
            horizon = through if known else self._through(logs)
            for gap in gaps_of(self._events(logs), horizon):
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
        """Map each chain to the name of its store (``stores``)."""
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
            held[chain] = _Held(gaps_of(events, 0), last_seq, self._snapshots(logs))
        return held

    def events(self, day: date) -> int:
        """Return the number of events of a day. Abandoned events and duplicates do not count."""
        return sum(
            _distinct_events([part for part in parts if part.dt == day])
            for parts in _by_log(self._counting).values()
        )


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


def _names(by_base: Mapping[str, Sequence[HeldSegment]]) -> dict[str, StoreName]:
    """Map each log to the name of its store, which includes the node."""
    return {
        log_id: parse_store_name(max(part.store for part in parts))
        for log_id, parts in by_base.items()
    }
