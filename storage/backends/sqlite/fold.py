"""Choose which groups the SQLite backend folds, and when (pure; docs/design.md#fold).

To fold a group is to write its whole present state into its own row. The log alone contains all
data. The fold limits how much of the log a load has to read. If more requests than a threshold are
not folded, each append also folds a few groups: those whose rows have been out of date for the
longest time. A large group is written in parts, one with each append.

A group counts as folded only after the writer's thread has reported it. A failed fold makes no
append fail: its groups are folded later. ``folded_row`` is the last row that a load need not read.
It stays below the oldest change of each group that is not folded.

This file is long because choosing, encoding and counting groups share the state of one map.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from groupkeeper.coordinator.core.records import (
    OffsetsCommitted,
    Record,
    SavedGroup,
    SavedOffsets,
)
from groupkeeper.storage.backends.group_parts import MAX_PART_BYTES, GroupWalk, is_one_part
from groupkeeper.storage.base import Batch, ShardAppend, ShardId
from groupkeeper.storage.codec.records import PayloadItem, encode_record, encode_saved, group_of

FOLD_AFTER_REQUESTS = 50_000
"""Appends begin to fold when the log has more unfolded requests than this. A load reads this many
in about a second."""

MIN_SLICE_GROUPS = 8
MAX_SLICE_BYTES = 1024 * 1024
MAX_SLICE_GROUPS = 1_000
"""The largest number of groups that one append folds. SQLite allows 32,766 parameters in a
statement, and a group needs three."""

IDLE_SLICE_GROUPS = 64
"""The largest number of groups that an append folds if it writes no records. No request waits for
such an append, but encoding the groups blocks the loop."""

MIN_RETRY_SLICES = 8
MAX_RETRY_SLICES = 1_024
"""The longest pause before a group that could not be written is retried. The pause is counted in
appends that fold, and doubles after each failed retry."""

GroupKey: TypeAlias = tuple[ShardId, str]

_Saved: TypeAlias = Mapping[ShardId, Callable[[str], SavedGroup | None]]


class FoldedGroup(NamedTuple):
    """The present state of a group, to write into its row. If ``state`` is None, the row is
    deleted.
    """

    shard: ShardId
    group_id: str
    state: bytes | None


class FoldedPart(NamedTuple):
    """One part of a large group, to write into the table ``group_parts``."""

    shard: ShardId
    group_id: str
    number: int
    """The number of the part, from 0. Part 0 begins a new set of parts. Parts of earlier sets are
    deleted later."""
    state: bytes
    head: bytes | None
    """The group's row in the table ``groups``. None except in the last part: writing this row makes
    the new set of parts the valid one."""


class FoldWork:
    """The groups that one append folds. The writer's thread stores the result in this object."""

    def __init__(self, row: int, has_keyed: bool) -> None:
        self.row = row
        """The number of the append's row in the log. The append is written before the groups."""
        self.has_keyed = has_keyed
        """True if there are keyed records (topics, configs, ends) to write. After the write: True
        if some of them could not be written."""
        self.groups: list[FoldedGroup] = []
        self.clears: list[GroupKey] = []
        """The groups that may have parts which are no longer valid."""
        self.part: FoldedPart | None = None
        self.taken: dict[GroupKey, int] = {}
        """For each group of this work, the row of its oldest unfolded change."""
        self.least_row = 0
        """The smallest row in ``taken``."""
        self.is_retry = False
        self.error: Exception | None = None
        """The error of the write; None if it succeeded."""
        self.is_done = False
        """True after the thread has finished the work. The thread sets it after all other fields.
        """


class Changes(NamedTuple):
    """The content of an append or of a row of the log, found in one walk over its batches."""

    groups: list[GroupKey]
    """The groups that the append, or the row, changes."""
    requests: int
    """The number of requests that changed a group. A load has to apply them again until the groups
    are folded."""
    commits: int
    """The number of batches that are one commit and nothing else: most batches."""
    others: list[tuple[ShardId, Batch]]
    """All batches that are not counted in ``commits``, each with its shard."""


def changes_of(items: Sequence[ShardAppend] | Sequence[PayloadItem]) -> Changes:
    """Return the groups that an append, or a row of the log, changes. Also count its requests that
    changed a group, and separate its commits from everything else.
    """
    groups: dict[GroupKey, None] = {}
    others: list[tuple[ShardId, Batch]] = []
    requests = commits = 0
    for item in items:
        shard = item.shard
        for batch in item.batches:
            records = batch.records
            record = records[0] if len(records) == 1 else None
            if type(record) is OffsetsCommitted:
                groups[shard, record.group_id] = None
                requests += 1
                if batch.events:
                    others.append((shard, batch))
                else:
                    commits += 1
            else:
                requests += _note_groups(groups, shard, records)
                others.append((shard, batch))
    return Changes(list(groups), requests, commits, others)


def _note_groups(groups: dict[GroupKey, None], shard: ShardId, records: Sequence[Record]) -> bool:
    """Add to ``groups`` those that the records of one step change. Return True if there are any."""
    found = False
    for record in records:
        group_id = group_of(record)
        if group_id is not None:
            groups[shard, group_id] = None
            found = True
    return found


class _LargeGroup:
    """A large group with some parts already written. One append writes one part."""

    def __init__(self, key: GroupKey, row: int) -> None:
        self.key = key
        self.row = row
        """The row of the oldest change that the parts contain. Changes after the first part was
        encoded count as new ones."""
        self.walk = GroupWalk()
        self.parts = 0
        self.is_waiting = False
        """True while the part that was encoded last is being written. The next part waits for the
        result."""


class FoldMap:
    """The groups that have changed since they were folded, oldest change first."""

    def __init__(
        self, fold_after: int = FOLD_AFTER_REQUESTS, part_bytes: int = MAX_PART_BYTES
    ) -> None:
        """Start with every group folded. Then a load calls ``note`` for each row of the log that is
        not folded.
        """
        self._fold_after = fold_after
        self._part_bytes = part_bytes
        self._dirty: defaultdict[ShardId, OrderedDict[str, int]] = defaultdict(OrderedDict)
        self._requests: deque[tuple[int, int]] = deque()
        self.unfolded = 0
        """The number of requests in the rows above ``folded_row``."""
        self.has_parts: set[GroupKey] = set()
        """The groups that may have rows in the table of parts."""
        self._works: deque[FoldWork] = deque()
        """The folds whose results are not known yet, oldest first."""
        self._large: _LargeGroup | None = None
        self._keyed_row: int | None = None
        """The oldest row with keyed records that could not be written."""
        self._put_off: dict[GroupKey, int] = {}
        """The groups that could not be written and are retried later, each with the row of its
        oldest unfolded change."""
        self.failures_in_a_row = 0
        """The number of folds that failed since the last one that succeeded."""
        self._slices = 0
        self._retry_at = 0
        self._retry_wait = MIN_RETRY_SLICES
        self._retry_groups = MAX_SLICE_GROUPS

    def note(self, row: int, changes: Changes) -> int:
        """Add the changes of a row of the log. Return how many of its groups had no unfolded change
        before.
        """
        made_dirty = 0
        for shard, group_id in changes.groups:
            dirty = self._dirty[shard]
            if group_id not in dirty:
                dirty[group_id] = row
                made_dirty += 1
        if changes.requests:
            self._requests.append((row, changes.requests))
            self.unfolded += changes.requests
        return made_dirty

    def note_commit(self, row: int, shard: ShardId, group_id: str) -> None:
        """Do the same as ``note``, faster, for a row of the log that has one commit and nothing
        else.
        """
        self._dirty[shard].setdefault(group_id, row)
        self._requests.append((row, 1))
        self.unfolded += 1

    def folded_row(self, last_row: int) -> int:
        """Return the number of the row before the oldest change that is not folded. A load reads
        only the rows after this one.
        """
        rows = [next(iter(dirty.values())) for dirty in self._dirty.values()]
        for work in self._works:
            if work.taken:
                rows.append(work.least_row)
            if work.has_keyed:
                rows.append(work.row)
        if self._large is not None:
            rows.append(self._large.row)
        if self._keyed_row is not None:
            rows.append(self._keyed_row)
        rows += self._put_off.values()
        return min(rows) - 1 if rows else last_row

    @property
    def is_waiting(self) -> bool:
        """True if the result of a fold is not known yet."""
        return bool(self._works)

    # --- what an append folds ---------------------------------------------------------------------

    def work(
        self, items: Sequence[ShardAppend], row: int, changes: Changes, has_keyed: bool
    ) -> FoldWork:
        """Add the row of an append. Choose and encode the groups that this append folds, oldest
        change first.

        An append folds only while the log has too many unfolded requests, or if it has nothing else
        to write. It may then fold ``MIN_SLICE_GROUPS`` groups, or as many groups as had no unfolded
        change before this append. So the number of unfolded groups does not grow, unless
        ``MAX_SLICE_GROUPS``, ``MAX_SLICE_BYTES`` or the retry of failed groups lowers this limit.

        Call this in the same turn of the loop in which the append is encoded. The states of the
        groups then contain exactly this append and all earlier ones.
        """
        made_dirty = self.note(row, changes)
        work = FoldWork(row, has_keyed or self._keyed_row is not None)
        only_folds = not any(item.batches for item in items)
        if only_folds or self.unfolded > self._fold_after:
            least = IDLE_SLICE_GROUPS if only_folds else MIN_SLICE_GROUPS
            self._slices += 1
            saved = {item.shard: item.saved for item in items}
            self._choose(work, saved, min(max(made_dirty, least), MAX_SLICE_GROUPS))
        if work.taken or work.part is not None or work.has_keyed:
            self._works.append(work)
        return work

    def _choose(self, work: FoldWork, saved: _Saved, most: int) -> None:
        size = self._go_on(work, saved)
        if self._put_off and self._slices >= self._retry_at and not size:
            work.is_retry = True
            self._retry_at = self._slices + self._retry_wait
            most = min(most, self._retry_groups)
            oldest = iter([(key, row) for key, row in self._put_off.items() if key[0] in saved])
        else:
            oldest = self._oldest(saved)
        begun: _LargeGroup | None = None
        for key, row in oldest:
            if self._large is not None and key == self._large.key:
                continue
            shard, group_id = key
            group = saved[shard](group_id)
            if group is not None and not is_one_part(group, self._part_bytes):
                if self._large is None and not size:  # one at a time, and no other group with it
                    begun = _LargeGroup(key, row)
                break
            state = None if group is None else encode_saved(group)
            size += len(state or b"")
            if work.groups and size > MAX_SLICE_BYTES:
                break
            self._take(work, key, row, state)
            if len(work.groups) == most:
                break
        for key in work.taken:
            self._forget(key, work.is_retry)
        if begun is not None:
            self._forget(begun.key, work.is_retry)
            self._large = begun
            self._go_on(work, saved)

    def _take(self, work: FoldWork, key: GroupKey, row: int, state: bytes | None) -> None:
        work.groups.append(FoldedGroup(key[0], key[1], state))
        work.least_row = min(row, work.least_row) if work.taken else row
        work.taken[key] = row
        if key in self.has_parts:
            work.clears.append(key)

    def _forget(self, key: GroupKey, is_put_off: bool) -> None:
        """Forget that the group has a change, so that its next change counts as new."""
        if is_put_off:
            del self._put_off[key]
            return
        dirty = self._dirty[key[0]]
        del dirty[key[1]]
        if not dirty:
            del self._dirty[key[0]]

    def _go_on(self, work: FoldWork, saved: _Saved) -> int:
        """Encode the next part of the large group, in its present state. Return the part's size.

        If the group changes after its first part was encoded, it is folded again later, because a
        part may lack the change. Until all parts are written, ``folded_row`` stays below the oldest
        change, and a load applies all later changes again.
        """
        large = self._large
        if large is None or large.is_waiting or large.key[0] not in saved:
            return 0
        shard, group_id = large.key
        group = saved[shard](group_id)
        if group is None:
            self._large = None
            self._take(work, large.key, large.row, None)
            return 0
        self.has_parts.add(large.key)
        offsets = large.walk.take(group, self._part_bytes)
        state = encode_record(SavedOffsets(group_id, offsets))
        head = (
            encode_saved(SavedGroup(group_id, group.metadata, {})) if large.walk.is_done else None
        )
        work.part = FoldedPart(shard, group_id, large.parts, state, head)
        large.parts += 1
        large.is_waiting = True
        return len(state) + len(head or b"")

    def _oldest(self, saved: _Saved) -> Iterator[tuple[GroupKey, int]]:
        """Yield the unfolded groups of these shards, oldest change first."""
        ages = heapq.merge(*[self._ages(shard) for shard in saved if shard in self._dirty])
        for row, shard, group_id in ages:
            yield (shard, group_id), row

    def _ages(self, shard: ShardId) -> Iterator[tuple[int, ShardId, str]]:
        for group_id, row in self._dirty[shard].items():
            yield row, shard, group_id

    # --- the results ------------------------------------------------------------------------------

    def settle(self) -> Exception | None:
        """Process the results of all folds that have ended, oldest first.

        Return the error of the last fold that failed; None if none failed.
        """
        failure: Exception | None = None
        if not self._works or not self._works[0].is_done:
            return failure
        while self._works and self._works[0].is_done:
            work = self._works.popleft()
            if not work.has_keyed:
                self._keyed_row = None
            elif self._keyed_row is None:
                self._keyed_row = work.row
            if work.error is None:
                self._succeeded(work)
            else:
                failure = work.error
                self._failed(work)
        folded_row = self.folded_row(self._requests[-1][0] if self._requests else 0)
        while self._requests and self._requests[0][0] <= folded_row:
            self.unfolded -= self._requests.popleft()[1]
        return failure

    def _succeeded(self, work: FoldWork) -> None:
        self.failures_in_a_row = 0
        # If an older state of the group could not be written, a retry is not needed any more: a
        # newer state is written now.
        for key in work.taken:
            self._put_off.pop(key, None)
        large = self._large
        for key in work.clears:
            if large is None or large.key != key:
                self.has_parts.discard(key)
        if work.part is not None and large is not None:
            large.is_waiting = False
            if large.walk.is_done:
                self._put_off.pop(large.key, None)
                self._large = None
        if work.is_retry:
            self._retry_at = self._slices
            self._retry_wait = MIN_RETRY_SLICES
            self._retry_groups = min(2 * self._retry_groups, MAX_SLICE_GROUPS)

    def _failed(self, work: FoldWork) -> None:
        """Add the groups of a failed fold to the end of the queue of retries."""
        self.failures_in_a_row += 1
        failed = dict(work.taken)
        if work.part is not None and self._large is not None:
            failed[self._large.key] = self._large.row
            self._large = None
        for key, row in failed.items():
            self._put_off[key] = min(row, self._put_off.pop(key, row))
        if work.is_retry:
            self._retry_wait = min(2 * self._retry_wait, MAX_RETRY_SLICES)
        self._retry_at = self._slices + self._retry_wait
        self._retry_groups = 1
