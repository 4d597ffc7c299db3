"""Finds the log that each log continues, from the segments (files of events) that the pipeline has
read (pure).

Events are numbered: ``seq`` continues from log to log. A snapshot is a segment with the offsets
after deleted events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from groupkeeper.pipeline.log.branches import Before, Branches
from groupkeeper.pipeline.log.held_segment import HeldSegment
from groupkeeper.storage.event_log.event_kinds import DATA_LOG_PREFIX
from groupkeeper.storage.event_log.store_names import StoreName

UNNAMED: Final = StoreName("", "")
"""The name of a store whose name is neither in its events nor in a manifest (a list of segments).
"""


def branches_of(
    by_base: Mapping[str, Sequence[HeldSegment]], names: Mapping[str, StoreName]
) -> Branches:
    """Find the log that each log continues, its predecessor. ``by_base`` maps each log to its
    segments and those of its snapshots. ``names`` maps each log to the name of its store.

    Some logs name their predecessor (``log_started``). A log that does not was written before
    0.2.0, or its beginning is missing. The predecessor of such a log is found by its first seq:

    - A log that begins with seq 1 has no predecessor.
    - Otherwise the predecessor is the log with the highest last seq below the first seq.
    - If events are missing between the two logs, and a snapshot of the later log covers these
      events, the later log has no predecessor.

    A log of a named store prefers a predecessor of the same name to one without a name. It never
    continues a log of another store or node.
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
        if log_id.startswith(DATA_LOG_PREFIX):  # logs of sampled end offsets form no chain
            continue
        if log_id not in befores:
            below = [
                (names[other] == names[log_id] != UNNAMED, end, other)
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
    """Return the last seq that a snapshot of this log covers; 0 if it has no snapshot."""
    return max((part.last_seq for part in parts if part.log_id != log_id), default=0)
