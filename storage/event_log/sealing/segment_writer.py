"""Write a segment (a file of events) under a temporary name, make it durable, and rename it."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from isal import isal_zlib

from groupkeeper.storage.event_log import manifest
from groupkeeper.storage.event_log.event_kinds import EVENT_SCHEMA_VERSION
from groupkeeper.storage.event_log.segment_digest import digest_member
from groupkeeper.storage.event_log.segments import (
    SEGMENT_BYTES,
    Hook,
    Segment,
    SegmentName,
    day_of,
    no_hook,
)
from groupkeeper.storage.segment_lines import EventDict, EventLine, encode_line
from groupkeeper.storage.sync import sync_path

SYNC_BYTES: Final = 1024 * 1024
"""Compressed bytes between two syncs. One large sync at the end would delay the store's syncs on
the same disk."""

COMPRESSION_LEVEL: Final = 1
"""The level of ISA-L's deflate. It needs 1.3 us for a commit of ten partitions. The fastest level
of zlib needs 4.1 us and writes 9 % larger files. Higher levels of ISA-L do not make files smaller.
"""

COMPRESS_BYTES: Final = 64 * 1024
"""The JSON that is compressed at once. It is large enough that the compression releases the
interpreter lock."""

_TEMPORARY = re.compile(r"\.events-(?P<log_id>.+)-(?P<first>\d+)-\d+\.tmp")
_DAY_MS = 86_400_000
_GZIP_WBITS = 31


class SegmentWriter:
    """A segment that is being written. Call ``add`` for its events, then ``seal`` or ``discard``.

    It does not write the manifest. The caller does this after ``seal`` (``manifest.add``).
    """

    def __init__(
        self,
        directory: Path,
        log_id: str,
        first_seq: int,
        ts_ms: int,
        *,
        store: str = "",
        hook: Hook = no_hook,
    ) -> None:
        """Create the temporary file, and the directory of its day if it does not exist. ``store``
        is the name of the store, for the manifest.
        """
        self._store = store
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
            folder.mkdir(exist_ok=True)  # without parents: it fails if ``directory`` was moved
            sync_path(directory)
        # The name is unique, so that a writer whose thread hung cannot rename the file of a later
        # writer.
        self._temporary = folder / f".events-{log_id}-{first_seq}-{time.time_ns()}.tmp"
        self._file = self._temporary.open("wb", buffering=0)

    @property
    def json_bytes(self) -> int:
        """Size of the segment's lines before compression."""
        return self._compressed_bytes + self._pending_bytes

    def takes(self, log_id: str, seq: int, ts_ms: int) -> bool:
        """Return True if an event is the next event of the segment's log, and of the same day."""
        where = log_id, seq, ts_ms // _DAY_MS
        return where == (self.log_id, self.next_seq, self.first_ts_ms // _DAY_MS)

    def add(self, lines: Sequence[EventLine], ts_ms: int) -> None:
        """Write the next events, which share a time stamp."""
        self.next_seq += len(lines)
        self._last_ts_ms = ts_ms
        for group_id, line in lines:
            self._groups.add(group_id)
            self._pending.append(line)
            self._pending_bytes += len(line)
        if self._pending_bytes >= COMPRESS_BYTES:
            self._compress()

    def seal(self) -> Segment:
        """Make the segment durable under its name. Return its line for the manifest."""
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
        sync_path(path.parent)
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
            store=self._store,
        )

    def discard(self) -> None:
        """Delete the temporary file."""
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
        while left:  # on a nearly full disk, a write may write only a part
            left = left[self._file.write(left) :]
        self._bytes += len(data)
        if self._bytes - self._synced_bytes >= SYNC_BYTES:
            self._synced_bytes = self._bytes
            os.fdatasync(self._file.fileno())


def remove_temporary(directory: Path, is_own: Callable[[str, int], bool]) -> None:
    """Delete temporary files of writers whose process has ended.

    ``is_own`` is called with the log and the first seq of each file. Only files for which it
    returns True are deleted.
    """
    for path in directory.glob("dt=*/.events-*.tmp"):
        found = _TEMPORARY.fullmatch(path.name)
        if found is not None and is_own(found["log_id"], int(found["first"])):
            path.unlink(missing_ok=True)


def write_segments(
    directory: Path, events: Iterable[EventDict], segment_bytes: int = SEGMENT_BYTES
) -> list[Segment]:
    """Write events as segments, and add these to the manifest. The events of each log must be in
    order.

    A new segment begins with another log, with another day, after a gap, and at ``segment_bytes``.
    Tests and imports use this to write a whole log at once. A daemon uses ``Sealer``.
    """
    directory.mkdir(parents=True, exist_ok=True)
    sealed: list[Segment] = []
    writer: SegmentWriter | None = None
    try:
        for event in events:
            where = event["log_id"], event["seq"], event["ts_ms"]
            if writer is not None and not (
                writer.takes(*where) and writer.json_bytes < segment_bytes
            ):
                sealed.append(writer.seal())
                writer = None
            if writer is None:
                writer = SegmentWriter(directory, *where)
            writer.add([(event["group"], encode_line(event))], event["ts_ms"])
    except BaseException:
        if writer is not None:
            writer.discard()
        raise
    if writer is not None:
        sealed.append(writer.seal())
    manifest.add(directory, sealed)
    return sealed
