"""The storages of the worlds: shared memory, and the real SQLite backend. The thread of the latter
is a task of the virtual loop, and its disk fails.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import groupkeeper.storage.backends.sqlite.store
from groupkeeper import read_events
from groupkeeper.storage.backends.sqlite import failed_sync
from groupkeeper.storage.backends.sqlite import tables as sqlite_tables
from groupkeeper.storage.backends.sqlite.failed_sync import close_without_checkpoint, is_failed_sync
from groupkeeper.storage.backends.sqlite.packed import unpack
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.backends.sqlite.store_files import StoreFiles
from groupkeeper.storage.base import CLUSTER_SHARD, OffsetStorage, StorageError, StoreIdentity
from groupkeeper.storage.codec.records import decode_payload
from groupkeeper.storage.segment_lines import EventDict
from tests.simulation.store import Misfortune, SharedMemory

if TYPE_CHECKING:
    from tests.simulation.world import World

FOLD_AFTER = 5
"""An append also folds once this number of requests are unfolded. It is small, so that worlds fold
often.
"""

PART_BYTES = 1_500
"""The size of a part of a folded group. It is small, so that many groups are folded in parts."""

Job = tuple[Callable[[], Any], "asyncio.Future[Any]", Callable[[], None] | None]

RAM = Path("/dev/shm")


class Backend(Protocol):
    """Keeps the stored state of a world. It outlives the processes."""

    one_lane: bool
    by_name: bool
    """True if a group is read when a request first names it."""

    def open_life(self, fate: Misfortune) -> OffsetStorage:
        """Return a store for a new process."""
        ...

    def killed(self, owner: str) -> None:
        """Handle the death of a process."""
        ...

    def lapse(self, owner: str) -> bool:
        """Let the lease of a live process expire. Return False if that cannot happen here."""
        ...

    def steal(self, shards: list[int]) -> None:
        """Let another owner hold these shards for a moment."""
        ...

    def heal(self) -> None:
        """Let no further sync fail."""

    def events(self) -> list[EventDict]:
        """Return the whole log."""
        ...

    def close(self) -> None: ...


class MemoryBackend:
    """Shared memory: leases expire, and several processes may run."""

    def __init__(self, world: World, *, one_lane: bool, by_name: bool = False) -> None:
        self.one_lane = one_lane
        self.by_name = by_name
        self.inner = SharedMemory(world.durable, world.wall_ms)

    def open_life(self, fate: Misfortune) -> OffsetStorage:
        return self.inner

    def killed(self, owner: str) -> None:
        self.inner.dead_owners.add(owner)

    def lapse(self, owner: str) -> bool:
        self.inner.dead_owners.add(owner)
        return True

    def steal(self, shards: list[int]) -> None:
        self.inner.give_back(self.inner.take_over(shards, "thief").values())

    def heal(self) -> None:
        """Do nothing: the store has no disk."""

    def events(self) -> list[EventDict]:
        return self.inner.events()

    def close(self) -> None:
        pass


class SqliteBackend:
    """A file that the real backend writes. It is in memory if the machine has a file system in
    memory.
    """

    one_lane = True
    by_name = False

    def __init__(self, world: World) -> None:
        self.doubtful: bytes | None = None
        """The last append, if its sync failed. It may be stored."""
        self._world = world
        self._folder = tempfile.TemporaryDirectory(dir=RAM if RAM.is_dir() else None)
        self.path = Path(self._folder.name) / "world.db"
        self._life: SqliteLife | None = None
        self._log_ids = 0
        self._thread = groupkeeper.storage.backends.sqlite.store.JobThread
        groupkeeper.storage.backends.sqlite.store.JobThread = Jobs  # type: ignore[assignment, misc]

    def open_life(self, fate: Misfortune) -> OffsetStorage:
        self._life = SqliteLife(self, self._world, fate)
        return self._life

    def new_log_id(self) -> str:
        self._log_ids += 1
        return f"log-{self._log_ids}"

    def killed(self, owner: str) -> None:
        if self._life is not None:
            self._life.die()

    def lapse(self, owner: str) -> bool:
        return False

    def steal(self, shards: list[int]) -> None:
        """One epoch holds for all shards. It changes as if another process had opened the file."""
        with (
            closing(sqlite3.connect(self.path, isolation_level=None)) as thief,
            suppress(
                sqlite3.OperationalError  # the tables are not made yet
            ),
        ):
            ((epoch,),) = thief.execute(
                "UPDATE lease SET epoch = epoch + 1, owner = 'thief' RETURNING epoch"
            ).fetchall()
            self.granted(epoch)

    def granted(self, epoch: int) -> None:
        for shard in (CLUSTER_SHARD, *range(self._world.shards)):
            self._world.durable.granted(shard, epoch)

    def stored(self, payload: bytes) -> None:
        """Handle an append that is durable."""
        for item in decode_payload(payload).items:
            self._world.durable.stored(item.shard, item.lease_epoch, item.batches)

    def find_doubtful(self, connection: sqlite3.Connection) -> None:
        """Find out whether an append is stored whose sync failed. Nothing was stored after it."""
        payload, self.doubtful = self.doubtful, None
        query = 'SELECT CAST(payload AS BLOB) FROM log ORDER BY "row" DESC LIMIT 1'
        ((newest,),) = connection.execute(query).fetchall()
        if payload is not None and unpack(newest) == payload:
            self.stored(payload)

    def heal(self) -> None:
        """Do nothing: every sync succeeds."""

    def events(self) -> list[EventDict]:
        return list(read_events(self.path))

    def close(self) -> None:
        if self._life is not None:
            self._life.die()
        self._folder.cleanup()
        groupkeeper.storage.backends.sqlite.store.JobThread = self._thread  # type: ignore[misc]


class SqliteLife(SqliteOffsetStorage):
    """The real SQLite backend in one process."""

    def __init__(self, backend: SqliteBackend, world: World, fate: Misfortune) -> None:
        super().__init__(
            backend.path,
            append_timeout_ms=world.append_timeout_ms,
            clock=world.wall_ms,
            new_log_id=backend.new_log_id,
            fold_after=FOLD_AFTER,
            part_bytes=PART_BYTES,
            connect=lambda path, busy: Disk(  # type: ignore[arg-type, return-value]
                sqlite_tables.connect_writer(path, busy), backend, fate
            ),
        )
        self._backend = backend
        self._fate = fate
        self._held_lock: StoreFiles | None = None
        """The lock on the file. After an abandoned close it may still be held."""

    async def open(self, identity: StoreIdentity) -> None:
        if self._fate.is_dead:
            raise StorageError("killed")
        Jobs.fate_of_next = self._fate  # read before the call suspends for the first time
        await super().open(identity)

    def _open(self, identity: StoreIdentity, lock: StoreFiles) -> bool:
        self._held_lock = lock
        is_unclean = super()._open(identity, lock)
        assert isinstance(self._connection, Disk)
        self._backend.find_doubtful(self._connection.raw)
        return is_unclean

    def _close(self, is_known: bool, lock: StoreFiles) -> None:
        if self._fate.is_dead:
            return  # too late: the kernel has done it
        self._held_lock = None
        super()._close(is_known, lock)

    def die(self) -> None:
        """Release what the kernel releases when a process ends."""
        lock, self._held_lock = self._held_lock or self._lock, None
        self._lock = None
        connection, self._connection = self._connection, None
        if connection is not None:
            close_without_checkpoint(connection, self.path)
        for left in failed_sync._left_open:
            left.close()
        failed_sync._left_open.clear()
        if lock is not None:
            lock.release()


class Jobs:
    """Replaces the writer thread. It runs jobs in order, and a job that has begun cannot be
    cancelled.
    """

    fate_of_next: Misfortune

    def __init__(self, name: str) -> None:
        self._fate = self.fate_of_next
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Job] = deque()
        self._task: asyncio.Task[None] | None = None

    def submit(
        self, work: Callable[[], Any], then: Callable[[], None] | None = None
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._queue.append((work, future, then))
        if self._task is None:
            self._task = self._loop.create_task(self._work())
        return future

    def stop(self) -> None:
        """Wait until the earlier jobs are done."""

    async def _work(self) -> None:
        while self._queue:
            await self._fate.pause()
            work, future, then = self._queue.popleft()
            if future.cancelled():
                continue
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - handed to whoever waits
                if not future.done():
                    future.set_exception(error)
                continue
            self._fate.point()  # the row is written, what follows it is not
            if then is not None:
                then()
            if not future.done():
                future.set_result(result)
        self._task = None


def _payload(arguments: tuple[int, str | bytes, int]) -> bytes:
    """Return the payload of an append, by the arguments of its statement."""
    _, packed, _ = arguments
    return unpack(packed.encode() if isinstance(packed, str) else packed)


class Disk:
    """The writer's connection, over a disk that fails before or after a statement."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        backend: SqliteBackend,
        fate: Misfortune,
    ) -> None:
        self.raw = connection
        self._backend = backend
        self._fate = fate

    def execute(self, statement: str, arguments: Any = ()) -> sqlite3.Cursor:
        """Run a statement, and report to the world what it made durable."""
        if self._fate.is_dead:
            raise sqlite3.OperationalError("the process is gone")
        # What follows a row fails often: only a second start shows what is missing then.
        if self._fate.happens(0.6 if " keyed " in statement else 0.2):
            self._fate.faults["full disk"] += 1
            raise sqlite3.OperationalError("database or disk is full")
        try:
            cursor = self.raw.execute(statement, arguments)
        except sqlite3.OperationalError as error:
            if statement == sqlite_tables.APPEND and is_failed_sync(error):
                self._backend.doubtful = _payload(arguments)
            raise
        if statement == sqlite_tables.APPEND and cursor.rowcount == 1:
            self._backend.stored(_payload(arguments))
        elif statement.startswith("UPDATE lease"):
            rows = cursor.fetchall()  # commits: before this, its sync can fail
            self._backend.granted(rows[0][0])
            cursor = self.raw.execute("SELECT epoch FROM lease")
        if self._fate.happens(0.1):
            self._fate.faults["statement that lied"] += 1
            cursor.close()  # or what RETURNING was not fetched of would hold its transaction open
            raise sqlite3.OperationalError("disk I/O error")
        return cursor

    def close(self) -> None:
        self.raw.close()
