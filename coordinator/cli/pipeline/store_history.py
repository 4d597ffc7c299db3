"""Reads the events of one group in a store, and finds missing events from before a moment.

The newest events are in rows of the store, earlier ones in files (segments), which the manifest
lists. The number of an event in its log is its seq. A snapshot has the offsets at the time when
earlier files were deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from groupkeeper.pipeline.log.gaps import missing_text
from groupkeeper.pipeline.restore.standing import GroupHistory
from groupkeeper.storage.event_log.manifest import listed_and_found
from groupkeeper.storage.event_log.reader import read_events
from groupkeeper.storage.event_log.segments import Segment
from groupkeeper.storage.event_log.several_logs import Logs
from groupkeeper.storage.event_log.snapshot_logs import base_log, parse_snapshot_log
from groupkeeper.storage.event_log.source import OpenRows


class MissingRange(NamedTuple):
    """Events that are neither in rows nor in files."""

    log_id: str
    """The log of the missing events. If this is unknown, the log of the first event after them."""
    first_seq: int
    last_seq: int


class _Files(NamedTuple):
    """The files in the manifest of a store that matter here: damaged files, the newest snapshot,
    and the segments after the snapshot.
    """

    segments: Sequence[Segment]
    log_id: str
    """The log of the last event."""

    def before(self, seq: int) -> Segment | None:
        return next((each for each in self.segments if each.last_seq == seq - 1), None)

    def of(self, seq: int) -> Segment | None:
        """Return the segment of the manifest that should have an event, or None. Its file may be
        missing. Segments of snapshot logs do not count.
        """
        held = (s for s in self.segments if s.first_seq <= seq <= s.last_seq)
        return next((s for s in held if parse_snapshot_log(s.log_id) is None), None)

    def after(self, seq: int) -> str:
        """Return the id of the log that has the event after ``seq``."""
        return next((e.log_id for e in self.segments if e.first_seq == seq + 1), self.log_id)


class HistoryRead(NamedTuple):
    """The offsets of a group from the events in all logs of a store, and the missing events."""

    offsets: GroupHistory
    missing: Sequence[str]
    """A sentence for each run of missing events that may be from before the moment."""
    first_log: str
    """The log of the first event; "" if there is none."""
    last_ts_ms: int


def read_group(
    logs: Logs, log_dir: Path | None, group: str, as_of_ms: int, *, is_shared: bool = False
) -> HistoryRead:
    """Read the events of a group. ``log_dir`` is the directory of the files, if they were moved.

    The manifest may list a segment whose file is missing. The events of this segment count as
    missing, unless its list of groups (a separate file) shows that none of them are of the group.

    ``is_shared`` means that the store is on a server. If such a store has one log and no files,
    retention deleted the events before the first event. They do not count as missing, but the
    offsets of partitions that no later event names are unknown (``lacks_events``).

    Raises SegmentError if a segment is damaged, and OSError or StorageError if the store or a file
    cannot be read.
    """
    found = GroupHistory(group, as_of_ms)
    missing: list[str] = []
    first_log, last_ts_ms = "", 0
    for name, open_rows in logs.items():
        gaps: list[tuple[int, int]] = []
        for event in read_events(
            open_rows,
            log_dir=log_dir,
            group_id=group,
            on_gap=partial(_keep_gap, gaps),
            passes_absent=True,
        ):
            first_log = first_log or base_log(event["log_id"])
            last_ts_ms = max(last_ts_ms, event["ts_ms"])
            found.add("", event, name)
        is_only = is_shared and len(logs) == 1 and log_dir is None
        if is_only and gaps and gaps[0][0] == 1 and not _has_files(open_rows):
            found.lacks_events = True
            del gaps[0]
        if gaps:
            before = gaps_before(open_rows, log_dir, gaps, as_of_ms)
            found.lacks_events |= bool(before)
            told = (missing_text(*each) for each in before)
            missing += [f"{each} (node {name})" if len(logs) > 1 else each for each in told]
    return HistoryRead(found, missing, first_log, last_ts_ms)


def _has_files(open_rows: OpenRows) -> bool:
    with closing(open_rows()) as rows:
        return rows.note().log_dir is not None


def _keep_gap(gaps: list[tuple[int, int]], first_seq: int, last_seq: int) -> None:
    gaps.append((first_seq, last_seq))


def gaps_before(
    open_rows: OpenRows, log_dir: Path | None, gaps: Sequence[tuple[int, int]], as_of_ms: int
) -> list[MissingRange]:
    """Return the runs of missing events (``gaps``) that may be from before a moment.

    If the manifest lists the missing file, it has the time of the first missing event. Otherwise,
    the missing events are not older than the event before them.
    """
    files = _files(open_rows, log_dir)
    found = []
    for first_seq, last_seq in gaps:
        absent = files.of(first_seq)
        if _surely_began_ms(absent, files.before(first_seq)) <= as_of_ms:
            log_id = files.after(last_seq) if absent is None else absent.log_id
            found.append(MissingRange(log_id, first_seq, last_seq))
    return found


def _surely_began_ms(absent: Segment | None, before: Segment | None) -> int:
    """Return a time (ms) that is not later than the first event of a gap; 0 if nothing is known.

    ``absent`` is the missing file, if the manifest lists it. ``before`` is the segment before it.
    """
    if absent is not None:
        return absent.first_ts_ms
    if before is None:
        return 0
    # of a file without a line in the manifest only the day is known
    return before.last_ts_ms if before.sha256 else before.first_ts_ms


def _files(open_rows: OpenRows, log_dir: Path | None) -> _Files:
    with closing(open_rows()) as rows:
        rows.hold()
        note = rows.note()
        below_seq, last_seq = rows.ends()
        log_id = rows.log_id_at(last_seq) or ""
    place = log_dir or note.log_dir
    if place is None:
        return _Files([], log_id)
    listed = listed_and_found(Path(place)).of_store(note.log_ids)
    through = listed.covered_seq
    needed = [s for s in listed.segments if s.last_seq > through and s.first_seq < below_seq]
    if needed and not log_id:  # the row of the last event is deleted, so the last file has it
        log_id = needed[-1].log_id
    return _Files([*listed.damaged, *listed.newest_snapshot, *needed], log_id)
