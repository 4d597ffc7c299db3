"""Loads shards from storage without blocking the loop (docs/design.md#loading)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from groupkeeper.coordinator.core.records import Record
from groupkeeper.coordinator.runtime.shards import AnyShard
from groupkeeper.storage.base import OffsetStorage, ShardId, StoreRefused

_SHOWN_CHARS = 500
"""How many characters of an unusable record the error message shows."""


class Slicer:
    """Lets other tasks of the loop run whenever a slice of time is used up."""

    def __init__(self, slice_ms: float, timer: Callable[[], float] = time.perf_counter) -> None:
        self._slice_s = slice_ms / 1000
        self._timer = timer
        self._until = timer() + self._slice_s

    @property
    def is_used_up(self) -> bool:
        """True if the slice of time is used up. This is cheaper than ``pause``."""
        return self._timer() >= self._until

    async def pause(self) -> None:
        """Let other tasks run if the slice of time is used up. Otherwise return at once."""
        if self.is_used_up:
            await asyncio.sleep(0)
            self._until = self._timer() + self._slice_s


async def load_records(
    storage: OffsetStorage,
    read: Collection[ShardId],
    into: Mapping[ShardId, AnyShard],
    slicer: Slicer,
) -> None:
    """Read the shards whose ids are in ``read``, and apply their records to the shard objects in
    ``into``. Records of other shards are skipped.

    Raises StoreRefused for a record that a shard cannot use.
    """
    async for shard_id, records in storage.load(read):
        shard = into.get(shard_id)
        if shard is not None:
            await _apply(shard_id, shard, records, slicer)


async def _apply(
    shard_id: ShardId, shard: AnyShard, records: Sequence[Record], slicer: Slicer
) -> None:
    for record in records:
        try:
            shard.apply(record)
        except Exception as error:  # any error: a retry would raise it again
            raise StoreRefused(
                f"shard {shard_id}: a stored record cannot be used ({error!r}): "
                f"{str(record)[:_SHOWN_CHARS]}; a newer groupkeeper wrote it, or it is "
                "damaged: run that version, or restore the last backup"
            ) from error
        if slicer.is_used_up:  # after each record: a commit may take 10 ms
            await slicer.pause()
