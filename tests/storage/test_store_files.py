"""Whose the files of a store are, under any name, and that they stay what they were."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import warnings
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from groupkeeper import read_events
from groupkeeper.coordinator.core.events import GroupCreated
from groupkeeper.storage import file_lock
from groupkeeper.storage.backends.sqlite import store_files
from groupkeeper.storage.backends.sqlite.complete import refuse_stale_wal
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import Batch, StorageError, StoreBusy, StoreRefused, StoreTaken
from groupkeeper.storage.file_lock import FileLock
from tests.helpers.core.records import commit
from tests.helpers.storage.storage_owner import IDENTITY, SHARDS, Owner

if TYPE_CHECKING:
    from collections.abc import Callable

OFFSET = ("offset", 0, "g", "orders", 0)

LIBRARY = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM log").fetchall()
connection.close()
"""
"""What a careless tool does: SQLite lets the last connection that closes delete the log."""

FORKER = """
import asyncio, os, sys
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from tests.helpers.storage.storage_owner import Owner

async def hold():
    await Owner(SqliteOffsetStorage(sys.argv[1])).start()
    if os.fork() == 0:
        print("forked", flush=True)
        sys.stdin.read()
    os._exit(0)

asyncio.run(hold())
"""

WRITER_OF_SEGMENTS = """
import os, sys
from pathlib import Path
from groupkeeper.storage.event_log import manifest

def fork(fd):
    if os.fork() == 0:
        sys.stdin.read()
        os._exit(0)

os.fsync = fork
name = manifest.SegmentName("2026-11-28", "a" * 32, 1, 2)
manifest.add(Path(sys.argv[1]), [manifest.segment_of_name(name)])
print("written", flush=True)
sys.stdin.read()
"""
"""A host with a thread that seals, and another thread that forks meanwhile."""

LOCKER = """
import fcntl, sys
held = [open(name, "a+") for name in sys.argv[1:]]
for file in held:
    fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    directory = tmp_path / "store"
    directory.mkdir()
    return directory / "store.db"


class Other:
    """A script in a process of its own, ended at the end of the block."""

    def __init__(self, script: str, *arguments: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def __enter__(self) -> Other:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()


def use_carelessly(path: Path) -> None:
    """As a tool would that does not know of us."""
    subprocess.run([sys.executable, "-c", LIBRARY, path], check=True)


def moved(path: Path) -> Path:
    """Move the database, and nothing that lies beside it."""
    elsewhere = path.parent.with_name("elsewhere.db")
    path.rename(elsewhere)
    return elsewhere


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


async def stored(path: Path) -> int | None:
    """Start on the store, and stop; return the offset that it has."""
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await owner.storage.close()
    return owner.model.keys.get(OFFSET, (None,))[0]


async def refusal_of(path: Path) -> str:
    with pytest.raises(StoreRefused) as refusal:
        await SqliteOffsetStorage(path).open(IDENTITY)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


# --- locks ----------------------------------------------------------------------------------------


async def test_a_database_with_a_second_name_is_refused(path: Path) -> None:
    await stored(path)
    other = path.with_name("other.db")
    os.link(path, other)
    assert "has 2 names (hard links)" in await refusal_of(path)
    assert "has 2 names (hard links)" in await refusal_of(other)
    other.unlink()
    await stored(path)


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
async def test_a_copy_beside_the_linked_log_of_its_original_is_refused(
    path: Path, tmp_path: Path, ending: str
) -> None:
    """A backup that links unchanged files has a new copy of the database beside the old log."""
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await owner.append(0, [commit("g", 7)])
    copy = tmp_path / "backup" / path.name
    copy.parent.mkdir()
    shutil.copy(path, copy)
    beside(copy, ending).hardlink_to(beside(path, ending))
    refusal = await refusal_of(copy)
    assert f"{ending}: has 2 names (hard links), so another database may use it" in refusal
    await owner.append(0, [commit("g", 8)])
    await owner.storage.close()
    advice = refusal[refusal.index("(cp ") + 1 : -1]
    assert await (await asyncio.create_subprocess_shell(advice)).wait() == 0
    await Owner(SqliteOffsetStorage(path)).start()


async def test_a_database_that_another_process_has_under_another_name_is_refused(
    path: Path,
) -> None:
    """As through a bind mount of the file, which has a lock file of its own and one link."""
    with Other(LOCKER, path) as other:
        assert other.line() == "locked"
        assert "is in use by another process, under another name" in await refusal_of(path)


async def test_a_database_is_locked_although_its_lock_file_was_removed(path: Path) -> None:
    owner = await Owner(SqliteOffsetStorage(path)).start()
    beside(path, ".lock").unlink()
    assert "is in use by another coordinator of this process" in await refusal_of(path)
    await owner.storage.close()


async def test_a_mount_of_the_file_alone_is_refused(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = path.with_name("a\tstore\\of us.db")
    mounts = tmp_path / "mountinfo"
    name = str(path).replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")
    mounts.write_text(f"36 35 98:0 /elsewhere.db {name} rw,noatime - ext4 /dev/root rw\n")
    monkeypatch.setattr(store_files, "_MOUNTS", mounts)
    assert "mount its directory" in await refusal_of(path)
    beside(path, "-wal").touch()
    mounts.write_text(mounts.read_text().replace(" rw,", "-wal rw,", 1))
    assert "-wal: is a mount of a single file" in await refusal_of(path)
    mounts.write_text(f"36 35 98:0 / {path.parent} rw,noatime - ext4 /dev/root rw\n")
    await stored(path)


async def test_a_refused_opening_leaves_the_locks_of_sqlite_alone(path: Path) -> None:
    """To close any descriptor of a file gives back all POSIX locks that a process has on it: then
    SQLite lets any tool that closes the database delete the write-ahead log under us.
    """
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await owner.append(0, [commit("g", 7)])
    beside(path, ".lock").unlink()
    await refusal_of(path)
    os.link(path, path.with_name("other.db"))
    await refusal_of(path.with_name("other.db"))
    use_carelessly(path)
    assert beside(path, "-wal").exists()
    await owner.storage.close()


async def test_a_reader_keeps_its_locks_when_the_store_closes(path: Path) -> None:
    owner = await Owner(SqliteOffsetStorage(path)).start()
    for n in range(3):
        await owner.append(0, [commit("g", n)])
    with closing(read_events(path)) as events:
        next(events)
        descriptors = held(path)
        await owner.storage.close()
        use_carelessly(path)
        assert beside(path, "-wal").exists()
        assert [event["seq"] for event in events] == [2, 3]
    assert held(path) < descriptors
    assert spare_of(path) == []
    await stored(path)


def test_a_forked_child_keeps_no_lock(path: Path) -> None:
    with Other(FORKER, path) as host:
        assert host.line() == "forked"
        host.process.wait()
        asyncio.run(stored(path))  # while the child lives


def test_a_forked_child_keeps_no_lock_of_the_manifest(tmp_path: Path) -> None:
    """Or no store could seal into this directory until the child ends."""
    with Other(WRITER_OF_SEGMENTS, tmp_path) as host:
        assert host.line() == "written"
        file_lock.LockedFile(tmp_path / "_manifest.lock").release()  # while the child lives


def spare_of(path: Path) -> list[int]:
    """The descriptors of a file that wait for its readers to close."""
    return file_lock._spare.get(file_lock.identity_of(path.stat()), [])


def held(path: Path) -> int:
    """How many descriptors of a file this process has."""
    open_ones = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    return open_ones.count(os.path.realpath(path))


async def test_a_forked_child_keeps_no_descriptor_that_waits_for_a_reader(path: Path) -> None:
    """It has none of its parent's readers, so nothing would ever close it there."""
    owner = await Owner(SqliteOffsetStorage(path)).start()
    with closing(file_lock.connect_reading(path)):
        await owner.storage.close()
        links = [Path(os.readlink(f"/proc/self/fd/{fd}")).name for fd in spare_of(path)]
        names = sorted(link.removesuffix(" (deleted)") for link in links)
        assert names == ["store.db", "store.db-shm"]
        before = held(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: it ends at once
            child = os.fork()
        if child == 0:
            os._exit(before - held(path))
        _, status = os.waitpid(child, 0)  # noqa: ASYNC222 - it ends at once
    assert os.waitstatus_to_exitcode(status) == 1


async def test_a_start_does_not_use_a_descriptor_that_can_only_read(path: Path) -> None:
    """A reader had opened it and could not close it yet. The start then could not write."""
    await (await Owner(SqliteOffsetStorage(path)).start()).storage.close()
    with closing(file_lock.connect_reading(path)):
        refuse_stale_wal(path)
        assert len(spare_of(path)) == 1
        owner = await Owner(SqliteOffsetStorage(path)).start()
        await owner.storage.close()


def test_a_process_in_another_container_is_not_taken_for_this_one(path: Path) -> None:
    """Both may be process 1; then the name of the host tells them apart, if anything does."""
    lock = beside(path, ".lock")
    lock.write_text(f"{os.getpid()} elsewhere\n")
    with Other(LOCKER, lock) as other:
        assert other.line() == "locked"
        with pytest.raises(StoreRefused, match=f"process {os.getpid()} of host elsewhere, which"):
            FileLock(path)
        lock.write_text(f"{os.getpid()} {socket.gethostname()}\n")
        with pytest.raises(StoreRefused, match="in another container"):
            FileLock(path)
        lock.write_text("1\n")
        with pytest.raises(StoreRefused, match=r"another groupkeeper \(process 1, which"):
            FileLock(path)
        lock.write_text("")
        with pytest.raises(StoreRefused, match="a process that left no name"):
            FileLock(path)


# --- a full disk ----------------------------------------------------------------------------------


def no_room(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_lock_is_taken_although_there_is_no_room_for_the_holders_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", no_room)
        lock = FileLock(path)
        with pytest.raises(StoreRefused, match="in use by another coordinator of this process"):
            FileLock(path)
    lock.release()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    lock = FileLock(path)
    assert beside(path, ".lock").read_text() == f"{os.getpid()} {socket.gethostname()}\n"
    lock.release()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("suffix", [".lock", ""])
async def test_a_file_that_finds_no_room_is_a_busy_store(
    path: Path, suffix: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens = os.open

    def full(name: Path, *arguments: int) -> int:
        if Path(name) == beside(path, suffix):
            raise OSError(number, os.strerror(number))
        return opens(name, *arguments)

    with monkeypatch.context() as disk:
        disk.setattr(os, "open", full)
        with pytest.raises(StoreBusy, match="make room"):
            await SqliteOffsetStorage(path).open(IDENTITY)
    await stored(path)


async def test_an_index_that_this_user_may_not_open_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database itself can be written, so its name would lead nowhere."""
    await stored(path)
    index = beside(path, "-shm")
    index.write_bytes(bytes(32_768))
    opens = os.open

    def forbidden(name: Path, *arguments: int) -> int:
        if Path(name) == index:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(name))
        return opens(name, *arguments)

    with monkeypatch.context() as disk:
        disk.setattr(os, "open", forbidden)
        with pytest.raises(StorageError, match=r"store\.db-shm: cannot be opened \(Permission"):
            await SqliteOffsetStorage(path).open(IDENTITY)
    await stored(path)


def test_a_lock_that_cannot_be_is_told_and_leaves_no_descriptor(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    descriptors = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(StoreRefused, match="use a local disk"):
        FileLock(path)
    assert len(os.listdir("/proc/self/fd")) == descriptors


# --- files that are moved, deleted or replaced ----------------------------------------------------


def move(path: Path) -> Callable[[], object]:
    elsewhere = path.with_name("elsewhere.db")
    path.rename(elsewhere)
    return lambda: elsewhere.rename(path)


def move_directory(path: Path) -> Callable[[], object]:
    elsewhere = path.parent.with_name("elsewhere")
    path.parent.rename(elsewhere)
    return lambda: elsewhere.rename(path.parent)


def replace_by_copy(path: Path) -> Callable[[], object]:
    copy = path.with_name("copy.db")
    original = path.with_name("original.db")
    shutil.copyfile(path, copy)
    path.rename(original)
    copy.rename(path)
    return lambda: original.rename(path)


def remove(suffix: str) -> Callable[[Path], Callable[[], object]]:
    def do(path: Path) -> Callable[[], object]:
        beside(path, suffix).unlink()
        return lambda: None

    do.__name__ = f"remove{suffix}"
    return do


TAKEN_AWAY = [
    move,
    move_directory,
    replace_by_copy,
    remove("-wal"),
    remove("-shm"),
    remove(".lock"),
]


@pytest.mark.parametrize("take_away", TAKEN_AWAY)
async def test_a_store_whose_files_were_taken_away_is_never_written_again(
    path: Path,
    take_away: Callable[[Path], Callable[[], object]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_files, "CHECK_EVERY_S", 0.0)
    storage = SqliteOffsetStorage(path)
    owner = await Owner(storage).start()
    await owner.append(0, [commit("g", 7)])
    put_back = take_away(path)
    items = [owner.item(0, Batch([commit("g", 8)], [GroupCreated(group_id="g")]))]
    with pytest.raises(StoreRefused, match="while this process used it"):
        await storage.append(items)
    with pytest.raises(StoreRefused):
        await storage.acquire(SHARDS, "owner")
    put_back()
    with pytest.raises(StoreRefused):
        await storage.acquire(SHARDS, "owner")
    with pytest.raises(StoreRefused):
        await storage.check_place()
    await storage.close()
    assert await stored(path) == 7


@pytest.mark.parametrize(
    ("link", "leads_to", "url_path"),
    [("store.db", "store.db", "store.db"), ("now", "", "now/store.db")],
)
async def test_a_symbolic_link_that_leads_to_another_store_is_noticed(
    tmp_path: Path, link: str, leads_to: str, url_path: str
) -> None:
    """A start would use the other store, so what is acknowledged would be gone."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    name = tmp_path / link
    name.symlink_to(old / leads_to)
    storage = SqliteOffsetStorage(tmp_path / url_path)
    owner = await Owner(storage).start()
    await owner.append(0, [commit("g", 7)])
    await storage.check_place()
    name.unlink()
    name.symlink_to(new / leads_to)
    with pytest.raises(StoreRefused, match=r"while this process used it.*let it lead to .*old"):
        await storage.check_place()
    await storage.close()
    assert await stored(old / "store.db") == 7


async def test_a_symbolic_link_to_itself_is_an_error_that_names_it(path: Path) -> None:
    os.symlink(path.name, path)
    with pytest.raises(StorageError, match=r"store\.db.*Too many levels of symbolic links"):
        await SqliteOffsetStorage(path).open(IDENTITY)


async def checkpoint(storage: SqliteOffsetStorage) -> None:
    """Copy the write-ahead log into the database."""
    await storage.on_writer(
        lambda writer: writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    )


@pytest.mark.parametrize("size", [0, 4_096])
async def test_a_shorter_file_that_is_copied_over_the_database_is_noticed(
    path: Path, size: int
) -> None:
    """``cp backup.db groupkeeper.db`` keeps the inode. Commits were acknowledged and then lost."""
    storage = SqliteOffsetStorage(path)
    owner = await Owner(storage).start()
    await owner.append(0, [commit("g", 7)])
    await checkpoint(storage)
    await storage.check_place()
    os.truncate(path, size)
    with pytest.raises(StoreRefused, match=r"overwritten while this process used it.*a backup in"):
        await storage.check_place()
    items = [owner.item(0, Batch([commit("g", 8)], []))]
    with pytest.raises(StoreRefused, match="overwritten while this process used it"):
        await storage.append(items)
    await storage.close()


@pytest.mark.parametrize("is_noticed", [True, False])
@pytest.mark.parametrize(
    ("size", "is_written_on"),
    [(0, True), (32, True), (4_096, True), (12_000, True), (4_096, False)],
)
async def test_a_write_ahead_log_that_is_cut_is_noticed(
    path: Path, size: int, *, is_written_on: bool, is_noticed: bool
) -> None:
    """Commits were acknowledged after it, and a stop wrote its empty pages into the database."""
    storage = SqliteOffsetStorage(path)
    owner = await Owner(storage).start()
    await owner.append(0, [commit("g", 7)])
    await checkpoint(storage)
    for offset in range(8, 20):
        await owner.append(0, [commit("g", offset)])
    os.truncate(beside(path, "-wal"), size)
    if is_written_on:
        await owner.append(0, [commit("g", 20)])  # the file is as long again
    if is_noticed:
        with pytest.raises(StoreRefused, match=r"store\.db-wal: was cut while .*a backup in"):
            await storage.check_place()
        with pytest.raises(StoreRefused, match="was cut"):
            await owner.append(0, [commit("g", 21)])
    content = await asyncio.to_thread(path.read_bytes)
    await storage.close()
    assert await asyncio.to_thread(path.read_bytes) == content
    beside(path, "-wal").unlink()
    assert await stored(path) == 7


@pytest.mark.parametrize("page_bytes", [512, 65_536])
async def test_a_database_with_pages_of_another_size_is_not_taken_for_cut(
    path: Path, page_bytes: int
) -> None:
    await (await Owner(SqliteOffsetStorage(path)).start()).storage.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in ("journal_mode = DELETE", f"page_size = {page_bytes}"):
            connection.execute(f"PRAGMA {statement}")
        connection.execute("VACUUM")
    storage = SqliteOffsetStorage(path)
    owner = await Owner(storage).start()
    for offset in range(1, 20):
        await owner.append(0, [commit("g", offset)])
        await storage.check_place()
    os.truncate(beside(path, "-wal"), page_bytes)
    await owner.append(0, [commit("g", 20)])
    with pytest.raises(StoreRefused, match="was cut"):
        await storage.check_place()
    await storage.close()


async def test_a_write_ahead_log_that_sqlite_shortens_is_not_taken_for_cut(path: Path) -> None:
    storage = SqliteOffsetStorage(path)
    owner = await Owner(storage).start()
    descriptors = 0
    for offset in range(1, 30):
        await owner.append(0, [commit("g", offset)])
        await storage.check_place()
        await checkpoint(storage)
        await storage.check_place()
        descriptors = descriptors or len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    await storage.close()
    assert await stored(path) == 29


async def test_a_store_that_grows_and_is_deleted_from_is_not_taken_for_overwritten(
    path: Path,
) -> None:
    storage = SqliteOffsetStorage(path, fold_after=0)
    owner = await Owner(storage).start()
    sizes = []
    for metadata in ("x" * 4_000, ""):
        for number in range(10):
            await owner.append(0, [commit(f"g{number}", 1, partitions=100, metadata=metadata)])
        await owner.fold_all()
        await checkpoint(storage)
        await storage.check_place()
        sizes.append(storage.stats()["database_bytes"])
    assert sizes[0] > 1_000_000
    assert sizes[1] >= sizes[0]
    await storage.close()


async def test_a_lease_on_a_store_that_was_moved_is_refused(path: Path) -> None:
    """It is taken before a load, and nothing may have looked at the files since."""
    storage = SqliteOffsetStorage(path)
    await Owner(storage).start()
    put_back = move(path)
    with pytest.raises(StoreRefused, match="was moved or deleted while this process used it"):
        await storage.acquire(SHARDS, "owner")
    put_back()
    await storage.close()


async def test_a_fold_alone_finds_out_that_the_store_was_moved(path: Path) -> None:
    storage = SqliteOffsetStorage(path)
    owner = await Owner(storage).start()
    await owner.append(0, [commit("g", 7)])
    put_back = move(path)
    assert storage.unfolded()
    with pytest.raises(StoreRefused, match="was moved or deleted while this process used it"):
        await owner.fold()
    put_back()
    await storage.close()


async def test_an_idle_store_finds_out_that_another_process_has_acquired_it(path: Path) -> None:
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await owner.storage.check_place()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE lease SET epoch = epoch + 1, owner = 'other'")
    with pytest.raises(StoreTaken, match="another process has acquired the store"):
        await owner.storage.check_place()
    await owner.storage.close()
    with closing(sqlite3.connect(path)) as other:
        (running,) = other.execute("SELECT value FROM store WHERE key = 'running'").fetchone()
    assert running == 1, "the mark is the other process's"


async def test_an_idle_store_finds_out_as_well(path: Path) -> None:
    storage = SqliteOffsetStorage(path)
    owner = await Owner(storage).start()
    await storage.check_place()
    put_back = move(path)
    with pytest.raises(StoreRefused, match="was moved or deleted while this process used it"):
        await storage.check_place()
    put_back()
    with pytest.raises(StoreRefused):
        await owner.reload()
    await storage.close()


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


async def test_the_first_append_after_an_idle_second_checks_although_a_check_just_ran(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(store_files, "time", clock)
    storage = SqliteOffsetStorage(path)
    owner = await Owner(storage).start()
    await owner.append(0, [commit("g", 7)])
    clock.now_s += 1.0
    assert storage.unfolded()
    await owner.fold()
    await storage.check_place()
    put_back = move(path)
    with pytest.raises(StoreRefused, match="was moved or deleted while this process used it"):
        await owner.append(0, [commit("g", 8)])
    put_back()
    await storage.close()
    assert await stored(path) == 7


async def test_appends_without_a_pause_check_each_second(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(store_files, "time", clock)
    storage = SqliteOffsetStorage(path)
    owner = await Owner(storage).start()
    put_back = move(path)
    clock.now_s += 0.6
    await owner.append(0, [commit("g", 7)])
    clock.now_s += 0.6
    with pytest.raises(StoreRefused, match="was moved or deleted while this process used it"):
        await owner.append(0, [commit("g", 8)])
    put_back()
    await storage.close()
    assert await stored(path) == 7


async def test_a_moved_database_has_all_that_was_acknowledged(path: Path) -> None:
    """The write-ahead log, where that was, stays behind."""
    storage = SqliteOffsetStorage(path)
    owner = await Owner(storage).start()
    await owner.append(0, [commit("g", 7)])
    elsewhere = moved(path)
    with pytest.raises(StoreRefused):
        await storage.check_place()
    await storage.close()
    assert await stored(elsewhere) == 7


@pytest.mark.parametrize(
    ("suffix", "advice"),
    [
        ("", "put back store.db and, if it is there, store.db-wal,"),
        ("-wal", "put back store.db-wal if you have it,"),
        *[
            (suffix, f"store.db (it is in its place; store.db{suffix} need not be put back,")
            for suffix in (".lock", "-shm")
        ],
    ],
)
async def test_the_advice_is_about_the_file_that_was_replaced(
    path: Path, suffix: str, advice: str
) -> None:
    storage = SqliteOffsetStorage(path)
    owner = await Owner(storage).start()
    await owner.append(0, [commit("g", 7)])
    replaced = beside(path, suffix)
    replaced.rename(path.parent / "elsewhere")
    replaced.write_bytes(b"")
    with pytest.raises(StoreRefused) as refusal:
        await storage.check_place()
    await storage.close()
    assert str(refusal.value).startswith(f"{replaced}: was replaced by another file")
    assert advice in str(refusal.value)
    if suffix:
        assert await stored(path) == 7


async def test_a_write_ahead_log_in_the_place_of_ours_is_never_applied(path: Path) -> None:
    """An older copy, as from a backup: SQLite would put its pages over those of the database."""
    storage = SqliteOffsetStorage(path)
    owner = await Owner(storage).start()
    await owner.append(0, [commit("g", 7)])
    copy = beside(path, "-copy")
    shutil.copyfile(beside(path, "-wal"), copy)
    await owner.append(0, [commit("g", 8)])
    copy.rename(beside(path, "-wal"))
    with pytest.raises(StoreRefused, match=r"was renamed to store\.db-wal\.replaced"):
        await storage.check_place()
    killed = path.with_name("killed.db")
    for suffix in ("", "-wal"):
        with suppress(FileNotFoundError):
            shutil.copyfile(beside(path, suffix), beside(killed, suffix))
    await storage.close()
    assert beside(path, "-wal.replaced").exists()
    assert await stored(killed) == 8


async def test_a_write_ahead_log_without_its_database_is_no_empty_store(path: Path) -> None:
    """SQLite would delete it; a supervisor that starts us again would serve nothing to everyone."""
    storage = SqliteOffsetStorage(path)
    owner = await Owner(storage).start()
    await owner.append(0, [commit("g", 7)])
    elsewhere = moved(path)
    with pytest.raises(StoreRefused):
        await storage.check_place()
    await storage.close()
    assert "its write-ahead log store.db-wal is there" in await refusal_of(path)
    elsewhere.rename(path)
    assert await stored(path) == 7


async def test_a_store_that_cannot_be_looked_at_for_a_moment_is_not_lost(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = SqliteOffsetStorage(path)
    owner = await Owner(storage).start()

    def broken(*_: object) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as disk:
        disk.setattr(store_files.os, "stat", broken)
        with pytest.raises(StorageError) as error:
            await storage.check_place()
    assert not isinstance(error.value, StoreRefused)
    await owner.reload()
    await owner.append(0, [commit("g", 1)])
    await storage.close()


async def test_a_moved_store_does_not_touch_the_one_that_took_its_place(path: Path) -> None:
    """At its end SQLite would delete the other one's write-ahead log, which has the same name."""
    storage = SqliteOffsetStorage(path)
    owner = await Owner(storage).start()
    await owner.append(0, [commit("g", 7)])
    away = path.parent.with_name("away")
    path.parent.rename(away)
    path.parent.mkdir()
    successor = await Owner(SqliteOffsetStorage(path)).start()
    await successor.append(0, [commit("g", 70)])
    with pytest.raises(StoreRefused):
        await storage.check_place()
    await storage.close()
    assert beside(path, "-wal").stat().st_size
    await successor.append(0, [commit("g", 71)])
    await successor.storage.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    for place, offset in ((path, 71), (away / path.name, 7)):
        assert await stored(place) == offset
