"""Find out at start which events of a store are in files (docs/design.md#sealing).

A segment is such a file. A seq is the sequence number of an event.

The manifest and the file names show which events are in files. But a crash may have interrupted
sealing at any step, the store may be an older copy of itself, and somebody may have moved the
files. Two rules always hold: a row is deleted only if its events are in files, and no event is
sealed twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from groupkeeper.storage.event_log.manifest import (
    StoreSegments,
    read_manifest,
    reconcile,
    remove_orphans,
)
from groupkeeper.storage.event_log.sealing.segment_writer import remove_temporary
from groupkeeper.storage.event_log.segments import (
    Segment,
    SegmentError,
    SegmentName,
    log_begin,
    segment_names,
)
from groupkeeper.storage.event_log.snapshot_logs import base_log, parse_snapshot_log
from groupkeeper.storage.event_log.source import EventRows
from groupkeeper.storage.event_log.store_names import parse_store_name


class Settled(NamedTuple):
    """The result of ``settle``: which events are in files, which are still in rows, and which are
    lost.
    """

    sealed_seq: int
    """Every event up to this seq is in a file, or its row is deleted."""
    log_ids: frozenset[str]
    """The logs of this store that are in files, or that the store has recorded as sealed."""
    new_log_ids: frozenset[str]
    """The logs of this store that are in files and not yet recorded in the store."""
    later: Sequence[Segment]
    """Segments above ``sealed_seq``. Some rows before them are not in files yet."""
    lost: tuple[int, int] | None
    """The first range of seqs that are in no row, file or snapshot; None if there is none."""
    put_aside: Sequence[str]
    """Damaged segments that were not in the manifest yet. They were renamed."""
    store: str = ""
    """The name of the store, for new lines of the manifest."""
    begin_seq: int = 1
    """The seq of the first event that sealing could find (``LogNote.begin_seq``)."""

    def held(self, log_id: str, seq: int) -> Segment | None:
        """Return the segment of ``later`` that contains an event. Return None if there is none."""
        at = bisect_left(self.later, seq, key=lambda segment: segment.last_seq)
        if at < len(self.later):
            found = self.later[at]
            if found.log_id == log_id and found.first_seq <= seq:
                return found
        return None


def settle(rows: EventRows, directory: Path, store: str = "") -> Settled:
    """Repair the files of this store, and find out which events they contain. ``store`` is the name
    of the store, if the store does not record it.
    """
    note = rows.note()
    name = note.store or store
    new = _logs_in_rows(rows, directory, {*note.log_ids, *_logs_of_others(directory, name)})
    own = {*note.log_ids, *new}
    remove_temporary(
        directory,
        lambda log_id, seq: base_log(log_id) in own or rows.log_id_at(seq) == log_id,
    )
    everything = {name.log_id for name in segment_names(directory)}
    manifest = reconcile(directory, [log for log in everything if base_log(log) in own], name)
    remove_orphans(directory, own, manifest)
    present = {str(name) for name in segment_names(directory)}
    listed = manifest.of_store(own)
    segments = [segment for segment in listed.segments if segment.file in present]
    first_seq, last_seq = rows.ends()
    sealed_seq = max(first_seq - 1, _snapshot_in_rows(rows, listed, first_seq))
    later: list[Segment] = []
    for run in _runs(segments):
        end_seq = _last_in_rows(rows, run, first_seq, last_seq)
        if end_seq is None:
            continue
        if run[0].first_seq <= sealed_seq + 1:
            sealed_seq = max(sealed_seq, end_seq)
        else:
            in_rows = (s for s in run if first_seq <= s.last_seq and s.first_seq <= end_seq)
            later += in_rows
    return Settled(
        sealed_seq=min(sealed_seq, last_seq),
        log_ids=frozenset(own),
        new_log_ids=frozenset(new),
        later=later,
        lost=_lost(segments, max(listed.covered_seq, note.begin_seq - 1), first_seq),
        put_aside=manifest.put_aside,
        store=name,
        begin_seq=note.begin_seq if note.log_ids else 1 + (0 if segments else sealed_seq),
    )


def is_overtaken(directory: Path, log_id: str, next_seq: int) -> bool:
    """Return True if files have events after the last event of a store.

    These are events of the same log, or of a log that continues it at the next seq.
    """
    return any(
        (name.log_id == log_id and name.last_seq >= next_seq)
        or (name.first_seq == next_seq and _follows(directory, name, log_id))
        for name in segment_names(directory)
    )


def _follows(directory: Path, name: SegmentName, log_id: str) -> bool:
    with suppress(OSError, SegmentError):  # settle reports it if it is damaged or deleted
        begin = log_begin(directory / str(name))
        return begin is not None and begin.previous_log_id == log_id
    return False


def _logs_of_others(directory: Path, store: str) -> set[str]:
    """Return the logs in the manifest that belong to another shard or node of the same store. To
    ask the store for each of them would take long, because it may have many shards.
    """
    own = parse_store_name(store)
    if not own.node:
        return set()
    return {
        segment.log_id
        for segment in read_manifest(directory).segments.values()
        if (other := parse_store_name(segment.store)).store == own.store
        and other.node not in ("", own.node)
    }


def _logs_in_rows(rows: EventRows, directory: Path, known: Iterable[str]) -> set[str]:
    """Return the logs that have files and rows, but that the store has not recorded as sealed.

    If all files of a log were deleted, its snapshot is such a file too: it covers rows that the
    store may still have.
    """
    found: set[str] = set()
    passed = set(known)
    first_seq, _ = rows.ends()
    for name in segment_names(directory):
        snapshot = parse_snapshot_log(name.log_id)
        log_id = name.log_id if snapshot is None else snapshot.log_id
        seq = max(name.first_seq, first_seq) if snapshot is None else snapshot.through_seq
        is_new = log_id not in passed and log_id not in found
        may_be_in_rows = name.last_seq >= first_seq  # to ask a store on a server takes time
        if is_new and may_be_in_rows and rows.log_id_at(seq) == log_id:
            found.add(log_id)
    return found


def _runs(segments: Iterable[Segment]) -> list[list[Segment]]:
    """Return the segments in runs. Each segment of a run continues the segment before it in the
    same log. A store on a server is then asked about a few runs, not about thousands of segments.
    """
    runs: list[list[Segment]] = []
    for segment in segments:
        last = runs[-1][-1] if runs else None
        if last and (last.log_id, last.last_seq + 1) == (segment.log_id, segment.first_seq):
            runs[-1].append(segment)
        else:
            runs.append([segment])
    return runs


def _last_in_rows(
    rows: EventRows, run: Sequence[Segment], first_seq: int, last_seq: int
) -> int | None:
    """Return the last seq of a run of segments that is also in rows. Return None if there is none.

    If the store is an older copy of itself, its rows may change to another log in the middle of a
    segment.
    """
    log_id = run[0].log_id
    same, end = max(run[0].first_seq, first_seq), min(run[-1].last_seq, last_seq)
    if end < same or rows.log_id_at(same) != log_id:
        return None  # its rows are deleted, or belong to another log
    if rows.log_id_at(end) == log_id:
        return end
    while end - same > 1:
        middle = (same + end) // 2
        if rows.log_id_at(middle) == log_id:
            same = middle
        else:
            end = middle
    return same


def _snapshot_in_rows(rows: EventRows, listed: StoreSegments, first_seq: int) -> int:
    """Return the last seq that both a snapshot covers and a row still has. Return 0 if there is
    none.

    The newest row is never deleted, but retention may have deleted the files of its day.
    """
    for snapshot in listed.newest_snapshot:
        log_id = base_log(snapshot.log_id)
        if snapshot.last_seq >= first_seq and rows.log_id_at(snapshot.last_seq) == log_id:
            return snapshot.last_seq
    return 0


def _lost(segments: Sequence[Segment], above: int, below: int) -> tuple[int, int] | None:
    """Return the first range of seqs that are in no file, between ``above`` (the last seq that a
    snapshot covers) and ``below`` (the first seq in rows). Return None if there is none.
    """
    at = above  # after the snapshot, not at the first file: files between them may be missing
    for segment in segments:
        if segment.first_seq > at + 1:
            break
        at = max(at, segment.last_seq)
    if at + 1 >= below:
        return None
    following = [s.first_seq for s in segments if s.first_seq > at]
    return at + 1, min([*following, below]) - 1
