"""The pending offsets of a shard: the offsets of open transactions.

See docs/spec/offsets.md#transactions and docs/design.md#hard-state: only ``ShardState.apply``
changes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Final

from groupkeeper.coordinator.core.groups.group import (
    GROUP_OVERHEAD_BYTES,
    offset_bytes,
    topic_bytes,
)
from groupkeeper.coordinator.core.records import (
    JournalPosition,
    PendingEnded,
    PendingOffsets,
)

_NOTHING: Final[Mapping[str, Mapping[int, int]]] = {}


class Pendings:
    """The pending offsets of a shard by their id and by their group. Also counts them for each
    partition.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, PendingOffsets] = {}
        self.last_arrival = 0
        """The largest ``arrival`` since the load."""
        self._of_group: dict[str, dict[str, PendingOffsets]] = {}
        self._unordered: set[str] = set()
        """The groups whose pending offsets may not be in the order of their arrival."""
        self._unstable: dict[str, dict[str, Counter[int]]] = {}
        """Group -> topic -> partition -> the number of its pending offsets."""
        self._bytes_of_group: Counter[str] = Counter()
        self.journal: JournalPosition | None = None
        """The position up to which the journal was read. None before the first read."""

    def apply(self, record: PendingOffsets | PendingEnded | JournalPosition) -> None:
        """Set or clear the pending offsets that the record names, or set the position in the
        journal.
        """
        if isinstance(record, JournalPosition):
            self.journal = record
            return
        before = self.by_id.pop(record.pending_id, None)
        if before is not None:
            self._forget(before)
        if isinstance(record, PendingOffsets):
            self._add(record)

    def _add(self, record: PendingOffsets) -> None:
        pending_id, group_id = record.pending_id, record.group_id
        self.by_id[pending_id] = record
        if record.arrival < self.last_arrival:
            self._unordered.add(group_id)
        self.last_arrival = max(self.last_arrival, record.arrival)
        self._of_group.setdefault(group_id, {})[pending_id] = record
        topics = self._unstable.setdefault(group_id, {})
        for topic in record.topics:
            numbers = [row[0] for row in topic.partitions]
            topics.setdefault(topic.topic, Counter()).update(numbers)
        self._bytes_of_group[group_id] += pending_bytes(record)

    def _forget(self, record: PendingOffsets) -> None:
        pending_id, group_id = record.pending_id, record.group_id
        del self._of_group[group_id][pending_id]
        if not self._of_group[group_id]:
            del self._of_group[group_id], self._unstable[group_id], self._bytes_of_group[group_id]
            self._unordered.discard(group_id)
            return
        self._bytes_of_group[group_id] -= pending_bytes(record)
        topics = self._unstable[group_id]
        for topic in record.topics:
            counts = topics[topic.topic]
            for row in topic.partitions:
                counts[row[0]] -= 1
                if not counts[row[0]]:
                    del counts[row[0]]
            if not counts:
                del topics[topic.topic]

    def of_group(self, group_id: str, before: int | None = None) -> list[PendingOffsets]:
        """Return the pending offsets of a group, in the order of their arrival.

        With ``before``, return only pending offsets with a smaller ``arrival``. The later ones are
        not examined: a group may have thousands, and each end of a transaction calls this.
        """
        records = self._of_group.get(group_id)
        if records is None:
            return []
        if group_id in self._unordered:
            records = {each.pending_id: each for each in sorted(records.values(), key=_arrival)}
            self._of_group[group_id] = records
            self._unordered.discard(group_id)
        if before is None:
            return [*records.values()]
        return [*takewhile(lambda each: each.arrival < before, records.values())]

    def has_group(self, group_id: str) -> bool:
        """Return whether a group has pending offsets."""
        return group_id in self._of_group

    def unstable(self, group_id: str) -> Mapping[str, Mapping[int, int]]:
        """Return topic -> partition -> the number of its pending offsets, for one group."""
        return self._unstable.get(group_id, _NOTHING)

    def group_bytes(self, group_id: str) -> int:
        """Return an upper bound of the size of a group's pending offsets."""
        return self._bytes_of_group[group_id]

    def records(self) -> Iterator[PendingOffsets | JournalPosition]:
        """Yield records from which ``apply`` makes the same pending offsets and journal
        position.
        """
        yield from self.by_id.values()
        if self.journal is not None:
            yield self.journal


def pending_bytes(record: PendingOffsets) -> int:
    """Return an upper bound of the size of pending offsets in a store."""
    size_bytes = GROUP_OVERHEAD_BYTES + 6 * (
        len(record.group_id) + len(record.member_id) + len(record.client_id)
    )
    for topic in record.topics:
        size_bytes += topic_bytes(topic.topic)
        size_bytes += sum([offset_bytes(metadata) for _, _, _, metadata, _ in topic.partitions])
    return size_bytes


def _arrival(record: PendingOffsets) -> int:
    return record.arrival
