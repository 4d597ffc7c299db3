"""The end of a life beside its appends, on each server that several processes share.

An append is there before the next load, or never. The tests with a fake server are in
``test_journal_fencing.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from groupkeeper.storage.base import StoreBusy, StoreRefused
from tests.helpers.core.records import commit
from tests.helpers.storage.consul_site import ConsulSite
from tests.helpers.storage.cut_proxy import CutProxy
from tests.helpers.storage.late_appends import late_append, offset_after_load
from tests.helpers.storage.postgres_site import PostgresSite
from tests.helpers.storage.zookeeper_site import ZooKeeperSite

Site = PostgresSite | ZooKeeperSite | ConsulSite
SITES: dict[str, Any] = {
    "postgres": PostgresSite,
    "zookeeper": ZooKeeperSite,
    "consul": ConsulSite,
}


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


async def test_a_life_that_ends_before_an_append_is_sent_refuses_it(site: Site) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("g", 1)])
    await site.end_life()
    assert await late_append(owner) == [0]
    assert await offset_after_load(owner) == 1


async def test_an_append_that_arrives_after_the_end_of_its_life_is_refused(
    site: Site, proxy: CutProxy
) -> None:
    owner = await site.owner(port=proxy.port)
    await owner.append(0, [commit("g", 1)])
    proxy.cut("there")
    late = late_append(owner)
    await asyncio.sleep(0.1)
    await site.end_life()
    proxy.heal()
    assert await late == [0]
    assert await offset_after_load(owner) == 1


async def test_an_append_whose_reply_comes_after_the_end_of_its_life_is_stored(
    site: Site, proxy: CutProxy
) -> None:
    owner = await site.owner(port=proxy.port)
    await owner.append(0, [commit("g", 1)])
    proxy.cut("back")
    late = late_append(owner)
    await asyncio.sleep(0.1)
    await site.end_life()
    proxy.heal()
    assert not await late
    assert await offset_after_load(owner) == 2


async def test_an_append_whose_reply_is_lost_is_in_the_next_load(
    site: Site, proxy: CutProxy
) -> None:
    owner = await site.owner(port=proxy.port, timeout_ms=500)
    await owner.append(0, [commit("g", 1)])
    proxy.cut("back")
    with pytest.raises(StoreBusy, match="no answer from the server"):
        await late_append(owner)
    proxy.heal()
    assert await offset_after_load(owner) == 2
    await owner.append(0, [commit("g", 3)])
    assert await offset_after_load(owner) == 3


async def test_an_append_that_never_arrives_is_in_no_load(site: Site, proxy: CutProxy) -> None:
    """Not even if its bytes arrive later."""
    cut_off = await site.owner(port=proxy.port, timeout_ms=500)
    await cut_off.append(0, [commit("g", 1)])
    proxy.cut("there", "back")
    with pytest.raises(StoreBusy):
        await late_append(cut_off)
    owner = await site.owner(node_id=2)
    assert cut_off.storage.read_time_left_ms() == 0
    assert await offset_after_load(owner) == 1
    proxy.heal()
    await asyncio.sleep(0.5)
    assert await offset_after_load(owner) == 1
    await owner.append(0, [commit("g", 5)])
    assert await offset_after_load(owner) == 5


async def test_a_life_ends_after_its_append(site: Site) -> None:
    owner = await site.owner()
    assert not await late_append(owner)
    await site.end_life()
    assert await offset_after_load(owner) == 2


async def test_the_history_of_a_group_has_the_events_of_two_nodes(site: Site) -> None:
    """Each node counts its events from 1."""
    first = await site.owner(node_id=1)
    for offset in range(1, 4):
        await first.append(0, [commit("g", offset)])
    await first.storage.close()
    second = await site.owner(node_id=2)
    await second.append(0, [commit("g", 4)])
    for _ in range(2):  # its event is first in the journal, and then in the log
        found = [event async for event in second.storage.history("g")]
        offsets = sorted(event["topics"][0]["partitions"][0]["offset"] for event in found)
        assert offsets == [1, 2, 3, 4]
        await second.fold_all()


async def test_a_second_node_is_refused_with_the_name_of_the_first(site: Site) -> None:
    owner = await site.owner()
    with pytest.raises(StoreRefused, match=r"is in use by node 1 \(host:1\)"):
        await site.owner(node_id=2)
    await owner.append(0, [commit("g", 1)])
