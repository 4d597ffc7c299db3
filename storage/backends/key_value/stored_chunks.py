"""Reads the chunks of events in a store of keys and values (``event_chunks``).

A *chunk* is a stored value with compressed events. A *fold* moves events from the journal into
chunks. It adds events only to the newest chunk, or to a new one. ``StoredChunks`` remembers which
events each chunk has, and all events of the chunk that was read last.
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from groupkeeper.storage.backends.journal.driver import LoggedEvent, LogSpan
from groupkeeper.storage.backends.journal.logged_events import decode_head
from groupkeeper.storage.backends.key_value.event_chunks import events_of
from groupkeeper.storage.base import StorageError
from groupkeeper.storage.segment_lines import EventDict

READ_AT_ONCE: Final = 16
"""The number of chunks that one call reads. They have at most about 1 MiB."""

ListChunks = Callable[[], Awaitable[Sequence[str]]]
"""A function that returns the names of all chunks of events in the store."""
ReadChunks = Callable[[Sequence[str]], Awaitable[Mapping[str, bytes]]]
"""A function that returns the content of the named chunks, by name. It leaves out missing ones."""
DeleteChunks = Callable[[Sequence[str]], Awaitable[None]]
"""A function that deletes the named chunks from the store."""


@dataclass
class _Chunk:
    """A stored chunk, as far as it was read."""

    size: int = 0
    """The number of its bytes that were read."""
    spans: dict[str, LogSpan] = field(default_factory=dict)
    """The log id -> the range of events of this log in the chunk."""


class StoredChunks:
    """Reads and deletes events in the chunks of one store, for sealing and for readers."""

    def __init__(self, list_chunks: ListChunks, read_chunks: ReadChunks) -> None:
        self._list = list_chunks
        self._read = read_chunks
        self._chunks: dict[str, _Chunk] = {}
        self._turn = asyncio.Lock()
        """Held during ``logs`` and ``events``, which sealing and readers may call at the same time.
        """
        self._kept_name = ""
        self._kept: list[LoggedEvent] = []
        """The events of the chunk that was read last."""

    async def logs(self) -> Sequence[LogSpan]:
        """Return the logs in all chunks. Reads the chunks that are new or may have grown."""
        async with self._turn:
            return await self._look()

    async def _look(self) -> Sequence[LogSpan]:
        names = sorted(await self._list())
        newest = max(self._chunks, default="")
        wanted = [name for name in names if name not in self._chunks or name == newest]
        self._chunks = {name: self._chunks[name] for name in names if name in self._chunks}
        for at in range(0, len(wanted), READ_AT_ONCE):
            found = await self._read(wanted[at : at + READ_AT_ONCE])
            for name in sorted(found):
                await self._take(name, found[name])
        return _merged(self._chunks[name] for name in sorted(self._chunks))

    async def _take(self, name: str, data: bytes) -> None:
        chunk = self._chunks.get(name, _Chunk())
        is_kept = name == self._kept_name and chunk.size <= len(data)
        if not is_kept:
            chunk = _Chunk()
            self._kept_name, self._kept = name, []
        # Not on the loop: a chunk may have ten thousand events.
        try:
            new, spans = await asyncio.to_thread(_events, data[chunk.size :])
        except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
            raise StorageError(f"the events {name} cannot be read: {error}") from error
        self._kept += new
        chunk.spans = _joined(chunk.spans, spans)
        chunk.size = len(data)
        self._chunks[name] = chunk

    async def events(self, log_id: str, after_seq: int) -> Sequence[LoggedEvent]:
        """Return events of a log above a seq: those of the first chunk that has any. Return none if
        no chunk has any.
        """
        async with self._turn:
            return await self._next(log_id, after_seq)

    async def _next(self, log_id: str, after_seq: int) -> Sequence[LoggedEvent]:
        for name in sorted(self._chunks):
            span = self._chunks[name].spans.get(log_id)
            if span is None or span.last_seq <= after_seq:
                continue
            if name != self._kept_name:
                data = (await self._read([name])).get(name)
                if data is None:
                    continue  # it was deleted
                await self._take(name, data)
            # A fold that was repeated has stored some events twice, in two chunks.
            if found := [e for e in self._kept if e.log_id == log_id and e.seq > after_seq]:
                return found
        return []

    async def history(self, group_id: str, since_ms: int) -> AsyncIterator[EventDict]:
        """Yield the events of a group from a time on, each of them once."""
        last_seqs: dict[str, int] = {}
        """The last seq that was read, by log. A fold that was repeated has stored some events
        twice."""
        names = sorted(await self._list())
        for at in range(0, len(names), READ_AT_ONCE):
            found = await self._read(names[at : at + READ_AT_ONCE])
            for name in sorted(found):
                for event in events_of(found[name]):
                    last_seq = last_seqs.get(event["log_id"], 0)
                    last_seqs[event["log_id"]] = max(event["seq"], last_seq)
                    is_wanted = event["group"] == group_id and event["ts_ms"] >= since_ms
                    if is_wanted and event["seq"] > last_seq:
                        yield event
                await asyncio.sleep(0)  # a chunk may have ten thousand events

    async def trim(self, sealed: Mapping[str, int], delete_chunks: DeleteChunks) -> int:
        """Delete the chunks whose events are all sealed, but never the newest chunk. Return how
        many were deleted. ``sealed`` has for each log the last event that is in a file.
        """
        names = [
            name
            for name in sorted(self._chunks)[:-1]
            if all(
                span.last_seq <= sealed.get(span.log_id, 0)
                for span in self._chunks[name].spans.values()
            )
        ]
        await delete_chunks(names)
        for name in names:
            self._chunks.pop(name, None)
        return len(names)


def _events(data: bytes) -> tuple[list[LoggedEvent], dict[str, LogSpan]]:
    found: list[LoggedEvent] = []
    spans: dict[str, LogSpan] = {}
    for line in gzip.decompress(data).splitlines(keepends=True):
        head = decode_head(line)
        found.append(LoggedEvent(head.log_id, head.seq, head.ts_ms, (head.group, line)))
        span = spans.get(head.log_id)
        first_seq = head.seq if span is None else span.first_seq
        previous = head.previous_log_id if span is None else span.previous_log_id
        spans[head.log_id] = LogSpan(head.log_id, previous, first_seq, head.seq, head.ts_ms)
    return found, spans


def _joined(before: Mapping[str, LogSpan], more: Mapping[str, LogSpan]) -> dict[str, LogSpan]:
    joined = dict(before)
    for log_id, span in more.items():
        first = joined.get(log_id)
        if first is None:
            joined[log_id] = span
        elif span.last_seq > first.last_seq:
            joined[log_id] = first._replace(last_seq=span.last_seq, last_ts_ms=span.last_ts_ms)
    return joined


def _merged(chunks: Iterable[_Chunk]) -> list[LogSpan]:
    spans: dict[str, LogSpan] = {}
    for chunk in chunks:
        spans = _joined(spans, chunk.spans)
    return [*spans.values()]
