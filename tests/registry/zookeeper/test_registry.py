"""The registry on a real ZooKeeper: groups, instances, claims, offsets, watches."""

from __future__ import annotations

import asyncio
import json
import socket
import uuid

import pytest

from groupkeeper.clients.zookeeper.errors import (
    BrokenNode,
    InstanceAlreadyRegistered,
    InstanceNotRegistered,
    InvalidName,
    PartitionClaimedByOther,
    PartitionNotClaimed,
    RunningInstances,
)
from groupkeeper.clients.zookeeper.registration import Registration, SubscriptionPattern
from groupkeeper.clients.zookeeper.registry import Registry
from groupkeeper.storage.connections.zookeeper import ZooKeeperSession
from groupkeeper.storage.connections.zookeeper_errors import (
    NotAllowed,
    ServerUnreachable,
    SessionClosed,
)
from groupkeeper.storage.connections.zookeeper_settings import (
    CREATOR_ONLY,
    AccessRule,
    ZooKeeperSettings,
    parse_connection_string,
)
from tests.helpers.daemon.daemon import free_port

pytestmark = pytest.mark.registry


@pytest.fixture
async def raw(zookeeper):
    """What really stands in ZooKeeper."""
    settings = ZooKeeperSettings(parse_connection_string(zookeeper.servers))
    async with ZooKeeperSession(settings) as session:
        yield session


async def in_time(awaitable, seconds=10):
    """A limit for what would wait for ever if it were broken."""
    return await asyncio.wait_for(awaitable, seconds)


# --- groups ---------------------------------------------------------------------------------------


async def test_there_are_no_groups_before_the_first_one(registry):
    assert await registry.groups() == ()
    assert (await registry.groups()).find("billing") is None
    assert not await registry.group("billing").exists()


async def test_groups_are_created_listed_in_order_and_found(registry):
    for name in ("shipping", "billing", "orders"):
        await registry.group(name).create()
    await registry.group("billing").create()  # twice is once
    groups = await registry.groups()
    assert [each.name for each in groups] == ["billing", "orders", "shipping"]
    assert groups.find("orders") == registry.group("orders")
    assert await registry.group("orders").exists()


async def test_a_group_lies_below_the_chroot(registry, raw, chroot):
    await registry.group("billing").create()
    assert await raw.exists(f"{chroot}/consumers/billing")


async def test_a_group_is_deleted_with_all_it_holds(registry):
    group = registry.group("billing")
    instance = group.new_instance()
    await instance.register(["orders"])
    await instance.claim_partition("orders", 0)
    await group.commit_offset("orders", 0, 7)
    with pytest.raises(RunningInstances, match="1 running"):
        await group.delete()
    assert await group.fetch_offset("orders", 0) == 7  # nothing was deleted
    await instance.deregister()
    await group.delete()
    assert not await group.exists()
    await group.delete()  # what is not there needs no deletion


async def test_a_group_is_deleted_with_nodes_that_no_consumer_knows(registry, raw, chroot):
    group = registry.group("billing")
    await group.commit_offset("orders", 0, 7)
    for path in ("ids", "notes/by/hand"):
        await raw.create(f"{chroot}/consumers/billing/{path}")
    await group.delete()
    assert not await group.exists()


# --- instances ------------------------------------------------------------------------------------


async def test_instances_are_listed_in_order_and_found(registry):
    group = registry.group("billing")
    assert await group.instances() == ()
    for name in ("c", "a", "b"):
        await group.instance(name).register(["orders"])
    instances = await group.instances()
    assert [each.id for each in instances] == ["a", "b", "c"]
    assert instances.find("b") == group.instance("b")
    assert instances.find("d") is None


def test_a_new_instance_is_named_by_its_host_and_a_random_uuid():
    async def names():
        registry = Registry("127.0.0.1:1")
        group = registry.group("billing")
        return [group.new_instance().id for _ in range(2)]

    one, other = asyncio.run(names())
    assert one != other
    host, _, identity = one.rpartition(":")
    assert host == socket.gethostname()
    assert uuid.UUID(identity).version == 4


async def test_a_registration_is_the_json_of_the_classic_consumers(registry, raw, chroot):
    instance = registry.group("billing").instance("a")
    await instance.register(["orders", "clicks"])
    node = await raw.get(f"{chroot}/consumers/billing/ids/a")
    assert node.owner != 0  # ephemeral
    found = json.loads(node.data)
    assert found.pop("timestamp") > 1_700_000_000
    assert found == {
        "pattern": "static",
        "subscription": {"clicks": 1, "orders": 1},
        "version": 1,
    }
    assert (await instance.registration()).subscription == {"clicks": 1, "orders": 1}


@pytest.mark.parametrize("pattern", ["white_list", "black_list"])
async def test_an_instance_registers_by_a_pattern(registry, pattern):
    instance = registry.group("billing").instance("a")
    await getattr(instance, f"register_{pattern}")("orders.*", 2)
    registration = await instance.registration()
    assert registration.pattern is SubscriptionPattern(pattern)
    assert registration.subscription == {"orders.*": 2}


async def test_an_instance_registers_once(registry, other):
    instance = registry.group("billing").instance("a")
    assert not await instance.registered()
    with pytest.raises(InstanceNotRegistered, match="'a'"):
        await instance.registration()
    await instance.register(["orders"])
    assert await instance.registered()
    for group in (registry.group("billing"), other.group("billing")):
        with pytest.raises(InstanceAlreadyRegistered, match="'a'"):
            await group.instance("a").register(["orders"])
    await instance.deregister()
    with pytest.raises(InstanceNotRegistered, match="'a'"):
        await instance.deregister()


async def test_a_registration_is_updated(registry):
    instance = registry.group("billing").instance("a")
    with pytest.raises(InstanceNotRegistered):
        await instance.update_registration(["orders"])
    await instance.register({"orders": 3})
    await instance.update_registration(["clicks"])
    assert (await instance.registration()).subscription == {"clicks": 1}


async def test_a_timestamp_as_a_text_is_read(registry, raw, chroot):
    data = b'{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"1416906000000"}'
    await raw.create(f"{chroot}/consumers/billing/ids/java", data)
    registration = await registry.group("billing").instance("java").registration()
    assert registration == Registration(SubscriptionPattern.STATIC, {"t": 2}, 1416906000000)


@pytest.mark.parametrize("data", [b"{", b"[]", b'"x"', b"\xff", b'{"pattern":"gray_list"}'])
async def test_a_broken_registration_names_its_node(registry, raw, chroot, data):
    await raw.create(f"{chroot}/consumers/billing/ids/a", data)
    with pytest.raises(BrokenNode, match=f"{chroot}/consumers/billing/ids/a"):
        await registry.group("billing").instance("a").registration()


# --- claims ---------------------------------------------------------------------------------------


async def test_a_partition_has_one_owner(registry, other):
    group = registry.group("billing")
    a, b = group.instance("a"), other.group("billing").instance("b")
    assert await group.partition_owner("orders", 3) is None
    await a.claim_partition("orders", 3)
    await a.claim_partition("orders", 3)  # ours already
    with pytest.raises(PartitionClaimedByOther, match="'a'") as refused:
        await b.claim_partition("orders", 3)
    assert refused.value.owner == "a"
    assert await other.group("billing").partition_owner("orders", 3) == a
    with pytest.raises(PartitionNotClaimed):
        await b.release_partition("orders", 3)
    await a.release_partition("orders", 3)
    with pytest.raises(PartitionNotClaimed):
        await a.release_partition("orders", 3)
    await b.claim_partition("orders", 3)
    assert await group.topics() == ("orders",)
    assert await group.owners() == {"orders": {3: "b"}}


async def test_of_many_that_claim_one_partition_one_gets_it(registry, other):
    groups = [registry.group("billing"), other.group("billing")]
    instances = [groups[n % 2].instance(f"i{n}") for n in range(20)]
    claims = (each.claim_partition("orders", 0) for each in instances)
    results = await asyncio.gather(*claims, return_exceptions=True)
    assert sum(result is None for result in results) == 1
    refused = [each for each in results if each is not None]
    assert all(isinstance(each, PartitionClaimedByOther) for each in refused)


async def test_a_claim_left_by_an_earlier_session_becomes_this_ones(servers, registry, other):
    await other.group("billing").instance("a").claim_partition("orders", 0)
    group = registry.group("billing")
    await group.instance("a").claim_partition("orders", 0)
    await other.close()
    assert await group.partition_owner("orders", 0) == group.instance("a")


@pytest.mark.parametrize("data", [b"", b"a/b", b"\xff"])
async def test_an_owner_that_can_be_none_names_its_node(registry, raw, chroot, data):
    path = f"{chroot}/consumers/billing/owners/orders/0"
    await raw.create(path, data)
    group = registry.group("billing")
    for look in (
        group.partition_owner("orders", 0),
        group.watch_partition_owner("orders", 0),
        group.owners(),
    ):
        with pytest.raises(BrokenNode, match=path):
            await look


# --- offsets --------------------------------------------------------------------------------------


async def test_offsets_are_decimal_and_stay(registry, other, raw, chroot):
    group = registry.group("billing")
    await group.commit_offset("orders", 0, 41)
    await group.commit_offset("orders", 0, 42)
    node = await raw.get(f"{chroot}/consumers/billing/offsets/orders/0")
    assert (node.data, node.owner) == (b"42", 0)
    await registry.close()
    assert await other.group("billing").fetch_offset("orders", 0) == 42


@pytest.mark.parametrize("none", [0, -1])
async def test_no_offset_is_what_the_registry_is_set_to(servers, none):
    async with Registry(servers, no_offset=none) as registry:
        assert await registry.group("billing").fetch_offset("orders", 0) == none


async def test_all_offsets_are_fetched_and_reset(registry):
    group = registry.group("billing")
    assert await group.fetch_all_offsets() == {}
    wanted = {"clicks": {0: 5}, "orders": {0: 1, 2: 3, 10: 2**63 - 1}}
    for topic, partitions in wanted.items():
        for partition, offset in partitions.items():
            await group.commit_offset(topic, partition, offset)
    assert await group.fetch_all_offsets() == wanted
    await group.delete_offset("orders", 2)
    del wanted["orders"][2]
    assert await group.fetch_all_offsets() == wanted
    await group.reset_offsets()
    assert await group.fetch_all_offsets() == {}
    await group.reset_offsets()


async def test_commits_that_meet_are_all_carried_out(registry, other):
    groups = [registry.group("billing"), other.group("billing")]
    commits = (groups[n % 2].commit_offset("orders", 0, n) for n in range(20))
    await in_time(asyncio.gather(*commits))
    assert await groups[0].fetch_offset("orders", 0) in range(20)


async def test_an_offset_that_is_none_names_its_node(registry, raw, chroot):
    path = f"{chroot}/consumers/billing/offsets/orders/0"
    await raw.create(path, b"4x")
    for fetch in (
        registry.group("billing").fetch_offset("orders", 0),
        registry.group("billing").fetch_all_offsets(),
    ):
        with pytest.raises(BrokenNode, match=path):
            await fetch


# --- watches --------------------------------------------------------------------------------------


async def test_a_watch_of_instances_sees_each_change(registry, other):
    group, theirs = registry.group("billing"), other.group("billing")
    async with await group.watch_instances() as watch:
        assert watch.current == ()
        await theirs.instance("a").register(["orders"])
        assert [each.id for each in await in_time(anext(watch))] == ["a"]
        await theirs.instance("b").register(["orders"])
        assert [each.id for each in await in_time(anext(watch))] == ["a", "b"]
        await other.close()
        last = await in_time(anext(watch))
        while last:  # its two nodes go one after the other
            last = await in_time(anext(watch))


async def test_no_change_is_missed_between_two_looks(registry, other):
    theirs = other.group("billing")
    async with await registry.group("billing").watch_instances() as watch:
        for n in range(50):
            await theirs.instance(f"i{n}").register(["orders"])
            # nobody waits while it changes
            assert len(await in_time(anext(watch))) == n + 1


async def test_an_instance_that_goes_and_comes_again_is_a_change(registry, other):
    instance = other.group("billing").instance("a")
    await instance.register(["orders"])
    async with await registry.group("billing").watch_instances() as watch:
        await instance.deregister()
        await instance.register(["orders"])
        assert [each.id for each in await in_time(anext(watch))] in (["a"], [])


async def test_a_watch_sees_its_group_deleted_and_created_again(registry, other):
    theirs = other.group("billing")
    await theirs.instance("a").register(["orders"])
    async with await registry.group("billing").watch_instances() as watch:
        await theirs.instance("a").deregister()
        assert await in_time(anext(watch)) == ()
        await theirs.delete()
        await theirs.instance("b").register(["orders"])
        found = await in_time(anext(watch))
        while not found:
            found = await in_time(anext(watch))
        assert [each.id for each in found] == ["b"]


async def test_a_watch_of_an_owner_sees_claims_and_releases(registry, other):
    theirs = other.group("billing").instance("b")
    async with await registry.group("billing").watch_partition_owner("orders", 0) as watch:
        assert watch.current is None
        await theirs.claim_partition("orders", 0)
        assert await in_time(anext(watch)) == registry.group("billing").instance("b")
        await theirs.release_partition("orders", 0)
        assert await in_time(anext(watch)) is None


async def test_a_watch_of_a_registration_sees_updates_and_the_end(registry, other):
    theirs, ours = (each.group("billing").instance("a") for each in (other, registry))
    with pytest.raises(InstanceNotRegistered):
        await ours.watch_registration()
    await theirs.register(["orders"])
    async with await ours.watch_registration() as watch:
        assert watch.current is not None
        await theirs.update_registration(["clicks"])
        changed = await in_time(anext(watch))
        assert changed is not None
        assert changed.subscription == {"clicks": 1}
        await theirs.deregister()
        assert await in_time(anext(watch)) is None


async def test_closing_a_watch_or_its_registry_ends_it(registry, other):
    async def seen(watch):
        return [each async for each in watch]

    one = await registry.group("billing").watch_instances()
    two = await registry.group("billing").watch_instances()
    waiting = [asyncio.create_task(seen(each)) for each in (one, two)]
    await asyncio.sleep(0)
    await one.close()
    assert await in_time(waiting[0]) == []
    assert not waiting[1].done()
    await registry.close()
    assert await in_time(waiting[1]) == []


async def test_a_cancelled_wait_loses_no_change(registry, other):
    async with await registry.group("billing").watch_instances() as watch:
        for n in range(20):
            waiting = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0)
            await other.group("billing").instance(f"i{n}").register(["orders"])
            waiting.cancel()
            await asyncio.wait([waiting])
            while len(watch.current) != n + 1:
                await in_time(anext(watch))


# --- names, limits, ends --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x" * 1_000_001, "a\0b", "\ud800", 7])
async def test_a_name_that_cannot_stand_in_a_path_is_refused(registry, name):
    group = registry.group("billing")
    with pytest.raises(InvalidName, match="group"):
        registry.group(name)
    with pytest.raises(InvalidName, match="instance"):
        group.instance(name)
    for call in (
        group.partition_owner(name, 0),
        group.commit_offset(name, 0, 0),
        group.instance("a").register([name]),
        group.instance("a").claim_partition(name, 0),
    ):
        with pytest.raises(InvalidName, match="topic"):
            await call


async def test_the_largest_path_is_refused_before_the_server_cuts_the_connection(registry):
    group = registry.group("g" * 900_000)
    with pytest.raises(ValueError, match="a server accepts"):
        await group.instance("i" * 900_000).register(["orders"])
    assert await registry.groups() == ()


@pytest.mark.parametrize("partition", [-1, 2**31, "0", None, True])
async def test_a_partition_is_a_number(registry, partition):
    with pytest.raises(InvalidName, match="partition"):
        await registry.group("billing").commit_offset("orders", partition, 0)


async def test_any_other_text_is_a_name(registry):
    name = "Zürich: 注文 %2F 100% ~ !"
    group = registry.group(name)
    await group.instance(name).register([name])
    await group.commit_offset(name, 0, 1)
    assert (await registry.groups()).find(name) == group
    assert (await group.instances()).find(name) is not None
    assert await group.fetch_all_offsets() == {name: {0: 1}}


async def test_closing_a_registry_removes_what_it_made(servers, other):
    async with Registry(servers) as registry:
        instance = registry.group("billing").instance("a")
        await instance.register(["orders"])
        await instance.claim_partition("orders", 0)
    assert await other.group("billing").instances() == ()
    assert await other.group("billing").partition_owner("orders", 0) is None
    with pytest.raises(SessionClosed):
        await instance.registered()


async def test_closing_a_registry_is_told_to_those_who_wait_for_its_loss(servers):
    registry = Registry(servers)
    calls = registry.wait_lost, registry.wait_renewed
    for call in calls:  # not open yet
        with pytest.raises(SessionClosed):
            await call()
    async with registry:
        waiting = [asyncio.create_task(call()) for call in calls]
        await asyncio.sleep(0)
    for wait in (*waiting, *(call() for call in calls)):
        with pytest.raises(SessionClosed):
            await in_time(wait)


async def test_a_server_that_is_not_there_is_said():
    registry = Registry(f"127.0.0.1:{free_port()}", connect_timeout_ms=300)
    with pytest.raises(ServerUnreachable, match="is a server running there"):
        await registry.open()


async def test_with_credentials_only_their_owner_changes_what_they_made(servers, other):
    async with Registry(servers, digest="ann:secret", access=CREATOR_ONLY) as registry:
        group = registry.group("billing")
        await group.instance("a").register(["orders"])
        await group.commit_offset("orders", 0, 7)
        assert await group.fetch_offset("orders", 0) == 7
        for call in (
            other.group("billing").fetch_offset("orders", 0),
            other.group("billing").commit_offset("orders", 0, 8),
            other.group("billing").instance("a").deregister(),
        ):
            with pytest.raises(NotAllowed, match="billing"):
                await call
    readable = (*CREATOR_ONLY, AccessRule("world", "anyone", "r"))
    async with Registry(servers, digest="ann:secret", access=readable) as registry:
        await registry.group("open").commit_offset("orders", 0, 7)
        assert await other.group("open").fetch_offset("orders", 0) == 7
        with pytest.raises(NotAllowed):
            await other.group("open").commit_offset("orders", 0, 8)
    async with Registry(servers, digest="bob:other") as registry:
        with pytest.raises(NotAllowed):
            await registry.group("billing").fetch_offset("orders", 0)
