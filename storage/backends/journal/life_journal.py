"""The journal of one life (the registration of a process with the store), and its folds.

A *fold* writes the present values of changed groups and records, and deletes the entries that these
values replace. The entries are in the store. They are also kept in memory until a fold has replaced
them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from groupkeeper.storage.backends.journal.driver import Fold, JournalDriver, JournalEntry, LifeOver
from groupkeeper.storage.backends.journal.succession import event_rows
from groupkeeper.storage.backends.journal.unfolded import FoldPortion, Unfolded
from groupkeeper.storage.base import ShardAppend, StorageError
from groupkeeper.storage.cancellation import unless_cancelled

FOLD_EVERY_MS: Final = 250
"""The shortest time between the beginnings of two folds, unless the first one could not write
everything. So a group that changes often is saved as a whole at most four times a second, and not
with every commit. A change is saved after this time, one append and one fold: at most 500 ms late,
if the store answers each of the two within 125 ms."""

FOLD_PAUSES: Final = 10
"""The least time between the beginnings of two folds of large groups, as a multiple of the duration
of the first one. A fold writes a large group as a whole. Without this pause, small commits to such
a group would occupy the store all the time. Other groups do not wait for it. A fold that failed is
tried again after the same pause."""

MOST_FOLD_PAUSE_MS: Final = 5_000
"""The upper limit of the time that follows from ``FOLD_PAUSES``."""

MAX_JOURNAL_REQUESTS: Final = 5_000
"""Appends wait while the journal has more requests than this. If this process dies, another process
must fold all of them before anyone can load the shards."""

JOURNAL_ENTRIES: Final = 2
"""The limit of the journal in bytes, as a number of entries of the largest size: one that is
folded, and one that is written during the fold. An append that would exceed the limit waits. Large
metadata would otherwise fill the memory of ZooKeeper's servers, and of the process that starts
next."""

MOST_JOURNAL_REQUESTS: Final = 100_000
"""An append fails if the journal has more requests than this. Otherwise the journal would grow
without end while folds fail. The next start folds the whole journal. At this limit it takes 70 s in
PostgreSQL and 250 s in ZooKeeper, if each append has one request. A slow fold alone does not make
the journal so long, because each append to a full journal waits for up to a second
(``MOST_FULL_WAIT_MS``)."""

MOST_JOURNALS: Final = 4
"""An append also fails if the journal would have more bytes than this number of full journals
(``JOURNAL_ENTRIES``). The bytes are in the memory of this process, and in that of each server of
ZooKeeper or Consul."""

MOST_FULL_WAIT_MS: Final = 1_000
"""The longest time that an append waits because the journal is full. An append that waited for the
end of a slow fold would reach its time limit and fail, and all shards would be loaded again."""

MOST_IDLE_WAIT_MS: Final = 100
"""The longest time that an append with nothing to write waits for a fold at a stop. During this
time no shard can write."""

_log = structlog.get_logger(__name__)


class LifeJournal:
    """The appends of one life of this process that are not folded yet, and their folds."""

    def __init__(
        self,
        driver: JournalDriver,
        life_id: str,
        timer_ms: Callable[[], int],
        after_fold: Callable[[], Awaitable[None]],
        ask_for_fold: Callable[[], None],
    ) -> None:
        """``after_fold`` is called after each fold that succeeded, and must not fail.
        ``ask_for_fold`` is called when ``only_fold`` should be called.
        """
        self.entries: deque[JournalEntry] = deque()
        """The entries that may still be in the journal."""
        self.bytes = 0
        """The size of the payloads of ``entries``."""
        self.fold_failures = 0
        """The number of folds that failed."""
        self.is_beyond_bound = False
        """True if an append failed because of the size of the journal. This life then ends, and a
        new one folds the journal."""
        self._driver = driver
        self._life_id = life_id
        self._timer_ms = timer_ms
        self._after_fold = after_fold
        self._max_bytes = JOURNAL_ENTRIES * driver.max_entry_bytes
        self._last_row = 0
        self._unfolded = Unfolded()
        self._folding: asyncio.Task[None] | None = None
        self._folded_ms = 0
        """When the last fold began."""
        self._fold_pause_ms = 0
        """The time from the beginning of the last fold to the next one."""
        self._large_ms = 0
        """The time from which large groups may be folded again."""
        self._ask_for_fold = ask_for_fold
        self._timer: asyncio.TimerHandle | None = None
        """The timer that asks for the next fold. It is only set while the journal has entries and
        no fold runs."""
        self._is_asked = False
        """True if a fold was asked for and has not begun."""
        self._is_over = False
        """True if this life has ended, so that it folds nothing more."""
        self._failures_in_a_row = 0
        self._fold_error = ""

    @property
    def requests(self) -> int:
        """The number of requests in the journal that may not be part of a saved value yet."""
        return self._unfolded.requests

    def unfolded(self) -> int:
        """Return how many written requests a fold could save now. Return 0 while a failed fold
        waits for its retry: an idle runtime would otherwise retry it thousands of times in a row.
        """
        is_too_early = self._failures_in_a_row and not self._is_time_to_fold()
        return 0 if is_too_early else self.requests

    # --- appending --------------------------------------------------------------------------------

    def note(self, items: Sequence[ShardAppend]) -> int:
        """Remember which values the next entry changes, for a later fold. Return the number of this
        entry.
        """
        row = self._last_row + 1
        self._unfolded.note(row, items)
        return row

    async def wait_for_room(self, entry: JournalEntry) -> None:
        """If the journal is full, wait for the end of the present fold, at most
        ``MOST_FULL_WAIT_MS``. Raises StorageError if the journal then exceeds
        ``MOST_JOURNAL_REQUESTS`` or ``MOST_JOURNALS``.

        After that error the runtime drops the shards, and the next ``acquire`` begins a new life,
        which folds the journal. Until that has succeeded, the shards answer as in an outage.
        """
        more_bytes = len(entry.payload)
        if not self._is_filled(1, more_bytes):
            return
        await self.end_of_fold(MOST_FULL_WAIT_MS / 1000)
        is_in_bytes = self.bytes + more_bytes <= MOST_JOURNALS * self._max_bytes
        if is_in_bytes and self.requests <= MOST_JOURNAL_REQUESTS:
            return
        self.is_beyond_bound = True
        error = self._fold_error or "the last fold has not ended"
        _log.error(
            "journal_beyond_bound",
            path=self._driver.name,
            requests=self.requests,
            bytes=self.bytes,
            error=error,
        )
        raise StorageError(
            f"the journal has {self.requests} requests and {self.bytes} bytes that could not be "
            f"folded, so nothing more is written: {error}"
        )

    def appended(self, entry: JournalEntry, portion: FoldPortion | None) -> None:
        """Add an entry that is durable. Then begin a fold if there is a portion for one."""
        self._last_row = entry.row
        self.entries.append(entry)
        self.bytes += len(entry.payload)
        if portion is not None:
            self._begin_fold(portion)
        elif self._timer is None and self._folding is None:
            self._set_timer()

    # --- folding ----------------------------------------------------------------------------------

    def portion(self, items: Sequence[ShardAppend], entry: JournalEntry) -> FoldPortion | None:
        """Choose and encode the values that are folded with this append. Return None if a fold
        still runs, or if the next fold is not due yet.

        A failed fold is retried only after its pause. Each try renders the events of a whole
        journal, so a retry with each append would cost too much.
        """
        is_urgent = not self._failures_in_a_row and self._is_filled(0.5, len(entry.payload))
        is_due = is_urgent or self._is_time_to_fold()
        if self._folding is not None or not is_due:
            return None
        return self._take(items, entry.row, may_large=is_urgent)

    async def only_fold(self, items: Sequence[ShardAppend]) -> None:
        """Begin a fold unless one runs already. If we have not asked for it, the caller folds
        everything at a stop: fold large groups too, and wait for the end of the fold, at most
        ``MOST_IDLE_WAIT_MS``.
        """
        was_asked, self._is_asked = self._is_asked, False
        if self._folding is None:
            self._begin_fold(self._take(items, self._last_row, may_large=not was_asked))
        if not was_asked:
            await self.end_of_fold(MOST_IDLE_WAIT_MS / 1000)

    def _take(
        self, items: Sequence[ShardAppend], row: int, *, may_large: bool = False
    ) -> FoldPortion:
        self._folded_ms = self._timer_ms()
        self._fold_pause_ms = FOLD_EVERY_MS
        saved = {item.shard: item.saved for item in items}
        may_large = may_large or self._folded_ms >= self._large_ms
        return self._unfolded.take(saved, row, may_large=may_large)

    def stop(self) -> None:
        """Ask for no fold any more."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        """Ask for a fold when the next one is due, if the journal has entries. So nobody has to
        look regularly whether something is to be folded.
        """
        if self._timer is not None or self._is_over or not self.entries:
            return
        at_ms = self._folded_ms + self._fold_pause_ms
        if self._unfolded.only_large_wait:
            at_ms = max(at_ms, self._large_ms)
        left_s = max(at_ms - self._timer_ms(), 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(left_s, self._ask)

    def _ask(self) -> None:
        """Ask for a fold, and again after ``FOLD_EVERY_MS`` if none has begun until then."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(FOLD_EVERY_MS / 1000, self._ask)
        self._is_asked = True
        self._ask_for_fold()

    async def end_of_fold(self, limit_s: float | None = None) -> None:
        """Wait until no fold runs, or until ``limit_s`` seconds have passed."""
        if self._folding is not None:
            await asyncio.wait([self._folding], timeout=limit_s)

    async def abandon_fold(self) -> None:
        """Cancel the present fold, and wait until it has ended. Our life must have ended: the store
        then refuses the rest of the fold, and the next life folds the journal.
        """
        self.stop()
        if self._folding is not None:
            self._folding.cancel()
            await asyncio.wait([self._folding])

    def _is_time_to_fold(self) -> bool:
        return self._timer_ms() - self._folded_ms >= self._fold_pause_ms

    def _is_filled(self, share: float, more_bytes: int) -> bool:
        """Return True if the journal with ``more_bytes`` more is fuller than this share of its
        limit.
        """
        return (
            self.requests > MAX_JOURNAL_REQUESTS * share
            or self.bytes + more_bytes > self._max_bytes * share
        )

    def _begin_fold(self, portion: FoldPortion) -> None:
        self._is_asked = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        has_entries = self.entries and self.entries[0].row <= portion.trim_row
        if not portion.has_values and not has_entries:
            self._set_timer()  # what has changed is a large group that waits
            return
        self._folding = asyncio.get_running_loop().create_task(self._fold(portion))

    def _leaving(self, trim_row: int) -> list[JournalEntry]:
        """Return the oldest entries up to a row, but not more bytes than a full journal has.

        While folds fail, the journal grows beyond its limit. Moving all its events in one call
        could then take longer than the time limit of a call.
        """
        leaving: list[JournalEntry] = []
        size = 0
        for entry in self.entries:
            size += len(entry.payload)
            if entry.row > trim_row or (leaving and size > self._max_bytes):
                break
            leaving.append(entry)
        return leaving

    async def _fold(self, portion: FoldPortion) -> None:
        """Write the values of one fold, and delete the entries that they replace. If this fails, a
        later fold writes the values. No append fails because of one failed fold.
        """
        began_ms = self._timer_ms()
        gone = self._leaving(portion.trim_row)
        is_cut = len(gone) < len(self.entries) and self.entries[len(gone)].row <= portion.trim_row
        if gone:
            portion = portion._replace(trim_row=gone[-1].row)
        try:
            fold = Fold(await portion.encoded(), portion.trim_row, await event_rows(gone))
            await unless_cancelled(self._driver.fold(self._life_id, self._life_id, fold))
            self._unfolded.succeeded(portion)
            for entry in gone:
                self.entries.popleft()
                self.bytes -= len(entry.payload)
            self._failures_in_a_row = 0
            self._fold_error = ""
            await self._after_fold()
        except LifeOver:
            self._is_over = True  # whoever ended this life folds its journal
        except Exception as error:  # noqa: BLE001 - whatever it is, the journal has the records
            self._unfolded.failed(portion)
            self.fold_failures += 1
            self._failures_in_a_row += 1
            self._fold_error = error_text(error)
            if is_told(self._failures_in_a_row):
                _log.error(
                    "fold_failed",
                    path=self._driver.name,
                    error=self._fold_error,
                    in_a_row=self._failures_in_a_row,
                )
        finally:
            self._folding = None
            is_rest_due = portion.has_rest or is_cut
            self._fold_pause_ms = self._pause_ms(self._timer_ms() - began_ms, is_rest_due)
            if portion.large is not None:
                pause_ms = FOLD_PAUSES * (self._timer_ms() - began_ms)
                self._large_ms = began_ms + min(max(FOLD_EVERY_MS, pause_ms), MOST_FOLD_PAUSE_MS)
            self._set_timer()

    def _pause_ms(self, took_ms: int, is_rest_due: bool) -> int:
        """Return the time from the beginning of the last fold to that of the next one."""
        if self._failures_in_a_row:
            pause_ms = max(FOLD_EVERY_MS, FOLD_PAUSES * took_ms)
        elif took_ms > FOLD_EVERY_MS:  # a slow store has to rest, too
            pause_ms = 2 * took_ms
        else:
            pause_ms = 0 if is_rest_due else FOLD_EVERY_MS
        return min(pause_ms, MOST_FOLD_PAUSE_MS)


def is_told(failures: int) -> bool:
    """Return True if this failure must be logged: if it is the 1st, 2nd, 4th, 8th ... in a row. An
    outage of two minutes would otherwise write hundreds of lines.
    """
    return failures & (failures - 1) == 0


def error_text(error: BaseException) -> str:
    """Return the message of an error, or its type if it has none."""
    return str(error) or repr(error)
