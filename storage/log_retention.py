"""The horizon of the event log: days beyond it go, and what they came to is kept (design 3).

First the offsets as they stood at the end of those days are sealed as ``offset_snapshot`` events,
with the last value of every offset that had expired or been deleted; then the manifest says that
the segments have gone; then they go. A crash between two of these is finished by the next run or
by the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from storage import manifest
from storage.manifest import read_manifest, remove_files
from storage.sealing import FOR_EVER, Pacer, SealSettings
from storage.segment_lines import encode_line
from storage.segments import (
    Hook,
    Segment,
    SegmentError,
    SegmentWriter,
    check_version,
    file_problem,
    no_hook,
    read_segment,
)
from storage.settling import own_segments, own_snapshots
from storage.snapshots import MAX_PASS_OFFSETS, OffsetsAsOf, SnapshotLog

DAY_MS: Final = 86_400_000

CHECK_MS: Final = 600_000
"""Whole days go, so it is enough to look now and then."""


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
        self._next_check_ms = 0

    def run(self, log_ids: Iterable[str]) -> None:
        """Let the days go that are wholly beyond the horizon; cheap when there are none."""
        now_ms = self._clock()
        if self._settings.retention_ms == FOR_EVER or now_ms < self._next_check_ms:
            return
        self._next_check_ms = now_ms + CHECK_MS
        before_ms = (now_ms - self._settings.retention_ms) // DAY_MS * DAY_MS
        directory = self._settings.directory
        found = read_manifest(directory)
        logs = set(log_ids)
        snapshots = own_snapshots(found, logs)
        segments = own_segments(found, logs)
        # A crash may have come between a snapshot and the end of what it stands for.
        covered_seq = snapshots[-1].last_seq if snapshots else 0
        covered = [segment for segment in segments if segment.last_seq <= covered_seq]
        self._remove(directory, [*snapshots[:-1], *covered])
        going = _leading([s for s in segments if s.last_seq > covered_seq], before_ms)
        if going:
            before = snapshots[-1:]
            self._snapshot(directory, [*before, *going])
            self._remove(directory, [*before, *going])

    def _snapshot(self, directory: Path, segments: Sequence[Segment]) -> None:
        """Seal what the segments came to, in as many passes as the memory wants."""
        last = segments[-1]
        log = SnapshotLog(last.log_id, last.last_seq)
        offsets = OffsetsAsOf(max_offsets=self._max_offsets)
        self._apply(offsets, directory, segments)
        seq = last.last_seq - offsets.event_count + 1
        writer = SegmentWriter(directory, str(log), seq, last.last_ts_ms, hook=self._hook)
        try:
            for part in range(offsets.parts):
                if part:
                    offsets = OffsetsAsOf(part, offsets.parts)
                    self._apply(offsets, directory, segments)
                for event in offsets.events(log, last.last_ts_ms, writer.next_seq):
                    writer.add([(event["group"], encode_line(event))], event["ts_ms"])
                    self._pacer.tick()
            manifest.add(directory, [writer.seal()])
        except BaseException:
            writer.discard()
            raise
        self._hook("snapshot_listed")

    def _apply(self, offsets: OffsetsAsOf, directory: Path, segments: Iterable[Segment]) -> None:
        for segment in segments:
            check_version(segment)
            if problem := file_problem(directory, segment):
                # it is about to go: what a snapshot is made of is never looked at again
                raise SegmentError(f"{segment.file}: {problem}")
            for event in read_segment(directory / segment.file):
                offsets.apply(event)
                self._pacer.tick()

    def _remove(self, directory: Path, segments: Sequence[Segment]) -> None:
        if segments:
            manifest.remove(directory, [segment.file for segment in segments])
            self._hook("removal_listed")
            remove_files(directory, [segment.name for segment in segments])
            self._hook("removed")


def _leading(segments: Sequence[Segment], before_ms: int) -> list[Segment]:
    """The oldest segments, as long as they are wholly before a moment."""
    going = []
    for segment in segments:
        if segment.last_ts_ms >= before_ms:
            break
        going.append(segment)
    return going
