"""Remembers which groups and keyed records have changed since their values were saved (pure).

A keyed record is a topic, a config or the end of a partition. The changes are in the journal. A
*fold* saves the values, and deletes the entries of the journal.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from groupkeeper.coordinator.core.records import SavedGroup
from groupkeeper.storage.backends.group_parts import MAX_PART_BYTES, is_one_part
from groupkeeper.storage.backends.journal.driver import Value
from groupkeeper.storage.backends.sqlite.fold import changes_of
from groupkeeper.storage.base import ShardAppend, ShardId
from groupkeeper.storage.codec.group_pieces import encode_in_pieces, snapshot_of
from groupkeeper.storage.codec.records import (
    WITH_OWN_KEY,
    PayloadItem,
    encode_record,
    encode_saved,
    own_key,
)

MAX_FOLD_BYTES: Final = 1024 * 1024
"""The approximate size of the values in one fold. Encoding more would block the loop for too long.
"""

Key: TypeAlias = tuple[ShardId, bool, str]
"""Names a value: the shard; True for a group; the id of the group, or the key of the record."""

Saved: TypeAlias = Mapping[ShardId, Callable[[str], SavedGroup | None]]


class FoldPortion(NamedTuple):
    """The values that one fold writes. A fold writes only some of the changed values at a time."""

    values: Sequence[Value]
    rows: Mapping[Key, int]
    """For each value, the number of the journal entry with its oldest change that is not folded."""
    trim_row: int
    """The number of a journal entry. When the values are written, the journal no longer needs this
    entry and the earlier ones."""
    large: tuple[ShardId, SavedGroup] | None = None
    """A snapshot of a group that takes too long to encode at once. It is the only value of its
    fold."""
    has_rest: bool = False
    """True if values that changed before this fold are left, so the next one should not wait."""

    @property
    def has_values(self) -> bool:
        """True if the fold writes a value."""
        return bool(self.rows)

    async def encoded(self) -> Sequence[Value]:
        """Return the encoded values. A large group is encoded in this call, in pieces, so that
        other tasks of the loop can run.
        """
        if self.large is None:
            return self.values
        shard, group = self.large
        return [Value(shard, True, group.group_id, await encode_in_pieces(group))]


class Unfolded:
    """Remembers which values changed since they were saved, oldest change first. Only one fold runs
    at a time.
    """

    def __init__(self) -> None:
        self.requests = 0
        """The number of requests in the entries that no fold has deleted yet. Some of them may
        already be part of a saved value."""
        self._rows: OrderedDict[Key, int] = OrderedDict()
        self._large: OrderedDict[Key, int] = OrderedDict()
        """The large groups that changed while large groups had to wait. Their rows are as in
        ``_rows``. A group that changes again is in both."""
        self._records: dict[Key, bytes | None] = {}
        """The newest keyed records that are not saved; None if a key was cleared."""
        self._counts: deque[tuple[int, int]] = deque()
        """For each entry in the journal, its number and how many requests it has."""

    def note(self, row: int, items: Sequence[ShardAppend] | Sequence[PayloadItem]) -> None:
        """Add the changes of one journal entry. ``row`` is its number."""
        changes = changes_of(items)
        for shard, group_id in changes.groups:
            self._rows.setdefault((shard, True, group_id), row)
        for item in items:
            for batch in item.batches:
                for record in batch.records:
                    if type(record) in WITH_OWN_KEY:
                        name, is_set = own_key(record)
                        key = (item.shard, False, name)
                        self._rows.setdefault(key, row)
                        self._records[key] = encode_record(record) if is_set else None
        count = changes.requests or 1  # an entry without requests also has to leave the journal
        self._counts.append((row, count))
        self.requests += count

    @property
    def has_changes(self) -> bool:
        """True if a value has to be written."""
        return bool(self._rows or self._large)

    @property
    def only_large_wait(self) -> bool:
        """True if the only values to write are large groups that had to wait."""
        return bool(self._large) and not self._rows

    def groups(self) -> list[tuple[ShardId, str]]:
        """Return the groups whose values have to be written."""
        keys = {**self._large, **self._rows}
        return [(shard, name) for shard, is_group, name in keys if is_group]

    def take(self, saved: Saved, row: int, *, may_large: bool = True) -> FoldPortion:
        """Choose the values with the oldest changes, and encode them for one fold. Only shards in
        ``saved`` are considered. If the value with the oldest change is a large group, take only a
        snapshot of this group. Without ``may_large``, large groups wait for a later fold. The
        states in ``saved`` must contain all changes up to the entry ``row``, and no later one.
        """
        if may_large and self._large:
            self._rows = OrderedDict(
                sorted(_older(self._large, self._rows).items(), key=lambda item: item[1])
            )
            self._large.clear()
        taken: dict[Key, int] = {}
        waiting: dict[Key, int] = {}
        values: list[Value] = []
        large: tuple[ShardId, SavedGroup] | None = None
        size, has_rest = 0, False
        for key, changed_row in self._rows.items():
            if key[0] not in saved:
                continue
            group = saved[key[0]](key[2]) if key[1] else None
            if group is not None and not is_one_part(group, MAX_PART_BYTES):
                if not may_large:
                    waiting[key] = changed_row
                    continue
                if not taken:
                    large = key[0], snapshot_of(group)
                    taken[key] = changed_row
                has_rest = len(self._rows) > len(taken)
                break
            value = self._value(key, group)
            size += len(value.data or b"")
            if values and size > MAX_FOLD_BYTES:
                has_rest = True
                break
            values.append(value)
            taken[key] = changed_row
        for key in taken:
            del self._rows[key]
            self._records.pop(key, None)
        for key in waiting:
            del self._rows[key]
        self._large = _older(self._large, waiting)
        left = [*self._rows.values(), *self._large.values()]
        trim_row = min(left, default=row + 1) - 1
        return FoldPortion(values, taken, trim_row, large, has_rest)

    def _value(self, key: Key, group: SavedGroup | None) -> Value:
        shard, is_group, name = key
        if not is_group:
            return Value(shard, False, name, self._records[key])
        return Value(shard, True, name, None if group is None else encode_saved(group))

    def succeeded(self, portion: FoldPortion) -> None:
        """Subtract the requests of the journal entries that a successful fold has deleted."""
        while self._counts and self._counts[0][0] <= portion.trim_row:
            self.requests -= self._counts.popleft()[1]

    def failed(self, portion: FoldPortion) -> None:
        """Add the values of a failed fold to the changed ones again. A key that has changed since
        keeps its newer record.
        """
        newer = self._rows
        self._rows = OrderedDict(portion.rows)
        for key, row in newer.items():
            self._rows.setdefault(key, row)
        for value in portion.values:
            if not value.is_group:
                self._records.setdefault((value.shard, False, value.key), value.data)


def _older(first: Mapping[Key, int], second: Mapping[Key, int]) -> OrderedDict[Key, int]:
    """Return the keys of both. A key that is in both keeps its smaller row."""
    rows = OrderedDict(first)
    for key, row in second.items():
        rows[key] = min(row, rows.get(key, row))
    return rows
