"""The bound of a journal whose folds fail: appends are refused until it is folded."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.storage.backends.journal import life_journal
from groupkeeper.storage.backends.journal.life_journal import FOLD_EVERY_MS
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.base import StorageError
from tests.helpers.runtime.coordinator import World, a_world
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.storage.fake_driver import FakeDriver, FakeServer
from tests.helpers.storage.storage_owner import Owner
from tests.storage.test_journal_size import BIG, ENTRY_BYTES, HeldFolds, an_owner, appending, turns


class FailingFolds(HeldFolds):
    """Folds that fail while ``error`` is set."""

    error = ""

    async def __call__(self, call: str, is_done: bool) -> None:
        await super().__call__(call, is_done)
        if call == "fold" and not is_done and self.error:
            raise StorageError(self.error)


@pytest.fixture(params=["bytes", "requests"])
def entry_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The size of entries with which a dozen of appends reach the bound of a journal."""
    if request.param == "bytes":
        return ENTRY_BYTES
    monkeypatch.setattr(life_journal, "MAX_JOURNAL_REQUESTS", 3)
    monkeypatch.setattr(life_journal, "MOST_JOURNAL_REQUESTS", 8)
    return 1_000_000


async def append_until_refused(owner: Owner, held: FailingFolds) -> int:
    """Append while folds fail. Return how many appends succeeded."""
    held.error = "permission denied for table groups"
    done = 0
    while owner.storage.stats()["journal_beyond_bound"] == 0:
        append = appending(owner, 0, done + 1, BIG)
        await asyncio.wait([append])
        done += 1
        assert done < 20, "the journal has no bound"
    with pytest.raises(StorageError, match=f"could not be folded.*: {held.error}"):
        append.result()
    return done - 1


@virtual_time
async def test_a_journal_that_cannot_be_folded_stops_to_grow(entry_bytes: int) -> None:
    server, held = FakeServer(), FailingFolds()
    owner = await an_owner(server, held, entry_bytes)
    done = await append_until_refused(owner, held)
    assert done >= 4, "a full journal refuses nothing yet"
    assert owner.storage.stats()["journal_beyond_bound"] == 1
    failures = owner.storage.stats()["fold_failures"]
    for _ in range(5):  # as the runtime, which acquires and loads again
        with pytest.raises(StorageError, match=f"nothing can be written: {held.error}"):
            await owner.reload()
    assert sum(len(each.entries) for each in server.lives.values()) == done
    assert len(server.going_on()) == 1
    assert len(server.lives) == 2, "each try began a life"
    held.error = ""
    await owner.reload()
    assert owner.model.keys["offset", 0, "g", "orders", 0][0] == done, "a commit is lost"
    stats = owner.storage.stats()
    assert (stats["journal_beyond_bound"], stats["unfolded"], stats["journal_bytes"]) == (0, 0, 0)
    assert stats["fold_failures"] == failures > 0, "a counter fell with the new life"
    assert not await appending(owner, 0, done + 1)
    await owner.storage.close()


@virtual_time
async def test_a_start_that_cannot_fold_ends_its_life(entry_bytes: int) -> None:
    """Otherwise the next start would wait until this life counts as dead."""
    server, held = FakeServer(), FailingFolds()
    killed = await an_owner(server, held, entry_bytes)
    done = await append_until_refused(killed, held)
    (life,) = server.going_on()
    server.lives[life.life_id].is_over = True
    with pytest.raises(StorageError, match=held.error):
        await an_owner(server, held, entry_bytes)
    assert server.going_on() == []
    held.error = ""
    owner = await an_owner(server, held, entry_bytes)
    assert owner.model.keys["offset", 0, "g", "orders", 0][0] == done
    await owner.storage.close()
    await killed.storage.close()


@virtual_time
async def test_a_life_that_ends_while_it_folds_is_replaced(entry_bytes: int) -> None:
    """Another process ended it between two tries."""
    server, held = FakeServer(), FailingFolds()
    owner = await an_owner(server, held, entry_bytes)
    done = await append_until_refused(owner, held)
    with pytest.raises(StorageError, match=held.error):
        await owner.reload()
    (life,) = server.going_on()
    server.lives[life.life_id].is_over = True
    held.error = ""
    with pytest.raises(StorageError, match="has ended"):
        await owner.reload()
    await owner.reload()
    assert owner.model.keys["offset", 0, "g", "orders", 0][0] == done
    await owner.storage.close()


@virtual_time
async def test_folds_that_fail_are_not_tried_with_each_append() -> None:
    server, held = FakeServer(), FailingFolds()
    owner = await an_owner(server, held, ENTRY_BYTES)
    held.error = "permission denied for table groups"
    for offset in range(1, 9):
        await appending(owner, 0, offset, BIG)
        await turns()
    assert held.folds == 1
    await asyncio.sleep(FOLD_EVERY_MS / 1000)
    await appending(owner, 0, 9)
    await turns()
    assert held.folds == 2
    await owner.storage.close()


RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


async def commits_for_two_minutes(world: World, members: list[str], first: int) -> int:
    """Let each member heartbeat, and one commit, every two seconds. Return the last offset that was
    acknowledged.
    """
    last = first - 1
    for offset in range(first, first + 60):
        beats = [world.heartbeat(member_id=member) for member in members]
        commit = world.commit(offset=offset, member_id=members[0], generation_id=1)
        await world.until(commit, *beats)
        assert {beat.error for beat in beats} == {ErrorCode.NONE}
        assert commit.error in {ErrorCode.NONE, *RETRIABLE}
        last = last if commit.error else offset
        await asyncio.sleep(2)
    return last


@virtual_time
async def test_members_stay_while_a_journal_is_beyond_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(life_journal, "MAX_JOURNAL_REQUESTS", 3)
    monkeypatch.setattr(life_journal, "MOST_JOURNAL_REQUESTS", 8)
    server, held = FakeServer(), FailingFolds()
    loop = asyncio.get_running_loop()
    storage = JournalStorage(
        FakeDriver(server, held),
        node_id=1,
        name="host:1",
        lease_ttl_ms=2_000,
        timer_ms=lambda: round(loop.time() * 1000),
    )
    async with a_world(storage) as world:
        members = await world.a_stable_group()
        held.error = "permission denied for table groups"
        with capture_logs() as lines:
            last = await commits_for_two_minutes(world, members, 1)
        assert 0 < last < 10
        assert held.error in str(world.coordinator.not_ready)
        events = [line["event"] for line in lines]
        assert events.count("journal_beyond_bound") == 1
        held.error = ""
        await world.until_ready()
        fetched = world.fetch()
        await world.until(fetched)
        assert fetched.offsets() == {("orders", 0): last}, "a commit is lost"
        assert await commits_for_two_minutes(world, members, 100) == 159
