"""The marks that a shard keeps about the adoption of its groups from the upstream (gateway mode).

See docs/design.md#adoption and docs/design.md#hard-state: only ``ShardState.apply`` changes the
marks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from groupkeeper.coordinator.core.records import ADOPTION_BEGUN, GROUP_REMOVED, AdoptionMark

CHARS_PER_PLACE: Final = 128
"""A remembered group counts as one group, and as one more for each ``CHARS_PER_PLACE`` characters
of its id. Otherwise 100,000 ids of 32,767 bytes would need 3 GB.
"""


class Adoptions:
    """The mark of each group that has one, the oldest first."""

    def __init__(self) -> None:
        self._marks: dict[str, AdoptionMark] = {}
        self._places = 0

    def apply(self, record: AdoptionMark) -> None:
        """Set the mark of a group. A record with an empty state clears it."""
        places = 1 + len(record.group_id) // CHARS_PER_PLACE
        if self._marks.pop(record.group_id, None) is not None:
            self._places -= places
        if record.state:
            self._marks[record.group_id] = record
            self._places += places

    def sort(self) -> None:
        """Sort the marks by age after a load, because a store may return the records in any
        order.
        """
        by_age = sorted(self._marks.values(), key=lambda mark: mark.since_ms)
        self._marks = {mark.group_id: mark for mark in by_age}

    def state(self, group_id: str) -> str:
        """Return the state of a group's mark; "" if it has none."""
        mark = self._marks.get(group_id)
        return "" if mark is None else mark.state

    def removal(self, group_id: str, now_ms: int, most: int) -> Iterator[AdoptionMark]:
        """Yield a record that remembers the removal of a group. Then yield records that forget the
        oldest removals, until all marks together count as at most ``most`` groups
        (``CHARS_PER_PLACE``). The caller applies each record before it asks for the next.

        Yield nothing if ``most`` is 0. Also yield nothing while the group is being adopted: the
        group is then deleted only because its adoption starts again.
        """
        if most == 0 or self.state(group_id) == ADOPTION_BEGUN:
            return
        yield AdoptionMark(group_id, GROUP_REMOVED, now_ms)
        while self._places > most:
            removed = (mark for mark in self._marks.values() if mark.state == GROUP_REMOVED)
            oldest = next(removed, None)
            if oldest is None:
                return
            yield AdoptionMark(oldest.group_id, "", now_ms)

    def records(self) -> Iterator[AdoptionMark]:
        """Yield the records of all marks. ``apply`` makes the same marks from them."""
        yield from self._marks.values()
