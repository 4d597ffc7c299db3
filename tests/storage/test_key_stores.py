"""Stores of keys and values, in a real ZooKeeper and a real Consul: failures, names and sizes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from groupkeeper.coordinator.core.events import GroupCreated
from groupkeeper.coordinator.core.records import GroupConfigs, GroupRemoved, TopicRecord
from groupkeeper.storage.base import StoreBusy, StoreRefused
from tests.helpers.core.records import TOPIC_ID, commit, group_record
from tests.helpers.storage.consul_site import ConsulSite
from tests.helpers.storage.cut_proxy import CutProxy
from tests.helpers.storage.late_appends import TTL_MS, late_append, offset_after_load
from tests.helpers.storage.storage_owner import IDENTITY
from tests.helpers.storage.zookeeper_site import ZooKeeperSite

Site = ZooKeeperSite | ConsulSite
SITES: dict[str, Any] = {"zookeeper": ZooKeeperSite, "consul": ConsulSite}

NAMES = [
    *("", ".", "..", "a/b", "/", "\0", "a\0b", "%", "%00", "%2E", "é\U0001f600", "\ue000"),
    "x" * 32_767,
    "\0" * 32_767,
]


@pytest.fixture(params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in SITES])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    site: Site = SITES[request.param](request.getfixturevalue(request.param))
    yield site
    for owner in site.owners:
        await owner.storage.close()


@pytest.fixture
async def proxy(site: Site) -> AsyncIterator[CutProxy]:
    proxy = CutProxy(site.server.port)
    await proxy.start()
    yield proxy
    proxy.heal()
    for owner in site.owners:
        await owner.storage.close()
    await proxy.stop()


async def test_each_request_is_counted(site: Site) -> None:
    owner = await site.owner()
    for offset in range(5):
        await owner.append(0, [commit("g", offset), commit("h", offset)])
    await owner.fold_all()
    before = owner.storage.stats()
    assert before["round_trips.append"] == 5
    for _ in range(5):
        await owner.append(0, [commit(f"g{number}", 1) for number in range(100)])
    await owner.append(0, [commit("large", 1, partitions=2_000, metadata="m" * 400)])
    await owner.fold_all()
    stats = owner.storage.stats()
    folds = stats["round_trips.fold"] - before["round_trips.fold"]
    requests = 1_000_000 // site.part_bytes
    assert folds > requests  # a value in parts needs one for each part


async def test_an_append_whose_connection_breaks_is_stored_once(
    site: Site, proxy: CutProxy
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


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed(site: Site) -> None:
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
    site: Site,
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


async def test_a_server_that_is_not_there_can_be_tried_again(site: Site) -> None:
    with pytest.raises(StoreBusy, match="no answer from the server"):
        await site.storage(port=1, timeout_ms=500).open(IDENTITY)


async def test_a_fold_may_take_longer_than_an_append(site: Site, proxy: CutProxy) -> None:
    owner = await site.owner(port=proxy.port, timeout_ms=500)
    await owner.append(0, [commit("g", 1)])
    await owner.fold_all()
    for offset in range(2, 20):
        await owner.append(0, [commit("g", offset)])  # its own fold may be quicker than the cut
        proxy.cut("back")
        folding = asyncio.ensure_future(owner.fold_all())
        await asyncio.sleep(0.8)
        if owner.storage.unfolded():
            break
        proxy.heal()
        await folding
    assert not folding.done()
    assert owner.storage.stats()["fold_failures"] == 0
    proxy.heal()
    await folding
    assert not owner.storage.unfolded()


async def test_every_name_comes_back_from_the_journal_and_from_its_value(
    site: Site,
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
    assert len(await site.groups(1)) == len(NAMES)
    for name in NAMES:
        await again.append(1, [GroupRemoved(name)])
        await again.append(-1, [GroupConfigs(name, {})])
    await again.fold_all()
    assert await site.groups(1) == []
    assert await site.keyed(-1) == []


async def test_ordinary_names_are_readable(site: Site) -> None:
    owner = await site.owner()
    await owner.append(0, [group_record("billing"), commit("billing", 42)])
    await owner.append(-1, [TopicRecord("orders", TOPIC_ID, 12)])
    await owner.fold_all()
    assert await site.groups(0) == ["billing"]
    assert await site.keyed(-1) == ["topic%2Forders"]
    data = await site.value_of("groups/0/billing")
    assert b'"offsets":{"orders":{"0":[42,' in data


async def test_a_large_group_is_in_parts_that_go_with_it(site: Site) -> None:
    owner = await site.owner()
    big, small = commit("g", 5, metadata="x" * 3_000_000), commit("g", 6)
    await owner.append(0, [big])
    await owner.fold_all()
    assert len(await site.parts()) == 3_000_000 // site.part_bytes + 1
    assert (await owner.read()).keys == owner.model.keys
    await owner.append(0, [big])
    await owner.fold_all()
    assert len(await site.parts()) == 3_000_000 // site.part_bytes + 1
    await owner.append(0, [small])
    await owner.fold_all()
    assert await site.parts() == []
    await owner.append(0, [big])
    await owner.fold_all()
    await owner.append(0, [GroupRemoved("g")])
    await owner.fold_all()
    assert await site.groups(0) == []


async def test_an_append_larger_than_a_request_is_stored_whole_before_the_next_load(
    site: Site,
) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("g", 5, metadata="x" * 3_000_000)])
    (life,) = await site.journals()
    await site.end_life()
    assert await offset_after_load(owner) == 5
    assert life not in await site.journals()


async def test_an_append_that_ended_between_its_parts_does_not_hold_up_the_next_start(
    site: Site,
) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("g", 1)])
    (life,) = await site.journals()
    await site.put_part(life, row=2, part=1)
    await site.end_life()  # as if it was killed
    again = await site.owner(2)
    assert again.model.keys == owner.model.keys
    assert await site.entries(life) == []


async def test_a_group_of_ten_thousand_partitions(site: Site) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("g", 5, partitions=10_000)])
    await owner.append(-1, [TopicRecord("orders", TOPIC_ID, 10_000)])
    await owner.fold_all()
    wanted = owner.model.keys
    await owner.reload()
    assert owner.model.keys == wanted


async def test_a_value_that_cannot_be_read_is_named(site: Site) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("good", 1)])
    await owner.append(1, [commit("bad", 1)])
    await owner.fold_all()
    await site.set_value("groups/1/bad", b"{")
    with pytest.raises(StoreRefused, match="the value of group 'bad' cannot be read"):
        await owner.read()
    assert ("group", 0, "good") in (await owner.read([0])).keys


async def test_events_leave_the_journal_for_chunks(site: Site) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("a", 1)], [GroupCreated(group_id="a")])
    await owner.append(0, [commit("b", 1)])
    await owner.fold_all()
    assert len(await site.chunks()) == 1
    (life,) = await site.journals()
    assert await site.entries(life) == []
    await owner.append(0, [commit("a", 2)])
    events = [event async for event in owner.storage.history("a")]
    assert [(event["seq"], event["kind"]) for event in events] == [
        (1, "group_created"),
        (2, "commit"),
        (4, "commit"),
    ]
