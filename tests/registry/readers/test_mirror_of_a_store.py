"""The groups of a store in Consul, as the groups of ``groupkeeper.clients`` see them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from groupkeeper.clients.readers.consul_group import ConsulGroup
from groupkeeper.clients.readers.group_keys import PREFIX, GroupKeys
from groupkeeper.clients.readers.group_list import PartitionRow, describe_group, list_groups
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
from groupkeeper.storage.backends.consul import mirror as consul_mirror
from groupkeeper.storage.backends.consul.driver import ConsulDriver
from groupkeeper.storage.backends.consul.url import DEFAULT_MIRROR, parse_url
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.backends.mirror import mirror
from groupkeeper.storage.connections.consul import ConsulClient
from tests.helpers.clients.real_consul import RealConsul
from tests.helpers.core.records import TOPIC_ID, commit, group_record
from tests.helpers.storage.storage_owner import Owner
from tests.registry.readers.log_of_messages import Watched

pytestmark = pytest.mark.registry

LIMIT_S = 60


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "PAUSE_S", 0.02)
    monkeypatch.setattr(mirror, "REST", 0)


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """The beginning of the keys of the mirror of one test."""
    return f"mirrors/{request.node.name}"


def a_storage(consul: RealConsul, prefix: str) -> JournalStorage:
    url = parse_url(f"consul://{consul.address}/of-{prefix}?mirror={prefix}", {})
    driver = ConsulDriver(url, append_timeout_ms=5_000, lease_ttl_ms=2_000)
    return JournalStorage(driver, node_id=1, name="test:1", lease_ttl_ms=2_000)


@pytest.fixture
async def owner(consul: RealConsul, prefix: str) -> AsyncIterator[Owner]:
    owner = await Owner(a_storage(consul, prefix)).start()
    yield owner
    await owner.storage.close()


@pytest.fixture
async def look(consul: RealConsul, prefix: str) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """Describes the group."""
    async with ConsulClient(consul.address) as client:
        yield lambda: describe_group(client, "billing", prefix)


def classic_group(owned: dict[str, list[int]], topics: list[str] | None = None) -> GroupRecord:
    group = group_record("billing")
    member = replace(
        group.members[0],
        subscription=encode_subscription(Subscription(1, topics or ["short"])),
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


def row(partition: int | None, member: str | None, position: int | None) -> PartitionRow:
    return PartitionRow("short", partition, member, position)


def test_the_mirror_is_where_clients_look() -> None:
    assert DEFAULT_MIRROR == PREFIX


async def test_clients_see_members_owners_and_positions(
    consul: RealConsul, prefix: str, owner: Owner, look: Any
) -> None:
    await store(owner, TopicRecord("short", TOPIC_ID, 2), shard=-1)
    await store(
        owner,
        classic_group({"short": [0]}, ["short", "clicks"]),
        commit("billing", 42, topic="short", partitions=2),
    )
    idle = PartitionRow("clicks", None, "m-0", None)
    await until(look, [row(0, "m-0", 42), row(1, None, 42), idle])
    async with ConsulClient(consul.address) as client:
        assert await list_groups(client, prefix) == [("billing", 1)]
        seen = await client.list(GroupKeys("billing", prefix).live)
        members = GroupKeys("billing", prefix).view(seen.at_index, seen.entries).members
    assert members == {"short": {"m-0": 2}, "clicks": {"m-0": 0}}
    await store(owner, classic_group({"short": [1]}), commit("billing", 43, topic="short"))
    await until(look, [row(0, None, 43), row(1, "m-0", 42)])
    await store(owner, OffsetsRemoved("billing", [("short", 1)]))
    await until(look, [row(0, None, 43), row(1, "m-0", None)])

    async def lag_s() -> float:
        return owner.storage.stats()["mirror_lag_s"]

    await until(lag_s, 0.0)
    await store(owner, GroupRemoved("billing"))
    await until(look, [])


async def test_a_consumer_group_has_owners(owner: Owner, look: Any) -> None:
    await store(owner, TopicRecord("short", TOPIC_ID, 2), shard=-1)
    await store(
        owner,
        ConsumerGroupRecord("billing"),
        ConsumerMember("billing", ConsumerMemberFields("a", subscribed_topic_regex="sh.*")),
        ConsumerCurrentAssignment(
            "billing", "a", AssignedFields(1, 2, 1, {TOPIC_ID: ((0, 2),)}, {TOPIC_ID: ((1, 2),)})
        ),
    )
    await until(look, [row(0, "a", None), row(1, "a", None)])


async def test_members_end_with_the_process_and_come_back_with_the_next(
    consul: RealConsul, prefix: str, owner: Owner, look: Any
) -> None:
    await store(owner, classic_group({"short": [0]}), commit("billing", 7, topic="short"))
    await until(look, [row(0, "m-0", 7)])
    session = owner.storage._driver._mirror._session  # type: ignore[attr-defined]
    await session._client.destroy_session(session._session.id)
    session._session.doubt()
    await until(look, [row(0, None, 7)])
    await until(look, [row(0, "m-0", 7)])
    await owner.storage.close()
    assert await look() == [row(0, None, 7)]
    again = await Owner(a_storage(consul, prefix)).start()
    await until(look, [row(0, "m-0", 7)])
    await again.storage.close()


async def test_instances_of_clients_live_beside_members(
    kafka: Watched, consul: RealConsul, prefix: str, owner: Owner, look: Any
) -> None:
    """Neither takes a partition of the other, and the mirror changes no position of an instance."""
    async with ConsulGroup("billing", consul.address, prefix=prefix) as group:
        reader = await group.new_reader(kafka.bootstrap, "short", 1)
        (found,) = await look()
        await reader.commit(5)
        await store(owner, classic_group({"short": [0, 1]}), commit("billing", 7, topic="short"))
        await until(look, [row(0, found.member, 5), row(1, "m-0", None)])
        await store(owner, commit("billing", 8, topic="short", partitions=2))
        await until(look, [row(0, found.member, 5), row(1, "m-0", 8)])
        await reader.commit(6)
        assert owner.storage.stats()["mirror_lag_s"] > 0  # a partition belongs to another
    await until(look, [row(0, "m-0", 8), row(1, "m-0", 8)])


async def test_a_large_group_is_shown_although_few_keys_are_remembered(
    consul: RealConsul, prefix: str, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consul_mirror, "MOST_KNOWN", 100)
    monkeypatch.setattr(consul_mirror, "THREAD_OFFSETS", 100)
    async with ConsulClient(consul.address) as client:

        async def positions() -> int:
            found = await client.list(GroupKeys("billing", prefix).root)
            return sum(entry.value == b"8" for entry in found.entries)

        for offset in (7, 8):
            await store(owner, commit("billing", offset, topic="short", partitions=600))
        await until(positions, 600)
    session = owner.storage._driver._mirror._session  # type: ignore[attr-defined]
    assert (session._known, session._known_keys) == ({}, 0)


async def test_names_that_the_layout_refuses_are_left_out_and_stop_nothing(
    consul: RealConsul, prefix: str, owner: Owner, look: Any
) -> None:
    for name in ("", "..", "a/b", "\0", "x" * 250):
        await store(owner, commit(name, 1))
    await store(owner, commit("billing", 1, topic="a/b"), commit("billing", 2, topic="short"))
    await until(look, [row(0, None, 2)])
    async with ConsulClient(consul.address) as client:
        assert await list_groups(client, prefix) == [("billing", 0)]


async def test_without_a_mirror_nothing_is_written(consul: RealConsul) -> None:
    async with ConsulClient(consul.address) as client:
        before = await client.keys(PREFIX)  # of other tests of readers
        owner = await Owner(a_storage(consul, "off")).start()
        try:
            await store(owner, classic_group({"short": [0]}))
            await asyncio.sleep(0.2)
            assert await client.keys(PREFIX) == before
            assert "mirror_lag_s" not in owner.storage.stats()
        finally:
            await owner.storage.close()
