"""A segment in the making: written beside, made durable, renamed (``event_log.segments``)."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from isal import isal_zlib

from groupkeeper.storage.event_log.schema import EVENT_SCHEMA_VERSION
from groupkeeper.storage.event_log.segment_digest import digest_member
from groupkeeper.storage.event_log.segments import (
    Hook,
    Segment,
    SegmentName,
    day_of,
    no_hook,
    sync_directory,
)
from groupkeeper.storage.segment_lines import EventLine

SYNC_BYTES: Final = 1024 * 1024
"""Compressed bytes between two syncs: one large sync at the end would hold up the store's own, on
the same disk."""

COMPRESSION_LEVEL: Final = 1
"""Of ISA-L's deflate: 1.3 us for a commit of ten partitions, where zlib takes 4.1 us at its fastest
for files that are 9 % larger. Every commit pays for it; the levels above gain nothing."""

COMPRESS_BYTES: Final = 64 * 1024
"""JSON that is compressed at once: long enough that the interpreter lock is let go meanwhile."""

_TEMPORARY = re.compile(r"\.events-(?P<log_id>.+)-(?P<first>\d+)-\d+\.tmp")
_DAY_MS = 86_400_000
_GZIP_WBITS = 31


class SegmentWriter:
    """A segment in the making. ``add`` its events in order, then ``seal`` it, or ``discard`` it.

    Does not write the manifest: ``event_log.manifest.add`` does, once ``seal`` has returned.
    """

    def __init__(
        self, directory: Path, log_id: str, first_seq: int, ts_ms: int, *, hook: Hook = no_hook
    ) -> None:
        """Begin with the log, seq and time of its first event; makes the day's directory."""
        self.log_id = log_id
        self.day = day_of(ts_ms)
        self.first_seq = first_seq
        self.next_seq = first_seq
        self.first_ts_ms = ts_ms
        self._last_ts_ms = ts_ms
        self._directory = directory
        self._hook = hook
        self._bytes = 0
        self._synced_bytes = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._compressed_bytes = 0
        self._groups: set[str] = set()
        self._digest = hashlib.sha256()
        self._gzip = isal_zlib.compressobj(COMPRESSION_LEVEL, isal_zlib.DEFLATED, _GZIP_WBITS)
        folder = directory / f"dt={self.day}"
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            sync_directory(directory)
        # A name of its own: a thread that hung while others went on must not rename what is theirs.
        self._temporary = folder / f".events-{log_id}-{first_seq}-{time.time_ns()}.tmp"
        self._file = self._temporary.open("wb", buffering=0)

    @property
    def json_bytes(self) -> int:
        """What it holds, before compression."""
        return self._compressed_bytes + self._pending_bytes

    def takes(self, log_id: str, seq: int, ts_ms: int) -> bool:
        """Whether an event belongs to this segment: the next of its log, on its day."""
        where = log_id, seq, ts_ms // _DAY_MS
        return where == (self.log_id, self.next_seq, self.first_ts_ms // _DAY_MS)

    def add(self, lines: Sequence[EventLine], ts_ms: int) -> None:
        """Take the next events, which have one time stamp."""
        self.next_seq += len(lines)
        self._last_ts_ms = ts_ms
        for group_id, line in lines:
            self._groups.add(group_id)
            self._pending.append(line)
            self._pending_bytes += len(line)
        if self._pending_bytes >= COMPRESS_BYTES:
            self._compress()

    def seal(self) -> Segment:
        """Make it durable under its name; returns what the manifest is to say."""
        assert self.next_seq > self.first_seq, "an empty segment"
        name = SegmentName(self.day, self.log_id, self.first_seq, self.next_seq - 1)
        path = self._directory / str(name)
        self._compress()
        self._write(self._gzip.flush())
        self._write(digest_member(self._digest.hexdigest()))
        self._hook("written")
        os.fsync(self._file.fileno())
        self._file.close()
        self._hook("synced")
        index = msgspec.json.encode(sorted(self._groups - {""}))
        (self._directory / name.groups_file).write_bytes(gzip.compress(index, mtime=0))
        self._hook("indexed")
        self._temporary.rename(path)
        self._hook("renamed")
        sync_directory(path.parent)
        self._hook("directory_synced")
        return Segment(
            file=str(name),
            log_id=self.log_id,
            first_seq=self.first_seq,
            last_seq=self.next_seq - 1,
            first_ts_ms=self.first_ts_ms,
            last_ts_ms=self._last_ts_ms,
            file_bytes=self._bytes,
            json_bytes=self.json_bytes,
            sha256=self._digest.hexdigest(),
            schema_version=EVENT_SCHEMA_VERSION,
        )

    def discard(self) -> None:
        """Let go of it; its events stay where they came from."""
        self._file.close()
        self._temporary.unlink(missing_ok=True)

    def _compress(self) -> None:
        self._write(self._gzip.compress(b"".join(self._pending)))
        self._pending.clear()
        self._compressed_bytes += self._pending_bytes
        self._pending_bytes = 0

    def _write(self, data: bytes) -> None:
        if not data:
            return
        self._digest.update(data)
        left = memoryview(data)
        while left:  # a disk that is nearly full takes a part, and does not say so otherwise
            left = left[self._file.write(left) :]
        self._bytes += len(data)
        if self._bytes - self._synced_bytes >= SYNC_BYTES:
            self._synced_bytes = self._bytes
            os.fdatasync(self._file.fileno())


def remove_temporary(directory: Path, is_own: Callable[[str, int], bool]) -> None:
    """Remove what a writer left unfinished when its process ended. ``is_own`` is told the log and
    the first seq of each.
    """
    for path in directory.glob("dt=*/.events-*.tmp"):
        found = _TEMPORARY.fullmatch(path.name)
        if found is not None and is_own(found["log_id"], int(found["first"])):
            path.unlink(missing_ok=True)
