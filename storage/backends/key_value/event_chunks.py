"""The event log of a store of keys and values: values with compressed events, which are called
chunks.

A fold moves events from the journal into chunks (``storage.backends.journal.driver``). ZooKeeper
and Consul keep everything in memory. So only the newest chunks are kept, even within
``log.retention_minutes``.
"""

from __future__ import annotations

import asyncio
import gzip
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from groupkeeper.storage.backends.journal.driver import LoggedEvent
from groupkeeper.storage.segment_lines import EventDict, decode_line

CHUNK_BYTES: Final = 64 * 1024
"""The size from which no more events are added to a chunk. Each fold writes the newest chunk again.
"""

MAX_CHUNKS: Final = 256
"""The largest number of chunks that the store keeps. They have about 16 MiB: half a million commits
of ten partitions.
"""

_LINES_BYTES: Final = 512 * 1024
"""The largest number of bytes of lines that are compressed together. With more, a chunk could be
too large for one value of ZooKeeper."""


class EventChunks:
    """The names of the chunks of a store, oldest first, and the newest chunk."""

    def __init__(
        self, names: Sequence[str], chunk_bytes: int = CHUNK_BYTES, max_chunks: int = MAX_CHUNKS
    ) -> None:
        self._chunk_bytes = chunk_bytes
        self._max_chunks = max_chunks
        self._names = deque(sorted(names))
        self._newest = b""
        """The content of the newest chunk, if events may be added to it."""

    def add(self, events: Sequence[LoggedEvent]) -> list[tuple[str, bytes | None]]:
        """Add events. Return the chunks to write, each with its content, and the chunks to delete,
        each with None.
        """
        writes: dict[str, bytes | None] = {}
        for part in _portions(events):
            if not self._newest or len(self._newest) > self._chunk_bytes:
                self._names.append(_name(part[0], self._names[-1] if self._names else ""))
                self._newest = b""
            self._newest += gzip.compress(b"".join(event.line[1] for event in part), mtime=0)
            writes[self._names[-1]] = self._newest
        while len(self._names) > self._max_chunks:
            writes[self._names.popleft()] = None
        return [*writes.items()]

    async def add_in_turns(self, events: Sequence[LoggedEvent]) -> list[tuple[str, bytes | None]]:
        """Do the same as ``add``. Other tasks of the loop can run after each portion, whose
        compression takes 10 ms.
        """
        writes: dict[str, bytes | None] = {}
        for portion in _portions(events):
            writes.update(self.add(portion))
            await asyncio.sleep(0)
        return [*writes.items()]

    def older_than(self, before_ms: int) -> list[str]:
        """Return the names of the chunks whose events are all older than a time."""
        return [name for name, next_ in pairwise(self._names) if _ts_ms(next_) < before_ms]

    def forget(self, names: Sequence[str]) -> None:
        """Forget chunks that were deleted."""
        gone = frozenset(names)
        self._names = deque(name for name in self._names if name not in gone)


def events_of(chunk: bytes) -> Iterator[EventDict]:
    """Yield the events of a chunk."""
    for line in gzip.decompress(chunk).splitlines():
        yield decode_line(line)


def _portions(events: Sequence[LoggedEvent]) -> Iterator[list[LoggedEvent]]:
    portion: list[LoggedEvent] = []
    size = 0
    for event in events:
        portion.append(event)
        size += len(event.line[1])
        if size > _LINES_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _name(first: LoggedEvent, last_name: str) -> str:
    """Return a name for a new chunk. Names sort by time. The new name sorts after ``last_name``
    even if the clock was set back: readers expect new events only in the last chunk. If a fold is
    repeated, its chunk gets another name.
    """
    name = f"{first.ts_ms:015d}-{first.seq:020d}-{uuid.uuid4().hex[:8]}"
    if name > last_name:
        return name
    return f"{_ts_ms(last_name) + 1:015d}-{name.partition('-')[2]}"


def _ts_ms(name: str) -> int:
    return int(name.partition("-")[0])
