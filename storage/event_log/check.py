"""Checks a directory of segments (files of events) for missing, duplicate and damaged events.

This needs no store and no daemon, and it changes nothing. A running daemon may add or delete a
segment during the check. So if the check reports a problem while a daemon runs, run it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from groupkeeper.storage.event_log.chain import Chain
from groupkeeper.storage.event_log.manifest import MANIFEST, Manifest, read_manifest
from groupkeeper.storage.event_log.segments import (
    BROKEN_PREFIX,
    LogBegin,
    Segment,
    SegmentError,
    SegmentName,
    check_version,
    describe,
    file_problem,
    in_order,
    log_begin,
    segment_names,
)
from groupkeeper.storage.event_log.snapshot_logs import base_log, parse_snapshot_log

UNLISTED: Final = "is not in the manifest: the next start of its daemon adds it"
UNLISTED_AND_DAMAGED: Final = (
    "is not in the manifest and damaged: the next start of its daemon puts it aside (_broken-…)"
)

CUT_OFF_LINE: Final = (
    "cannot be read: a crash cut it off; the next start reads the segment's file instead"
)
OLD_CUT_OFF_LINE: Final = "was cut off by a crash; the next start read the files instead"
DAMAGED_LINE: Final = (
    "is damaged: no daemon writes such a line, and a crash would only have cut it off. "
    "The files were read instead"
)

FORKED: Final = (
    "log {log_id} continues after event {previous_seq} of log {previous_log_id}: an older copy "
    "replaced the store. No longer part of its history: {abandoned}"
)

_LINE_BEGINS: Final = (b'{"file":"', b'{"removed":"')
"""Every line of a manifest begins with one of these."""


class LogReport(msgspec.Struct, kw_only=True):
    """The segments of one log, and their faults."""

    log_id: str
    is_snapshot: bool
    segments: int = 0
    events: int = 0
    first_seq: int = 0
    last_seq: int = 0
    first_ts_ms: int = 0
    last_ts_ms: int = 0
    file_bytes: int = 0
    gaps: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """Ranges of sequence numbers (seqs) that are in no segment and that no snapshot covers."""
    overlaps: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """Ranges of sequence numbers (seqs) that are in more than one segment."""
    damaged: list[str] = msgspec.field(default_factory=list)
    """The problems of files, one line for each."""
    missing: list[str] = msgspec.field(default_factory=list)
    """Files that the manifest lists and that do not exist."""

    @property
    def problems(self) -> int:
        """The number of gaps, overlaps, damaged files and missing files."""
        return len(self.gaps) + len(self.overlaps) + len(self.damaged) + len(self.missing)


class DirectoryReport(msgspec.Struct, kw_only=True):
    """The logs of one directory, and their faults."""

    directory: str
    logs: list[LogReport]
    problems: list[str] = msgspec.field(default_factory=list)
    """Problems that concern no single log."""
    notes: list[str] = msgspec.field(default_factory=list)
    """Facts for an operator that are not problems."""

    @property
    def is_sound(self) -> bool:
        """True if neither the directory nor any of its logs has a problem."""
        return not self.problems and not any(log.problems for log in self.logs)


def verify(
    directory: Path,
    *,
    reads_events: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> DirectoryReport:
    """Compare every segment with the manifest, and the segments of each log with each other.

    With ``reads_events`` it also reads each segment, and checks that every line is the event with
    the expected seq. ``progress`` is called with the bytes checked so far and the bytes in total.
    """
    manifest = read_manifest(directory)
    report = DirectoryReport(directory=str(directory), logs=[])
    report.notes += _notes_of_damage(directory, manifest)
    passed_over = manifest.removed | manifest.damaged.keys()
    names = [name for name in segment_names(directory) if str(name) not in passed_over]
    logs: dict[str, LogReport] = {}
    found: dict[str, list[Segment]] = {}
    total = sum(_size(directory / str(name)) for name in names)
    done = 0
    for name in names:
        log = _log_of(logs, name.log_id)
        try:
            segment = _checked(directory, name, manifest, report, reads_events=reads_events)
        except SegmentError as error:
            log.damaged.append(str(error))
            continue
        except FileNotFoundError:
            manifest.removed.add(str(name))  # retention deleted it during the check
            continue
        found.setdefault(name.log_id, []).append(segment)
        done += segment.file_bytes
        if progress is not None:
            progress(done, total)
    present = {str(name) for name in names}
    for file, listed in manifest.segments.items():
        if file not in present:
            _log_of(logs, listed.log_id).missing.append(file)
    chain = _chain(directory, found, manifest)
    for log_id, log in logs.items():
        _sum_up(log, in_order(found.get(log_id, ())), _begins_after(log_id, found, chain))
    for end in chain.missing_ends():
        _log_of(logs, end.log_id).gaps.append((end.first_seq, end.last_seq))
    report.notes += [FORKED.format(**fork._asdict()) for fork in chain.forks()]
    report.logs = sorted(logs.values(), key=lambda log: (log.first_ts_ms, log.first_seq))
    _report_unreadable(directory, manifest, report)
    return report


def _notes_of_damage(directory: Path, manifest: Manifest) -> Iterator[str]:
    """Yield a line for each segment that retention found damaged. Such a segment cannot be
    repaired.
    """
    known = set()
    for segment in manifest.damaged.values():
        folder, _, file = segment.file.rpartition("/")
        aside = f"{folder}/{BROKEN_PREFIX}{file}"
        known.add(aside)
        kept = f"; kept as {aside}" if (directory / aside).exists() else ""
        yield (
            f"{segment.file}: {segment.damaged}, as retention found when it deleted its day: no "
            f"snapshot has events {segment.first_seq} to {segment.last_seq}{kept}"
        )
    for path in sorted(directory.glob(f"dt=*/{BROKEN_PREFIX}*")):
        file = str(path.relative_to(directory))
        if file not in known:
            yield f"{file}: was damaged when a daemon started, and put aside"


def _log_of(logs: dict[str, LogReport], log_id: str) -> LogReport:
    is_snapshot = parse_snapshot_log(log_id) is not None
    return logs.setdefault(log_id, LogReport(log_id=log_id, is_snapshot=is_snapshot))


def _checked(
    directory: Path,
    name: SegmentName,
    manifest: Manifest,
    report: DirectoryReport,
    *,
    reads_events: bool,
) -> Segment:
    """Return the description of a segment, after a comparison with the manifest.

    Raises SegmentError if the file differs from its line in the manifest.
    """
    listed = manifest.segments.get(str(name))
    if listed is None:
        try:
            segment = describe(directory, name)
        except SegmentError:
            report.notes.append(f"{name}: {UNLISTED_AND_DAMAGED}")
            raise
        report.notes.append(f"{name}: {UNLISTED}")
        return segment
    if problem := file_problem(directory, listed):
        raise SegmentError(f"{name}: {problem}")
    check_version(listed)
    if reads_events:
        describe(directory, name)
    return listed


def _chain(directory: Path, found: Mapping[str, Sequence[Segment]], manifest: Manifest) -> Chain:
    """Build the chain of all logs. Read the beginning of each log from its first segment."""
    begins: dict[str, LogBegin] = {}
    ends: dict[str, int] = {}
    snapshots = [log_id for log_id in found if parse_snapshot_log(log_id) is not None]
    for log_id, segments in found.items():
        if log_id in snapshots:
            continue
        ends[log_id] = max(segment.last_seq for segment in segments)
        first = min(segments, key=lambda segment: segment.first_seq)
        with suppress(FileNotFoundError, SegmentError):  # deleted, or reported as damaged
            if (begin := log_begin(directory / first.file)) is not None:
                begins[log_id] = begin
    for lost in manifest.damaged.values():
        ends[lost.log_id] = max(ends.get(lost.log_id, 0), lost.last_seq)
    listed: dict[str, int] = {}
    for segment in manifest.segments.values():
        if segment.log_id not in ends:
            first_seq = listed.get(segment.log_id, segment.first_seq)
            listed[segment.log_id] = min(first_seq, segment.first_seq)
    return Chain(begins, ends, snapshots, listed)


def _begins_after(log_id: str, found: Mapping[str, Sequence[Segment]], chain: Chain) -> int:
    """Return the seq after which the segments of a log must contain every seq.

    The seqs of a store count from 1. If a log begins later, one of these covers the seqs before it:

    - the snapshot of the segments that retention deleted
    - the log that the store wrote before
    - a longer log, if the store was replaced by an older copy of itself
    """
    first_seq = min((segment.first_seq for segment in found.get(log_id, ())), default=1)
    if log_id in chain.begins:
        return first_seq - 1  # the first event of this log names the log before it
    if parse_snapshot_log(log_id) is not None:
        return first_seq - 1  # the seqs of a snapshot are the last of those that it covers
    horizon = _horizon(log_id, found)
    others = [segments for other, segments in found.items() if base_log(other) != log_id]
    ends = [max(segment.last_seq for segment in segments) for segments in others]
    is_known = (
        first_seq - 1 <= horizon
        or first_seq - 1 in ends
        or any(_is_forked(segments, found[log_id], first_seq) for segments in others)
    )
    if is_known:
        return max(horizon, first_seq - 1)
    return max([horizon, *(end for end in ends if end < first_seq)])


def _is_forked(other: Sequence[Segment], segments: Sequence[Segment], first_seq: int) -> bool:
    """Return True if the log of ``segments`` is younger than all events of the log ``other``, and
    ``other`` has the event before ``first_seq``.
    """
    ended_ms = max(segment.last_ts_ms for segment in other)
    began_ms = min(segment.first_ts_ms for segment in segments)
    return ended_ms <= began_ms and any(s.first_seq < first_seq <= s.last_seq + 1 for s in other)


def _horizon(log_id: str, logs: Iterable[str]) -> int:
    """Return the last seq that the snapshots made from a log cover; 0 if there is no snapshot.
    ``logs`` are the ids of all logs, also those of snapshots.
    """
    snapshots = (parse_snapshot_log(other) for other in logs if base_log(other) == log_id)
    return max((found.through_seq for found in snapshots if found is not None), default=0)


def _sum_up(log: LogReport, segments: Sequence[Segment], begins_after: int) -> None:
    if not segments:
        return
    log.segments = len(segments)
    log.events = sum(segment.events for segment in segments)
    log.first_seq, log.first_ts_ms = segments[0].first_seq, segments[0].first_ts_ms
    log.last_seq = max(segment.last_seq for segment in segments)
    log.last_ts_ms = max(segment.last_ts_ms for segment in segments)
    log.file_bytes = sum(segment.file_bytes for segment in segments)
    at = begins_after
    for segment in segments:
        if segment.last_seq <= begins_after:
            continue  # it will be deleted, because the snapshot covers it
        if segment.first_seq > at + 1:
            log.gaps.append((at + 1, segment.first_seq - 1))
        elif segment.first_seq <= at:
            log.overlaps.append((segment.first_seq, min(at, segment.last_seq)))
        at = max(at, segment.last_seq)


def _report_unreadable(directory: Path, manifest: Manifest, report: DirectoryReport) -> None:
    """Report each unreadable line of the manifest, as a problem or as a harmless note."""
    lines = (directory / MANIFEST).read_bytes().splitlines() if manifest.unreadable else []
    for number in manifest.unreadable:
        line = lines[number - 1]
        begins = any(each.startswith(line[: len(each)]) for each in _LINE_BEGINS)
        place, said = report.problems, DAMAGED_LINE
        if begins and not line.endswith(b"}"):
            # If a crash cut off the last line, the next start adds the missing entry after it.
            is_last = number == manifest.lines
            place, said = (place, CUT_OFF_LINE) if is_last else (report.notes, OLD_CUT_OFF_LINE)
        place.append(f"{MANIFEST}: line {number} {said}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
