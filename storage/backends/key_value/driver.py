"""The part of a driver that is the same in ZooKeeper and Consul: errors, the mirror, and the event
log in chunks.

A *chunk* is one value with compressed events (``event_chunks``). The *mirror* is a copy of the
groups for other programs (``storage.backends.mirror``). The words life and fold are explained in
``storage.backends.journal.driver``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

from groupkeeper.storage.backends.journal.driver import (
    Begun,
    JournalEntry,
    LifeOver,
    LoggedEvent,
    LogSpan,
    SeqMoved,
    Value,
)
from groupkeeper.storage.backends.key_value.event_chunks import EventChunks
from groupkeeper.storage.backends.key_value.stored_chunks import StoredChunks
from groupkeeper.storage.backends.mirror.mirror import Mirror
from groupkeeper.storage.leases.lives import NodeLife
from groupkeeper.storage.segment_lines import EventDict

CALL_SHARE: Final = 0.8
"""A call has this share of its caller's time limit. So it fails before the caller stops waiting."""

FOLD_TIMEOUT_S: Final = 60.0
"""The time limit of a fold, and of reading values and entries. They may take longer than an append:
a group may have tens of megabytes. Appends do not wait for a fold unless the journal is full."""


class KeyValueDriver(ABC):
    """A driver (``JournalDriver``) without the calls that depend on the kind of the store."""

    max_entry_bytes = 16 * 1024 * 1024
    keeps_events = False
    why_moved: ClassVar[str]
    """The probable reason why the store has lost entries, for a message."""
    chunk_bytes: ClassVar[int]
    """No events are added to a chunk that is larger than this. Each fold writes the newest chunk
    again."""
    max_chunks: ClassVar[int]
    """The largest number of chunks of events that the store keeps. If there are more, the oldest
    are deleted."""

    def __init__(self, name: str, mirror: Mirror | None) -> None:
        self.name = name
        self.round_trips: Counter[str] = Counter()
        self._mirror = mirror
        self._chunks: EventChunks | None = None
        """The names of the chunks. None before they are listed, and after a fold whose outcome is
        unknown."""
        self._stored = StoredChunks(partial(self._chunk_names, "events"), self._read_chunks)

    # --- errors -----------------------------------------------------------------------------------

    def _over(self, life_id: str) -> LifeOver:
        return LifeOver(f"{self.name}: the life {life_id} has ended")

    def _freed(self, ended: str) -> LifeOver:
        return LifeOver(f"{self.name}: the shards of life {ended} are free already")

    def _moved(self, next_seq: int, entry: JournalEntry) -> SeqMoved:
        return SeqMoved(
            f"{self.name}: the journal ends with seq {next_seq - 1}, not "
            f"{entry.first_seq - 1}: {self.why_moved}"
        )

    # --- the mirror -------------------------------------------------------------------------------

    def figures(self) -> Mapping[str, float]:
        """Return the lag of the mirror, if there is a mirror."""
        return {} if self._mirror is None else {"mirror_lag_s": self._mirror.lag_s()}

    async def begin_life(self, life: NodeLife) -> Begun:
        if self._mirror is not None:
            self._mirror.end()
        begun = await self._begin_life(life)
        if self._mirror is not None and not begun.others:
            self._mirror.begin()
        return begun

    @abstractmethod
    async def _begin_life(self, life: NodeLife) -> Begun:
        """Begin a life, as ``JournalDriver.begin_life`` says."""

    def _show(self, values: Sequence[Value]) -> None:
        """Pass to the mirror values that were read from the store or written to it."""
        if self._mirror is not None:
            self._mirror.changed(values)

    # --- events -----------------------------------------------------------------------------------

    @abstractmethod
    async def _chunk_names(self, call: str) -> Sequence[str]:
        """Return the names of all chunks. The round trips are counted under the name ``call``."""

    @abstractmethod
    async def _read_chunks(self, names: Sequence[str]) -> Mapping[str, bytes]:
        """Return by name the content of those chunks that exist."""

    @abstractmethod
    async def _delete_chunks(self, call: str, life_id: str, names: Sequence[str]) -> None:
        """Delete chunks. ``life_id`` is our own life. The round trips are counted under the name
        ``call``.
        """

    async def _event_chunks(self) -> EventChunks:
        if self._chunks is None:
            names = await self._chunk_names("_event_chunks")
            self._chunks = EventChunks(names, self.chunk_bytes, self.max_chunks)
        return self._chunks

    async def delete_events(self, life_id: str, before_ms: int) -> None:
        chunks = await self._event_chunks()
        await self._delete_and_forget("delete_events", life_id, chunks.older_than(before_ms))

    async def trim_events(self, life_id: str, sealed: Mapping[str, int]) -> int:
        return await self._stored.trim(
            sealed, partial(self._delete_and_forget, "trim_events", life_id)
        )

    async def _delete_and_forget(self, call: str, life_id: str, names: Sequence[str]) -> None:
        await self._delete_chunks(call, life_id, names)
        if self._chunks is not None:
            self._chunks.forget(names)

    async def event_logs(self) -> Sequence[LogSpan]:
        return await self._stored.logs()

    async def events(self, log_id: str, after_seq: int) -> Sequence[LoggedEvent]:
        return await self._stored.events(log_id, after_seq)

    def history(self, group_id: str, since_ms: int) -> AsyncIterator[EventDict]:
        return self._stored.history(group_id, since_ms)
