"""What a store tells of one group, and what it lacks of what came before a moment."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from storage import sqlite_log
from storage.event_log import read_events
from storage.manifest import listed_and_found, write_segments
from storage.segments import Segment, SegmentName, parse_name
from storage.settling import own_segments, own_snapshots
from storage.sqlite_schema import connect_reader

_BUSY_TIMEOUT_S: Final = 5.0


class MissingEvents(NamedTuple):
    """Events that are neither in rows nor in files."""

    log_id: str
    """The log that they belong to, or, where it changed there, the one after them."""
    first_seq: int
    last_seq: int


class _Files(NamedTuple):
    """The files of a store: its snapshots, then its segments, each by seq; and where they are."""

    segments: Sequence[Segment]
    directory: Path | None
    log_id: str
    """Of the newest row."""
    went: Sequence[SegmentName]
    """What went by retention, by seq, and no snapshot stands for: it left nothing to keep."""

    def behind_what_went(self, seq: int) -> int:
        """The first seq from one on that did not go by retention."""
        for name in self.went:
            if name.first_seq <= seq <= name.last_seq:
                seq = name.last_seq + 1
        return seq

    def before(self, seq: int) -> Segment | None:
        return next((each for each in self.segments if each.last_seq == seq - 1), None)

    def after(self, seq: int) -> str:
        """The log that goes on above a seq."""
        return next((e.log_id for e in self.segments if e.first_seq == seq + 1), self.log_id)


def copy_group(
    store: Path, log_dir: Path | None, group: str, target: Path
) -> list[tuple[int, int]]:
    """Write the events of a group as segments; return the seqs that the store lacks.

    Files and rows are read as one stream. Raises SegmentError, OSError, sqlite3.Error.
    """
    gaps: list[tuple[int, int]] = []
    events = read_events(
        store,
        log_dir=log_dir,
        group_id=group,
        tell_gap=lambda first_seq, last_seq: gaps.append((first_seq, last_seq)),
    )
    write_segments(target, events)
    return gaps


def absent_files(store: Path, log_dir: Path | None, as_of_ms: int) -> list[MissingEvents]:
    """Return what is in files that the manifest knows and the directory has not, up to a moment."""
    files = _files(store, log_dir)
    if files.directory is None:
        return []
    return [
        MissingEvents(each.log_id, each.first_seq, each.last_seq)
        for each in files.segments
        if each.first_ts_ms <= as_of_ms and not (files.directory / each.file).exists()
    ]


def gaps_before(
    store: Path, log_dir: Path | None, gaps: Sequence[tuple[int, int]], as_of_ms: int
) -> list[MissingEvents]:
    """Return the gaps that may hold something of before a moment: what comes before them does."""
    files = _files(store, log_dir)
    found = []
    for gap_seq, last_seq in gaps:
        first_seq = files.behind_what_went(gap_seq)
        if first_seq > last_seq:
            continue
        before = files.before(first_seq)
        if before is None or _surely_ended_ms(before) <= as_of_ms:
            found.append(MissingEvents(files.after(last_seq), first_seq, last_seq))
    return found


def _surely_ended_ms(segment: Segment) -> int:
    # of one without a line in the manifest no more is known than its day
    return segment.last_ts_ms if segment.sha256 else segment.first_ts_ms


def _files(store: Path, log_dir: Path | None) -> _Files:
    with closing(connect_reader(store, _BUSY_TIMEOUT_S)) as connection:
        connection.execute("BEGIN")
        note = sqlite_log.read_note(connection)
        below_seq = sqlite_log.first_seq(connection)
        log_id = sqlite_log.read_head(connection).log_id
    place = log_dir or note.log_dir
    if place is None:
        return _Files([], None, log_id, [])
    manifest = listed_and_found(Path(place))
    snapshots = own_snapshots(manifest, note.log_ids)[-1:]
    through = max((each.last_seq for each in snapshots), default=0)
    segments = own_segments(manifest, note.log_ids)
    needed = [s for s in segments if s.last_seq > through and s.first_seq < below_seq]
    names = [name for file in manifest.removed if (name := parse_name(file)) is not None]
    went = [] if snapshots else [name for name in names if name.log_id in note.log_ids]
    went.sort(key=lambda name: name.first_seq)
    return _Files([*snapshots, *needed], Path(place), log_id, went)
