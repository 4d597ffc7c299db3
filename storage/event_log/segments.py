"""Sealed segments of an event log: immutable files of gzip JSON lines (written by
``segment_writer``).

    <log.dir>/dt=YYYY-MM-DD/events-<log_id>-<first>-<last>.jsonl.gz
    <log.dir>/dt=YYYY-MM-DD/_events-<log_id>-<first>-<last>.groups.gz     which groups are in it
    <log.dir>/_manifest.jsonl                                             event_log/manifest.py

A segment holds the events ``first`` to ``last`` of one log, one a line, in order and without a gap,
all of one UTC day. It appears whole or not at all: written beside, made durable, renamed. What does
not begin with ``events-`` begins with ``_`` or ``.``, which readers of folders (Spark) pass over.

Knows nothing of stores or of the coordinator; ``storage.segment_lines`` says what a line is.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from groupkeeper.storage.event_log.schema import EVENT_SCHEMA_VERSION
from groupkeeper.storage.event_log.segment_digest import digest_holds, must_carry_digest
from groupkeeper.storage.segment_lines import EventDict, decode_line, is_line_of_version_1

SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""JSON in one segment: gzip cannot be split, so this is what one task of a reader has to take."""

_NAME = re.compile(r"events-(?P<log_id>.+)-(?P<first>\d+)-(?P<last>\d+)\.jsonl\.gz")
_GROUPS = re.compile(r"_events-(?P<log_id>.+)-\d+-\d+\.groups\.gz")
_DAY = re.compile(r"dt=\d{4}-\d\d-\d\d")
_DAY_MS = 86_400_000
_READ_BYTES = 256 * 1024


class SegmentError(Exception):
    """A segment or a manifest is not what it should be; the message says which, and how."""


BROKEN_PREFIX: Final = "_broken-"
"""Begins the name of a segment that was put aside, for it was damaged: at a start, when nothing
rested on it yet, or when its day went by retention."""


class SegmentName(NamedTuple):
    """What the name of a segment tells; ``str`` is its path below the log's directory."""

    day: str
    """``YYYY-MM-DD``, UTC."""
    log_id: str
    first_seq: int
    last_seq: int

    def __str__(self) -> str:
        """Write it as it stands in the manifest."""
        return f"dt={self.day}/events-{self.log_id}-{self.first_seq}-{self.last_seq}.jsonl.gz"

    @property
    def groups_file(self) -> str:
        """The path of the list of its groups."""
        name = f"_events-{self.log_id}-{self.first_seq}-{self.last_seq}.groups.gz"
        return f"dt={self.day}/{name}"


class Segment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sealed segment: one line of the manifest."""

    file: str
    """Its path below the log's directory."""
    log_id: str
    first_seq: int
    last_seq: int
    first_ts_ms: int
    last_ts_ms: int
    file_bytes: int
    """Size of the file."""
    json_bytes: int
    """Size of what is in it."""
    sha256: str
    """Of the file, in hexadecimal."""
    schema_version: int | None = None
    """Of its events. None in lines from before the manifest told it: version 1 or 2."""
    damaged: str = ""
    """What was wrong with it when its day went by retention: what it told is lost, and no snapshot
    knows it. "" for a segment that is there."""

    @property
    def name(self) -> SegmentName:
        """What its path says."""
        found = parse_name(self.file)
        assert found is not None
        return found

    @property
    def events(self) -> int:
        """How many events it holds."""
        return self.last_seq - self.first_seq + 1


Hook: TypeAlias = Callable[[str], None]
"""Called with the name of each step once it is done; tests kill the process there."""


def no_hook(step: str) -> None:
    """Do nothing."""


def day_of(ts_ms: int) -> str:
    """The UTC day of an event, ``YYYY-MM-DD``."""
    return datetime.fromtimestamp(ts_ms / 1000, UTC).strftime("%Y-%m-%d")


def parse_name(path: str) -> SegmentName | None:
    """Read ``dt=…/events-…``; None for what is not a segment."""
    folder, _, file = path.rpartition("/")
    found = _NAME.fullmatch(file)
    if found is None or not _DAY.fullmatch(folder):
        return None
    first, last = int(found["first"]), int(found["last"])
    return SegmentName(folder[3:], found["log_id"], first, last)


def segment_names(directory: Path) -> list[SegmentName]:
    """List the segments that stand in a log's directory, by log and seq; none where it is absent.

    Goes by the names alone. Beside a daemon a file may have gone when it is opened (retention).
    """
    names = []
    with suppress(FileNotFoundError):
        for folder in os.listdir(directory):
            if _DAY.fullmatch(folder):
                with suppress(FileNotFoundError, NotADirectoryError):
                    paths = (f"{folder}/{file}" for file in os.listdir(directory / folder))
                    names += [name for path in paths if (name := parse_name(path)) is not None]
    return sorted(names, key=lambda name: (name.log_id, name.first_seq, name.last_seq))


def log_of_groups_file(file: str) -> str:
    """The log that a list of groups belongs to, by the name of its file; "" where it is none."""
    found = _GROUPS.fullmatch(file)
    return "" if found is None else found["log_id"]


def put_aside(directory: Path, name: SegmentName) -> None:
    """Take a damaged segment out of the way of readers, as long as it is there."""
    path = directory / str(name)
    with suppress(FileNotFoundError):
        path.rename(path.with_name(BROKEN_PREFIX + path.name))
        sync_directory(path.parent)


def segment_of_name(name: SegmentName) -> Segment:
    """What a name alone tells: times are those of its day, and sizes and checksum are not known."""
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
    """Raise SegmentError for a segment that a newer version wrote: it would be misread."""
    if segment.schema_version is not None and segment.schema_version > EVENT_SCHEMA_VERSION:
        raise SegmentError(
            f"{segment.file}: was written by a newer groupkeeper (schema version "
            f"{segment.schema_version}, this one knows {EVENT_SCHEMA_VERSION})"
        )


def file_problem(directory: Path, listed: Segment) -> str:
    """Say what is wrong with a file by its line in the manifest; "" where nothing is, and where
    only its name tells of it.
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
    """Yield the events of a segment. Raises SegmentError where it is cut off or damaged.

    Lines without the bytes given are not decoded.
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
    """Yield the lines of a segment as they are."""
    try:
        with gzip.open(path) as lines:
            yield from lines
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SegmentError(f"{path}: cannot be unpacked: {error}") from error


class LogBegin(msgspec.Struct, frozen=True):
    """What the first event of a log tells, ``log_started``."""

    previous_log_id: str | None
    previous_seq: int
    ts_ms: int
    kind: Literal["log_started"]


_decode_begin: Final = msgspec.json.Decoder(LogBegin).decode


def log_begin(path: Path) -> LogBegin | None:
    """Read what log came before, where a segment is the first of its log; None for any other.

    Raises SegmentError where it cannot be unpacked.
    """
    line = next(read_lines(path), b"")
    try:
        return _decode_begin(line)
    except msgspec.DecodeError:
        return None


def has_group(directory: Path, name: SegmentName, group_id: str) -> bool:
    """Whether a segment may hold events of a group: False only where its list says so."""
    try:
        with gzip.open(directory / name.groups_file) as file:
            groups = msgspec.json.decode(file.read(), type=frozenset[str])
    except (OSError, EOFError, zlib.error, msgspec.DecodeError):
        return True  # the list only saves time
    return group_id in groups


def describe(directory: Path, name: SegmentName) -> Segment:
    """Read a segment whole and say what the manifest should say of it.

    Raises SegmentError where its content is not what its name says, or not what was sealed.
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
                f"{path}: where event {seq} of log {name.log_id} is to stand, it holds event "
                f"{where[1]} of log {where[0]} of {where[2]}"
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
    """Raise SegmentError for a segment that was changed since it was sealed."""
    path = directory / str(name)
    holds = digest_holds(path)
    if holds is None and must_carry_digest(name.log_id):
        raise SegmentError(f"{path}: was changed: it was sealed with a digest, and carries none")
    if holds is False:
        raise SegmentError(f"{path}: was changed: it is not what the digest in it says")


def _where(path: Path, event: EventDict) -> tuple[str, int, str]:
    """The log, seq and day of an event."""
    try:
        return event["log_id"], event["seq"], day_of(event["ts_ms"])
    except (KeyError, TypeError, ValueError, OverflowError, OSError) as error:
        raise SegmentError(f"{path}: holds a line that is no event: {error!r}") from error


def file_sha256(path: Path) -> str:
    """The checksum that the manifest holds."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            digest.update(data)
    return digest.hexdigest()


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
