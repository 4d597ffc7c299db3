"""The retention of the event log. It deletes whole days that are older than the horizon, the time
before which events need not be kept (docs/design.md#retention). A segment is a file of events.

Retention has three steps:

1. Seal the offsets at the end of those days as ``offset_snapshot`` events. These include the last
   value of every expired or deleted offset.
2. Record in the manifest that the segments are removed.
3. Delete the segments.

After a crash between two steps, the next run or the next start finishes them.

A damaged file does not stop retention. It is renamed (``put_aside``). Its line in the manifest then
permanently records that no snapshot has its events.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from math import inf
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from groupkeeper.storage.event_log import manifest
from groupkeeper.storage.event_log.manifest import StoreSegments, reconcile, remove_files
from groupkeeper.storage.event_log.sealing.abandoned import abandoned
from groupkeeper.storage.event_log.sealing.sealer import FOR_EVER, Pacer, SealSettings
from groupkeeper.storage.event_log.sealing.segment_writer import SegmentWriter
from groupkeeper.storage.event_log.sealing.snapshots import MAX_PASS_OFFSETS, OffsetsAsOf
from groupkeeper.storage.event_log.segments import (
    Hook,
    Segment,
    SegmentName,
    check_version,
    day_of,
    file_problem,
    in_order,
    no_hook,
    put_aside,
    read_segment,
    segment_names,
    segment_of_name,
)
from groupkeeper.storage.event_log.snapshot_logs import SnapshotLog, base_log
from groupkeeper.storage.segment_lines import encode_line

DAY_MS: Final = 86_400_000

CHECK_MS: Final = 600_000
"""The shortest time between two checks. Only whole days are deleted, so rare checks are enough."""

ABSENT: Final = "is not there"
NOWHERE: Final = "is in no file"


class LogRetention:
    """The retention of one store. It runs on the thread that seals."""

    def __init__(
        self,
        settings: SealSettings,
        clock: Callable[[], int],
        hook: Hook = no_hook,
        pacer: Pacer | None = None,
        max_offsets: int = MAX_PASS_OFFSETS,
        is_needed: Callable[[Segment], bool] = lambda _: False,
    ) -> None:
        """Create the retention. If more than ``max_offsets`` offsets must be kept, it reads the
        segments several times, to limit its memory.

        If ``is_needed`` returns True for a segment, this segment and all later segments of its
        store are kept, however old they are.
        """
        self._max_offsets = max_offsets
        self._is_needed = is_needed
        self._settings = settings
        self._clock = clock
        self._hook = hook
        self._pacer = pacer or Pacer()
        self._checked_ms: float = -inf
        self.store = ""
        """The name of the store, for the manifest."""
        self.gone_log_ids: frozenset[str] = frozenset()
        """The logs whose last segment the last run deleted. The manifest has no line of these
        logs."""
        self._deleted_from: set[str] = set()

    def run(self, log_ids: Iterable[str], sealed_seq: float = inf) -> list[Segment]:
        """Delete the days that are completely before the horizon. Cheap if there are none.

        ``log_ids`` are the logs of this store. Events in files above ``sealed_seq`` do not belong
        to the store. Returns the segments of the deleted days that could not be read.
        """
        self.gone_log_ids = frozenset()
        self._deleted_from.clear()
        damaged = self._run(log_ids, sealed_seq)
        if self._deleted_from:
            left = manifest.read_manifest(self._settings.directory)
            listed = (*left.segments.values(), *left.damaged.values())
            still_there = {base_log(segment.log_id) for segment in listed}
            self.gone_log_ids = frozenset(self._deleted_from - still_there)
        return damaged

    def _run(self, log_ids: Iterable[str], sealed_seq: float) -> list[Segment]:
        now_ms = self._clock()
        # the clock may have been set back after the last check
        is_early = 0 <= now_ms - self._checked_ms < CHECK_MS
        if self._settings.retention_ms == FOR_EVER or is_early:
            return []
        self._checked_ms = now_ms
        before_ms = (now_ms - self._settings.retention_ms) // DAY_MS * DAY_MS
        directory = self._settings.directory
        logs = set(log_ids)
        names = {name.log_id for name in segment_names(directory)}
        found = reconcile(directory, [log for log in names if base_log(log) in logs], self.store)
        listed = found.of_store(logs)
        known, snapshots, covered_seq = listed.damaged, listed.snapshots, listed.covered_seq
        own = _OwnSegments(listed, sealed_seq)
        # After a crash, segments that a snapshot covers may still exist.
        left = [s for s in own.segments if own.last_seq(s) > max(covered_seq, s.first_seq - 1)]
        done = [s for s in own.segments if s not in left]
        over = [s for s in done if not before_ms <= s.last_ts_ms <= now_ms]
        over = [segment for segment in over if not self._is_needed(segment)]
        self._remove(directory, [*snapshots[:-1], *over])
        self._put_aside(directory, known)
        replaced = abandoned(directory, logs, before_ms)
        if not any(map(self._is_needed, replaced)):
            self._remove(directory, replaced)
        old = _leading(left, before_ms, now_ms)
        old = list(takewhile(lambda segment: not self._is_needed(segment), old))
        if not old:
            return []
        holes = _holes(old, known, covered_seq, own)
        return self._delete(directory, [*snapshots[-1:], *old], holes, own)

    def _delete(
        self,
        directory: Path,
        old: Sequence[Segment],
        holes: Sequence[Segment],
        own: _OwnSegments,
    ) -> list[Segment]:
        damaged = [*_unreadable(directory, old), *holes]
        passed_over = {segment.file for segment in damaged}
        readable = [segment for segment in old if segment.file not in passed_over]
        last = max(old, key=own.last_seq)
        log = SnapshotLog(last.log_id, own.last_seq(last))
        self._snapshot(directory, readable, damaged, log, last.last_ts_ms, own)
        self._remove(directory, readable)
        self._put_aside(directory, damaged)
        return damaged

    def _snapshot(
        self,
        directory: Path,
        segments: Sequence[Segment],
        damaged: Sequence[Segment],
        log: SnapshotLog,
        ts_ms: int,
        own: _OwnSegments,
    ) -> None:
        """Write the offsets after the last event of the segments, as a snapshot.

        If there are many offsets, the segments are read several times, to limit the memory.
        """
        offsets = OffsetsAsOf(max_offsets=self._max_offsets)
        self._apply(offsets, directory, segments, own)
        seq = log.through_seq - offsets.event_count + 1
        writer = SegmentWriter(directory, str(log), seq, ts_ms, store=self.store, hook=self._hook)
        try:
            for part in range(offsets.parts):
                if part:
                    offsets = OffsetsAsOf(part, offsets.parts)
                    self._apply(offsets, directory, segments, own)
                for event in offsets.events(log, ts_ms, writer.next_seq):
                    writer.add([(event["group"], encode_line(event))], event["ts_ms"])
                    self._pacer.tick()
            # the lines of damaged segments come first, because a crash may cut off the last lines
            manifest.add(directory, [*damaged, writer.seal()])
        except BaseException:
            writer.discard()
            raise
        self._hook("snapshot_listed")

    def _apply(
        self, offsets: OffsetsAsOf, directory: Path, segments: Iterable[Segment], own: _OwnSegments
    ) -> None:
        for segment in segments:
            last_seq = own.last_seq(segment)
            for event in read_segment(directory / segment.file):
                if event["seq"] <= last_seq:
                    offsets.apply(event)
                self._pacer.tick()

    def _remove(self, directory: Path, segments: Sequence[Segment]) -> None:
        if segments:
            manifest.remove(directory, [segment.file for segment in segments])
            self._hook("removal_listed")
            remove_files(directory, [segment.name for segment in segments])
            self._deleted_from |= {base_log(segment.log_id) for segment in segments}
            self._hook("removed")

    def _put_aside(self, directory: Path, damaged: Iterable[Segment]) -> None:
        for segment in damaged:
            put_aside(directory, segment.name)


class _OwnSegments:
    """The segments of a store. For each segment, it knows the last event that belongs to the store.

    If the store was replaced by an older copy, its old log has events that this store never had.
    """

    def __init__(self, listed: StoreSegments, sealed_seq: float) -> None:
        self.segments = listed.segments
        self._ends = listed.ends_of_logs()
        self._sealed_seq = sealed_seq

    def last_seq(self, segment: Segment) -> int:
        """Return the seq of the last event in the segment that belongs to this store. If no event
        does, the result is below the segment's first seq.
        """
        end = self._ends.get(segment.log_id, inf)
        return int(min(segment.last_seq, end - 1, self._sealed_seq))


def _leading(segments: Sequence[Segment], before_ms: int, now_ms: int) -> list[Segment]:
    """Return the oldest segments that are completely before ``before_ms``.

    If the clock was ahead, a segment may have a time in the future. Such a segment is returned too
    if the segments after it are old enough.
    """
    count = 0
    for number, segment in enumerate(segments, start=1):
        if segment.last_ts_ms < before_ms:
            count = number
        elif segment.last_ts_ms <= now_ms:
            break
    return list(segments[:count])


def _unreadable(directory: Path, segments: Iterable[Segment]) -> list[Segment]:
    """Return the damaged and missing segments. Their field ``damaged`` contains the problem.

    Raises SegmentError for a segment of a newer version: it is not damaged, and must be kept.
    """
    found = []
    for segment in segments:
        check_version(segment)
        if problem := _problem(directory, segment):
            found.append(replace(segment, damaged=problem))
    return found


def _problem(directory: Path, segment: Segment) -> str:
    try:
        return file_problem(directory, segment)
    except FileNotFoundError:
        return ABSENT
    except OSError as error:
        if error.errno != errno.EIO:
            raise  # the next run may be able to read it
        return f"cannot be read ({error.strerror})"


def _holes(
    old: Iterable[Segment], known: Iterable[Segment], above_seq: int, own: _OwnSegments
) -> list[Segment]:
    """Return the gaps between the segments to delete, each as a segment that does not exist.

    Gaps that are already ``known`` are left out.
    """
    holes = []
    at = above_seq
    for segment in in_order([*old, *known]):
        if segment.first_seq > at + 1:
            day = day_of(segment.first_ts_ms)
            name = SegmentName(day, segment.log_id, at + 1, segment.first_seq - 1)
            holes.append(replace(segment_of_name(name), damaged=NOWHERE))
        at = max(at, own.last_seq(segment))
    return holes
