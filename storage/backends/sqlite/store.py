"""The default backend: one SQLite file, one writer thread, one row for each append
(docs/design.md#atomic).

For every statement the writer thread competes with the event loop for the interpreter lock. So an
append is one statement, and a fold (which writes the present state of some groups) is a few more.
The loop encodes both. Readers have their own connections: SQLite's write-ahead log (WAL) allows
them to read while the thread writes.

This file is long because opening, loading and appending share one connection and its counters.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import structlog

from groupkeeper.coordinator.core.records import Record
from groupkeeper.storage.backends.group_parts import MAX_PART_BYTES
from groupkeeper.storage.backends.sqlite import tables
from groupkeeper.storage.backends.sqlite.check import SqliteCheck
from groupkeeper.storage.backends.sqlite.checkpoints import Checkpoints
from groupkeeper.storage.backends.sqlite.failed_sync import (
    close_without_checkpoint,
    is_failed_sync,
)
from groupkeeper.storage.backends.sqlite.fold import (
    FOLD_AFTER_REQUESTS,
    FoldMap,
    FoldWork,
    changes_of,
)
from groupkeeper.storage.backends.sqlite.fold_write import FoldWriter, save_folded_row
from groupkeeper.storage.backends.sqlite.full_disk import explained
from groupkeeper.storage.backends.sqlite.keyed import KeyedRow, keyed_changes, write_keyed
from groupkeeper.storage.backends.sqlite.load import SqliteLoad, read_log_end
from groupkeeper.storage.backends.sqlite.log import SqliteEvents, begin_log
from groupkeeper.storage.backends.sqlite.packed import pack
from groupkeeper.storage.backends.sqlite.store_files import StoreFiles, check_directory
from groupkeeper.storage.backends.sqlite.stored_names import DamagedName, repair_names
from groupkeeper.storage.base import (
    CLUSTER_SHARD,
    Batch,
    Lease,
    LeaseEpoch,
    ShardAppend,
    ShardId,
    StorageError,
    StorageLimits,
    StoreIdentity,
    StoreRefused,
    StoreTaken,
)
from groupkeeper.storage.codec.events import count_events
from groupkeeper.storage.codec.records import encode_payload
from groupkeeper.storage.event_log.log_clock import LogClock, mint_log_id, wall_clock_ms
from groupkeeper.storage.job_thread import JobThread
from groupkeeper.storage.segment_lines import EventDict

MAX_STEP_BYTES = 16 * 1024 * 1024
"""Larger steps would block the loop for too long. SQLite's limit for a value is 1 GB."""

_T = TypeVar("_T")

_log = structlog.get_logger(__name__)


class _Append(NamedTuple):
    """One append. The loop has encoded it, and the thread writes it."""

    epoch: LeaseEpoch
    event_count: int
    payload: bytes | None
    """The encoded records and events. None if the append only folds."""
    keyed: list[KeyedRow]
    work: FoldWork
    folded_row: int


class SqliteOffsetStorage:
    """Stores all shards in one file. Each append is one transaction. All shards share one lease
    epoch.
    """

    def __init__(  # noqa: PLR0913 - some are only for tests
        self,
        path: str | Path,
        *,
        append_timeout_ms: int = 5_000,
        clock: Callable[[], int] = wall_clock_ms,
        new_log_id: Callable[[], str] = mint_log_id,
        fold_after: int = FOLD_AFTER_REQUESTS,
        part_bytes: int = MAX_PART_BYTES,
        connect: tables.Connect = tables.connect_writer,
    ) -> None:
        """Groups larger than ``part_bytes`` are saved in parts. ``connect`` opens the writer's
        connection.
        """
        self.limits = StorageLimits(
            max_step_bytes=MAX_STEP_BYTES,
            one_lane=True,
            fold_after_requests=fold_after,
            sole_owner=True,
        )
        # Two paths of the same file must lead to the same lock. Unlike ``resolve``, ``realpath``
        # does not raise for a link to itself: ``open`` finds out.
        self.path = Path(os.path.realpath(path))
        self._name = Path(path).absolute()
        # The wait for another process's write lock must end before the append times out.
        self._busy_timeout_s = append_timeout_ms / 2 / 1000
        self._make_fold_map = partial(FoldMap, fold_after, part_bytes)
        self._connect = connect
        self._log_clock = LogClock(clock, new_log_id)
        self._lock: StoreFiles | None = None
        self._thread: JobThread | None = None
        self._connection: sqlite3.Connection | None = None
        self._check = SqliteCheck(self.path, self._busy_timeout_s)
        self._is_marked = False
        """True if the file says that the store is running. ``close`` must then remove this mark."""
        self.ended_uncleanly = False
        """True if the last user of the store did not close it. ``open`` sets it."""
        self._epoch: LeaseEpoch = 0
        self._raised_epoch: LeaseEpoch = 0
        """The epoch that this process wrote last. Only the writer's thread uses it."""
        self._may_append = False
        """True if an append may begin: after a load, while no other append runs, and only if no
        append since this load has failed or was cancelled."""
        self._is_released = False
        """True if the leases were released after an append that is known to be durable. Then
        ``close`` knows which rows are folded."""
        self._fold = self._make_fold_map()
        self._fold_writer = FoldWriter()
        self._checkpoints = Checkpoints(is_due=False)
        self._last_row = 0
        self._next_seq = 1
        self._saved_folded_row = 0

    # --- opening and closing -------------------------------------------------------------------

    async def open(self, identity: StoreIdentity) -> None:
        """Lock the file, create or migrate its tables, and check its identity."""
        if self._lock is not None:
            raise StoreRefused(f"{self.path}: is in use by another coordinator of this process")
        check_directory(self.path)
        self._lock = StoreFiles(self.path, self._name)
        self._thread = JobThread("sqlite-writer")
        self._checkpoints = Checkpoints(is_due=self._lock.found_wal)
        self._raised_epoch = 0
        try:
            self.ended_uncleanly = await self._run(partial(self._open, identity, self._lock))
        except BaseException:
            await self.close()
            raise

    def _open(self, identity: StoreIdentity, files: StoreFiles) -> bool:
        files.begin()
        files.read_wal_from_disk()
        self._connection = connection = self._connect(self.path, self._busy_timeout_s)
        tables.prepare(connection, self.path)
        tables.migrate(connection, self.path)
        unclean = tables.identify(connection, self.path, identity, self._log_clock.stamp())
        self._is_marked = True
        files.watch_wal()
        ts_ms = read_log_end(connection, self.path).head.ts_ms
        begin_log(connection, self._log_clock, ts_ms)
        self._checkpoints.run_if_due(connection)
        return unclean

    async def close(self) -> None:
        """Record the clean end, copy the WAL into the database, and release the lock. If the call
        is cancelled, the thread finishes the close in the background.
        """
        if self._lock is None:
            return
        assert self._thread is not None
        lock, self._lock = self._lock, None
        self._check.interrupt()
        is_known, self._may_append = self._may_append or self._is_released, False
        closing = self._thread.submit(partial(self._close, is_known, lock))
        self._thread.stop()
        # The lock is released only after the close, even if a caller stops waiting for the disk.
        await asyncio.shield(closing)

    def _close(self, is_known: bool, lock: StoreFiles) -> None:
        is_overwritten = self._is_overwritten(lock)
        if lock.is_lost or is_overwritten:
            self._is_marked = False  # the next start then checks the file
        try:
            # This runs after the last fold, and the loop no longer uses the map.
            self._fold.settle()
            folded_row = self._fold.folded_row(self._last_row) if is_known else 0
            is_copied = self._close_connection(folded_row, keeps_wal=is_overwritten)
            if is_copied:
                lock.mark_complete()
        finally:
            lock.release()

    def _is_overwritten(self, lock: StoreFiles) -> bool:
        """Return True if another file was copied over the database, so that the WAL must not be
        copied into it. If SQLite itself wrote that file (``.restore``), the WAL belongs to it.
        """
        if self._connection is None or not lock.has_other_content():
            return False
        try:
            return not tables.has_mark(self._connection)
        except sqlite3.Error:
            return True

    def _close_connection(self, folded_row: int, *, keeps_wal: bool) -> bool:
        """Close the connection. Return True if the end is recorded and the whole WAL is copied.
        With ``keeps_wal`` nothing of it is copied.
        """
        connection, self._connection = self._connection, None
        if connection is None:
            return False
        is_busy = 1
        keep_wal = partial(close_without_checkpoint, connection, self.path)
        close: Callable[[], None] = keep_wal if keeps_wal else connection.close
        try:
            if self._is_marked:
                save_folded_row(connection, folded_row, self._epoch)
                connection.execute("UPDATE store SET value = 0 WHERE key = 'running'")
                rows = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                ((is_busy, _, _),) = rows
        except sqlite3.Error as error:
            # The WAL contains the acknowledged changes, and the next start sees an unclean end.
            if is_failed_sync(error):
                close = keep_wal
        finally:
            close()
        return not is_busy

    # --- the lease -------------------------------------------------------------------------------

    async def acquire(self, shards: Collection[ShardId], owner: str) -> dict[ShardId, Lease]:
        """Write a new epoch, which is valid for every shard. No other process can do this, because
        the lock on the file is the lease.
        """
        self._may_append = self._is_released = False
        self._epoch = epoch = await self._run(partial(self._raise_epoch, owner))
        self._may_append = False  # an append that ended during this call may have set it
        return {shard: Lease(shard, owner, epoch) for shard in shards}

    def _raise_epoch(self, owner: str) -> LeaseEpoch:
        self._check_files()
        rows = self._writer().execute(
            "UPDATE lease SET epoch = epoch + 1, owner = ? RETURNING epoch", (owner,)
        )
        ((epoch,),) = rows.fetchall()
        self._fold_writer.forget()
        self._raised_epoch = int(epoch)
        return self._raised_epoch

    async def renew(self, leases: Collection[Lease]) -> Collection[ShardId]:
        """Return the shards whose lease has an older epoch. A lease does not expire while the file
        is locked.
        """
        return [lease.shard for lease in leases if lease.epoch != self._epoch]

    async def release(self, leases: Collection[Lease]) -> None:
        """Refuse further appends under these leases. ``close`` writes ``folded_row``."""
        if any(lease.epoch == self._epoch for lease in leases):
            self._is_released = self._may_append
            self._may_append = False

    def _known_folded_row(self) -> int:
        """Return the row after which a load would read; 0 if it is unknown."""
        return self._fold.folded_row(self._last_row) if self._may_append else 0

    # --- loading ---------------------------------------------------------------------------------

    async def load(
        self, shards: Collection[ShardId]
    ) -> AsyncIterator[tuple[ShardId, Sequence[Record]]]:
        """Read the folded tables and every row above ``folded_row``, in one read transaction.

        Then write the keyed records that the log has and their table lacks. If a stored name is
        damaged, it is repaired, and StorageError is raised so that the caller loads again.
        """
        load = SqliteLoad(self._run, self.path, self._busy_timeout_s, self._make_fold_map())
        try:
            async with aclosing(load.read(frozenset(shards))) as found:
                async for shard, records in found:
                    yield shard, records
        except DamagedName as error:
            repair = partial(repair_names, self._writer(), self.path, self._epoch)
            raise StorageError(await self._run(repair)) from error
        if missing := load.keys.missing():
            await self._run(lambda: write_keyed(self._writer(), missing, self._epoch))
        self._last_row = load.end.row
        self._next_seq = load.end.next_seq
        self._saved_folded_row = load.end.folded_row
        await self._run(partial(self._fold_writer.loaded, frozenset(load.fold.has_parts)))
        self._fold = load.fold
        self._log_clock.resume(load.end.head.log_id, load.end.head.ts_ms)
        self._may_append = True

    # --- appending -------------------------------------------------------------------------------

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        """Write the items as one row, and fold some groups. Return the fenced shards."""
        fenced = [item.shard for item in items if item.fence != self._epoch]
        ours = [item for item in items if item.fence == self._epoch]
        if not ours:
            return fenced
        if not self._may_append:
            raise StorageError(
                f"{self.path}: an append is refused before a load, and while another is in flight"
            )
        self._settle_fold()
        append = self._encode(ours)
        if append.payload is None and not self._fold.is_waiting:
            return fenced
        self._may_append = False
        if append.payload is None:
            row = await self._run(partial(self._append_fold, append))
        else:
            row = await self._run(partial(self._append, append), partial(self._after_row, append))
        if row is None:
            self._is_marked = False  # another process has acquired the store
            return [item.shard for item in items]
        if append.payload is None:
            self._settle_fold()
        else:
            self._last_row = row
            self._next_seq += append.event_count
            self._log_clock.written()
        self._may_append = True
        return fenced

    def _encode(self, items: Sequence[ShardAppend]) -> _Append:
        folded_row = self._fold.folded_row(self._last_row)
        payload = None
        row = self._last_row
        changes = changes_of(items)
        keyed = keyed_changes(changes.others)
        event_count = changes.commits + sum(
            [count_events(batch.records, batch.events) for _, batch in changes.others]
        )
        if changes.commits or changes.others:
            stamp = self._log_clock.stamp()
            first: Sequence[ShardAppend] = ()
            if (started := self._log_clock.started(self._next_seq - 1)) is not None:
                first = [items[0]._replace(shard=CLUSTER_SHARD, batches=[Batch([], [started])])]
                event_count += 1
            payload = encode_payload(stamp, folded_row, [*first, *items])
            row += 1
        return _Append(
            epoch=self._epoch,
            event_count=event_count,
            payload=payload,
            keyed=keyed,
            work=self._fold.work(items, row, changes, bool(keyed)),
            folded_row=folded_row,
        )

    def _append(self, append: _Append) -> int | None:
        """Write the row of an append, on the thread. The replies wait for this. Return the number
        of the row, or None if the append is fenced: another process has a newer lease.
        """
        writer = self._writer()
        if self._lock is not None:
            self._lock.check_before_append(writer)
        packed = pack(append.payload or b"")
        cursor = writer.execute(tables.APPEND, (append.event_count, packed, append.epoch))
        self._checkpoints.wrote(len(packed))
        if cursor.rowcount != 1:
            return None
        if cursor.lastrowid != append.work.row and self._lock is not None:
            # An older copy with the same epoch: the changes since then are only in memory.
            self._lock.refuse_overwritten()
        return cursor.lastrowid

    def _after_row(self, append: _Append) -> None:
        """Fold and copy the WAL, on the thread, after the reply of an append was sent. A failure
        concerns the next append.
        """
        self._write_fold(append)
        if self._checkpoints.is_due:
            try:
                self._checked(self._copy_wal_if_due)
            except StorageError as error:  # a failed sync or a damaged file: later calls raise too
                if self._lock is not None:
                    self._lock.give_up(str(error))

    def _append_fold(self, append: _Append) -> int | None:
        """Execute an append that only folds, on the thread. Return None if it is fenced (another
        process has a newer lease), and 0 otherwise.
        """
        self._check_files()
        writer = self._writer()
        ((epoch,),) = writer.execute("SELECT epoch FROM lease").fetchall()
        if epoch != append.epoch:
            return None
        self._write_fold(append)
        if append.folded_row > self._saved_folded_row:
            # This append has no payload for ``folded_row``. Its own fold does not count yet.
            try:
                save_folded_row(writer, append.folded_row, append.epoch)
                self._saved_folded_row = append.folded_row
            except sqlite3.Error as error:  # the next append writes it
                if is_failed_sync(error):
                    raise
        self._copy_wal_if_due()
        return 0

    def _copy_wal_if_due(self) -> None:
        """Copy the WAL if it is due, on the thread. Raises StoreRefused if somebody has copied a
        backup over the database, or has restored it into the WAL.
        """
        if self._lock is not None and self._checkpoints.is_due:
            self._lock.check_content()
        if not self._checkpoints.run_if_due(self._writer()) and self._lock is not None:
            self._lock.refuse_overwritten()

    def _write_fold(self, append: _Append) -> None:
        """Write the present state of some groups, on the writer's thread, after the row of the
        append. At the same time the loop sends the replies. When ``FoldWork.is_done`` is set, the
        loop counts these groups as folded. After a crash or a failure some groups have an old
        state. A load then applies the log to them.
        """
        work = append.work
        self._fold_writer.write(self._writer(), work, append.keyed, append.epoch)
        if work.groups or work.part is not None:
            self._checkpoints.folded(work)
        if work.error is not None and is_failed_sync(work.error):
            self._give_up(work.error)

    def _settle_fold(self) -> None:
        """Process the results of earlier folds: log the failures, and plan retries."""
        error = self._fold.settle()
        in_a_row = self._fold.failures_in_a_row
        if error is not None and in_a_row & (in_a_row - 1) == 0:  # log the 1st, 2nd, 4th, 8th, ...
            _log.error("fold_failed", path=str(self.path), error=str(error), in_a_row=in_a_row)

    # --- figures and checks ----------------------------------------------------------------------

    def unfolded(self) -> int:
        self._settle_fold()
        return self._fold.unfolded

    def stats(self) -> dict[str, float]:
        return {
            "database_bytes": tables.file_bytes(self.path),
            "wal_bytes": tables.file_bytes(self.path.with_name(self.path.name + "-wal")),
            "last_seq": self._next_seq - 1,
            "rows": self._last_row,
            "unfolded": self._fold.unfolded,
            "fold_failures": self._fold_writer.failures,
        }

    def history(self, group_id: str, since_ms: int = 0) -> AsyncIterator[EventDict]:
        from groupkeeper.storage.event_log.reader import group_history  # rarely needed

        return group_history(self.event_source().open_rows, group_id, since_ms=since_ms)

    def event_source(self) -> SqliteEvents:
        known = self._known_folded_row
        return SqliteEvents(self.path, self.on_writer, self._log_clock, known_folded_row=known)

    async def check_after_unclean_end(self) -> str | None:
        """Run ``PRAGMA quick_check`` after an unclean end. Return what is wrong, or None."""
        if not self.ended_uncleanly:
            return None
        return await self._check.run()

    async def check_place(self) -> None:
        """Raise StoreRefused if a file of the store was moved or replaced, and StoreTaken if
        another process has acquired the store.
        """
        await self._run(self._check_place)

    def _check_place(self) -> None:
        self._check_files()
        if self._raised_epoch == 0:
            return  # not acquired yet
        with suppress(sqlite3.Error):  # the next check or append finds out
            ((epoch,),) = self._writer().execute("SELECT epoch FROM lease").fetchall()
            if epoch != self._raised_epoch:
                self._is_marked = False  # the other process uses the store
                raise StoreTaken(f"{self.path}: another process has acquired the store")

    def _check_files(self) -> None:
        if self._lock is not None:
            self._lock.check(self._writer())

    async def on_writer(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do short work on the writer's thread and connection, between two appends."""

        def counted() -> _T:
            result = work(self._writer())
            self._checkpoints.wrote(0)
            self._copy_wal_if_due()
            return result

        return await self._run(counted)

    def _writer(self) -> sqlite3.Connection:
        if (lock := self._lock) is not None:  # the loop sets it to None in ``close``
            lock.refuse_if_lost()
        if self._connection is None:
            raise StorageError(f"{self.path}: is not open")
        return self._connection

    async def _run(self, work: Callable[[], _T], then: Callable[[], None] | None = None) -> _T:
        if self._thread is None or self._lock is None:
            raise StorageError(f"{self.path}: is not open")
        return await self._thread.submit(partial(self._checked, work), then)

    def _checked(self, work: Callable[[], _T]) -> _T:
        """Call ``work`` on the thread. After a failed sync, give up the file and raise
        StoreGivenUp; during ``open``, raise another StorageError, so that a start can wait for
        room.
        """
        try:
            return explained(work, self.path)
        except StorageError as error:
            if is_failed_sync(error.__cause__):
                self._give_up(error)
                lock = self._lock
                if self._raised_epoch and lock is not None:
                    lock.refuse_if_lost()
            raise

    def _give_up(self, error: Exception) -> None:
        """Close the connection and refuse everything from now on, on the thread, after a failed
        sync. The next start copies the WAL, which is kept.
        """
        connection, self._connection = self._connection, None
        if (lock := self._lock) is not None:
            lock.sync_failed(error)
        if connection is not None:
            close_without_checkpoint(connection, self.path)
