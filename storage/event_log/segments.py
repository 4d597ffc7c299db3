"""Sealed segments of an event log: immutable files of gzip JSON lines. ``segment_writer`` writes
them.

<log.dir>/dt=YYYY-MM-DD/events-<log_id>-<first>-<last>.jsonl.gz
<log.dir>/dt=YYYY-MM-DD/_events-<log_id>-<first>-<last>.groups.gz     the list of its groups
<log.dir>/_manifest.jsonl                                             event_log/manifest.py

A segment has the events ``first`` to ``last`` of one log and one UTC day, one on each line, in
order and without a gap. Its file is written under a temporary name, made durable and then renamed,
so it is always complete. The names of all other files begin with ``_`` or ``.``. Readers of folders
(Spark) skip these.

This module does not know stores or the coordinator. ``storage.segment_lines`` describes a line.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from groupkeeper.storage.event_log.event_kinds import EVENT_SCHEMA_VERSION
from groupkeeper.storage.event_log.segment_digest import digest_holds, must_carry_digest
from groupkeeper.storage.segment_lines import EventDict, decode_line, is_line_of_version_1
from groupkeeper.storage.sync import sync_path

SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""The default size of the JSON in one segment. A larger segment would be slow to read: gzip cannot
be split, so one task of a reader reads the whole segment."""

_NAME = re.compile(r"events-(?P<log_id>.+)-(?P<first>\d+)-(?P<last>\d+)\.jsonl\.gz")
_GROUPS = re.compile(r"_events-(?P<log_id>.+)-\d+-\d+\.groups\.gz")
_DAY = re.compile(r"dt=\d{4}-\d\d-\d\d")
_DAY_MS = 86_400_000
_READ_BYTES = 256 * 1024


class SegmentError(Exception):
    """A segment or manifest is damaged or unknown. The message names it and the problem."""


BROKEN_PREFIX: Final = "_broken-"
"""The prefix of a damaged segment's new name. A start renames a damaged segment that is not in the
manifest yet; retention renames a damaged segment of a day that it deletes."""


class SegmentName(NamedTuple):
    """The parts of a segment's name. ``str`` returns its path below the log's directory."""

    day: str
    """``YYYY-MM-DD``, UTC."""
    log_id: str
    first_seq: int
    last_seq: int

    def __str__(self) -> str:
        return f"dt={self.day}/events-{self.log_id}-{self.first_seq}-{self.last_seq}.jsonl.gz"

    @property
    def groups_file(self) -> str:
        """The path of the list of its groups, below the log's directory."""
        name = f"_events-{self.log_id}-{self.first_seq}-{self.last_seq}.groups.gz"
        return f"dt={self.day}/{name}"


class Segment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sealed segment: one line of the manifest."""

    file: str
    """Path of the file below the log's directory."""
    log_id: str
    first_seq: int
    last_seq: int
    first_ts_ms: int
    last_ts_ms: int
    file_bytes: int
    """Size of the file."""
    json_bytes: int
    """Size of the lines before compression."""
    sha256: str
    """Checksum of the file, in hexadecimal."""
    schema_version: int | None = None
    """Version of the events. None in old lines of the manifest, which lack this field: then it is 1
    or 2.
    """
    damaged: str = ""
    """The damage that retention found when it deleted the segment's day. The events are lost, and
    no snapshot has them. "" for a segment that exists.
    """
    store: str = ""
    """Name of the store that wrote the log; "" in lines of older versions."""

    @property
    def name(self) -> SegmentName:
        """The day, log and seqs in the path of the segment."""
        found = parse_name(self.file)
        assert found is not None
        return found

    @property
    def events(self) -> int:
        """The number of its events. The seqs between the first and the last have no gap."""
        return self.last_seq - self.first_seq + 1


Hook: TypeAlias = Callable[[str], None]
"""A function that is called after each step of writing, with the name of the step. Tests kill the
process there."""


def no_hook(step: str) -> None:
    """Do nothing: the default of every ``hook``."""


def day_of(ts_ms: int) -> str:
    """Return the UTC day of a time, ``YYYY-MM-DD``."""
    return datetime.fromtimestamp(ts_ms / 1000, UTC).strftime("%Y-%m-%d")


def parse_name(path: str) -> SegmentName | None:
    """Parse a path like ``dt=…/events-…``; None if it is not the path of a segment."""
    folder, _, file = path.rpartition("/")
    found = _NAME.fullmatch(file)
    if found is None or not _DAY.fullmatch(folder):
        return None
    first, last = int(found["first"]), int(found["last"])
    return SegmentName(folder[3:], found["log_id"], first, last)


def segment_names(directory: Path) -> list[SegmentName]:
    """List the segments in a log's directory, by log and seq; none if it does not exist.

    It reads only file names. While a daemon runs, its retention may delete a file before the caller
    opens it.
    """
    names = []
    with suppress(FileNotFoundError):
        for folder in os.listdir(directory):
            if _DAY.fullmatch(folder):
                with suppress(FileNotFoundError, NotADirectoryError):
                    paths = (f"{folder}/{file}" for file in os.listdir(directory / folder))
                    names += [name for path in paths if (name := parse_name(path)) is not None]
    return sorted(names, key=lambda name: (name.log_id, name.first_seq, name.last_seq))


def in_order(segments: Iterable[Segment]) -> list[Segment]:
    """Sort segments by their first seq."""
    return sorted(segments, key=lambda segment: (segment.first_seq, segment.last_seq))


def log_of_groups_file(file: str) -> str:
    """Return the log of a list of groups, by its file name; "" for any other file."""
    found = _GROUPS.fullmatch(file)
    return "" if found is None else found["log_id"]


def put_aside(directory: Path, name: SegmentName) -> None:
    """Rename a damaged segment, if it exists, so that readers do not read it."""
    path = directory / str(name)
    with suppress(FileNotFoundError):
        path.rename(path.with_name(BROKEN_PREFIX + path.name))
        sync_path(path.parent)


def segment_of_name(name: SegmentName) -> Segment:
    """Return a segment about which only its name is known. Its times are those of its day, and its
    sizes are 0.
    """
    day = datetime.strptime(name.day, "%Y-%m-%d").replace(tzinfo=UTC)
    first_ts_ms = round(day.timestamp() * 1000)
    return Segment(
        file=str(name),
        log_id=name.log_id,
        first_seq=name.first_seq,
        last_seq=name.last_seq,
        first_ts_ms=first_ts_ms,
        last_ts_ms=first_ts_ms + _DAY_MS - 1,
        file_bytes=0,
        json_bytes=0,
        sha256="",
    )


# --- reading --------------------------------------------------------------------------------------


def check_version(segment: Segment) -> None:
    """Raise SegmentError if a newer version wrote the segment, because this version could misread
    it.
    """
    if segment.schema_version is not None and segment.schema_version > EVENT_SCHEMA_VERSION:
        raise SegmentError(
            f"{segment.file}: was written by a newer groupkeeper (schema version "
            f"{segment.schema_version}, this one knows {EVENT_SCHEMA_VERSION})"
        )


def file_problem(directory: Path, listed: Segment) -> str:
    """Return how a file differs from its line in the manifest; "" if it does not differ.

    Also returns "" if only the name of the segment is known.
    """
    if not listed.sha256:
        return ""
    path = directory / listed.file
    if (size := path.stat().st_size) != listed.file_bytes:
        return f"has {size} bytes, the manifest says {listed.file_bytes}"
    if file_sha256(path) != listed.sha256:
        return "its checksum is not the one in the manifest"
    return ""


def read_segment(path: Path, containing: bytes = b"") -> Iterator[EventDict]:
    """Yield those events of a segment whose line contains the bytes ``containing``.

    Raises SegmentError if the file is cut off or damaged.
    """
    for line in read_lines(path):
        if containing in line:
            yield _decoded(path, line)


def _decoded(path: Path, line: bytes) -> EventDict:
    try:
        return decode_line(line)
    except msgspec.DecodeError as error:
        raise SegmentError(f"{path}: holds a line that is no event: {error}") from error


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a segment. Raises SegmentError if the file cannot be unpacked."""
    try:
        with gzip.open(path) as lines:
            yield from lines
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SegmentError(f"{path}: cannot be unpacked: {error}") from error


class LogBegin(msgspec.Struct, frozen=True):
    """The fields of ``log_started``, the first event of a log."""

    previous_log_id: str | None
    previous_seq: int
    ts_ms: int
    kind: Literal["log_started"]


_decode_begin: Final = msgspec.json.Decoder(LogBegin).decode


def log_begin(path: Path) -> LogBegin | None:
    """Return the ``log_started`` event at the beginning of a segment. Return None if it begins with
    another event.

    Raises SegmentError if the file cannot be unpacked.
    """
    line = next(read_lines(path), b"")
    try:
        return _decode_begin(line)
    except msgspec.DecodeError:
        return None


def has_group(directory: Path, name: SegmentName, group_id: str) -> bool:
    """Return False if the segment has a list of groups without this group. Otherwise return
    True.
    """
    try:
        with gzip.open(directory / name.groups_file) as file:
            groups = msgspec.json.decode(file.read(), type=frozenset[str])
    except (OSError, EOFError, zlib.error, msgspec.DecodeError):
        return True  # without a list, the caller reads the segment
    return group_id in groups


def describe(directory: Path, name: SegmentName) -> Segment:
    """Read a whole segment, and return its line for the manifest.

    Raises SegmentError if the content does not match the name, or was changed after sealing.
    """
    _check_digest(directory, name)
    first: EventDict | None = None
    event: EventDict = {}
    json_bytes = 0
    schema_version = EVENT_SCHEMA_VERSION
    seq = name.first_seq - 1
    path = directory / str(name)
    for line in read_lines(path):
        event = _decoded(path, line)
        json_bytes += len(line)
        if is_line_of_version_1(line):
            schema_version = 1
        first = first or event
        seq += 1
        where = _where(path, event)
        if where != (name.log_id, seq, name.day):
            raise SegmentError(
                f"{path}: holds event {where[1]} of log {where[0]} of {where[2]} in the place of "
                f"event {seq} of log {name.log_id} of {name.day}"
            )
    if first is None or seq != name.last_seq:
        raise SegmentError(f"{path}: ends with event {seq}, its name says {name.last_seq}")
    return Segment(
        file=str(name),
        log_id=name.log_id,
        first_seq=name.first_seq,
        last_seq=name.last_seq,
        first_ts_ms=first["ts_ms"],
        last_ts_ms=event["ts_ms"],
        file_bytes=path.stat().st_size,
        json_bytes=json_bytes,
        sha256=file_sha256(path),
        schema_version=schema_version,
    )


def _check_digest(directory: Path, name: SegmentName) -> None:
    """Raise SegmentError if a segment was changed after sealing."""
    path = directory / str(name)
    holds = digest_holds(path)
    if holds is None and must_carry_digest(name.log_id):
        raise SegmentError(f"{path}: was changed: it was sealed with a digest, and has none")
    if holds is False:
        raise SegmentError(f"{path}: was changed: its content differs from its digest")


def _where(path: Path, event: EventDict) -> tuple[str, int, str]:
    """Return the log, seq and day of an event. Raises SegmentError if it has none."""
    try:
        return event["log_id"], event["seq"], day_of(event["ts_ms"])
    except (KeyError, TypeError, ValueError, OverflowError, OSError) as error:
        raise SegmentError(f"{path}: holds a line that is no event: {error!r}") from error


def file_sha256(path: Path) -> str:
    """Return the checksum of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            digest.update(data)
    return digest.hexdigest()
