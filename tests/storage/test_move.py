"""Groups that move from one store to another."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from groupkeeper.coordinator.core.records import GroupConfigs, SavedGroup, TopicRecord
from groupkeeper.storage.backends.journal.read_store import NodeLogs
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import StorageError, StoreRefused
from groupkeeper.storage.event_log.reader import read_events
from groupkeeper.storage.event_log.segments import read_segment, segment_names
from groupkeeper.storage.leases.lives import NodeLife
from groupkeeper.storage.tools.by_url import move_store
from groupkeeper.storage.tools.kept_events import KeptEvents, keep_events
from groupkeeper.storage.tools.move import Moved, move
from groupkeeper.storage.tools.move_targets import journal_target, storage_target
from tests.helpers.core.records import TOPIC_ID, commit, group_record
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.storage.fake_driver import FakeDriver, FakeServer
from tests.helpers.storage.storage_owner import IDENTITY, Owner
from tests.storage.conftest import Store
from tests.storage.test_contract import EVERY_KIND_OF_RECORD

TTL_MS = 2_000


async def a_source(path: Path) -> dict[Any, Any]:
    """Make a file with some groups. Return what it has."""
    owner = await Owner(SqliteOffsetStorage(path)).start()
    for name in ("", "a/b", "\0", "x" * 40):
        await owner.append(1, [group_record(name), commit(name, 7, partitions=30)])
    await owner.append(-1, [TopicRecord("orders", TOPIC_ID, 30), GroupConfigs("a/b", {"a": "1"})])
    await owner.storage.close()
    return owner.model.keys


async def run(path: Path, server: FakeServer, **fields: Any) -> Moved:
    driver = FakeDriver(server)
    opening = journal_target(driver, IDENTITY, TTL_MS)
    return await move(SqliteOffsetStorage(path), opening, IDENTITY, **fields)


async def a_target(server: FakeServer) -> Owner:
    storage = JournalStorage(FakeDriver(server), node_id=1, name="host:1", lease_ttl_ms=TTL_MS)
    return await Owner(storage).start()


async def test_everything_is_there_after_a_move_and_the_store_can_be_used(tmp_path: Path) -> None:
    wanted, server = await a_source(tmp_path / "a.db"), FakeServer()
    seen: list[tuple[int, int]] = []
    moved = await run(
        tmp_path / "a.db", server, progress=lambda done, all_: seen.append((done, all_))
    )
    assert (moved, seen) == (Moved(4, 6), [(6, 6)])
    owner = await a_target(server)
    assert owner.model.keys == wanted
    await owner.append(1, [commit("a/b", 8)])
    await owner.storage.close()


async def test_a_move_that_was_interrupted_writes_only_the_rest(tmp_path: Path) -> None:
    wanted, server = await a_source(tmp_path / "a.db"), FakeServer()
    await run(tmp_path / "a.db", server)
    for key in list(server.values)[:2]:
        del server.values[key]
    assert await run(tmp_path / "a.db", server) == Moved(4, 2)
    owner = await a_target(server)
    assert owner.model.keys == wanted
    await owner.storage.close()


def virtual_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)


async def a_virtual_source() -> JournalStorage:
    """Make a store in virtual time that has one group."""
    server = FakeServer()
    owner = await a_target(server)
    await owner.append(1, [commit("g", 1)])
    await owner.storage.close()
    return virtual_storage(FakeDriver(server))


def virtual_storage(driver: FakeDriver) -> JournalStorage:
    return JournalStorage(
        driver, node_id=1, name="host:1", lease_ttl_ms=TTL_MS, timer_ms=virtual_ms
    )


@virtual_time
async def test_a_move_that_was_killed_is_repeated_without_a_daemon_on_the_half_copy() -> None:
    """Nobody ended the life of the killed move, and no daemon may start on what it left."""
    server = FakeServer()
    killed = FakeDriver(server)
    await killed.open(IDENTITY)
    await killed.begin_life(NodeLife(0, "move-killed", "groupkeeper storage move", 0))
    opening = journal_target(FakeDriver(server), IDENTITY, TTL_MS, virtual_ms)
    assert await move(await a_virtual_source(), opening, IDENTITY) == Moved(1, 1)
    assert not server.going_on()


@virtual_time
async def test_a_move_waits_for_the_ttl_of_the_daemons_before_it_ends_a_life() -> None:
    server, ttl_ms = FakeServer(), 30_000
    storage = JournalStorage(
        FakeDriver(server), node_id=1, name="host:1", lease_ttl_ms=ttl_ms, timer_ms=virtual_ms
    )
    owner = await Owner(storage).start()
    opening = journal_target(FakeDriver(server), IDENTITY, ttl_ms, virtual_ms)
    with pytest.raises(StoreRefused, match=r"is in use by node 1 \(host:1\): stop it first"):
        await move(await a_virtual_source(), opening, IDENTITY)
    await owner.append(0, [commit("g", 1)])
    await owner.storage.close()


async def test_groups_of_the_target_are_not_overwritten(tmp_path: Path) -> None:
    await a_source(tmp_path / "a.db")
    server = FakeServer()
    owner = await a_target(server)
    await owner.append(0, [commit("mine", 1)])
    with pytest.raises(StoreRefused, match=r"is in use by node 1 \(host:1\)"):
        await run(tmp_path / "a.db", server)
    await owner.storage.close()
    with pytest.raises(StoreRefused, match="has 'mine', which the source does not have"):
        await run(tmp_path / "a.db", server)
    assert not server.going_on()


async def test_a_source_in_use_is_refused(tmp_path: Path) -> None:
    owner = await Owner(SqliteOffsetStorage(tmp_path / "a.db")).start()
    with pytest.raises(StoreRefused):
        await run(tmp_path / "a.db", FakeServer())
    await owner.storage.close()


async def test_no_process_can_use_the_source_during_the_copy(tmp_path: Path) -> None:
    """What it acknowledged would not be in the copy."""
    await a_source(tmp_path / "a.db")
    tries = []

    async def start_another(call: str, is_done: bool) -> None:
        if call == "fold" and not is_done:
            with pytest.raises(StoreRefused):
                await Owner(SqliteOffsetStorage(tmp_path / "a.db")).start()
            tries.append(call)

    target = journal_target(FakeDriver(FakeServer(), start_another), IDENTITY, TTL_MS)
    await move(SqliteOffsetStorage(tmp_path / "a.db"), target, IDENTITY)
    assert tries
    await (await Owner(SqliteOffsetStorage(tmp_path / "a.db")).start()).storage.close()


@virtual_time
async def test_a_source_that_another_process_took_during_the_copy_is_noticed() -> None:
    server, target = FakeServer(), FakeServer()
    owner = await a_target(server)
    await owner.append(1, [commit("g", 1)])
    await owner.storage.close()

    async def take(call: str, is_done: bool) -> None:
        if call == "fold" and not is_done:
            (life,) = server.going_on()
            server.lives[life.life_id].is_over = True
            await asyncio.sleep(TTL_MS / 1000)

    source = JournalStorage(FakeDriver(server), node_id=1, name="host:1", lease_ttl_ms=TTL_MS)
    opening = journal_target(FakeDriver(target, take), IDENTITY, TTL_MS)
    with pytest.raises(StorageError, match="another process has used the old store"):
        await move(source, opening, IDENTITY)


@virtual_time
@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_source_that_was_cut_off_counts_only_after_its_next_answer(
    comes_back: bool,
) -> None:
    """Another node ends the life and commits, and the move hears nothing of it."""
    server, target, is_cut = FakeServer(), FakeServer(), False
    owner = await a_target(server)
    await owner.append(1, [commit("g", 1)])
    await owner.storage.close()

    async def silent(call: str, is_done: bool) -> None:
        if is_cut:
            raise StorageError("the network is away")

    async def take(call: str, is_done: bool) -> None:
        nonlocal is_cut
        if call == "fold" and not is_done:
            is_cut = True
            (life,) = server.going_on()
            server.lives[life.life_id].is_over = True
            await asyncio.sleep(2 * TTL_MS / 1000)
            other = await a_target(server)
            await other.append(1, [commit("g", 2)])
            await other.storage.close()
            is_cut = not comes_back

    source = JournalStorage(
        FakeDriver(server, silent),
        node_id=1,
        name="host:1",
        lease_ttl_ms=TTL_MS,
        timer_ms=virtual_ms,
    )
    opening = journal_target(FakeDriver(target, take), IDENTITY, TTL_MS)
    words = "another process has used" if comes_back else "the old store does not answer"
    with pytest.raises(StorageError, match=words):
        await move(source, opening, IDENTITY)


class Suspended:
    """A move that is suspended at one of its calls, while a daemon uses the old store."""

    def __init__(self, server: FakeServer, stop_at: int) -> None:
        self.acknowledged: dict[Any, Any] = {}
        """What the daemon has at its end; nothing if the move has ended before."""
        self.is_late = False
        """True if the source had executed the last transaction of the move before."""
        self._server = server
        self._stop_at = stop_at
        self._calls = 0
        self._daemon: asyncio.Task[None] | None = None
        self._goes_on = asyncio.Event()
        self._goes_on.set()

    async def pause_source(self, call: str, is_done: bool) -> None:
        await self._pause(is_late=(call, is_done) == ("release", True) or call == "end_life")

    async def pause_target(self, call: str, is_done: bool) -> None:
        await self._pause(is_late=False)

    async def _pause(self, *, is_late: bool) -> None:
        self._calls += 1
        if self._calls == self._stop_at:
            self.is_late = is_late
            self._goes_on.clear()
            self._daemon = asyncio.create_task(self._use())
        await self._goes_on.wait()

    async def _use(self) -> None:
        try:
            daemon = await Owner(virtual_storage(FakeDriver(self._server))).start()
            await daemon.append(1, [commit("g", 2)])
            await daemon.storage.close()
            self.acknowledged = daemon.model.keys
        finally:
            self._goes_on.set()


@virtual_time
async def test_a_suspended_move_never_ends_well_without_what_a_daemon_acknowledged() -> None:
    """Before its load it may begin again, and copies it. After its load it fails, up to its last
    transaction on the source. What comes later is as after the end of the move.
    """
    outcomes: list[str] = []
    for stop_at in range(1, 1_000):
        server, target = FakeServer(), FakeServer()
        owner = await Owner(virtual_storage(FakeDriver(server))).start()
        await owner.append(1, [commit("g", 1)])
        await owner.storage.close()
        suspended = Suspended(server, stop_at)
        source = virtual_storage(FakeDriver(server, suspended.pause_source))
        driver = FakeDriver(target, suspended.pause_target)
        try:
            await move(source, journal_target(driver, IDENTITY, TTL_MS, virtual_ms), IDENTITY)
        except StorageError:
            outcomes.append("failed")
            continue
        if suspended.is_late or not suspended.acknowledged:
            break
        outcomes.append("copied")
        copy = await Owner(virtual_storage(FakeDriver(target))).start()
        assert copy.model.keys == suspended.acknowledged
        await copy.storage.close()
    assert suspended.is_late
    assert outcomes[0] == "copied"
    assert outcomes[-1] == "failed"


async def test_a_copy_that_differs_is_noticed(tmp_path: Path) -> None:
    await a_source(tmp_path / "a.db")
    server = FakeServer()

    async def damage(call: str, is_done: bool) -> None:
        if call == "fold" and is_done:
            server.values[1, True, "a/b"] = b"{}"

    with pytest.raises(StorageError, match="the copy differs from the source"):
        await move(
            SqliteOffsetStorage(tmp_path / "a.db"),
            journal_target(FakeDriver(server, damage), IDENTITY, TTL_MS),
            IDENTITY,
        )


async def test_the_events_of_a_store_on_a_server_are_written_into_files_once(
    tmp_path: Path,
) -> None:
    server = FakeServer()
    owner = await a_target(server)
    for offset in range(5):
        await owner.append(1, [commit("g", offset)])
    await owner.storage.close()
    open_rows = partial(NodeLogs(lambda: FakeDriver(server)).open_rows, 1)
    wanted = await asyncio.to_thread(lambda: [*read_events(open_rows)])
    for written in (5, 0):
        kept = await asyncio.to_thread(keep_events, open_rows, tmp_path / "log")
        assert kept == KeptEvents(tmp_path / "log", 5, written)
    (segment,) = segment_names(tmp_path / "log")
    assert [*read_segment(tmp_path / "log" / str(segment))] == wanted
    assert len(wanted) == 5


# --- every store as a source and as a target ------------------------------------------------------


async def fill(owner: Owner) -> None:
    """Write every kind of record, and a group of several pieces."""
    for shard, records in EVERY_KIND_OF_RECORD:
        await owner.append(shard, records)
    await owner.append(2, [commit("large", 5, partitions=8_000), group_record("large")])


async def test_everything_moves_out_of_a_store_into_a_file(store: Store, tmp_path: Path) -> None:
    owner = await store.owner()
    await fill(owner)
    await owner.storage.close()
    file = SqliteOffsetStorage(tmp_path / "target.db", fold_after=0)
    moved = await move(store.make(), storage_target(file, "file", IDENTITY), IDENTITY)
    assert moved.written > moved.groups
    copy = await Owner(SqliteOffsetStorage(tmp_path / "target.db")).start()
    assert copy.model.keys == owner.model.keys
    await copy.append(1, [commit("other", 9)])
    await copy.storage.close()


async def test_everything_moves_from_a_file_into_a_store(store: Store, tmp_path: Path) -> None:
    source = await Owner(SqliteOffsetStorage(tmp_path / "source.db")).start()
    await fill(source)
    await source.storage.close()

    async def run_once() -> Moved:
        file = SqliteOffsetStorage(tmp_path / "source.db")
        return await move(file, storage_target(store.make(), "store", IDENTITY), IDENTITY)

    assert (await run_once()).written > 0
    assert (await run_once()).written == 0
    owner = await store.owner()
    assert owner.model.keys == source.model.keys
    await owner.append(1, [commit("other", 9)])


async def test_a_move_into_a_file_that_was_interrupted_writes_only_the_rest(tmp_path: Path) -> None:
    wanted = await a_source(tmp_path / "a.db")
    part = await Owner(SqliteOffsetStorage(tmp_path / "b.db")).start()
    names = ("", "a/b")
    for name in names:
        await part.append(1, [group_record(name), commit(name, 7, partitions=30)])
    await part.append(1, [SavedGroup("x" * 40, None, {})])  # only the first piece was written
    await part.storage.close()
    # its file asks for groups of its log that this move does not write
    file = SqliteOffsetStorage(tmp_path / "b.db", fold_after=0)
    source = SqliteOffsetStorage(tmp_path / "a.db")
    assert await move(source, storage_target(file, "b", IDENTITY), IDENTITY) == Moved(4, 4)
    owner = await Owner(SqliteOffsetStorage(tmp_path / "b.db")).start()
    assert owner.model.keys == wanted
    await owner.storage.close()


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("sqlite:///{0}/none.db", "sqlite:///{0}/b.db", "none.db: there is no such file"),
        ("memory:", "sqlite:///{0}/b.db", "--from: memory: ends with its process"),
        ("sqlite:///{0}/a.db", "memory:", "--to: memory: ends with its process"),
        ("sqlite:///{0}/a.db", "sqlite:///{0}/a.db", "--to: is the store to move from"),
        ("sqlite:///{0}/a.db", "nothing://x", "--to: 'nothing://x' names no storage"),
    ],
)
async def test_urls_between_which_nothing_can_move_are_refused(
    tmp_path: Path, source: str, target: str, words: str
) -> None:
    await a_source(tmp_path / "a.db")
    with pytest.raises(StoreRefused, match=words):
        await move_store(
            source.format(tmp_path),
            target.format(tmp_path),
            IDENTITY,
            append_timeout_ms=1_000,
            lease_ttl_ms=2_000,
            progress=lambda done, all_: None,
        )
    assert not (tmp_path / "none.db").exists()  # nothing was created
