"""A store in a real ZooKeeper: fencing, failures of the server, names, and what people see."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError

from groupkeeper.coordinator.core.events import GroupCreated
from groupkeeper.coordinator.core.records import GroupConfigs, GroupRemoved, TopicRecord
from groupkeeper.storage.backends.zookeeper.values import VALUE_PART_BYTES
from groupkeeper.storage.base import StorageError, StoreBusy, StoreRefused
from groupkeeper.storage.store_repair import repair
from tests.helpers.clients.real_zookeeper import RealZooKeeper
from tests.helpers.core.records import TOPIC_ID, commit, group_record
from tests.helpers.storage.cut_proxy import CutProxy
from tests.helpers.storage.late_appends import TTL_MS, late_append, offset_after_load
from tests.helpers.storage.storage_owner import IDENTITY
from tests.helpers.storage.zookeeper_site import ZooKeeperSite

pytestmark = pytest.mark.zookeeper

NAMES = [
    *("", ".", "..", "a/b", "/", "\0", "a\0b", "%", "%00", "%2E", "é\U0001f600", "\ue000"),
    "x" * 32_767,
    "\0" * 32_767,
]


@pytest.fixture
async def site(zookeeper: RealZooKeeper) -> AsyncIterator[ZooKeeperSite]:
    site = ZooKeeperSite(zookeeper)
    yield site
    for owner in site.owners:
        await owner.storage.close()


@pytest.fixture
async def proxy(site: ZooKeeperSite) -> AsyncIterator[CutProxy]:
    proxy = CutProxy(site.server.port)
    await proxy.start()
    yield proxy
    proxy.heal()
    for owner in site.owners:
        await owner.storage.close()
    await proxy.stop()


# --- the end of a life beside an append -----------------------------------------------------------


async def test_an_append_whose_connection_breaks_is_stored_once(
    site: ZooKeeperSite, proxy: CutProxy
) -> None:
    owner = await site.owner(port=proxy.port)
    await owner.append(0, [commit("g", 1)])
    proxy.cut("back")
    late = late_append(owner)
    await asyncio.sleep(0.1)
    proxy.break_all()
    proxy.heal()
    assert not await late
    await owner.append(0, [commit("g", 3)])
    assert await offset_after_load(owner) == 3
    seqs = [event["seq"] async for event in owner.storage.history("g")]
    assert seqs == sorted(set(seqs))


# --- a server in trouble --------------------------------------------------------------------------


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed(site: ZooKeeperSite) -> None:
    owner = await site.owner(timeout_ms=2_000)
    acknowledged = 0
    for round_ in range(2):
        asyncio.get_running_loop().call_later(0.05, site.server.stop)
        try:
            while True:
                await owner.append(0, [commit("g", acknowledged + 1)])
                acknowledged += 1
        except StoreBusy:
            pass
        await asyncio.to_thread(site.server.start)
        found = await offset_after_load(owner) or 0
        assert acknowledged <= found <= acknowledged + 1, round_
        acknowledged = found


async def test_a_server_that_stands_still_ends_the_reads_and_loses_nothing(
    site: ZooKeeperSite,
) -> None:
    owner = await site.owner(timeout_ms=500)
    await owner.append(0, [commit("g", 1)])
    os.kill(site.server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreBusy):
            await late_append(owner)
        await asyncio.sleep(TTL_MS / 1000)
        assert owner.storage.read_time_left_ms() == 0
    finally:
        os.kill(site.server.pid, signal.SIGCONT)
    await asyncio.sleep(0.2)
    assert await offset_after_load(owner) in (1, 2)
    await owner.append(0, [commit("g", 3)])
    assert await offset_after_load(owner) == 3


async def test_a_server_that_is_not_there_can_be_tried_again(site: ZooKeeperSite) -> None:
    with pytest.raises(StoreBusy, match="no answer from the server"):
        await site.storage(port=1, timeout_ms=500).open(IDENTITY)


async def test_a_node_of_another_program_is_refused(site: ZooKeeperSite) -> None:
    await site.ask(lambda client: client.create(site.root, b"mine", makepath=True))
    with pytest.raises(StorageError, match="the identity of the store cannot be read"):
        await site.storage().open(IDENTITY)


async def test_a_fold_may_take_longer_than_an_append(site: ZooKeeperSite, proxy: CutProxy) -> None:
    owner = await site.owner(port=proxy.port, timeout_ms=500)
    await owner.append(0, [commit("g", 1)])
    await owner.fold_all()
    await asyncio.sleep(0.3)  # so that the next append begins a fold
    await owner.append(0, [commit("g", 2)])
    proxy.cut("back")
    await asyncio.sleep(0.8)
    assert owner.storage.unfolded()
    proxy.heal()
    async with asyncio.timeout(10):
        while owner.storage.unfolded():  # noqa: ASYNC110 - nothing begins another fold
            await asyncio.sleep(0.02)


# --- names, sizes and rights ----------------------------------------------------------------------


async def test_every_name_comes_back_from_the_journal_and_from_its_value(
    site: ZooKeeperSite,
) -> None:
    owner = await site.owner()
    for name in NAMES:
        await owner.append(1, [commit(name, 7), group_record(name)])
        await owner.append(-1, [GroupConfigs(name, {"a": "1"})])
    wanted = owner.model.keys
    await owner.reload()
    assert owner.model.keys == wanted
    await owner.fold_all()
    await owner.storage.close()
    again = await site.owner()
    assert again.model.keys == wanted
    assert len(await site.below("groups/1")) == len(NAMES)
    for name in NAMES:
        await again.append(1, [GroupRemoved(name)])
        await again.append(-1, [GroupConfigs(name, {})])
    await again.fold_all()
    assert await site.below("groups/1") == []
    assert await site.below("keyed/-1") == []


async def test_ordinary_names_are_readable(site: ZooKeeperSite) -> None:
    owner = await site.owner()
    await owner.append(0, [group_record("billing"), commit("billing", 42)])
    await owner.append(-1, [TopicRecord("orders", TOPIC_ID, 12)])
    await owner.fold_all()
    assert await site.below("groups/0") == ["billing"]
    assert await site.below("keyed/-1") == ["topic%2Forders"]
    data = await site.ask(lambda client: client.get(f"{site.root}/groups/0/billing")[0])
    assert b'"offsets":{"orders":{"0":[42,' in data


async def test_a_large_group_is_in_parts_that_go_with_it(site: ZooKeeperSite) -> None:
    owner = await site.owner()
    big, small = commit("g", 5, metadata="x" * 3_000_000), commit("g", 6)
    await owner.append(0, [big])
    await owner.fold_all()
    assert len(await site.below("groups/0/g")) == 3_000_000 // VALUE_PART_BYTES + 1
    assert (await owner.read()).keys == owner.model.keys
    await owner.append(0, [big])
    await owner.fold_all()
    assert len(await site.below("groups/0/g")) == 3_000_000 // VALUE_PART_BYTES + 1
    await owner.append(0, [small])
    await owner.fold_all()
    assert await site.below("groups/0/g") == []
    await owner.append(0, [big])
    await owner.fold_all()
    await owner.append(0, [GroupRemoved("g")])
    await owner.fold_all()
    assert await site.below("groups/0") == []


async def test_a_repair_removes_what_interrupted_writes_left_and_nothing_else(
    site: ZooKeeperSite,
) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("big", 5, metadata="x" * 3_000_000), commit("small", 1)])
    await owner.fold_all()
    wanted = owner.model.keys
    with pytest.raises(StoreRefused, match="is in use by node 1"):
        await repair(site.driver(), IDENTITY, applies=False, lease_ttl_ms=TTL_MS)
    await owner.storage.close()
    groups = f"{site.root}/groups/0"
    valid = await site.below("groups/0/big")
    old = "0" * 32

    def interrupt(client: Any) -> None:
        client.create(f"{groups}/big/{old}.0", b"x")
        client.create(f"{groups}/big/{valid[0].partition('.')[0]}.{len(valid)}", b"x")
        client.create(f"{groups}/small/{old}.0", b"x")
        client.create(f"{groups}/new", f"parts {old} 0".encode())
        client.create(f"{groups}/new/{old}.0", b"x")
        client.create(f"{groups}/odd", b"parts of something else")
        client.create(f"{groups}/odd/child", b"x")

    await site.ask(interrupt)
    for applies in (False, True):
        found = await repair(site.driver(), IDENTITY, applies=applies, lease_ttl_ms=TTL_MS)
        assert sorted(line.removeprefix(groups) for line in found) == [
            "/big: parts of replaced values: 2",
            "/new: has no value, its first write was interrupted",
            "/small: parts of replaced values: 1",
        ]
    assert await site.below("groups/0") == ["big", "odd", "small"]
    assert await site.below("groups/0/big") == valid
    assert await site.below("groups/0/odd") == ["child"]
    assert await repair(site.driver(), IDENTITY, applies=False, lease_ttl_ms=TTL_MS) == []
    await site.ask(lambda client: client.delete(f"{groups}/odd", recursive=True))
    assert (await site.owner()).model.keys == wanted


async def test_an_append_larger_than_a_request_is_stored_whole_before_the_next_load(
    site: ZooKeeperSite,
) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("g", 5, metadata="x" * 3_000_000)])
    (life,) = await site.below("lives")
    await site.end_life()
    assert await offset_after_load(owner) == 5
    assert life not in await site.below("lives")


async def test_a_group_of_ten_thousand_partitions(site: ZooKeeperSite) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("g", 5, partitions=10_000)])
    await owner.append(-1, [TopicRecord("orders", TOPIC_ID, 10_000)])
    await owner.fold_all()
    wanted = owner.model.keys
    await owner.reload()
    assert owner.model.keys == wanted


async def test_a_value_that_cannot_be_read_is_named(site: ZooKeeperSite) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("good", 1)])
    await owner.append(1, [commit("bad", 1)])
    await owner.fold_all()
    await site.ask(lambda client: client.set(f"{site.root}/groups/1/bad", b"{"))
    with pytest.raises(StoreRefused, match="the value of group 'bad' cannot be read"):
        await owner.read()
    assert ("group", 0, "good") in (await owner.read([0])).keys


async def test_nodes_of_a_user_are_closed_to_others(site: ZooKeeperSite) -> None:
    site.user = "me:secret@"
    owner = await site.owner()
    await owner.append(0, [commit("g", 1)])
    await owner.fold_all()
    with pytest.raises(NoAuthError):
        await site.ask(lambda client: client.get(f"{site.root}/groups/0/g"))
    await owner.storage.close()
    site.user = "another:secret@"
    with pytest.raises(StoreRefused, match="the access list does not allow this"):
        await site.storage().open(IDENTITY)


# --- events ---------------------------------------------------------------------------------------


async def test_events_leave_the_journal_for_chunks(site: ZooKeeperSite) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("a", 1)], [GroupCreated(group_id="a")])
    await owner.append(0, [commit("b", 1)])
    await owner.fold_all()
    assert len(await site.below("events")) == 1
    (life,) = await site.below("lives")
    assert await site.below(f"lives/{life}") == []
    await owner.append(0, [commit("a", 2)])
    events = [event async for event in owner.storage.history("a")]
    assert [(event["seq"], event["kind"]) for event in events] == [
        (1, "group_created"),
        (2, "commit"),
        (4, "commit"),
    ]
