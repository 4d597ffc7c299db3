"""The groups of a store in ZooKeeper, as the registry and kazoo-go see them in its mirror."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from groupkeeper.clients.zookeeper.registration import Registration, SubscriptionPattern
from groupkeeper.clients.zookeeper.registry import Registry
from groupkeeper.coordinator.core.consumer_records import (
    AssignedFields,
    ConsumerCurrentAssignment,
    ConsumerGroupRecord,
    ConsumerMember,
    ConsumerMemberFields,
)
from groupkeeper.coordinator.core.records import (
    GroupRecord,
    GroupRemoved,
    OffsetsRemoved,
    TopicRecord,
)
from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.backends.mirror import mirror
from groupkeeper.storage.backends.zookeeper.driver import ZooKeeperDriver
from groupkeeper.storage.backends.zookeeper.url import parse_url
from tests.helpers.clients.kazoo_go import KazooGo
from tests.helpers.core.records import TOPIC_ID, commit, group_record
from tests.helpers.storage.storage_owner import Owner

pytestmark = pytest.mark.registry

LIMIT_S = 20


def a_storage(servers: str, parameters: str = "") -> JournalStorage:
    url = parse_url(f"zookeeper://{servers}{parameters}", {})
    driver = ZooKeeperDriver(url, append_timeout_ms=5_000, lease_ttl_ms=2_000)
    return JournalStorage(driver, node_id=1, name="test:1", lease_ttl_ms=2_000)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "PAUSE_S", 0.02)


@pytest.fixture
async def owner(servers: str) -> AsyncIterator[Owner]:
    owner = await Owner(a_storage(servers)).start()
    yield owner
    await owner.storage.close()


def classic_group(owned: dict[str, list[int]], topics: list[str] | None = None) -> GroupRecord:
    group = group_record("billing")
    member = replace(
        group.members[0],
        subscription=encode_subscription(Subscription(1, topics or ["orders"])),
        assignment=encode_assignment(ConsumerAssignment(1, owned)),
    )
    return replace(group, members=(member,))


async def until(look: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    """Wait until the mirror has caught up."""
    deadline = time.monotonic() + LIMIT_S
    while (found := await look()) != wanted:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.02)


async def store(owner: Owner, *records: Any, shard: int = 0) -> None:
    await owner.append(shard, records)
    await owner.fold_all()


async def test_the_registry_sees_members_owners_and_offsets(owner, registry: Registry):
    group = registry.group("billing")
    before_s = int(time.time())
    await store(owner, classic_group({"orders": [0, 2]}), commit("billing", 42, partitions=3))
    await until(group.fetch_all_offsets, {"orders": {0: 42, 1: 42, 2: 42}})
    assert await group.owners() == {"orders": {0: "m-0", 2: "m-0"}}
    (instance,) = await group.instances()
    assert instance.id == "m-0"
    found = await instance.registration()
    assert (found.pattern, found.subscription) == (SubscriptionPattern.STATIC, {"orders": 1})
    assert before_s <= found.timestamp <= time.time()
    await store(owner, classic_group({"orders": [1]}, ["orders", "clicks"]), commit("billing", 43))
    await until(group.owners, {"orders": {1: "m-0"}})
    await until(group.fetch_all_offsets, {"orders": {0: 43, 1: 42, 2: 42}})
    assert (await instance.registration()).subscription == {"orders": 1, "clicks": 1}

    async def lag_s() -> float:
        return owner.storage.stats()["mirror_lag_s"]

    await until(lag_s, 0.0)


async def test_what_is_removed_disappears(owner, registry: Registry):
    group = registry.group("billing")
    await store(owner, classic_group({"orders": [0]}), commit("billing", 1, partitions=2))
    await until(group.fetch_all_offsets, {"orders": {0: 1, 1: 1}})
    await store(
        owner, OffsetsRemoved("billing", [("orders", 1)]), group_record("billing", members=0)
    )
    await until(group.fetch_all_offsets, {"orders": {0: 1}})
    assert await group.instances() == ()
    assert await group.owners() in ({}, {"orders": {}})
    await store(owner, GroupRemoved("billing"))
    await until(group.exists, False)


async def test_a_consumer_group_has_owners_and_patterns(owner, registry: Registry):
    group = registry.group("billing")
    await store(owner, TopicRecord("orders", TOPIC_ID, 12), shard=-1)
    await store(
        owner,
        ConsumerGroupRecord("billing"),
        ConsumerMember("billing", ConsumerMemberFields("a", subscribed_topic_names=("orders",))),
        ConsumerMember("billing", ConsumerMemberFields("b", subscribed_topic_regex="ord.*")),
        ConsumerCurrentAssignment(
            "billing", "a", AssignedFields(1, 2, 1, {TOPIC_ID: ((0, 2),)}, {TOPIC_ID: ((1, 2),)})
        ),
    )
    await until(group.owners, {"orders": {0: "a", 1: "a"}})
    a, b = [await each.registration() for each in await group.instances()]
    assert a == Registration(SubscriptionPattern.STATIC, {"orders": 1}, a.timestamp)
    assert b == Registration(SubscriptionPattern.WHITE_LIST, {"ord.*": 1}, b.timestamp)


async def test_members_end_with_the_process_and_come_back_with_the_next(servers, registry, owner):
    group = registry.group("billing")
    await store(owner, classic_group({"orders": [0]}), commit("billing", 7))
    await until(group.owners, {"orders": {0: "m-0"}})
    await owner.storage.close()
    assert await group.instances() == ()
    assert await group.fetch_all_offsets() == {"orders": {0: 7}}
    again = await Owner(a_storage(servers)).start()
    await until(group.owners, {"orders": {0: "m-0"}})
    await again.storage.close()


async def test_members_come_back_after_the_loss_of_the_session(owner, registry: Registry):
    group = registry.group("billing")
    await store(owner, classic_group({"orders": [0]}), commit("billing", 7))
    await until(group.owners, {"orders": {0: "m-0"}})
    await owner.storage._driver._mirror._session.close()
    await until(group.owners, {"orders": {0: "m-0"}})
    assert [each.id for each in await group.instances()] == ["m-0"]


async def test_instances_of_a_registry_live_beside_members(owner, registry: Registry):
    """Neither takes a partition of the other, and nothing of the registry is deleted."""
    group = registry.group("billing")
    mine = group.instance("mine")
    await mine.register(["orders"])
    await mine.claim_partition("orders", 0)
    await group.commit_offset("others", 5, 99)
    await store(owner, classic_group({"orders": [0, 1]}), commit("billing", 7))
    await until(group.owners, {"orders": {0: "mine", 1: "m-0"}})
    assert [each.id for each in await group.instances()] == ["m-0", "mine"]
    assert owner.storage.stats()["mirror_lag_s"] > 0
    await mine.release_partition("orders", 0)
    await until(group.owners, {"orders": {0: "m-0", 1: "m-0"}})
    await store(owner, GroupRemoved("billing"))
    await until(group.fetch_all_offsets, {"others": {5: 99}})
    assert [each.id for each in await group.instances()] == ["mine"]


async def test_names_that_zookeeper_refuses_are_left_out_and_stop_nothing(owner, registry):
    for name in ("", "..", "a/b", "\0", "\U0001f600"):
        await store(owner, commit(name, 1))
    await store(owner, commit("billing", 1, topic="a/b"), commit("billing", 2))
    await until(registry.group("billing").fetch_all_offsets, {"orders": {0: 2}})
    assert [each.name for each in await registry.groups()] == ["billing"]


async def test_without_a_mirror_nothing_is_written(servers, registry):
    owner = await Owner(a_storage(servers, "?mirror=off")).start()
    await store(owner, classic_group({"orders": [0]}))
    await asyncio.sleep(0.2)
    assert await registry.groups() == ()
    assert "mirror_lag_s" not in owner.storage.stats()
    await owner.storage.close()


@pytest.mark.go
async def test_kazoo_go_sees_members_owners_and_offsets(servers, owner):
    async with KazooGo(servers) as theirs:
        await store(owner, classic_group({"orders": [0, 2]}), commit("billing", 42, partitions=2))

        async def offsets() -> Any:
            return await theirs.call("FetchAllOffsets", group="billing")

        await until(offsets, {"orders": {"0": 42, "1": 42}})
        assert await theirs.call("Consumergroups") == ["billing"]
        assert await theirs.call("Instances", group="billing") == ["m-0"]
        assert await theirs.call("Topics", group="billing") == ["orders"]
        place = {"group": "billing", "topic": "orders"}
        assert await theirs.call("PartitionOwner", **place, partition=2) == "m-0"
        assert await theirs.call("FetchOffset", **place, partition=0) == 42
        read = await theirs.call("Registration", group="billing", instance="m-0")
        timestamp = read.pop("timestamp")
        assert abs(time.time() - timestamp) < LIMIT_S
        assert read == {"pattern": "static", "subscription": {"orders": 1}, "version": 1}
        _, fired = await theirs.watch("WatchPartitionOwner", **place, partition=0)
        await store(owner, classic_group({"orders": [2]}))
        await asyncio.wait_for(fired.wait(), LIMIT_S)
