"""Copies the write-ahead log (WAL) into the database from time to time: a checkpoint.

SQLite would do this itself after a commit. But it reports no error then, and a failed sync must not
stay unnoticed (``failed_sync``).
"""

from __future__ import annotations

import sqlite3
from typing import Final

import structlog

from groupkeeper.storage.backends.sqlite.failed_sync import is_failed_sync
from groupkeeper.storage.backends.sqlite.fold import FoldWork
from groupkeeper.storage.backends.sqlite.full_disk import is_damage
from groupkeeper.storage.backends.sqlite.tables import has_mark

CHECKPOINT_PAGES: Final = 400
"""A checkpoint is due when about this many pages were written.

All commits that come during a checkpoint wait for it: about 2 ms on a quiet disk. With SQLite's
default (1,000) it takes 4 to 6 ms. With fewer pages, more of them meet a disk that is busy
(docs/reports/2026-11-29-commits.md#pages).
"""
_MOST_COUNTED: Final = 4 * CHECKPOINT_PAGES
_RETRY_PAGES: Final = 100
"""If a reader or an error kept some pages from being copied, the next try comes after this number
of further pages."""
_PAGE_BYTES: Final = 4_096
_STATEMENT_PAGES: Final = 3
"""The pages that a statement changes besides those of its value."""

_log = structlog.get_logger(__name__)


class Checkpoints:
    """Makes the checkpoints of a store. Only the writer's thread uses it."""

    def __init__(self, *, is_due: bool) -> None:
        """``is_due`` is True if an earlier process has left pages in the WAL. The first call of
        ``run_if_due`` then copies them.
        """
        self._counted = CHECKPOINT_PAGES if is_due else 0
        self._due = CHECKPOINT_PAGES
        """The number of counted pages at which a checkpoint is due. The count is an estimate, so
        this number is adapted to the pages that the WAL really had."""
        self._failures_in_a_row = 0

    @property
    def is_due(self) -> bool:
        return self._counted >= self._due

    def wrote(self, size: int) -> None:
        """Count a statement that wrote values of this size."""
        self._counted += _STATEMENT_PAGES + size // _PAGE_BYTES

    def folded(self, work: FoldWork) -> None:
        """Count the pages of a fold."""
        self._counted += sum(1 + len(group.state or b"") // _PAGE_BYTES for group in work.groups)
        if work.part is not None:
            self.wrote(len(work.part.state))

    def run_if_due(self, writer: sqlite3.Connection) -> bool:
        """Copy the WAL, as far as no reader needs an older state of the database.

        Return False, and copy nothing, if the WAL has the mark of a complete file: somebody has
        restored a backup with SQLite itself. In the database, the mark would make the next start
        set aside what is appended after this.

        Raises sqlite3.Error if a sync fails or the file is damaged. Any other failure is logged,
        and retried after some further pages: the WAL has everything.
        """
        if not self.is_due:
            return True
        self._counted = self._due - _RETRY_PAGES
        try:
            if has_mark(writer):
                return False
            ((busy, pages, copied),) = writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            if is_failed_sync(error) or is_damage(error):
                raise
            self._failures_in_a_row += 1
            if self._failures_in_a_row & (self._failures_in_a_row - 1) == 0:
                _log.error("checkpoint_failed", error=str(error), in_a_row=self._failures_in_a_row)
            return True
        self._failures_in_a_row = 0
        if not busy and copied == pages:
            self._counted = 0
            if pages > _RETRY_PAGES:  # less is what a start finds
                due = self._due * CHECKPOINT_PAGES // pages
                self._due = min(max(due, CHECKPOINT_PAGES // 2), _MOST_COUNTED)
        return True
