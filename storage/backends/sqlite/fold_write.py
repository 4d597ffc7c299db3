"""Write the fold of a SQLite store. Runs on the writer's thread after the row of an append.

No request waits for it. A failure is stored in the ``FoldWork``, and ``FoldMap.settle`` handles it.
No append fails because of it.
"""

from __future__ import annotations

import itertools
import sqlite3

from groupkeeper.storage.backends.sqlite import tables
from groupkeeper.storage.backends.sqlite.fold import FoldedPart, FoldWork
from groupkeeper.storage.backends.sqlite.keyed import KeyedRow, write_keyed
from groupkeeper.storage.base import LeaseEpoch


class FoldWriter:
    """Writes the works in their order. Only the writer's thread uses it."""

    def __init__(self) -> None:
        self.failures = 0
        """The number of works that failed, over all loads."""
        self._left: dict[tuple[int, str], KeyedRow] = {}
        """Keyed records that could not be written. The next work retries them."""

    def forget(self) -> None:
        """Drop unwritten records before a load. The load finds the records that the table lacks."""
        self._left.clear()

    def write(
        self,
        writer: sqlite3.Connection,
        work: FoldWork,
        keyed: list[KeyedRow],
        epoch: LeaseEpoch,
    ) -> None:
        """Write a work. Never raises: a failure is stored in ``work.error``."""
        for row in keyed:  # first, so that whatever fails below, they are written by a later work
            self._left[row[:2]] = row
        try:
            if self._left or work.groups or work.part is not None:
                with tables.without_sync(writer):
                    self._write_all(writer, work, epoch)
        except Exception as error:  # noqa: BLE001 - the work has it
            work.error = error
            self.failures += 1
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
        if work.part is not None:
            _write_part(writer, work.part, epoch)

    def _write_keyed(self, writer: sqlite3.Connection, epoch: LeaseEpoch) -> None:
        if self._left:
            write_keyed(writer, list(self._left.values()), epoch)
            self._left.clear()


def save_folded_row(writer: sqlite3.Connection, folded_row: int, epoch: LeaseEpoch) -> None:
    """Record the row up to which everything is folded, unless a later row is recorded."""
    writer.execute(tables.SAVE_FOLDED_ROW, (folded_row, folded_row, epoch))


def _write_groups(writer: sqlite3.Connection, work: FoldWork, epoch: LeaseEpoch) -> None:
    saved = [group for group in work.groups if group.state is not None]
    gone = [group[:2] for group in work.groups if group.state is None]
    if saved:
        writer.execute(tables.save_groups(len(saved)), (*itertools.chain(*saved), epoch))
    if gone:
        writer.execute(tables.remove_groups(len(gone)), (*itertools.chain(*gone), epoch))
    if work.clears:
        sql = tables.remove_parts(len(work.clears))
        writer.execute(sql, (*itertools.chain(*work.clears), epoch))


def _write_part(writer: sqlite3.Connection, part: FoldedPart, epoch: LeaseEpoch) -> None:
    """Write one part into the next set of parts. The last part makes this set the valid one."""
    key = (part.shard, part.group_id)
    if part.number == 0:
        writer.execute(tables.REMOVE_OTHER_PARTS, (*key, *key, epoch))
    writer.execute(tables.SAVE_PART, (*key, *key, part.number, part.state, epoch))
    if part.head is not None:
        writer.execute(tables.END_PARTS, (*key, part.head, epoch))
        writer.execute(tables.REMOVE_OTHER_PARTS, (*key, *key, epoch))
