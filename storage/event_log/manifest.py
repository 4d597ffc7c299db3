"""The manifest of a log's directory: which segments were sealed, and which ones retention deleted.

A *segment* is a file of events. To seal it is to complete it: it never changes after that.
``_manifest.jsonl`` has one JSON object on each line:

- a ``Segment`` as it was sealed;
- the same ``Segment`` with ``damaged``, if retention could not read it;
- ``{"removed": file}``.

Lines are only appended. A line that a crash cut off is skipped: ``reconcile`` finds the segment by
its file name instead. When the manifest has more than ``REWRITE_LINES`` obsolete lines, a new file
replaces it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from groupkeeper.storage.event_log.segments import (
    Segment,
    SegmentError,
    SegmentName,
    describe,
    in_order,
    log_of_groups_file,
    put_aside,
    segment_names,
    segment_of_name,
)
from groupkeeper.storage.event_log.snapshot_logs import base_log
from groupkeeper.storage.file_lock import LockedFile, LockHeld
from groupkeeper.storage.sync import sync_path

MANIFEST: Final = "_manifest.jsonl"
_LOCK = "_manifest.lock"
_LOCK_POLL_S: Final = 0.01

REWRITE_LINES: Final = 2_000
"""The manifest is rewritten when it has more obsolete lines than this."""


class _Line(msgspec.Struct):
    """The field that shows whether a line describes a segment or removes one."""

    removed: str | None = None


_decode_segment = msgspec.json.Decoder(Segment).decode
_decode_line = msgspec.json.Decoder(_Line).decode


class Manifest:
    """The segments of a directory, as all lines of the manifest together describe them."""

    def __init__(self) -> None:
        self.segments: dict[str, Segment] = {}
        """Segments that were sealed and not removed, by file."""
        self.damaged: dict[str, Segment] = {}
        """Segments that retention could not read, by file. No snapshot has their events."""
        self.removed: set[str] = set()
        """Files that retention removed. A rewrite of the manifest forgets them."""
        self.unreadable: list[int] = []
        """Numbers of unreadable lines, from 1. A crash may have cut off the last one."""
        self.lines = 0
        """The number of lines of the file."""
        self.put_aside: list[str] = []
        """Files that ``reconcile`` found damaged and renamed."""

    def known(self) -> set[str]:
        """Return every file that has a line."""
        return {*self.segments, *self.damaged, *self.removed}

    def of_store(self, log_ids: Iterable[str]) -> StoreSegments:
        """Return the segments of one store. ``log_ids`` are the logs of this store."""
        own = set(log_ids)
        segments = [each for each in self.segments.values() if each.log_id in own]
        snapshots = [
            each
            for each in self.segments.values()
            if each.log_id not in own and base_log(each.log_id) in own
        ]
        damaged = [each for each in self.damaged.values() if base_log(each.log_id) in own]
        snapshots.sort(key=lambda segment: segment.last_seq)
        return StoreSegments(in_order(segments), snapshots, in_order(damaged))


class StoreSegments(NamedTuple):
    """The segments of one store, each list in the order of seq."""

    segments: Sequence[Segment]
    """The segments that have events as they were logged."""
    snapshots: Sequence[Segment]
    """The segments that are snapshots. The last snapshot covers the most events."""
    damaged: Sequence[Segment]
    """Segments that retention could not read."""

    @property
    def newest_snapshot(self) -> Sequence[Segment]:
        """The snapshot that covers the most events; empty if there is none."""
        return self.snapshots[-1:]

    @property
    def covered_seq(self) -> int:
        """The last seq that a snapshot covers; 0 if there is none."""
        return self.snapshots[-1].last_seq if self.snapshots else 0

    def ends_of_logs(self) -> dict[str, float]:
        """Return for each log the seq at which the next log began; infinity for the newest log.

        If a log has events at or above that seq, an older copy of the store has replaced those
        events.
        """
        begins: dict[str, int] = {}
        for snapshot in self.snapshots:  # the log began before its oldest segment that still exists
            begins[base_log(snapshot.log_id)] = snapshot.last_seq
        for segment in self.segments:
            before = begins.get(segment.log_id, segment.first_seq)
            begins[segment.log_id] = min(before, segment.first_seq)
        return {
            log_id: min((seq for seq in begins.values() if seq > first), default=inf)
            for log_id, first in begins.items()
        }


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a log's directory; an empty one if the file does not exist."""
    manifest = Manifest()
    try:
        content = (directory / MANIFEST).read_bytes()
    except FileNotFoundError:
        return manifest
    for number, line in enumerate(content.splitlines(), start=1):
        manifest.lines = number
        try:
            removed = _decode_line(line).removed
            if removed is None:
                segment = _decode_segment(line)
                manifest.removed.discard(segment.file)
                manifest.segments.pop(segment.file, None)
                place = manifest.damaged if segment.damaged else manifest.segments
                place[segment.file] = segment
            else:
                manifest.segments.pop(removed, None)
                manifest.damaged.pop(removed, None)
                manifest.removed.add(removed)
        except msgspec.DecodeError:
            manifest.unreadable.append(number)
    return manifest


def listed_and_found(directory: Path) -> Manifest:
    """Read the manifest, and add segments that it does not list. Repairs nothing.

    A new segment gets its file name before its line in the manifest is written, and a line may be
    damaged. Such a segment is described by its file name only: its times are those of its day, and
    its sizes are 0.
    """
    names = segment_names(directory)
    # read after the names: a segment that is removed between both reads is not new
    manifest = read_manifest(directory)
    known = manifest.known()
    for name in names:
        if str(name) not in known:
            manifest.segments[str(name)] = segment_of_name(name)
    return manifest


def add(directory: Path, segments: Sequence[Segment]) -> None:
    """Append the lines of sealed segments to the manifest, durably."""
    _append(directory, [msgspec.json.encode(segment) for segment in segments])


def remove(directory: Path, files: Iterable[str]) -> None:
    """Record durably that segments are removed. The caller deletes their files afterwards."""
    _append(directory, [msgspec.json.encode({"removed": file}) for file in files])
    with _locked(directory):
        manifest = read_manifest(directory)
        if manifest.lines - len(manifest.segments) - len(manifest.damaged) > REWRITE_LINES:
            _rewrite(directory, manifest)


def reconcile(directory: Path, log_ids: Iterable[str], store: str = "") -> Manifest:
    """Finish changes that a crash interrupted in the segments of some logs. Return the manifest.
    ``store`` is the name of the store of these logs.

    A segment without a line gets one. If its content does not match its name, it is renamed instead
    (``put_aside``). This loses nothing, because the rows of a segment without a line are not
    deleted yet. Files that are recorded as removed are deleted.
    """
    manifest = read_manifest(directory)
    logs = set(log_ids)
    found = [name for name in segment_names(directory) if name.log_id in logs]
    remove_files(directory, [name for name in found if str(name) in manifest.removed])
    known = manifest.known()
    described = []
    for name in found:
        if str(name) not in known:
            try:
                described.append(replace(describe(directory, name), store=store))
            except SegmentError:
                put_aside(directory, name)
                manifest.put_aside.append(str(name))
            sync_path(directory / f"dt={name.day}")
    add(directory, described)
    manifest.segments.update((segment.file, segment) for segment in described)
    return manifest


def remove_orphans(directory: Path, log_ids: Iterable[str], manifest: Manifest) -> None:
    """Delete each list of groups whose segment does not exist. Every segment has such a list.

    A list that is left would keep the directory of its day from being deleted. Lists of damaged
    segments stay, because nothing else is left of those segments.
    """
    own = set(log_ids)
    listed = [*manifest.segments.values(), *manifest.damaged.values()]
    kept = {segment.name.groups_file for segment in listed}
    for path in directory.glob("dt=*/_events-*.groups.gz"):
        file = str(path.relative_to(directory))
        if file not in kept and base_log(log_of_groups_file(path.name)) in own:
            path.unlink(missing_ok=True)


def remove_files(directory: Path, names: Iterable[SegmentName]) -> None:
    """Delete the files of segments, and the directories of days that are empty after that."""
    days: set[str] = set()
    for name in names:
        (directory / str(name)).unlink(missing_ok=True)
        (directory / name.groups_file).unlink(missing_ok=True)
        days.add(name.day)
    for day in days:
        folder = directory / f"dt={day}"
        if folder.is_dir() and not os.listdir(folder):
            folder.rmdir()
    if days:
        sync_path(directory)


def _append(directory: Path, lines: Sequence[bytes]) -> None:
    if not lines:
        return
    with _locked(directory), (directory / MANIFEST).open("a+b") as file:
        is_new = file.tell() == 0
        if not is_new:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a crash cut the last line off
                file.write(b"\n")
        file.write(b"".join(line + b"\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())
        if is_new:
            sync_path(directory)


def _rewrite(directory: Path, manifest: Manifest) -> None:
    temporary = directory / f".{MANIFEST}.tmp"
    with temporary.open("wb") as file:
        for segment in (*manifest.segments.values(), *manifest.damaged.values()):
            file.write(msgspec.json.encode(segment) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(directory / MANIFEST)
    sync_path(directory)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lock the manifest, because several stores may share a directory. Wait for the lock."""
    directory.mkdir(parents=True, exist_ok=True)
    lock = _wait_for_lock(directory / _LOCK)
    try:
        yield
    finally:
        lock.release()


def _wait_for_lock(path: Path) -> LockedFile:
    while True:
        try:
            return LockedFile(path)
        except LockHeld:  # the holder writes and syncs a small file, so this wait is short
            time.sleep(_LOCK_POLL_S)
