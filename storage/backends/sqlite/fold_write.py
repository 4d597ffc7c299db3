"""Write the groups that an append folds, on the writer's thread, after the row of the append.

To fold a group is to write its whole present state. No request waits for this, and no append fails
because of it. A failure is stored in the ``FoldWork``, and ``FoldMap.settle`` handles it.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Collection
from typing import Final

from groupkeeper.storage.backends.sqlite import tables
from groupkeeper.storage.backends.sqlite.fold import FoldedPart, FoldWork, GroupKey
from groupkeeper.storage.backends.sqlite.keyed import KeyedRow, write_keyed
from groupkeeper.storage.base import LeaseEpoch

MAX_DELETED_PARTS: Final = 16
"""The largest number of parts of groups that are deleted after one append: up to 8 MB, which takes
about 30 ms. The next append waits for this. Deleting all parts of a group of 1.2 GB at once would
take longer than the time limit of an append."""


class FoldWriter:
    """Writes the folds of a store in their order. Only the writer's thread uses it."""

    def __init__(self) -> None:
        self.failures = 0
        """The number of folds that failed since the object was made."""
        self._left: dict[tuple[int, str], KeyedRow] = {}
        """Keyed records (topics, configs, ends) that could not be written. The next fold retries
        them."""
        self._stale: dict[GroupKey, None] = {}
        """The groups that may have parts which are no longer valid. Each fold deletes some of these
        parts."""
        self._begun: GroupKey | None = None
        """The large group of which some parts are written, but not the last one."""

    def forget(self) -> None:
        """Forget everything that is not written, before a load. The load finds out again which
        keyed records the table lacks, and which groups have parts.
        """
        self._left.clear()
        self._stale.clear()
        self._begun = None

    def loaded(self, has_parts: Collection[GroupKey]) -> None:
        """Remember the groups that may have parts which are no longer valid. The next folds delete
        these parts.
        """
        self._stale.update(dict.fromkeys(has_parts))

    def write(
        self,
        writer: sqlite3.Connection,
        work: FoldWork,
        keyed: list[KeyedRow],
        epoch: LeaseEpoch,
    ) -> None:
        """Write a fold. Never raises: a failure is stored in ``work.error``."""
        for row in keyed:  # first: if anything below fails, a later fold writes them
            self._left[row[:2]] = row
        try:
            if self._left or work.groups or work.part is not None or self._stale:
                with tables.without_sync(writer):
                    self._write_all(writer, work, epoch)
        except Exception as error:  # noqa: BLE001 - the work has it
            work.error = error
            self.failures += 1
            self._begun = None  # a group that failed begins its parts anew
        work.has_keyed = bool(self._left)
        work.is_done = True

    def _write_all(
        self,
        writer: sqlite3.Connection,
        work: FoldWork,
        epoch: LeaseEpoch,
    ) -> None:
        self._write_keyed(writer, epoch)
        _write_groups(writer, work, epoch)
        self._stale.update(dict.fromkeys(work.clears))
        if self._begun in self._stale and self._begun in work.taken:
            self._begun = None  # the group was deleted, or is small now
        if work.part is not None:
            self._write_part(writer, work.part, epoch)
        self._delete_parts(writer, epoch)

    def _write_part(self, writer: sqlite3.Connection, part: FoldedPart, epoch: LeaseEpoch) -> None:
        """Write one part of a large group. When the last part is written, the new set of parts is
        the valid one.
        """
        key = (part.shard, part.group_id)
        if part.number == 0:
            self._begun = key
            self._stale[key] = None
        writer.execute(tables.SAVE_PART, (*key, part.number, part.state, epoch))
        if part.head is not None:
            writer.execute(tables.END_PARTS, (*key, part.head, epoch))
            self._begun = None

    def _delete_parts(self, writer: sqlite3.Connection, epoch: LeaseEpoch) -> None:
        """Delete some parts that are not valid. The parts of an incomplete new set stay."""
        left = MAX_DELETED_PARTS
        keys = (key for key in self._stale if key != self._begun)
        for key in list(itertools.islice(keys, MAX_DELETED_PARTS)):
            deleted = writer.execute(tables.REMOVE_STALE_PARTS, (*key, *key, left, epoch))
            left -= deleted.rowcount
            if not left:
                return
            del self._stale[key]

    def _write_keyed(self, writer: sqlite3.Connection, epoch: LeaseEpoch) -> None:
        if self._left:
            write_keyed(writer, list(self._left.values()), epoch)
            self._left.clear()


def save_folded_row(writer: sqlite3.Connection, folded_row: int, epoch: LeaseEpoch) -> None:
    """Record the row up to which everything is folded. Do nothing if a later row is recorded, or if
    another process has a newer lease.
    """
    writer.execute(tables.SAVE_FOLDED_ROW, (folded_row, folded_row, epoch))


def _write_groups(writer: sqlite3.Connection, work: FoldWork, epoch: LeaseEpoch) -> None:
    saved = [group for group in work.groups if group.state is not None]
    gone = [group[:2] for group in work.groups if group.state is None]
    if saved:
        writer.execute(tables.save_groups(len(saved)), (*itertools.chain(*saved), epoch))
    if gone:
        writer.execute(tables.remove_groups(len(gone)), (*itertools.chain(*gone), epoch))
