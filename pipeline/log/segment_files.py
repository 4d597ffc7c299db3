"""Checks files of a log against their names and the manifests (pure).

Three sources describe a segment, which is a file of events. Its name has the log, and the first and
last sequence number (seq). Its folder has the day. The manifest (the daemon's list of segments) has
the size and the checksum. If a file does not match them, none of its events reaches bronze, the
table of all events. The result for each file is kept (``Verdict``). A file is examined again only
if the file or its manifest line has changed.

A run reads files in batches. The daemon's retention deletes old segments. It first writes a
snapshot, a segment with the offsets after the deleted events.

This module reads the manifest itself, as ``docs/reference/events.md`` describes it. It does not use
``storage.event_log.manifest``, because that module needs packages such as msgspec. On a cluster,
the wheel of groupkeeper runs without the packages that the daemon needs. A test checks that both
readers agree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Final, NamedTuple

from groupkeeper.pipeline.log.gaps import IN_NO_SNAPSHOT
from groupkeeper.pipeline.log.held_segment import HeldSegment
from groupkeeper.storage.event_log.event_kinds import EVENT_SCHEMA_VERSION
from groupkeeper.storage.event_log.snapshot_logs import base_log

MANIFEST: Final = "_manifest.jsonl"

SEGMENT_GLOB: Final = "events-*.jsonl.gz"
"""A pattern for the names of sealed (complete) segments. A segment that is still written has
another name.
"""

ABSENT: Final = "is in the manifest and not there"

NEWER: Final = "was written by a newer groupkeeper"

_NAME: Final = re.compile(r"events-(?P<log_id>.+)-(?P<first>\d+)-(?P<last>\d+)\.jsonl\.gz")
_DAY: Final = re.compile(r"dt=(\d{4}-\d\d-\d\d)")


class SegmentFile(NamedTuple):
    """The information in the path of a segment."""

    log_id: str
    first_seq: int
    last_seq: int
    day: date | None
    """The day in the path; None if the file is not in the folder of a day."""


class Listed(NamedTuple):
    """The information in a manifest about a segment."""

    file_bytes: int = 0
    sha256: str = ""
    """"" if the manifest does not list the segment."""
    schema_version: int = 0
    store: str = ""
    """"" if an older version wrote the line."""


class ChangeTicket(NamedTuple):
    """A file to examine, because the file or its line in the manifest has changed."""

    file: str
    """The path below the log's folder."""
    listed: Listed
    """The current line of the file in the manifest."""


class Verdict(NamedTuple):
    """The result of examining a file. Its fields are the columns of ``VERDICT_SCHEMA``."""

    file: str
    file_bytes: int
    modified_ms: int
    sha256: str
    listed_sha256: str
    """The checksum in the manifest when the file was examined; "" if the manifest did not list the
    file.
    """
    problem: str
    """The reason why the file cannot be used; "" for a segment that was read."""
    batch_id: str = ""


class Lacking(NamedTuple):
    """A segment that is missing or has a problem."""

    file: str
    problem: str
    name: SegmentFile | None

    def __str__(self) -> str:
        return f"{self.file} {self.problem}"

    def as_expected(self) -> HeldSegment | None:
        """Return a segment without events, from which the class ``Coverage`` learns that the events
        of this file are missing.

        Return None if the path names no segment or no day. Return None for a snapshot too, except
        for a snapshot that retention could not read when it deleted the file.
        """
        if self.name is None:
            return None
        log_id, first, last, day = self.name
        if day is None:
            return None
        if base_log(log_id) != log_id:
            if IN_NO_SNAPSHOT in self.problem:  # all events that it covers
                return HeldSegment(base_log(log_id), "", day, 1, last, 0, 0, problem=str(self))
            return None  # without the snapshot the beginning of the log is reported missing anyway
        file = self.file.rpartition("/")[2]
        return HeldSegment(log_id, file, day, first, last, 0, 0, problem=str(self))


def expected(lacking: Iterable[Lacking]) -> list[HeldSegment]:
    """Return the files as segments without events, from which ``Coverage`` learns which events are
    missing.

    A wrong copy outside the folders of days gets the day of its original, if the original is
    missing or wrong too.
    """
    found = list(lacking)
    days = {_file_name(each.file): each.name.day for each in found if each.name and each.name.day}
    parts = []
    for each in found:
        if each.name is not None and each.name.day is None:
            day = days.get(_file_name(each.file))
            each = each._replace(name=each.name._replace(day=day))
        parts.append(each.as_expected())
    return [part for part in parts if part is not None]


def _file_name(file: str) -> str:
    return file.rpartition("/")[2]


def lost_problem(damaged: str) -> str:
    """Return the problem of a segment that retention could not read before it deleted the segment.
    ``damaged`` says what was wrong with the segment.
    """
    return f"{damaged}: it was so when its day went by retention, and {IN_NO_SNAPSHOT}"


def parse_name(file: str) -> SegmentFile | None:
    """Parse the path of a segment. Return None if the file does not have the name of a segment."""
    folder, _, name = file.rpartition("/")
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    day = _DAY.fullmatch(folder.rpartition("/")[2])
    first, last = int(found["first"]), int(found["last"])
    return SegmentFile(found["log_id"], first, last, date.fromisoformat(day[1]) if day else None)


class ManifestLines:
    """The content of all manifests below the log's folder."""

    def __init__(self) -> None:
        self.listed: dict[str, Listed] = {}
        self.lost: dict[str, str] = {}
        """File -> its problem (``lost_problem``). These are the files that retention could not read
        when it deleted them.
        """
        self.removed: set[str] = set()
        """Files that retention deleted."""
        self._by_name: dict[str, Listed] = {}

    def add(self, folder: str, content: bytes) -> None:
        """Add the lines of a manifest. ``folder`` is its folder: "" or a path that ends with "/".

        Invalid lines are skipped. The check of a file then relies on the name of the file alone.
        """
        for line in content.splitlines():
            try:
                said = json.loads(line)
                if removed := said.get("removed"):
                    self.listed.pop(folder + removed, None)
                    self.lost.pop(folder + removed, None)
                    self.removed.add(folder + removed)
                    continue
                version = said.get("schema_version") or 0
                store = str(said.get("store") or "")
                listed = Listed(int(said["file_bytes"]), str(said["sha256"]), int(version), store)
                file = folder + str(said["file"])
                self.listed[file] = listed
                self.removed.discard(file)
                self.lost.pop(file, None)
                if damaged := said.get("damaged"):
                    self.lost[file] = lost_problem(str(damaged))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
        self._by_name = {file.rpartition("/")[2]: each for file, each in self.listed.items()}

    def of(self, file: str) -> Listed:
        """Return the entry of a file.

        If the path has no entry, the file may be a copy. Then return the entry of a file with the
        same name, or an empty entry if there is none.
        """
        return self.listed.get(file) or self._by_name.get(file.rpartition("/")[2], Listed())


def problem_of_file(ticket: ChangeTicket, file_bytes: int, sha256: str) -> str:
    """Return the problem with the name, the size or the checksum of a file; "" if there is none."""
    listed = ticket.listed
    if parse_name(ticket.file) is None:
        return "does not have the name of a segment"
    if listed.schema_version > EVENT_SCHEMA_VERSION:
        return (
            f"{NEWER} (schema version {listed.schema_version}, this one knows "
            f"{EVENT_SCHEMA_VERSION})"
        )
    if listed.sha256 and file_bytes != listed.file_bytes:
        return f"has {file_bytes} bytes, the manifest says {listed.file_bytes}"
    if listed.sha256 and sha256 != listed.sha256:
        return "does not have the checksum in the manifest"
    return ""


def problem_of_events(file: str, found: Iterable[HeldSegment]) -> str:
    """Return how the events of a file differ from its path; "" if they match."""
    name, parts = parse_name(file), list(found)
    assert name is not None, file
    if not parts:
        return "has no events"
    if any(None in (part.log_id, part.first_seq, part.dt) for part in parts):
        return "has a line without log_id, seq or ts_ms, which every event has"
    logs, days = {part.log_id for part in parts}, {part.dt for part in parts}
    first = min(part.first_seq for part in parts)
    last = max(part.last_seq for part in parts)
    if (logs, first, last) != ({name.log_id}, name.first_seq, name.last_seq):
        of = f"log {', '.join(sorted(logs))}"
        return f"has events {first} to {last} of {of}, but its name says others"
    if len(days) > 1 or (name.day is not None and name.day not in days):
        of_days = ", ".join(map(str, sorted(days)))
        return f"has events of {of_days}, but is in the folder of another day"
    if not parts[0].is_whole:
        return f"has {parts[0].events} events, but must have {first} to {last}, each once"
    return ""


class Judged(NamedTuple):
    """The rows of the table of segments (``SEGMENT_SCHEMA``), divided into valid rows (``held``)
    and others.
    """

    held: list[HeldSegment]
    superseded: list[tuple[str, str]]
    """The segment and the batch of each row that is no longer valid.

    Either a later batch read the file again, or a later check found that the file had been wrong.
    """


def judged(rows: Iterable[HeldSegment], verdicts: Mapping[str, Verdict]) -> Judged:
    """Return which rows are valid: for each file, only the row of the newest batch.

    A later check may have found a problem with the file. Then its row stays valid only if the file
    was right when it was read. This is so if the file had the checksum at that time that the
    manifest had at the later check, or if the manifest had no checksum. Rows without a file
    (imports) are always valid.
    """
    newest: dict[str, HeldSegment] = {}
    counting: list[HeldSegment] = []
    superseded = []
    for row in rows:
        if not row.file:
            counting.append(row)
            continue
        known = newest.get(row.file)
        if known is not None and int(known.batch_id) > int(row.batch_id):
            known, row = row, known  # the older row is dropped
        if known is not None:
            superseded.append((known.segment, known.batch_id))
        newest[row.file] = row
    for file, row in newest.items():
        verdict = verdicts.get(file)
        wanted = verdict.listed_sha256 if verdict is not None and verdict.problem else ""
        if wanted and wanted != row.sha256:
            superseded.append((row.segment, row.batch_id))
        else:
            counting.append(row)
    return Judged(counting, superseded)


def newest_verdicts(verdicts: Iterable[Verdict]) -> dict[str, Verdict]:
    """Map the path of each file to the verdict of the newest batch that checked it."""
    return {each.file: each for each in sorted(verdicts, key=lambda each: int(each.batch_id))}


def is_new(
    file: str, file_bytes: int, modified_ms: int, listed: Listed, known: Verdict | None
) -> bool:
    """Return True if a file must be examined. This is so in three cases:

    - It was never examined, or has changed since then.
    - Its checksum in the manifest has changed, and the file had a problem or does not match the new
      checksum.
    - An earlier version of groupkeeper could not read it, and this version can.
    """
    if known is None or (file_bytes, modified_ms) != (known.file_bytes, known.modified_ms):
        return True
    if known.problem.startswith(NEWER) and listed.schema_version <= EVENT_SCHEMA_VERSION:
        return True
    if listed.sha256 == known.listed_sha256:
        return False
    # a segment gets its name before its line in the manifest
    return bool(known.problem) or bool(listed.sha256 and listed.sha256 != known.sha256)


def lacking(
    files: Iterable[str],
    manifest: ManifestLines,
    held: Iterable[HeldSegment],
    verdicts: Mapping[str, Verdict],
) -> list[Lacking]:
    """Return the segments that are missing although a manifest lists them, and the segments that
    are present but wrong.

    ``files`` are the present files, and ``held`` the segments that bronze has. A segment that
    bronze has is not missing. A wrong file is left out if bronze has the events of a good copy of
    the file.
    """
    there, read, copies = set(files), set(), {}
    for part in held:
        read.add(part.file)
        copies[part.segment] = part.file
    found = [
        Lacking(file, manifest.lost.get(file, ABSENT), parse_name(file))
        for file in manifest.listed
        if file not in there and file not in read
    ]
    for file in there - manifest.removed:
        verdict = verdicts.get(file)
        copy = copies.get(file.rpartition("/")[2], file)
        if verdict is not None and verdict.problem and copy == file:
            found.append(Lacking(file, verdict.problem, parse_name(file)))
    return sorted(found)
