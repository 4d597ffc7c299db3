"""Read the event log of a store as one stream: first its files (sealed segments), then the rows
that are still in the store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypedDict

import msgspec

from groupkeeper.storage.event_log.manifest import listed_and_found
from groupkeeper.storage.event_log.segments import (
    Segment,
    SegmentError,
    check_version,
    file_problem,
    has_group,
    read_segment,
)
from groupkeeper.storage.event_log.snapshot_logs import parse_snapshot_log
from groupkeeper.storage.event_log.source import EventRows, EventsMoved, OpenRows
from groupkeeper.storage.job_thread import JobThread
from groupkeeper.storage.segment_lines import EventDict

_CHUNK_EVENTS = 200

READ_TRIES = 5
"""The number of attempts to read without progress, if events are moved into files during each."""

OnGap: TypeAlias = Callable[[int, int], None]
"""Called with the first and the last sequence number of events that are neither in the store nor in
files."""


OnDamage: TypeAlias = Callable[[Segment, str], None]
"""Called with a damaged file and its problem, after its readable events were yielded."""


def ignore_gap(first_seq: int, last_seq: int) -> None:
    """Do nothing: the default of ``on_gap``."""


class Asked(TypedDict, total=False):
    """The keyword arguments of ``read_events``, as a type."""

    log_dir: str | Path | None
    group_id: str | None
    since_ms: int
    live_only: bool
    on_gap: OnGap
    passes_absent: bool
    on_damage: OnDamage | None


def read_events(  # noqa: PLR0913 - what one reader may ask for
    open_rows: OpenRows,
    after_seq: int = 0,
    *,
    log_dir: str | Path | None = None,
    group_id: str | None = None,
    since_ms: int = 0,
    live_only: bool = False,
    on_gap: OnGap = ignore_gap,
    passes_absent: bool = False,
    on_damage: OnDamage | None = None,
) -> Generator[EventDict, None, None]:
    """Yield the events above the sequence number ``after_seq``, oldest first. The rows of the store
    are read as they were at one moment. Blocks.

    The order is: the newest snapshot (``offset_snapshot``), which has the offsets of deleted files;
    then files; then rows of the store. The arguments:

    - ``log_dir`` is the directory of the files, if they were moved. By default the store knows it.
    - ``live_only`` reads no files.
    - ``group_id`` and ``since_ms`` select the events of one group, and events from this time on
      (``ts_ms``). A file without such events is not opened.
    - ``on_gap`` is called for each range of events that is neither in rows nor in files, at its
      place in the order. If a store has no files, the events that retention deleted are a gap.
    - ``passes_absent`` reports the events of a missing file as a gap.
    - ``on_damage`` is called for a damaged file, after its readable events were yielded.

    Raises SegmentError for a missing file without ``passes_absent``, and for a damaged file without
    ``on_damage``. Raises StoreRefused if there is no store.
    """
    wanted = _Wanted(after_seq, group_id, since_ms)
    lost = _Lost(on_gap, passes_absent, on_damage)
    tries = 0
    while True:
        began_seq = wanted.after_seq
        with closing(open_rows()) as rows:
            try:
                yield from _read_once(rows, wanted, lost, log_dir, live_only)
            except EventsMoved:
                # They are in files now, so the read continues after the last event.
                tries = 0 if wanted.after_seq > began_seq else tries + 1
                if tries == READ_TRIES:
                    raise
            else:
                return


def _read_once(
    rows: EventRows, wanted: _Wanted, lost: _Lost, log_dir: str | Path | None, live_only: bool
) -> Iterator[EventDict]:
    """Yield the wanted events. ``wanted.after_seq`` is the last seq that was read."""
    rows.hold()  # rows that are deleted after this stay visible
    directory = log_dir or rows.note().log_dir
    first_seq = rows.ends().first_seq
    # A reader that follows the log finds all its events in rows.
    if wanted.after_seq + 1 < first_seq and not live_only:
        if directory is None:
            lost.on_gap(wanted.after_seq + 1, first_seq - 1)
            wanted.after_seq = first_seq - 1
        else:
            files = _Files(rows, Path(directory), wanted, lost)
            yield from files.events()
            wanted.after_seq = files.done_seq
    for row in rows.rows(wanted.after_seq, wanted.group_bytes):
        if row.last_seq > wanted.after_seq:
            for event in row.events(wanted.since_ms):
                if event["seq"] > wanted.after_seq and wanted.takes(event):
                    yield event
            wanted.after_seq = row.last_seq


def last_seq(open_rows: OpenRows) -> int:
    """Return the sequence number of the last durable event of a store; 0 before the first event.

    Raises StoreRefused if there is no store.
    """
    with closing(open_rows()) as rows:
        return rows.ends().last_seq


class _Wanted:
    """Selects the events that one reader wants. Also remembers how far the reader has read."""

    def __init__(self, after_seq: int, group_id: str | None, since_ms: int) -> None:
        self.group_bytes = b"" if group_id is None else msgspec.json.encode(group_id)
        """Bytes that every line and every row with an event of the group contains."""
        self.after_seq = after_seq
        """The last seq that was read."""
        self.since_ms = since_ms
        self._group_id = group_id

    def takes(self, event: EventDict) -> bool:
        is_of_group = self._group_id is None or event["group"] == self._group_id
        return bool(is_of_group and event["ts_ms"] >= self.since_ms)

    def may_be_in(self, directory: Path, segment: Segment) -> bool:
        if segment.last_ts_ms < self.since_ms:
            return False
        return self._group_id is None or has_group(directory, segment.name, self._group_id)


class _Lost(NamedTuple):
    """The arguments of ``read_events`` about events that cannot be read."""

    on_gap: OnGap
    passes_absent: bool
    on_damage: OnDamage | None


class _Files:
    """Reads the events that are only in files, because their rows are deleted."""

    def __init__(
        self,
        rows: EventRows,
        directory: Path,
        wanted: _Wanted,
        lost: _Lost,
    ) -> None:
        self.done_seq = wanted.after_seq
        """The last seq that is done: yielded, reported as a gap, or covered by a snapshot. The rows
        are read from the next seq on. The newest row is never deleted, so a snapshot may cover it.
        """
        self._log_ids = rows.note().log_ids
        self._below_seq = rows.ends().first_seq
        self._directory = directory
        self._wanted = wanted
        self._lost = lost
        self._absent: set[str] = set()
        """Files that are listed and missing."""

    def events(self) -> Iterator[EventDict]:
        """Yield the wanted events of the files.

        If retention deletes a file during the call, the manifest is read again: it then has a
        snapshot that covers the file. If a file is still missing after that, its events are
        reported as a gap if ``passes_absent`` is True. Otherwise raises SegmentError.
        """
        missing = ""
        while True:
            try:
                yield from self._once()
            except FileNotFoundError as error:
                if missing != error.filename:
                    missing = error.filename
                elif self._lost.passes_absent:
                    self._absent.add(missing)
                else:
                    raise SegmentError(
                        f"{missing}: is in the manifest and does not exist; `groupkeeper log "
                        "verify` lists what else is missing"
                    ) from error
            else:
                break
        self._expect(self._below_seq)

    def _once(self) -> Iterator[EventDict]:
        listed = listed_and_found(self._directory).of_store(self._log_ids)
        for snapshot in listed.newest_snapshot:
            # The last seq of its events is the last seq that it covers.
            if self.done_seq < snapshot.last_seq and self._is_there(snapshot):
                yield from self._wanted_of(snapshot)
                self._report_lost(listed.damaged)
                self.done_seq = snapshot.last_seq
        ends = listed.ends_of_logs()
        for segment in filter(self._is_there, listed.segments):
            below_seq = min(ends[segment.log_id], self._below_seq)
            if segment.first_seq < below_seq and self.done_seq < segment.last_seq:
                self._expect(segment.first_seq)
                for event in self._wanted_of(segment):
                    if self.done_seq < event["seq"] < below_seq:
                        yield event
                self.done_seq = min(segment.last_seq, int(below_seq) - 1)

    def _is_there(self, segment: Segment) -> bool:
        return str(self._directory / segment.file) not in self._absent

    def _report_lost(self, damaged: Iterable[Segment]) -> None:
        """Report gaps for damaged segments that no snapshot covers, if they may have events that
        the reader wants.
        """
        for segment in damaged:
            snapshot = parse_snapshot_log(segment.log_id)
            first_seq = segment.first_seq if snapshot is None else 1
            if self.done_seq < segment.last_seq and self._wanted.may_be_in(
                self._directory, segment
            ):
                self._lost.on_gap(first_seq, segment.last_seq)

    def _expect(self, seq: int) -> None:
        if self.done_seq + 1 < seq:
            self._lost.on_gap(self.done_seq + 1, seq - 1)
            self.done_seq = seq - 1

    def _wanted_of(self, segment: Segment) -> Iterator[EventDict]:
        try:
            yield from self._read(segment)
        except FileNotFoundError:
            raise
        except (SegmentError, OSError) as error:
            if self._lost.on_damage is None:
                raise
            self._lost.on_damage(segment, str(error))

    def _read(self, segment: Segment) -> Iterator[EventDict]:
        check_version(segment)
        if not self._wanted.may_be_in(self._directory, segment):
            return
        path = self._directory / segment.file
        problem = file_problem(self._directory, segment)
        if problem and self._lost.on_damage is None:
            raise SegmentError(f"{path}: {problem}")
        for event in read_segment(path, self._wanted.group_bytes):
            if self._wanted.takes(event):
                yield event
        if problem:  # a caller with ``on_damage`` gets the readable events first
            raise SegmentError(f"{path}: {problem}")


async def group_history(
    open_rows: OpenRows, group_id: str, log_dir: str | Path | None = None, since_ms: int = 0
) -> AsyncIterator[EventDict]:
    """Yield the events of a group. A thread runs ``read_events``, so the loop is not blocked."""
    events = read_events(open_rows, log_dir=log_dir, group_id=group_id, since_ms=since_ms)
    thread = JobThread("event-log-reader")
    try:
        while chunk := await thread.submit(partial(_next_of, events)):
            for event in chunk:
                yield event
    finally:
        thread.submit(events.close)  # the thread that opened the rows closes them
        thread.stop()


def _next_of(events: Iterator[EventDict]) -> list[EventDict]:
    return list(islice(events, _CHUNK_EVENTS))
