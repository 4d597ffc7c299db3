"""The check of a store that several processes share."""

from __future__ import annotations

import asyncio

import pytest

from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.tools.check import check_journal
from groupkeeper.storage.tools.repair import repair
from tests.helpers.core.records import commit, group_record
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.storage.fake_driver import DriverWithLeftovers, FakeDriver, FakeServer
from tests.helpers.storage.storage_owner import IDENTITY, Owner


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
    report = await check_journal(FakeDriver(server), IDENTITY, measures_writes=True)
    assert (report.used_by, report.write_ms) == ("node 1 (host:1)", None)
    assert (report.groups, report.offsets, report.largest_group) == (1, 5, "g")
    (problem,) = report.problems
    assert "the value of group 'bad' cannot be read" in problem
    assert "shard 1 stays LOADING" in problem
    await owner.storage.close()


@virtual_time
async def test_writes_are_measured_only_if_they_are_asked_for_and_nobody_uses_the_store() -> None:
    server = FakeServer()
    assert (await check_journal(FakeDriver(server), IDENTITY)).write_ms is None
    report = await check_journal(FakeDriver(server), IDENTITY, measures_writes=True)
    assert report.write_ms is not None
    assert not server.going_on()
    owner = await Owner(a_storage(server)).start()
    await owner.append(0, [commit("g", 1)])
    await owner.storage.close()


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
        await repair(FakeDriver(server), IDENTITY, applies=True, lease_ttl_ms=2_000)
    await owner.storage.close()
    (life,) = server.lives
    server.leftovers.append("a leftover")
    entries = len(server.lives[life].entries)
    assert entries
    told = [f"appends of the ended life {life} that are not folded: {entries}", "a leftover"]
    for applies in (False, True):
        driver = DriverWithLeftovers(server)
        assert await repair(driver, IDENTITY, applies=applies, lease_ttl_ms=2_000) == told
        assert bool(server.lives[life].entries) is not applies
        assert not server.going_on()
    driver = DriverWithLeftovers(server)
    assert await repair(driver, IDENTITY, applies=False, lease_ttl_ms=2_000) == []
    again = await Owner(a_storage(server)).start()
    assert again.model.keys == owner.model.keys
    await again.storage.close()
