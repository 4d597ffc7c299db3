"""Sealing in a process of its own: it does the work, it may die, and it outlives nobody."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.event_log.check import verify
from groupkeeper.storage.event_log.sealing.process import (
    ANSWER_S,
    COMMAND,
    SealingFailed,
    SealingProcess,
    _encode,
    serve,
)
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.sealing.storage import SealedStorage
from groupkeeper.storage.event_log.source import Address
from groupkeeper.storage.file_lock import FileLock
from groupkeeper.storage.open import rows_of
from tests.helpers.core.records import commit
from tests.helpers.storage.sealed_store import SealedStore, until
from tests.helpers.storage.storage_owner import Owner


async def store_with_rows(directory: Path) -> SealedStore:
    """A store with four commits that nobody has sealed."""
    store = SealedStore(directory)
    owner = await store.owner()
    for number in range(1, 5):
        await store.append(owner, 0, [commit("g", number)])
    await owner.fold_all()
    await owner.storage.close()
    for file in store.log_dir.glob("*/*"):
        file.unlink()
    (store.log_dir / "_manifest.jsonl").unlink()
    return store


@pytest.fixture
async def sealing(tmp_path: Path) -> Iterator[SealingProcess]:
    store = await store_with_rows(tmp_path)
    process = SealingProcess(address_of(store), SealSettings(directory=store.log_dir))
    yield process
    process.close()


def sealed(directory: Path, settings: SealSettings) -> SealedStorage:
    """A store that has a process of its own seal."""
    plain = SqliteOffsetStorage(directory / "store.db")
    return SealedStorage(plain, settings, poll_s=0.01, in_process=False)


def address_of(store: SealedStore) -> Address:
    address = store.plain().event_source().address
    assert address is not None
    return address


def pid_of(sealing: SealingProcess) -> int:
    assert sealing._process is not None
    return sealing._process.pid


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_seals_what_a_thread_would_and_tells_how_far_it_came(
    sealing: SealingProcess, tmp_path: Path
) -> None:
    assert sealing.settle().lost is None
    while sealing.step():  # what it took is old enough to be sealed at once
        pass
    assert sealing.progress.open_since_ms is None
    assert sealing.progress.sealed_seq == 4
    assert sealing.progress.segments_sealed == 1
    assert not sealing.progress.new_log_ids, "the store knows its log"
    assert sealing.progress.cpu_s > 0
    sealing.retain()
    report = verify(tmp_path / "log", reads_events=True)
    assert report.is_sound
    assert report.logs[0].last_seq == 4


def test_where_it_was_killed_the_call_says_so_and_settling_starts_another(
    sealing: SealingProcess,
) -> None:
    sealing.settle()
    first = pid_of(sealing)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(SealingFailed, match=rf"pid {first}\) ended with -9"):
        sealing.step()
    with pytest.raises(SealingFailed, match="not running"):
        sealing.step()
    sealing.settle()
    assert pid_of(sealing) != first
    sealing.finish(10.0)
    assert sealing.progress.sealed_seq == 4


def test_its_counters_do_not_fall_with_the_next_one(sealing: SealingProcess) -> None:
    sealing.settle()
    sealing.finish(10.0)
    before = sealing.progress
    os.kill(pid_of(sealing), signal.SIGKILL)
    with pytest.raises(SealingFailed, match="ended with -9"):
        sealing.step()
    sealing.settle()
    assert sealing.progress.segments_sealed == before.segments_sealed == 1
    assert sealing.progress.cpu_s > before.cpu_s


def test_what_fails_in_it_is_told_and_it_goes_on(sealing: SealingProcess, tmp_path: Path) -> None:
    sealing.settle()
    pid = pid_of(sealing)
    day = tmp_path / "log"
    for folder in day.glob("dt=*"):
        folder.rmdir()
    day.rename(tmp_path / "elsewhere")
    day.write_text("in the way")
    with pytest.raises(SealingFailed, match="log"):
        sealing.step()
    day.unlink()
    (tmp_path / "elsewhere").rename(day)
    sealing.settle()
    sealing.finish(10.0)
    assert pid_of(sealing) == pid
    assert sealing.progress.sealed_seq == 4


def test_one_that_hangs_is_ended_and_told(
    sealing: SealingProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealing.settle()
    first = pid_of(sealing)
    os.kill(first, signal.SIGSTOP)
    monkeypatch.setitem(ANSWER_S, "step", 0.1)
    with pytest.raises(SealingFailed, match="had not answered"):
        sealing.step()
    assert not is_alive(first)
    sealing.settle()
    sealing.finish(10.0)
    assert sealing.progress.sealed_seq == 4


async def test_a_store_whose_sealing_hangs_is_closed_all_the_same(tmp_path: Path) -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    settings = SealSettings(directory=tmp_path / "log")
    before = {*children(), *sealers()}  # what other tests of this process have left
    storage = sealed(tmp_path, settings)
    owner = await Owner(storage).start()
    await owner.append(0, [commit("g", 1)])
    await until(lambda: len({*children()} - before) == 1)
    (child,) = {*children()} - before
    os.kill(child, signal.SIGSTOP)
    await storage.close()
    await until(lambda: {*children(), *sealers()} <= before)
    await asyncio.sleep(0)
    gc.collect()
    assert told == [], "what failed after the end is nobody's"


async def test_a_store_is_served_while_an_earlier_process_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupkeeper.storage.event_log.sealing.storage.RETRY_S", 0.05)
    lock = FileLock(tmp_path / "store.db.sealing")
    settings = SealSettings(directory=tmp_path / "log", segment_bytes=1)
    storage = sealed(tmp_path, settings)
    owner = await Owner(storage).start()
    await owner.append(0, [commit("g", 1)])
    await until(lambda: storage.sealing_failures >= 1)
    assert storage.stats()["sealed_seq"] == 0
    lock.release()
    await until(lambda: storage.stats()["sealed_seq"] == 1)
    await storage.close()


def test_signals_meant_for_the_daemon_do_not_end_it(sealing: SealingProcess) -> None:
    sealing.settle()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pid_of(sealing), number)
    sealing.step()  # it still answers
    assert is_alive(pid_of(sealing))


def test_it_ends_with_its_daemon(sealing: SealingProcess) -> None:
    sealing.settle()
    pid = pid_of(sealing)
    assert is_alive(pid)
    sealing.close()
    assert not is_alive(pid)


def test_one_that_has_not_noticed_yet_is_waited_for(
    sealing: SealingProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = FileLock(tmp_path / "store.db.sealing")
    monkeypatch.setattr("groupkeeper.storage.event_log.sealing.process.LOCK_S", 0.0)
    answers = io.BytesIO()
    serve(rows_of, iter([_encode(sealing._task), b'{"call":"settle"}']), answers)
    assert b"the process that sealed for the last daemon still holds" in answers.getvalue()
    lock.release()
    assert sealing.settle().lost is None


async def test_a_store_goes_on_when_the_process_is_killed(tmp_path: Path) -> None:
    settings = SealSettings(directory=tmp_path / "log", segment_bytes=1)
    storage = sealed(tmp_path, settings)
    owner = await Owner(storage).start()
    await owner.append(0, [commit("g", 1)])
    await until(lambda: storage.stats()["sealed_seq"] == 1)
    (child,) = children()
    os.kill(child, signal.SIGKILL)
    await until(lambda: storage.sealing_failures == 1)
    await owner.append(0, [commit("g", 2)])  # nobody who commits is touched
    await storage.close()
    again = sealed(tmp_path, settings)
    await Owner(again).start()
    await until(lambda: again.stats()["sealed_seq"] == 2)
    await again.close()
    assert children() == []
    assert verify(tmp_path / "log", reads_events=True).is_sound


def sealers() -> list[threading.Thread]:
    """The threads that ask such processes."""
    return [thread for thread in threading.enumerate() if thread.name == "log-sealer"]


def children() -> list[int]:
    """The processes that seal for this one."""
    command = COMMAND[-1].encode()
    while True:
        threads = Path("/proc/self/task").iterdir()
        try:
            pids = [pid for thread in threads for pid in (thread / "children").read_text().split()]
            return [
                int(pid) for pid in pids if command in Path(f"/proc/{pid}/cmdline").read_bytes()
            ]
        except (FileNotFoundError, ProcessLookupError):  # a thread or a process ended meanwhile
            continue


def test_it_finds_its_modules_where_the_daemon_did(tmp_path: Path) -> None:
    """Not in the current directory, though another package of that name may be there."""
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "__init__.py").write_text("raise SystemExit('not mine')")
    where = Path.cwd()
    store = SealedStore(tmp_path)
    asyncio.run(_open_and_close(store))
    os.chdir(tmp_path)
    try:
        process = SealingProcess(address_of(store), SealSettings(directory=store.log_dir))
        process.settle()
        process.close()
    finally:
        os.chdir(where)
    assert COMMAND[1:] == ("-m", "groupkeeper.storage.seal")


async def _open_and_close(store: SealedStore) -> None:
    await (await store.owner()).storage.close()


def test_retention_may_take_longer_than_any_other_order() -> None:
    """It reads a whole day, which may be gigabytes."""
    others = [seconds for order, seconds in ANSWER_S.items() if order != "retain"]
    assert ANSWER_S["retain"] >= 60 * max(others)
