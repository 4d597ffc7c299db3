"""Which groups the SQLite backend writes into its folded tables, and when (pure; design 3).

The log alone would be enough; the fold bounds how much of it a load has to read. It costs an append
little and nothing is ever rewritten as a whole: each append beyond a threshold takes a slice of the
groups whose row has been out of date for longest.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from coordinator.core.records import Record
from storage.base import ShardAppend, ShardId
from storage.record_codec import Payload, encode_saved, group_of

FOLD_AFTER_REQUESTS = 50_000
"""Requests that may stand in the log unfolded: about what a load reads in a second."""

MIN_SLICE_GROUPS = 8
MAX_SLICE_BYTES = 1024 * 1024
MAX_SLICE_GROUPS = 1_000
"""SQLite takes 32,766 parameters in a statement; a group needs three."""

IDLE_SLICE_GROUPS = 64
"""For an append that only folds: nobody waits for it, but the loop still does the encoding."""


class FoldedGroup(NamedTuple):
    """A group's row to write; without a state, to remove."""

    shard: ShardId
    group_id: str
    state: bytes | None


class Changes(NamedTuple):
    """What an append changes, as far as the fold cares."""

    groups: list[tuple[ShardId, str]]
    requests: int
    """Steps that changed a group: what a load would have to apply again."""


def changes_of(items: Sequence[ShardAppend]) -> Changes:
    """Find the groups that the records of an append set or clear, each once."""
    groups: dict[tuple[ShardId, str], None] = {}
    requests = 0
    for item in items:
        for batch in item.batches:
            requests += note_groups(groups, item.shard, batch.records)
    return Changes(list(groups), requests)


def changes_in(payload: Payload) -> Changes:
    """Find the groups that a row of the log changes, each once."""
    groups: dict[tuple[ShardId, str], None] = {}
    requests = 0
    for item in payload.items:
        for batch in item.batches:
            requests += note_groups(groups, item.shard, batch.records)
    return Changes(list(groups), requests)


def note_groups(
    groups: dict[tuple[ShardId, str], None], shard: ShardId, records: Sequence[Record]
) -> bool:
    """Add the groups that the records of one step change; tell whether there are any."""
    found = False
    for record in records:
        group_id = group_of(record)
        if group_id is not None:
            groups[shard, group_id] = None
            found = True
    return found


class FoldMap:
    """The groups that changed since their row was written, oldest change first."""

    def __init__(self, fold_after: int = FOLD_AFTER_REQUESTS) -> None:
        """Start with everything folded; a load calls ``note`` for each row that is not."""
        self._fold_after = fold_after
        self._dirty: dict[ShardId, OrderedDict[str, int]] = {}
        self._requests: deque[tuple[int, int]] = deque()
        self.unfolded = 0
        """Requests in the rows above ``folded_row``."""

    def note(self, row: int, changes: Changes) -> None:
        """A log row was written."""
        for shard, group_id in changes.groups:
            self._dirty.setdefault(shard, OrderedDict()).setdefault(group_id, row)
        if changes.requests:
            self._requests.append((row, changes.requests))
            self.unfolded += changes.requests

    def fold(self, row: int, folded: Sequence[FoldedGroup]) -> None:
        """The groups' rows were written, with what log row ``row`` and those below it hold."""
        if not folded:
            return
        for group in folded:
            dirty = self._dirty.get(group.shard)
            if dirty is not None:
                dirty.pop(group.group_id, None)
                if not dirty:
                    del self._dirty[group.shard]
        folded_row = self.folded_row(row)
        while self._requests and self._requests[0][0] <= folded_row:
            self.unfolded -= self._requests.popleft()[1]

    def folded_row(self, last_row: int) -> int:
        """The row just below the oldest change that is not folded: what a load may start above."""
        if not self._dirty:
            return last_row
        return min(next(iter(dirty.values())) for dirty in self._dirty.values()) - 1

    def slice(self, items: Sequence[ShardAppend], changes: Changes) -> list[FoldedGroup]:
        """Choose and encode what the append of these items folds besides, oldest first.

        As many groups as the append makes dirty, so that the map does not grow, and some more, so
        that it shrinks. Must run in the same turn of the loop as the encoding of the payload: the
        states then hold exactly what this and earlier appends hold.
        """
        only_folds = not any(item.batches for item in items)
        if not only_folds and self.unfolded + changes.requests <= self._fold_after:
            return []
        made_dirty = sum(not self._is_dirty(*group) for group in changes.groups)
        least = IDLE_SLICE_GROUPS if only_folds else MIN_SLICE_GROUPS
        most = min(max(made_dirty, least), MAX_SLICE_GROUPS)
        saved = {item.shard: item.saved for item in items}
        chosen: list[FoldedGroup] = []
        size = 0
        for shard, group_id in self._oldest(saved, changes):
            group = saved[shard](group_id)
            state = None if group is None else encode_saved(group)
            size += len(state or b"")
            if chosen and size > MAX_SLICE_BYTES:
                break
            chosen.append(FoldedGroup(shard, group_id, state))
            if len(chosen) == most:
                break
        return chosen

    def _is_dirty(self, shard: ShardId, group_id: str) -> bool:
        return group_id in self._dirty.get(shard, ())

    def _oldest(self, shards: Iterable[ShardId], changes: Changes) -> Iterator[tuple[ShardId, str]]:
        """Yield the dirty groups of these shards by their oldest change, the append's own last."""
        by_age = heapq.merge(*(self._ages(shard) for shard in shards if shard in self._dirty))
        for _, shard, group_id in by_age:
            yield shard, group_id
        for shard, group_id in changes.groups:
            if not self._is_dirty(shard, group_id):
                yield shard, group_id

    def _ages(self, shard: ShardId) -> Iterator[tuple[int, ShardId, str]]:
        for group_id, row in self._dirty[shard].items():
            yield row, shard, group_id
