"""Finds logs that no store writes any more, because an older copy has replaced their store.

A segment is a file of events of one log. Retention deletes only the segments of its own store.
Without this module, those of abandoned logs would stay for ever.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from groupkeeper.storage.event_log.manifest import listed_and_found
from groupkeeper.storage.event_log.segments import Segment, SegmentError, log_begin
from groupkeeper.storage.event_log.snapshot_logs import base_log, parse_snapshot_log


def abandoned(directory: Path, own: Collection[str], before_ms: int) -> list[Segment]:
    """Return the segments of abandoned logs.

    An abandoned log continues one of ``own`` but is not in ``own``, and all its segments are older
    than ``before_ms``. If another copy of the store still writes a log, the log has newer segments
    or a snapshot, so it is not returned.
    """
    by_log: dict[str, list[Segment]] = {}
    for segment in listed_and_found(directory).segments.values():
        if base_log(segment.log_id) not in own:
            by_log.setdefault(segment.log_id, []).append(segment)
    kept_by_others = {base_log(log_id) for log_id in by_log if parse_snapshot_log(log_id)}
    previous = {
        log_id: before
        for log_id, segments in by_log.items()
        if (before := _previous(directory, segments)) is not None
    }
    found: list[Segment] = []
    for branch in _branches(previous, own):
        segments = [segment for log_id in branch for segment in by_log[log_id]]
        is_old = all(segment.last_ts_ms < before_ms for segment in segments)
        if is_old and kept_by_others.isdisjoint(branch):
            found += segments
    return found


def _previous(directory: Path, segments: list[Segment]) -> str | None:
    """Return the log before the log of these segments; None if its first event cannot be read."""
    first = min(segments, key=lambda segment: segment.first_seq)
    with suppress(OSError, SegmentError):
        begin = log_begin(directory / first.file)
        return None if begin is None else begin.previous_log_id
    return None


def _branches(previous: dict[str, str], own: Collection[str]) -> list[set[str]]:
    """Return a set of logs for each log that continues one of ``own``: this log and all its
    successors.
    """
    branches = {log_id: {log_id} for log_id, before in previous.items() if before in own}
    for log_id in previous:
        at, path = log_id, {log_id}
        while previous.get(at) in previous and previous[at] not in path:
            at = previous[at]
            path.add(at)
        if at in branches:
            branches[at].add(log_id)
    return list(branches.values())
