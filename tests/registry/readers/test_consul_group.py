"""Groups of readers on a real Consul and a real Kafka: claims, positions, and hand-overs."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from groupkeeper.clients.readers.consul_group import ConsulGroup, Scheme
from groupkeeper.clients.readers.errors import (
    BadPosition,
    HandedOver,
    NoPartitionFree,
    PartitionLost,
)
from groupkeeper.clients.readers.group_keys import GroupKeys
from groupkeeper.clients.readers.group_reader import GroupReader
from groupkeeper.clients.readers.message_iter import MessageIter
from groupkeeper.clients.readers.multi_iter import MultiIter
from groupkeeper.clients.readers.partition_log import EARLIEST
from groupkeeper.clients.readers.spread_readers import SpreadReaders
from groupkeeper.storage.connections.consul import ConsulClient
from tests.helpers.clients.real_consul import RealConsul
from tests.registry.readers.log_of_messages import COUNTS, MESSAGES, PARTITIONS, TOPIC, Watched

pytestmark = pytest.mark.registry


@pytest.fixture
def name() -> str:
    """A group that no other test has."""
    return f"group-{uuid4().hex[:8]}"


@pytest.fixture
async def client(consul: RealConsul) -> AsyncIterator[ConsulClient]:
    async with ConsulClient(consul.address) as connected:
        yield connected


def group_of(consul: RealConsul, name: str, **options: Any) -> ConsulGroup:
    return ConsulGroup(name, consul.address, lock_delay_ms=1_000, **options)


def sessions(consul: RealConsul) -> str:
    with urllib.request.urlopen(f"http://{consul.address}/v1/session/list") as answer:
        return str(answer.read())


async def read_on(messages: MessageIter) -> None:
    async for _ in messages:
        pass


async def offsets(reader: GroupReader, count: int, start: int | None = None) -> list[int]:
    async with reader.read(start) as messages:
        return [(await anext(messages)).offset for _ in range(count)]


async def test_each_reader_has_a_partition_of_its_own(
    kafka: Watched, consul: RealConsul, name: str
) -> None:
    one, two = group_of(consul, name), group_of(consul, name)
    async with one, two:
        readers = await asyncio.gather(
            *(group.new_reader(kafka.bootstrap, TOPIC, 4) for group in (one, two, one, two))
        )
        assert sorted(reader.partition for reader in readers) == [0, 1, 2, 3]
        assert [await offsets(reader, 2, 0) for reader in readers] == [[0, 1]] * 4
        with pytest.raises(NoPartitionFree, match="all 4"):
            await one.new_reader(kafka.bootstrap, TOPIC, 4, wait=False)
        waiting = asyncio.create_task(one.new_reader(kafka.bootstrap, TOPIC, 4))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await readers[1].close()
        assert (await waiting).partition == readers[1].partition


async def test_a_reader_of_each_partition_merged_gives_every_message_once_and_in_order(
    kafka: Watched, consul: RealConsul, name: str
) -> None:
    async with group_of(consul, name) as group:
        claims = (group.new_reader(kafka.bootstrap, TOPIC, PARTITIONS) for _ in COUNTS)
        readers = await asyncio.gather(*claims)
        expected: Counter[int] = Counter()
        async with MultiIter([reader.read(0) for reader in readers]) as messages:
            for _ in range(MESSAGES):
                message = await anext(messages)
                assert message.offset == expected[message.partition]
                expected[message.partition] += 1
        assert [expected[p] for p in range(PARTITIONS)] == COUNTS


async def test_the_next_owner_begins_where_the_last_one_committed(
    kafka: Watched, consul: RealConsul, name: str
) -> None:
    async with group_of(consul, name) as first:
        reader = await first.new_reader(kafka.bootstrap, "short", 1)
        assert await reader.position() == EARLIEST
        messages = reader.read()
        for _ in range(7):
            await anext(messages)
        assert messages.position == 7
        await reader.commit(messages.position)
    async with group_of(consul, name) as second:
        reader = await second.new_reader(kafka.bootstrap, "short", 1)
        assert await offsets(reader, 2) == [7, 8]
        assert await offsets(reader, 1, 0) == [0]


async def test_a_session_that_was_ended_by_others_ends_the_reader_and_refuses_its_commit(
    kafka: Watched, consul: RealConsul, name: str, client: ConsulClient
) -> None:
    async with group_of(consul, name) as group:
        reader = await group.new_reader(kafka.bootstrap, "short", 1)
        messages = reader.read(0)
        await anext(messages)
        (entry,) = (await client.list(GroupKeys(name).live)).entries
        assert entry.session is not None
        await client.destroy_session(entry.session)
        with pytest.raises(PartitionLost):
            await reader.commit(1)  # Consul's answer, unless the watch was faster
        with pytest.raises(PartitionLost):
            await read_on(messages)
        assert await client.get(GroupKeys(name).position("short", 0)) is None
        again = await group.new_reader(kafka.bootstrap, "short", 1)  # with another session
        assert await offsets(again, 1) == [0]


async def test_a_member_without_a_session_leaves_the_next_owner_its_lock(
    kafka: Watched, consul: RealConsul, name: str, client: ConsulClient
) -> None:
    async with group_of(consul, name) as one, group_of(consul, name) as two:
        old = await one.new_reader(kafka.bootstrap, "short", 1)
        waiting = asyncio.create_task(two.new_reader(kafka.bootstrap, "short", 1))
        (entry,) = (await client.list(GroupKeys(name).live)).entries
        assert entry.session is not None
        await client.destroy_session(entry.session)
        new = await waiting
        await old.close()
        (entry,) = (await client.list(GroupKeys(name).live)).entries
        await new.commit(4)
        with pytest.raises(PartitionLost):
            await old.commit(3)
        assert await new.position() == 4


async def test_a_partition_whose_session_has_ended_is_free_only_after_the_lock_delay(
    kafka: Watched, consul: RealConsul, name: str, client: ConsulClient
) -> None:
    one, two = (ConsulGroup(name, consul.address, lock_delay_ms=each) for each in (3_000, 0))
    async with one, two:
        await one.new_reader(kafka.bootstrap, "short", 1)
        (entry,) = (await client.list(GroupKeys(name).live)).entries
        assert entry.session is not None
        await client.destroy_session(entry.session)
        assert (await client.list(GroupKeys(name).live)).entries == ()
        with pytest.raises(NoPartitionFree):  # its last owner may not know yet
            await two.new_reader(kafka.bootstrap, "short", 1, wait=False)
        assert (await two.new_reader(kafka.bootstrap, "short", 1)).partition == 0


async def test_a_group_asks_consul_for_changes_and_never_twice_for_the_same(
    kafka: Watched, consul: RealConsul, name: str
) -> None:
    asked: list[httpx2.URL] = []

    async def see(request: httpx2.Request) -> None:
        if request.method == "GET":
            asked.append(request.url)

    groups = [group_of(consul, name, scheme="spread") for _ in range(2)]
    groups[0]._client._http.event_hooks = {"request": [see]}
    async with groups[0], groups[1]:
        share = await groups[0].new_readers(kafka.bootstrap, "short", 2)
        reading = asyncio.create_task(read_on(share.read()))
        await groups[1].new_readers(kafka.bootstrap, "short", 2)
        await asyncio.sleep(2)
        reading.cancel()
    positions = [each for each in asked if "/positions/" in each.path]
    views = [each.params.get("index") for each in asked if "/live/" in each.path]
    assert len(positions) == 2  # where each reader begins
    assert len(positions) + len(views) == len(asked)
    assert views[0] is None
    assert None not in views[1:]
    assert len(set(views)) == len(views)


async def test_a_lock_that_somebody_deleted_ends_the_reader(
    kafka: Watched, consul: RealConsul, name: str, client: ConsulClient
) -> None:
    async with group_of(consul, name) as group:
        reader = await group.new_reader(kafka.bootstrap, "empty", 1)
        waiting = asyncio.create_task(offsets(reader, 10_000))
        await asyncio.sleep(0.3)
        await client.delete(GroupKeys(name).owner("empty", 0))
        with pytest.raises(PartitionLost, match="another owner, or none"):
            await waiting


async def test_a_share_takes_a_partition_again_whose_lock_somebody_deleted(
    kafka: Watched, consul: RealConsul, name: str, client: ConsulClient
) -> None:
    async with group_of(consul, name, scheme="spread") as group:
        share = await group.new_readers(kafka.bootstrap, "short", 2)
        with pytest.raises(ValueError, match="a share of 'short' already"):
            await group.new_readers(kafka.bootstrap, "short", 2)
        messages = share.read()
        committed = 0
        for _ in range(20):
            message = await anext(messages)
            await share.commit(message)
            committed += message.partition == 0
        await client.delete(GroupKeys(name).owner("short", 0))
        with pytest.raises(PartitionLost):
            await read_on(messages)
        async with asyncio.timeout(10):
            while share.partitions != [0, 1]:
                await share.changed()
        assert {(await anext(share.read())).partition for _ in range(4)} <= {0, 1}
        assert await offsets(share[0], 1) == [committed]


async def test_a_position_that_is_none_is_told_with_its_key(
    kafka: Watched, consul: RealConsul, name: str, client: ConsulClient
) -> None:
    await client.put(GroupKeys(name).position("short", 0), b"soon")
    async with group_of(consul, name) as group:
        reader = await group.new_reader(kafka.bootstrap, "short", 1)
        with pytest.raises(BadPosition, match="positions/short/0 holds 'soon'"):
            await offsets(reader, 1)


async def test_a_share_is_even_and_moves_no_more_than_it_must(
    kafka: Watched, consul: RealConsul, name: str
) -> None:
    """From 1 process to 5 and back to 1, each step compared with the optimum."""
    async with AsyncExitStack() as stack:
        shares: list[SpreadReaders] = []
        groups: list[ConsulGroup] = []

        async def owners_when_even(count: int) -> dict[int, SpreadReaders]:
            async with asyncio.timeout(20):
                while True:
                    owners = {p: share for share in shares for p in share.partitions}
                    sizes = [len(share) for share in shares]
                    if len(owners) == sum(sizes) == PARTITIONS and max(sizes) - min(sizes) <= 1:
                        return owners
                    await asyncio.sleep(0.02)

        before: dict[int, SpreadReaders] = {}
        for count in (1, 2, 3, 4, 5):
            group = await stack.enter_async_context(group_of(consul, name, scheme=Scheme.SPREAD))
            groups.append(group)
            shares.append(await group.new_readers(kafka.bootstrap, TOPIC, PARTITIONS))
            after = await owners_when_even(count)
            moved = sum(before[p] is not after[p] for p in before)
            assert moved == (0 if count == 1 else PARTITIONS // count)
            before = after
        for count in (4, 3, 2, 1):
            left = shares.pop(0)
            await groups.pop(0).close()
            after = await owners_when_even(count)
            assert all(before[p] is after[p] for p in before if before[p] is not left)
            before = after


async def test_members_that_know_of_fewer_partitions_share_those_of_the_others_as_well(
    kafka: Watched, consul: RealConsul, name: str
) -> None:
    """As while a topic grows: until the last process is restarted, all partitions are read."""
    one, two = (group_of(consul, name, scheme="spread") for _ in range(2))
    async with one, two:
        shares = [await one.new_readers(kafka.bootstrap, TOPIC, 2)]
        shares.append(await two.new_readers(kafka.bootstrap, TOPIC, 6))
        async with asyncio.timeout(10):
            while len(shares[0]) < 3:
                await shares[0].changed()
        assert len(shares[1]) == 3
        assert sorted(p for share in shares for p in share.partitions) == list(range(6))


async def test_a_hand_over_waits_until_the_old_owner_has_come_back_from_its_last_message(
    kafka: Watched, consul: RealConsul, name: str
) -> None:
    one = group_of(consul, name, scheme="spread")
    two = group_of(consul, name, scheme="spread")
    async with one, two:
        old = await one.new_readers(kafka.bootstrap, TOPIC, 2)
        iterators = [reader.read(0) for reader in old]
        for iterator in iterators:
            await anext(iterator)
        new = await two.new_readers(kafka.bootstrap, TOPIC, 2, wait=False)
        while len(old) > 1:  # it may have changed already
            await old.changed()
        await asyncio.sleep(0.5)
        assert (len(old), len(new)) == (1, 0)  # the last message is still being worked on
        (given,) = {0, 1} - set(old.partitions)
        with pytest.raises(HandedOver):
            await anext(iterators[given])
        async with asyncio.timeout(5):
            await new.settled()
        assert new.partitions == [given]


async def test_a_member_that_stops_waiting_for_its_share_leaves_and_can_join_again(
    kafka: Watched, consul: RealConsul, name: str
) -> None:
    one = group_of(consul, name, scheme="spread")
    two = group_of(consul, name, scheme="spread")
    async with one, two:
        old = await one.new_readers(kafka.bootstrap, TOPIC, 2)
        iterators = [reader.read(0) for reader in old]
        for messages in iterators:
            await anext(messages)  # nothing is handed over before the next message
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await two.new_readers(kafka.bootstrap, TOPIC, 2)
        new = await two.new_readers(kafka.bootstrap, TOPIC, 2, wait=False)
        assert len(new) == 0
        while len(old) > 1:  # who reads on before it knows of the other hands nothing over
            await old.changed()
        for messages in iterators:
            with contextlib.suppress(HandedOver):
                await anext(messages)
        await new.settled()
        assert len(new) == 1


async def test_a_share_is_read_on_by_its_new_owner_without_a_gap_or_a_repetition(
    kafka: Watched, consul: RealConsul, name: str
) -> None:
    seen: Counter[tuple[int, int]] = Counter()

    enough = asyncio.Event()
    readers: set[SpreadReaders] = set()

    async def read_and_commit(share: SpreadReaders) -> None:
        async with share.read() as messages:
            async for message in messages:
                seen[message.partition, message.offset] += 1
                if len(seen) >= 500 and len(readers) == 2:
                    enough.set()
                await share.commit(message)
                readers.add(share)

    one = group_of(consul, name, scheme="spread")
    two = group_of(consul, name, scheme="spread")
    async with one, two:
        tasks = [
            asyncio.create_task(read_and_commit(await one.new_readers(kafka.bootstrap, "short", 2)))
        ]
        await asyncio.sleep(0.4)
        async with asyncio.timeout(10):
            share = await two.new_readers(kafka.bootstrap, "short", 2)
        assert len(share) == 1
        tasks.append(asyncio.create_task(read_and_commit(share)))
        async with asyncio.timeout(30):
            await enough.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert set(seen.values()) == {1}


async def test_a_closed_group_leaves_nothing_but_its_positions_and_no_task(
    kafka: Watched, consul: RealConsul, name: str, client: ConsulClient
) -> None:
    async with group_of(consul, name, scheme="spread") as group:
        share = await group.new_readers(kafka.bootstrap, "short", 2)
        await share[0].commit(3)
    left = (await client.list(GroupKeys(name).root)).entries
    assert [(each.key, each.value) for each in left] == [
        (GroupKeys(name).position("short", 0), b"3")
    ]
    assert name not in await asyncio.to_thread(sessions, consul)
    names = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}  # type: ignore[union-attr]
    assert not [each for each in names if "Member" in each or "Session" in each or "Spread" in each]
