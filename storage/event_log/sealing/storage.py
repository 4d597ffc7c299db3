"""A storage whose event log is sealed: rows are written into files (segments) and then deleted.

It wraps any storage that gives access to its events (``storage.event_log.source``). Leases, loads
and appends go to the wrapped storage unchanged. A separate process or thread reads the rows and
writes the files (``storage.event_log.sealing.work``). If that fails, requests are still served. The
failure is logged. Sealing then reads the files again and continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import structlog

from groupkeeper.storage.base import (
    CanBeMoved,
    LimitsReads,
    LoadsGroups,
    StorageError,
    StoreBusy,
    StoreIdentity,
    TimesFolds,
)
from groupkeeper.storage.cancellation import unless_cancelled
from groupkeeper.storage.event_log.log_clock import LogReason, wall_clock_ms
from groupkeeper.storage.event_log.sealing.log_place import LogDirMoved, LogPlace
from groupkeeper.storage.event_log.sealing.process import SealingProcess, reason_of
from groupkeeper.storage.event_log.sealing.sealer import (
    CLOSE_S,
    POLL_S,
    Found,
    Pacer,
    Sealing,
    SealSettings,
)
from groupkeeper.storage.event_log.sealing.settling import is_overtaken
from groupkeeper.storage.event_log.segments import Hook, no_hook
from groupkeeper.storage.event_log.source import SealableStorage, SeveralLogs
from groupkeeper.storage.file_lock import FULL
from groupkeeper.storage.job_thread import JobThread
from groupkeeper.storage.segment_lines import EventDict

TRIM_PAUSE_S: Final = 0.02
"""The pause between two deletions of rows. Appends can run during the pause."""
TRIM_TURNS: Final = 16
"""The number of deletions before the next step of sealing."""
RETRY_S: Final = 5.0

_log = structlog.get_logger(__name__)


class SealedStorage:
    """A store whose events are moved into files. Their rows are then deleted."""

    def __init__(
        self,
        store: SealableStorage,
        settings: SealSettings,
        *,
        clock: Callable[[], int] = wall_clock_ms,
        hook: Hook = no_hook,
        poll_s: float = POLL_S,
        in_process: bool = True,
    ) -> None:
        """Wrap the store without opening it.

        With ``in_process`` a thread seals, otherwise a separate process, which reads the machine's
        clock. A thread also seals if no other process can read the rows. Tests pass a ``hook``,
        which is called between the steps of sealing.
        """
        self.store = store
        # These are the store's own bound methods, so that a commit costs no additional call.
        self.limits = store.limits
        self.acquire, self.renew, self.release = store.acquire, store.renew, store.release
        self.load, self.append, self.unfolded = store.load, store.append, store.unfolded
        self.check_after_unclean_end = store.check_after_unclean_end
        if isinstance(store, LoadsGroups):
            self.load_group = store.load_group
        if isinstance(store, CanBeMoved):
            self.check_place = store.check_place
        if isinstance(store, LimitsReads):
            self.read_time_left_ms, self.lost = store.read_time_left_ms, store.lost
        if isinstance(store, TimesFolds):
            self.on_fold_due = store.on_fold_due
        self._source = store.event_source()
        self._settings = settings
        self._clock = clock
        self._hook = hook
        self._poll_s = poll_s
        self.close_s = CLOSE_S
        """How long a close may seal. Tests set more, because a busy machine needs more."""
        self._address = None if in_process else self._source.address
        """Where the process that seals finds the rows; None if a thread seals."""
        self._place: LogPlace | None = None
        self._sealing: Sealing | None = None
        self._sealing_thread: JobThread | None = None
        self._sealing_task: asyncio.Task[None] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._noted: tuple[int, frozenset[str]] | None = None
        self.sealing_failures = 0

    async def open(self, identity: StoreIdentity) -> None:
        """Open the store and start sealing.

        A separate process starts and reads the files in the background, so that no client waits
        for it. A thread reads the files before this returns.
        """
        if self._closing is not None:
            await asyncio.wait([self._closing])
        await self.store.open(identity)
        try:
            self._make_directory()
            await self._leave_an_overtaken_log()
            self._sealing = self._make_sealing()
            self._sealing_thread = JobThread("log-sealer")
            # The files of many logs are read in the background too.
            is_later = self._address is not None or isinstance(self._source, SeveralLogs)
            has_settled = not is_later and await self._try(self._settle)
            await self._source.note_place(str(self._settings.directory.absolute()))
        except BaseException:
            await self.close()
            raise
        pause_s = 0.0 if is_later else RETRY_S
        self._sealing_task = asyncio.create_task(self._seal(pause_s, has_settled))

    def _make_directory(self) -> None:
        directory = self._settings.directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._place = LogPlace(directory)
        except OSError as error:
            kind = StoreBusy if error.errno in FULL else StorageError
            raise kind(
                f"log.dir: {directory}: cannot be made ({error.strerror}); name a directory that "
                "this user may make or write into, or set log.sealing to off"
            ) from error

    async def _leave_an_overtaken_log(self) -> None:
        """Begin a new log if the files have events that the store does not have.

        The store is then an older copy of itself. This is logged, and stored as the reason of the
        new log. The check reads only file names, and the beginnings of files that would come next.
        """
        log_id, last_seq = await self._source.head()
        if log_id is not None and is_overtaken(self._settings.directory, log_id, last_seq + 1):
            _log.warning("store_is_older_than_its_segments", last_seq=last_seq)
            self._source.clock.begin(log_id, reason=LogReason.OLDER_STORE)

    def _make_sealing(self) -> Sealing:
        if self._address is not None:
            return SealingProcess(self._address, self._settings)
        if isinstance(self._source, SeveralLogs):
            from groupkeeper.storage.event_log.sealing.several import SeveralSealing  # as below

            return SeveralSealing(self._source, self._settings, self._clock, self._hook)
        from groupkeeper.storage.event_log.sealing.work import (
            SealingWork,  # imported late: a daemon does not need it
        )

        return SealingWork(self._source.open_rows, self._settings, self._clock, Pacer(), self._hook)

    async def close(self) -> None:
        """Seal the remaining rows, if ``close_s`` is enough for them, and close the store.

        If the call is cancelled, the store is closed in the background.
        """
        try:
            await self._end_sealing()
        except asyncio.CancelledError:
            # Even if no time is left, the store must be released.
            self._closing = asyncio.ensure_future(self.store.close())
            raise
        await self.store.close()

    async def _end_sealing(self) -> None:
        task, self._sealing_task = self._sealing_task, None
        thread, self._sealing_thread = self._sealing_thread, None
        if task is not None:
            task.cancel()
        if thread is None or self._sealing is None:
            return
        # Queued before anything is awaited: if this call is cancelled, the thread still ends.
        finishing = thread.submit(partial(self._finish, self._sealing))
        closing = thread.submit(self._sealing.close)
        thread.stop()
        if task is not None:
            await asyncio.wait([task])
        await asyncio.wait([finishing, closing], timeout=self.close_s)
        if not closing.done():
            finishing.cancel()  # nobody waits for the result of this task
            self._sealing.abandon()
        has_finished = finishing.done() and not finishing.cancelled()
        if has_finished and finishing.exception() is None and task is not None:
            with suppress(StorageError):
                await self._note()

    def _finish(self, sealing: Sealing) -> None:
        """Seal the remaining rows, on the thread."""
        assert self._place is not None, "not open"
        self._place.check()
        sealing.finish(self.close_s / 2)

    def stats(self) -> dict[str, float]:
        """Return the numbers of the store, and those of sealing."""
        numbers = self.store.stats()
        if self._sealing is not None:
            progress = self._sealing.progress
            since_ms = progress.open_since_ms
            age_ms = 0 if since_ms is None else max(0, self._clock() - since_ms)
            numbers |= {
                "sealed_seq": progress.sealed_seq,
                "unsealed_rows": max(0, numbers.get("rows", 0) - progress.sealed_row),
                "open_segment_age_s": age_ms / 1000,
                "segments_sealed": progress.segments_sealed,
                "segments_damaged": progress.segments_damaged,
                "sealing_cpu_s": progress.cpu_s,
                "sealing_failures": self.sealing_failures,
            }
        return numbers

    def history(self, group_id: str, since_ms: int = 0) -> AsyncIterator[EventDict]:
        """Yield the durable events of a group, oldest first, from files and rows."""
        from groupkeeper.storage.event_log.reader import group_history  # late: rarely needed

        log_dir = self._settings.directory
        source = self._source
        open_rows = source.open_rows
        if isinstance(source, SeveralLogs):
            open_rows = source.rows_of(group_id)
        return group_history(open_rows, group_id, log_dir, since_ms=since_ms)

    # --- on the loop ------------------------------------------------------------------------------

    async def _seal(self, pause_s: float, has_settled: bool) -> None:
        while True:
            if not has_settled:
                await asyncio.sleep(pause_s)
                pause_s = RETRY_S
                # if the disk is full, retention may make room
                has_settled = await self._try(self._settle) and await self._try(self._retain)
            else:
                has_settled = await self._try(self._work)

    async def _try(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do the work and return True. If it fails, log the failure and return False. It is then
        retried.
        """
        try:
            await unless_cancelled(work())
        except LogDirMoved as error:
            self.sealing_failures += 1
            _log.error("log_dir_moved", reason=str(error), retry_s=RETRY_S)
            return False
        except Exception as error:  # noqa: BLE001 - every failure is retried
            self.sealing_failures += 1
            _log.warning(
                "sealing_failed",
                error=reason_of(error),
                log_dir=str(self._settings.directory),
                retry_s=RETRY_S,
            )
            return False
        return True

    async def _work(self) -> None:
        is_behind = await self._on_thread(self._sealed().step)
        await self._note()
        has_more = await self._trim()
        if not is_behind:
            await self._retain()
        await asyncio.sleep(0 if is_behind or has_more else self._poll_s)

    async def _retain(self) -> None:
        for lost in await self._on_thread(self._sealed().retain):
            _log.error(
                "segment_lost_by_retention",
                file=lost.file,
                problem=lost.damaged,
                first_seq=lost.first_seq,
                last_seq=lost.last_seq,
            )

    async def _settle(self) -> None:
        found: Found = await self._on_thread(self._sealed().settle)
        for file in found.put_aside:
            _log.warning("segment_was_damaged", file=file, kept_as="_broken-…")
        if found.lost is not None:
            first, last = found.lost
            _log.warning("events_are_lost", first_seq=first, last_seq=last)
        await self._note()

    async def _note(self) -> None:
        progress = self._sealed().progress
        seq, new, gone = progress.sealed_seq, progress.new_log_ids, progress.gone_log_ids
        if (seq, gone) != self._noted:
            await self._source.note_sealed(seq, new, gone)
            self._noted = seq, gone
            self._hook("noted")

    async def _trim(self) -> bool:
        """Delete sealed rows. Return True if the store may have more sealed rows."""
        sealed_row = self._sealed().progress.sealed_row
        for _ in range(TRIM_TURNS):
            if not await self._source.trim(sealed_row):
                return False
            self._hook("trimmed")
            await asyncio.sleep(TRIM_PAUSE_S)
        return True

    def _sealed(self) -> Sealing:
        assert self._sealing is not None, "not open"
        return self._sealing

    async def _on_thread(self, work: Callable[[], Any]) -> Any:
        """Do the work on the thread. Check the directory before it, and also after it: the caller
        may delete rows, and their segments must not be elsewhere.

        All of this is one job for the thread, because each job wakes an idle loop.
        """
        assert self._sealing_thread is not None, "not open"
        assert self._place is not None, "not open"
        return await self._sealing_thread.submit(partial(_done_in, self._place, work))


def _done_in(place: LogPlace, work: Callable[[], Any]) -> Any:
    place.check()
    done = work()
    place.check()
    return done
