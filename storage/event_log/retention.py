"""The horizon of the event log: days beyond it go, and what they came to is kept
(docs/design.md#retention).

First the offsets as they stood at the end of those days are sealed as ``offset_snapshot`` events,
with the last value of every offset that had expired or been deleted; then the manifest says that
the segments have gone; then they go. A crash between two of these is finished by the next run or
by the next start.

What cannot be read then keeps nothing from going: a damaged file is put aside, and its line in the
manifest says for ever that no snapshot knows what it told.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from math import inf
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from groupkeeper.storage.event_log import manifest
from groupkeeper.storage.event_log.abandoned_logs import abandoned
from groupkeeper.storage.event_log.manifest import reconcile, remove_files
from groupkeeper.storage.event_log.sealing import FOR_EVER, Pacer, SealSettings
from groupkeeper.storage.event_log.segment_writer import SegmentWriter
from groupkeeper.storage.event_log.segments import (
    Hook,
    Segment,
    SegmentName,
    check_version,
    day_of,
    file_problem,
    no_hook,
    put_aside,
    read_segment,
    segment_names,
    segment_of_name,
)
from groupkeeper.storage.event_log.settling import (
    ends_of_logs,
    own_damaged,
    own_segments,
    own_snapshots,
)
from groupkeeper.storage.event_log.snapshots import (
    MAX_PASS_OFFSETS,
    OffsetsAsOf,
    SnapshotLog,
    base_log,
)
from groupkeeper.storage.segment_lines import encode_line

DAY_MS: Final = 86_400_000

CHECK_MS: Final = 600_000
"""Whole days go, so it is enough to look now and then."""

ABSENT: Final = "is not there"
NOWHERE: Final = "is in no file"


class LogRetention:
    """Runs on the thread that seals."""

    def __init__(
        self,
        settings: SealSettings,
        clock: Callable[[], int],
        hook: Hook = no_hook,
        pacer: Pacer | None = None,
        max_offsets: int = MAX_PASS_OFFSETS,
    ) -> None:
        """Touch nothing yet. ``max_offsets`` are held in memory at the same time."""
        self._max_offsets = max_offsets
        self._settings = settings
        self._clock = clock
        self._hook = hook
        self._pacer = pacer or Pacer()
        self._checked_ms: float = -inf
        self.gone_log_ids: frozenset[str] = frozenset()
        """The logs of which the last run left no file, nor a word in the manifest."""
        self._taken_from: set[str] = set()

    def run(self, log_ids: Iterable[str], sealed_seq: float = inf) -> list[Segment]:
        """Let the days go that are wholly beyond the horizon; cheap when there are none. Returns
        what could not be read of them. What files hold above ``sealed_seq`` is not of this store.
        """
        self.gone_log_ids = frozenset()
        self._taken_from.clear()
        damaged = self._run(log_ids, sealed_seq)
        if self._taken_from:
            left = manifest.read_manifest(self._settings.directory)
            told = {base_log(s.log_id) for s in (*left.segments.values(), *left.damaged.values())}
            self.gone_log_ids = frozenset(self._taken_from - told)
        return damaged

    def _run(self, log_ids: Iterable[str], sealed_seq: float) -> list[Segment]:
        now_ms = self._clock()
        # the clock may have been set back since
        is_early = 0 <= now_ms - self._checked_ms < CHECK_MS
        if self._settings.retention_ms == FOR_EVER or is_early:
            return []
        self._checked_ms = now_ms
        before_ms = (now_ms - self._settings.retention_ms) // DAY_MS * DAY_MS
        directory = self._settings.directory
        logs = set(log_ids)
        names = {name.log_id for name in segment_names(directory)}
        found = reconcile(directory, [log for log in names if base_log(log) in logs])
        known = own_damaged(found, logs)
        snapshots = own_snapshots(found, logs)
        told = _Told(own_segments(found, logs), snapshots, sealed_seq)
        # A crash may have come between a snapshot and the end of what it stands for.
        covered_seq = snapshots[-1].last_seq if snapshots else 0
        left = [s for s in told.segments if told.last_seq(s) > max(covered_seq, s.first_seq - 1)]
        done = [s for s in told.segments if s not in left]
        over = [s for s in done if not before_ms <= s.last_ts_ms <= now_ms]
        self._remove(directory, [*snapshots[:-1], *over])
        self._put_aside(directory, known)
        self._remove(directory, abandoned(directory, logs, before_ms))
        going = _leading(left, before_ms, now_ms)
        if not going:
            return []
        holes = _holes(going, known, covered_seq, told)
        return self._let_go(directory, [*snapshots[-1:], *going], holes, told)

    def _let_go(
        self,
        directory: Path,
        going: Sequence[Segment],
        holes: Sequence[Segment],
        told: _Told,
    ) -> list[Segment]:
        damaged = [*_unreadable(directory, going), *holes]
        passed_over = {segment.file for segment in damaged}
        readable = [segment for segment in going if segment.file not in passed_over]
        last = max(going, key=told.last_seq)
        log = SnapshotLog(last.log_id, told.last_seq(last))
        self._snapshot(directory, readable, damaged, log, last.last_ts_ms, told)
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
        told: _Told,
    ) -> None:
        """Seal what the segments came to, in as many passes as the memory wants."""
        offsets = OffsetsAsOf(max_offsets=self._max_offsets)
        self._apply(offsets, directory, segments, told)
        seq = log.through_seq - offsets.event_count + 1
        writer = SegmentWriter(directory, str(log), seq, ts_ms, hook=self._hook)
        try:
            for part in range(offsets.parts):
                if part:
                    offsets = OffsetsAsOf(part, offsets.parts)
                    self._apply(offsets, directory, segments, told)
                for event in offsets.events(log, ts_ms, writer.next_seq):
                    writer.add([(event["group"], encode_line(event))], event["ts_ms"])
                    self._pacer.tick()
            # what it does not know is told before it: a crash may cut off what comes last
            manifest.add(directory, [*damaged, writer.seal()])
        except BaseException:
            writer.discard()
            raise
        self._hook("snapshot_listed")

    def _apply(
        self, offsets: OffsetsAsOf, directory: Path, segments: Iterable[Segment], told: _Told
    ) -> None:
        for segment in segments:
            last_seq = told.last_seq(segment)
            for event in read_segment(directory / segment.file):
                if event["seq"] <= last_seq:
                    offsets.apply(event)
                self._pacer.tick()

    def _remove(self, directory: Path, segments: Sequence[Segment]) -> None:
        if segments:
            manifest.remove(directory, [segment.file for segment in segments])
            self._hook("removal_listed")
            remove_files(directory, [segment.name for segment in segments])
            self._taken_from |= {base_log(segment.log_id) for segment in segments}
            self._hook("removed")

    def _put_aside(self, directory: Path, damaged: Iterable[Segment]) -> None:
        for segment in damaged:
            put_aside(directory, segment.name)


class _Told:
    """What the segments of a store tell of it: a log that an older copy took the place of goes on
    beyond its end, with what this store knows nothing of.
    """

    def __init__(
        self, segments: Sequence[Segment], snapshots: Sequence[Segment], sealed_seq: float
    ) -> None:
        self.segments = segments
        self._ends = ends_of_logs(segments, snapshots)
        self._sealed_seq = sealed_seq

    def last_seq(self, segment: Segment) -> int:
        """The last event of a segment that is of the store."""
        end = self._ends.get(segment.log_id, inf)
        return int(min(segment.last_seq, end - 1, self._sealed_seq))


def _leading(segments: Sequence[Segment], before_ms: int, now_ms: int) -> list[Segment]:
    """The oldest segments, as long as they are wholly before a moment. One that was written when
    the clock was ahead goes with what came after it.
    """
    count = 0
    for number, segment in enumerate(segments, start=1):
        if segment.last_ts_ms < before_ms:
            count = number
        elif segment.last_ts_ms <= now_ms:
            break
    return list(segments[:count])


def _unreadable(directory: Path, segments: Iterable[Segment]) -> list[Segment]:
    """Those that are damaged or missing, with what is wrong with them. Raises SegmentError for what
    a newer version wrote: nothing is wrong with that.
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
            raise  # it may be readable the next time
        return f"cannot be read ({error.strerror})"


def _holes(
    going: Iterable[Segment], known: Iterable[Segment], above_seq: int, told: _Told
) -> list[Segment]:
    """What is in no file between those that go, as the segments that are lacking; not what is known
    to be.
    """
    holes = []
    at = above_seq
    for segment in sorted([*going, *known], key=lambda s: (s.first_seq, s.last_seq)):
        if segment.first_seq > at + 1:
            day = day_of(segment.first_ts_ms)
            name = SegmentName(day, segment.log_id, at + 1, segment.first_seq - 1)
            holes.append(replace(segment_of_name(name), damaged=NOWHERE))
        at = max(at, told.last_seq(segment))
    return holes
