"""The check of a store that several processes share."""

from __future__ import annotations

import asyncio
import copy

import pytest

from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.leases.lives import NodeLife
from groupkeeper.storage.tools.check import check_journal
from groupkeeper.storage.tools.repair import repair
from tests.helpers.core.records import commit, group_record
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.storage.fake_driver import DriverWithLeftovers, FakeDriver, FakeServer
from tests.helpers.storage.storage_owner import IDENTITY, Owner


def virtual_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)


def a_storage(server: FakeServer) -> JournalStorage:
    return JournalStorage(FakeDriver(server), node_id=1, name="host:1", lease_ttl_ms=2_000)


@virtual_time
async def test_a_check_reads_every_value_and_says_who_uses_the_store() -> None:
    server = FakeServer()
    owner = await Owner(a_storage(server)).start()
    await owner.append(0, [group_record("g"), commit("g", 1, partitions=5)])
    await owner.append(1, [commit("bad", 1)])
    await owner.fold_all()
    server.values[1, True, "bad"] = b"{"
    report = await check_journal(
        FakeDriver(server), IDENTITY, lease_ttl_ms=2_000, measures_writes=True, timer_ms=virtual_ms
    )
    assert (report.used_by, report.write_ms) == ("node 1 (host:1)", None)
    assert (report.groups, report.offsets, report.largest_group) == (1, 5, "g")
    (problem,) = report.problems
    assert "the value of group 'bad' cannot be read" in problem
    assert "shard 1 stays LOADING" in problem
    await owner.storage.close()


@virtual_time
async def test_writes_are_measured_only_if_they_are_asked_for_and_nobody_uses_the_store() -> None:
    server = FakeServer()
    assert (await check_journal(FakeDriver(server), IDENTITY, lease_ttl_ms=2_000)).write_ms is None
    report = await check_journal(
        FakeDriver(server), IDENTITY, lease_ttl_ms=2_000, measures_writes=True, timer_ms=virtual_ms
    )
    assert report.write_ms is not None
    assert not server.going_on()
    owner = await Owner(a_storage(server)).start()
    await owner.append(0, [commit("g", 1)])
    await owner.storage.close()


async def mend(driver: FakeDriver, *, applies: bool) -> list[str]:
    return await repair(driver, IDENTITY, applies=applies, lease_ttl_ms=2_000, timer_ms=virtual_ms)


@virtual_time
async def test_a_check_that_was_killed_is_repeated_without_a_daemon() -> None:
    """Nobody ended the life of the killed check."""
    server = FakeServer()
    await (await Owner(a_storage(server)).start()).storage.close()
    await begin_and_die(server)
    report = await check_journal(
        FakeDriver(server), IDENTITY, lease_ttl_ms=2_000, measures_writes=True, timer_ms=virtual_ms
    )
    assert report.used_by == ""
    assert report.write_ms is not None
    assert not server.going_on()


async def begin_and_die(server: FakeServer) -> None:
    driver = FakeDriver(server)
    await driver.open(IDENTITY)
    await driver.begin_life(NodeLife(0, "check-killed", "groupkeeper storage check", 0))


@virtual_time
async def test_a_repair_that_was_killed_is_repeated_without_a_daemon() -> None:
    server = FakeServer()
    await (await Owner(a_storage(server)).start()).storage.close()
    await begin_and_die(server)
    server.leftovers.append("a leftover")
    told = ["the life of groupkeeper storage check, which was killed", "a leftover"]
    assert await mend(DriverWithLeftovers(server), applies=False) == told
    assert [life.life_id for life in server.going_on()] == ["check-killed"]
    assert await mend(DriverWithLeftovers(server), applies=True) == told
    assert not server.going_on()
    assert await mend(DriverWithLeftovers(server), applies=False) == []


@virtual_time
async def test_a_repair_after_the_kill_of_a_daemon_applies_its_journal() -> None:
    server = FakeServer()
    storage = JournalStorage(
        FakeDriver(server), node_id=1, name="host:1", lease_ttl_ms=2_000, timer_ms=virtual_ms
    )
    owner = await Owner(storage).start()
    await owner.append(0, [commit("g", 1)])
    (life,) = server.going_on()
    entries = len(server.lives[life.life_id].entries)
    assert entries
    killed = copy.deepcopy(server)  # what the daemon leaves if it is killed now
    await owner.storage.close()
    told = [
        "the life of host:1, which was killed",
        f"appends of the ended life {life.life_id} that are not folded: {entries}",
    ]
    for applies in (False, True):
        assert await mend(FakeDriver(killed), applies=applies) == told
    assert not killed.going_on()
    again = await Owner(a_storage(killed)).start()
    assert again.model.keys == owner.model.keys
    await again.storage.close()


@virtual_time
async def test_a_repair_first_only_tells_what_it_would_do() -> None:
    server = FakeServer()
    owner = await Owner(a_storage(server)).start()
    await owner.append(0, [commit("g", 1)])
    await owner.fold_all()
    await asyncio.sleep(1)
    await owner.append(0, [commit("g", 2)])  # begins a fold
    await owner.append(0, [commit("g", 3)])
    with pytest.raises(StoreRefused, match=r"in use by node 1 \(host:1\): stop it first"):
        await mend(FakeDriver(server), applies=True)
    await owner.storage.close()
    (life,) = server.lives
    server.leftovers.append("a leftover")
    entries = len(server.lives[life].entries)
    assert entries
    told = [f"appends of the ended life {life} that are not folded: {entries}", "a leftover"]
    for applies in (False, True):
        driver = DriverWithLeftovers(server)
        assert await mend(driver, applies=applies) == told
        assert bool(server.lives[life].entries) is not applies
        assert not server.going_on()
    driver = DriverWithLeftovers(server)
    assert await mend(driver, applies=False) == []
    again = await Owner(a_storage(server)).start()
    assert again.model.keys == owner.model.keys
    await again.storage.close()
