"""Reading the event log of a SQLite store: sealed segments and live rows as one stream, from any
process of the same user, at any time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

from storage import sqlite_log
from storage.job_thread import JobThread
from storage.manifest import read_manifest
from storage.record_codec import payload_events
from storage.segment_lines import EventDict
from storage.segments import Segment, SegmentError, has_group, read_segment
from storage.settling import own_segments, own_snapshots
from storage.sqlite_schema import connect_reader

_BUSY_TIMEOUT_S = 5.0

_CHUNK_EVENTS = 200


def read_events(
    path: str | Path,
    after_seq: int = 0,
    *,
    log_dir: str | Path | None = None,
    group_id: str | None = None,
    since_ms: int = 0,
    live_only: bool = False,
) -> Generator[EventDict, None, None]:
    """Yield the events above a seq, oldest first, as one moment shows them. Blocks.

    Sealed segments go first, and before them what stood at the horizon (``offset_snapshot``), then
    the rows. The store knows where its files are; ``log_dir`` says it where they were moved, and
    ``live_only`` leaves them out. ``group_id`` and ``since_ms`` leave out other groups and older
    events; files that hold nothing else are not opened. Raises SegmentError for a file that is
    missing or damaged.
    """
    wanted = _Wanted(after_seq, group_id, since_ms)
    with closing(connect_reader(Path(path), _BUSY_TIMEOUT_S)) as connection:
        connection.execute("BEGIN")  # what is trimmed from now on is still here, or in files
        directory = log_dir or sqlite_log.read_note(connection).log_dir
        if directory is not None and not live_only:
            yield from _sealed(connection, Path(directory), wanted)
        for row in sqlite_log.iterate_rows(connection, after_seq, wanted.group_bytes):
            payload = row.payload()
            if payload.ts_ms >= since_ms:
                for event in payload_events(row.first_seq, payload):
                    if wanted.takes(event):
                        yield event


def last_seq(path: str | Path) -> int:
    """The seq of the last event that is durable in a store; 0 before the first."""
    with closing(connect_reader(Path(path), _BUSY_TIMEOUT_S)) as connection:
        return sqlite_log.last_row(connection)[1]


class _Wanted:
    """What a reader asked for."""

    def __init__(self, after_seq: int, group_id: str | None, since_ms: int) -> None:
        self.group_bytes = b"" if group_id is None else msgspec.json.encode(group_id)
        """What stands in every line, and in every row, that tells of the group."""
        self.after_seq = after_seq
        self._group_id = group_id
        self._since_ms = since_ms

    def takes(self, event: EventDict) -> bool:
        is_of_group = self._group_id is None or event["group"] == self._group_id
        return bool(
            is_of_group and event["seq"] > self.after_seq and event["ts_ms"] >= self._since_ms
        )

    def may_be_in(self, directory: Path, segment: Segment) -> bool:
        if segment.last_seq <= self.after_seq or segment.last_ts_ms < self._since_ms:
            return False
        return self._group_id is None or has_group(directory, segment.name, self._group_id)


def _sealed(
    connection: sqlite3.Connection, directory: Path, wanted: _Wanted
) -> Iterator[EventDict]:
    """Yield what is in files alone; what is in rows as well is left to them.

    A file that retention takes away meanwhile is in the next snapshot.
    """
    log_ids = sqlite_log.read_note(connection).log_ids
    below_seq = sqlite_log.first_seq(connection)
    if wanted.after_seq + 1 >= below_seq:
        return  # a reader that follows finds all in rows
    done_seq = 0
    missing = ""
    while True:
        manifest = read_manifest(directory)
        snapshots = own_snapshots(manifest, log_ids)[-1:]
        try:
            for segment in [*snapshots, *own_segments(manifest, log_ids)]:
                is_new = done_seq < segment.last_seq and segment.first_seq < below_seq
                if is_new and wanted.may_be_in(directory, segment):
                    for event in read_segment(directory / segment.file, wanted.group_bytes):
                        if done_seq < event["seq"] < below_seq and wanted.takes(event):
                            yield event
                done_seq = max(done_seq, segment.last_seq)
        except FileNotFoundError as error:
            if missing == error.filename:
                raise SegmentError(
                    f"{missing}: is in the manifest and does not exist; `groupkeeper log verify` "
                    "tells what else is missing"
                ) from error
            missing = error.filename
            continue
        return


async def group_history(
    path: str | Path, group_id: str, log_dir: str | Path | None = None, since_ms: int = 0
) -> AsyncIterator[EventDict]:
    """Yield the events of a group, as one moment shows them; reads in a thread."""
    events = read_events(path, log_dir=log_dir, group_id=group_id, since_ms=since_ms)
    thread = JobThread("event-log-reader")
    try:
        while chunk := await thread.submit(partial(_next_of, events)):
            for event in chunk:
                yield event
    finally:
        thread.submit(events.close)  # a connection of SQLite belongs to the thread that made it
        thread.stop()


def _next_of(events: Iterator[EventDict]) -> list[EventDict]:
    return list(islice(events, _CHUNK_EVENTS))
