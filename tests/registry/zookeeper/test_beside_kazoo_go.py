"""kazoo-go and ours on one ZooKeeper: each sees, refuses and watches what the other does.

Every function of kazoo-go's groups is called here, with what ours says of the same.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from groupkeeper.clients.zookeeper.errors import (
    InstanceAlreadyRegistered,
    InstanceNotRegistered,
    PartitionClaimedByOther,
    PartitionNotClaimed,
    RunningInstances,
)
from groupkeeper.clients.zookeeper.registration import Registration, SubscriptionPattern
from groupkeeper.clients.zookeeper.registry import Registry
from tests.helpers.clients.kazoo_go import FOLDER, KazooGo, KazooGoError

pytestmark = [pytest.mark.registry, pytest.mark.go]

GROUP = {"group": "billing"}
WATCH_LIMIT_S = 10


@pytest.fixture
async def theirs(servers: str):
    async with KazooGo(servers) as theirs:
        yield theirs


@pytest.fixture
def ours(registry: Registry):
    return registry.group("billing")


def they_refuse(name: str) -> Any:
    return pytest.raises(KazooGoError, match=name)


async def in_time(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, WATCH_LIMIT_S)


async def test_groups_are_the_same_to_both(registry, ours, theirs):
    assert not await ours.exists()
    assert not await theirs.call("Exists", **GROUP)
    await ours.create()
    await theirs.call("Create", group="shipping")
    await theirs.call("Create", **GROUP)
    await registry.group("shipping").create()
    assert [each.name for each in await registry.groups()] == ["billing", "shipping"]
    assert await theirs.call("Consumergroups") == ["billing", "shipping"]
    assert (await registry.groups()).find("shipping") is not None
    assert await theirs.call("ConsumergroupList.Find", group="shipping")
    assert await ours.exists()
    assert await theirs.call("Exists", **GROUP)
    await theirs.call("Delete", **GROUP)
    await registry.group("shipping").delete()
    assert await registry.groups() == ()
    assert await theirs.call("Consumergroups") == []


async def test_neither_deletes_a_group_with_instances_of_the_other(registry, ours, theirs):
    mine = ours.instance("ours")
    await mine.register(["orders"])
    with they_refuse("ErrRunningInstances"):
        await theirs.call("Delete", **GROUP)
    await mine.deregister()
    await theirs.call("Register", **GROUP, instance="theirs", topics=["orders"])
    with pytest.raises(RunningInstances):
        await ours.delete()
    await theirs.call("Deregister", **GROUP, instance="theirs")
    await ours.delete()
    assert not await theirs.call("Exists", **GROUP)


async def test_instances_of_both_are_in_both_lists(ours, theirs):
    assert await ours.instances() == ()
    assert await theirs.call("Instances", **GROUP) == []
    await ours.instance("b").register(["orders"])
    await theirs.call("Register", **GROUP, instance="a", topics=["orders"])
    assert [each.id for each in await ours.instances()] == ["a", "b"]
    assert await theirs.call("Instances", **GROUP) == ["a", "b"]
    assert (await ours.instances()).find("a") == ours.instance("a")
    found = await theirs.call("ConsumergroupInstanceList.Find", **GROUP, instance="b")
    assert found == "b"


async def test_both_make_ids_of_host_and_uuid(ours, theirs):
    theirs_id, ours_id = await theirs.call("NewInstance", **GROUP), ours.new_instance().id
    # the last group of theirs lacks leading zeros now and then
    shape = re.compile(r"(.+):[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+")
    hosts = {found[1] for each in (theirs_id, ours_id) if (found := shape.fullmatch(each))}
    assert len(hosts) == 1


async def test_a_registration_of_each_is_read_by_the_other(ours, theirs):
    mine, other = ours.instance("ours"), ours.instance("theirs")
    await mine.register(["orders", "clicks"])
    await theirs.call("Register", **GROUP, instance="theirs", topics=["orders", "clicks"])
    assert await other.registered()
    assert await theirs.call("Registered", **GROUP, instance="ours")
    read = await theirs.call("Registration", **GROUP, instance="ours")
    written = await mine.registration()
    assert read == json.loads(written.encode())
    of_theirs = await other.registration()
    assert of_theirs.at(written.timestamp) == written


@pytest.mark.parametrize("pattern", SubscriptionPattern)
async def test_each_pattern_is_read_by_the_other(ours, theirs, pattern):
    registration = Registration.matching(pattern, "orders.*", 2, 1700000000)
    await ours.instance("ours").register(registration)
    read = await theirs.call("Registration", **GROUP, instance="ours")
    assert read == json.loads(registration.encode())
    data = registration.encode().decode()
    await theirs.call("RegisterWithSubscription", **GROUP, instance="theirs", data=data)
    assert await ours.instance("theirs").registration() == registration


async def test_an_id_is_registered_once_by_whomever(ours, theirs):
    await ours.instance("ours").register(["orders"])
    with they_refuse("ErrInstanceAlreadyRegistered"):
        await theirs.call("Register", **GROUP, instance="ours", topics=["orders"])
    await theirs.call("Register", **GROUP, instance="theirs", topics=["orders"])
    with pytest.raises(InstanceAlreadyRegistered):
        await ours.instance("theirs").register(["orders"])
    # each may take the other's away, as an operator does
    await theirs.call("Deregister", **GROUP, instance="ours")
    await ours.instance("theirs").deregister()
    for call in ("Registration", "Deregister", "WatchRegistration"):
        with they_refuse("ErrInstanceNotRegistered"):
            await theirs.call(call, **GROUP, instance="ours")
    with pytest.raises(InstanceNotRegistered):
        await ours.instance("theirs").deregister()
    with pytest.raises(InstanceNotRegistered):
        await ours.instance("theirs").registration()


async def test_an_update_of_each_is_seen_by_the_other(ours, theirs):
    mine, other = ours.instance("ours"), ours.instance("theirs")
    with pytest.raises(InstanceNotRegistered):
        await mine.update_registration(["clicks"])
    with they_refuse("ErrInstanceNotRegistered"):
        await theirs.call("UpdateRegistration", **GROUP, instance="theirs", topics=["clicks"])
    await mine.register(["orders"])
    await theirs.call("Register", **GROUP, instance="theirs", topics=["orders"])
    _, fired = await theirs.watch("WatchRegistration", **GROUP, instance="ours")
    async with await other.watch_registration() as watch:
        await mine.update_registration(["clicks"])
        await in_time(fired.wait())
        await theirs.call("UpdateRegistration", **GROUP, instance="theirs", topics=["clicks"])
        seen = await in_time(anext(watch))
    assert seen is not None
    assert seen.subscription == {"clicks": 1}
    read = await theirs.call("Registration", **GROUP, instance="ours")
    assert read["subscription"] == {"clicks": 1}


async def test_each_watches_the_instances_of_the_other(ours, theirs):
    there, fired = await theirs.watch("WatchInstances", **GROUP)
    assert there == []
    async with await ours.watch_instances() as watch:
        await ours.instance("ours").register(["orders"])
        await in_time(fired.wait())
        assert [each.id for each in await in_time(anext(watch))] == ["ours"]
        there, fired = await theirs.watch("WatchInstances", **GROUP)
        assert there == ["ours"]
        await theirs.call("Register", **GROUP, instance="theirs", topics=["orders"])
        assert [each.id for each in await in_time(anext(watch))] == ["ours", "theirs"]
        await in_time(fired.wait())


async def test_a_partition_is_claimed_by_one_of_both(ours, theirs):
    mine, other = ours.instance("ours"), ours.instance("theirs")
    place = {**GROUP, "topic": "orders"}
    assert await theirs.call("PartitionOwner", **place, partition=0) is None
    await mine.claim_partition("orders", 0)
    with they_refuse("ErrPartitionClaimedByOther"):
        await theirs.call("ClaimPartition", **place, instance="theirs", partition=0)
    await theirs.call("ClaimPartition", **place, instance="theirs", partition=1)
    with pytest.raises(PartitionClaimedByOther) as refused:
        await mine.claim_partition("orders", 1)
    assert refused.value.owner == "theirs"
    # a claim of one's own is no error
    await mine.claim_partition("orders", 0)
    await theirs.call("ClaimPartition", **place, instance="theirs", partition=1)
    assert await ours.partition_owner("orders", 1) == other
    assert await theirs.call("PartitionOwner", **place, partition=0) == "ours"
    assert await ours.topics() == ("orders",)
    assert await theirs.call("Topics", **GROUP) == ["orders"]
    with they_refuse("ErrPartitionNotClaimed"):
        await theirs.call("ReleasePartition", **place, instance="theirs", partition=0)
    with pytest.raises(PartitionNotClaimed):
        await mine.release_partition("orders", 1)
    await theirs.call("ReleasePartition", **place, instance="theirs", partition=1)
    await mine.claim_partition("orders", 1)
    await mine.release_partition("orders", 0)
    await theirs.call("ClaimPartition", **place, instance="theirs", partition=0)
    assert await ours.owners() == {"orders": {0: "theirs", 1: "ours"}}


async def test_each_watches_the_claims_of_the_other(ours, theirs):
    place = {**GROUP, "topic": "orders", "partition": 0}
    assert (await theirs.watch("WatchPartitionOwner", **place))[0] is None
    async with await ours.watch_partition_owner("orders", 0) as watch:
        await theirs.call("ClaimPartition", **place, instance="theirs")
        assert await in_time(anext(watch)) == ours.instance("theirs")
        await theirs.call("ReleasePartition", **place, instance="theirs")
        assert await in_time(anext(watch)) is None
    await ours.instance("ours").claim_partition("orders", 0)
    owner, fired = await theirs.watch("WatchPartitionOwner", **place)
    assert owner == "ours"
    await ours.instance("ours").release_partition("orders", 0)
    await in_time(fired.wait())


async def test_offsets_of_each_are_read_by_the_other(ours, theirs):
    place = {**GROUP, "topic": "orders"}
    assert await ours.fetch_offset("orders", 0) == 0
    assert await theirs.call("FetchOffset", **place, partition=0) == -1
    await ours.commit_offset("orders", 0, 7)
    await theirs.call("CommitOffset", **place, partition=1, offset=2**53)
    assert await theirs.call("FetchOffset", **place, partition=0) == 7
    assert await ours.fetch_offset("orders", 1) == 2**53
    await theirs.call("CommitOffset", **place, partition=0, offset=8)
    await ours.commit_offset("orders", 1, 9)
    assert await ours.fetch_all_offsets() == {"orders": {0: 8, 1: 9}}
    assert await theirs.call("FetchAllOffsets", **GROUP) == {"orders": {"0": 8, "1": 9}}
    await theirs.call("ResetOffsets", **GROUP)
    assert await ours.fetch_all_offsets() == {}
    await theirs.call("CommitOffset", **place, partition=0, offset=1)
    await ours.reset_offsets()
    assert await theirs.call("FetchAllOffsets", **GROUP) == {}


async def test_when_either_ends_the_other_sees_its_nodes_go(servers, ours):
    async with await ours.watch_instances() as watch:
        async with KazooGo(servers) as theirs:
            await theirs.call("Register", **GROUP, instance="theirs", topics=["orders"])
            claim = {"instance": "theirs", "topic": "orders", "partition": 0}
            await theirs.call("ClaimPartition", **GROUP, **claim)
            assert [each.id for each in await in_time(anext(watch))] == ["theirs"]
        assert await in_time(anext(watch)) == ()
    assert await ours.partition_owner("orders", 0) is None
    async with KazooGo(servers) as theirs:
        async with Registry(servers) as registry:
            await registry.group("billing").instance("ours").register(["orders"])
            there, fired = await theirs.watch("WatchInstances", **GROUP)
            assert there == ["ours"]
        await in_time(fired.wait())
        assert await theirs.call("Instances", **GROUP) == []


def test_every_function_of_kazoo_go_is_called_here():
    program = (FOLDER / "main.go").read_text()
    known = set(re.findall(r'case "(\S+)":', program))
    assert len(known) == 25
    here = Path(__file__).read_text()
    assert {name for name in known if f'"{name}"' not in here} == set()
