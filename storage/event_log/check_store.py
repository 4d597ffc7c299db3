"""Compares the files of events (segments) with what the store knows about them. The store may be in
use: nothing is written.

If the newest file is missing, and its line in the manifest too, the other files do not show this.
But the store knows the seq (sequence number) of the last event that was sealed, which means moved
into a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from math import inf
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec

from groupkeeper.storage.event_log.manifest import StoreSegments, listed_and_found
from groupkeeper.storage.event_log.reader import READ_TRIES
from groupkeeper.storage.event_log.segments import in_order
from groupkeeper.storage.event_log.several_logs import LogStore
from groupkeeper.storage.event_log.snapshot_logs import base_log
from groupkeeper.storage.event_log.source import EventRows, EventsMoved, LogNote, OpenRows

NOT_SEALED: Final = "no event was moved into a file yet"
NOT_HERE: Final = "its files are in {directory}, which is not on this machine: not compared"
NO_DIRECTORY: Final = "its files were in {directory}, which does not exist"
LOST: Final = (
    "events {first} to {last} were moved into files; they are in no file now, and not in the store"
)
STILL_IN_STORE: Final = (
    "events {first} to {last} were moved into files and are in no file now, but the store still "
    "has them: restart the daemon soon, and it writes the files again"
)

_LOOKS: Final = 2
"""The number of times that the manifest is read and its files are looked for, before a file counts
as missing. Retention may delete a file after the manifest was read. The next read of the manifest
then shows a snapshot in place of the file."""

PlaceOf: TypeAlias = Callable[[str, LogNote], Path | None]
"""Takes the name of a log, and what the store has recorded about it. Returns the directory of the
log's files, or None if it has no files."""


class StoreLogReport(msgspec.Struct, kw_only=True):
    """One log of a store, compared with its files."""

    name: str
    """The node or the shard whose log it is; "" if the store has only one log."""
    directory: str | None = None
    """The directory of the files; None if there is none."""
    sealed_log_id: str | None = None
    """The log of the last event that was moved into a file; None if it is unknown."""
    sealed_seq: int = 0
    """The seq of the last event that was moved into a file; 0 if there is none."""
    first_seq: int = 1
    """The seq of the first event that is still in the store."""
    last_seq: int = 0
    lost: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """Ranges of seqs that are in no file, in no snapshot and not in the store."""
    unsafe: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """Ranges of seqs that should be in files, and are only in the store."""
    problems: list[str] = msgspec.field(default_factory=list)
    """One line for each problem, also for the ranges above."""
    notes: list[str] = msgspec.field(default_factory=list)
    """Facts for an operator that are not problems."""


def compare(store: LogStore, place_of: PlaceOf) -> list[StoreLogReport]:
    """Compare each log of a store with its files. Blocks.

    Each log is read from the store first, and its files after it. So the result is also right if a
    daemon seals, deletes rows, or deletes old files at the same time. Raises StoreRefused if there
    is no store.
    """
    with store.kept_open():
        logs = store.logs()
        return [_compared(name, logs[name], store.is_shared, place_of) for name in logs]


def _compared(name: str, open_rows: OpenRows, is_shared: bool, place_of: PlaceOf) -> StoreLogReport:
    known = _read(open_rows, is_shared)
    report = StoreLogReport(
        name=name,
        sealed_log_id=known.sealed_log_id,
        sealed_seq=known.sealed_seq,
        first_seq=known.first_seq,
        last_seq=known.last_seq,
    )
    directory = place_of(name, known.note)
    report.directory = None if directory is None else str(directory)
    if not known.sealed_seq:
        report.notes.append(NOT_SEALED)
    elif directory is None or not directory.is_dir():
        text, place = NO_DIRECTORY, report.problems
        if is_shared:  # another node of the store may run on another machine
            text, place = NOT_HERE, report.notes
        place.append(text.format(directory=directory))
    else:
        _find_missing(known, directory, report)
    return report


class _Known(NamedTuple):
    """The data of the store about one log, at one moment."""

    note: LogNote
    first_seq: int
    """The seq of the first event in the store. If the store has no event, the seq of the next."""
    last_seq: int
    sealed_seq: int
    sealed_log_id: str | None


def _read(open_rows: OpenRows, is_shared: bool) -> _Known:
    tries = 0
    while True:
        with closing(open_rows()) as rows:
            rows.hold()
            note, (first_seq, last_seq) = rows.note(), rows.ends()
            sealed_seq = note.sealed_seq if note.log_ids else 0
            if sealed_seq and not is_shared:
                # A row is deleted only after its events are in files. On a server, retention may
                # also delete events of a store that does not seal.
                sealed_seq = max(first_seq - 1, sealed_seq)
            try:
                log_id = _log_of(rows, sealed_seq, first_seq)
            except EventsMoved:
                tries += 1
                if tries == READ_TRIES:
                    raise
            else:
                return _Known(note, first_seq, last_seq, sealed_seq, log_id)


def _log_of(rows: EventRows, seq: int, first_seq: int) -> str | None:
    """Return the log of the event ``seq``. If the store has deleted this event, return the log of
    the last deleted event, which the first remaining event shows. Return None if no event shows it.
    """
    if seq >= first_seq:
        return rows.log_id_at(seq)
    for row in rows.rows(first_seq - 1):
        for event in row.events():
            if event["seq"] == first_seq:  # the first row may begin with earlier events
                is_begin = event["kind"] == "log_started"
                return event.get("previous_log_id") if is_begin else event["log_id"]
    return None


def _find_missing(known: _Known, directory: Path, report: StoreLogReport) -> None:
    missing: list[tuple[int, int]] = []
    for _ in range(_LOOKS):
        listed = listed_and_found(directory).of_store(known.note.log_ids)
        missing = [*_missing(known, listed, directory)]
        if not missing:
            break
    for first, last in missing:
        if first < known.first_seq:
            report.lost.append((first, min(last, known.first_seq - 1)))
        if last >= known.first_seq:
            report.unsafe.append((max(first, known.first_seq), last))
    for ranges, text in ((report.lost, LOST), (report.unsafe, STILL_IN_STORE)):
        report.problems += [text.format(first=first, last=last) for first, last in ranges]


def _missing(known: _Known, listed: StoreSegments, directory: Path) -> Iterator[tuple[int, int]]:
    """Yield the ranges of seqs up to the last sealed event that are in no file and no snapshot.
    Segments that retention found damaged are known to be lost, and not reported again.
    """
    present = [each for each in listed.segments if (directory / each.file).exists()]
    snapshots = [each for each in listed.snapshots if (directory / each.file).exists()]
    ends = listed.ends_of_logs()
    logs = {base_log(each.log_id) for each in (*listed.segments, *snapshots)}
    # The last sealed event is in the file of its own log. An older log may have the same seq, if an
    # older copy replaced the store.
    is_known = known.sealed_log_id is None or known.sealed_log_id in logs
    others_end = inf if is_known else known.sealed_seq
    at = max((each.last_seq for each in snapshots), default=known.note.begin_seq - 1)
    for segment in in_order([*present, *listed.damaged]):
        if at >= known.sealed_seq:
            return
        end = min(segment.last_seq + 1, ends.get(segment.log_id, inf), others_end) - 1
        if end > at:
            if segment.first_seq > at + 1:
                yield at + 1, min(segment.first_seq - 1, known.sealed_seq)
            at = int(end)
    if at < known.sealed_seq:
        yield at + 1, known.sealed_seq
