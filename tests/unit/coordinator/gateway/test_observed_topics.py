from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from groupkeeper.coordinator.cluster.topics import Topics
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.offsets import OffsetFetch
from groupkeeper.coordinator.gateway.client import BrokerError
from groupkeeper.coordinator.gateway.observed_topics import LOOK_UP_S, ObservedTopics
from groupkeeper.coordinator.gateway.topic_list import ObservedTopic
from tests.helpers.runtime.coordinator import World, a_commit, a_coordinator
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.storage.faulty_storage import FaultyStorage
from tests.helpers.wire.fake_upstream import FakeUpstream

ORDERS, ABSENT = ("orders", ""), ("absent", "")


@asynccontextmanager
async def observing(
    upstream: FakeUpstream, storage: FaultyStorage | None = None
) -> AsyncIterator[tuple[World, ObservedTopics]]:
    topics = Topics()
    async with a_coordinator(storage, topics) as world:
        observed = ObservedTopics(topics)
        observed.ask = upstream.ask_frame
        yield world, observed


def shown(world: World) -> dict[str, tuple[str, int]]:
    assert world.coordinator.topics is not None
    image = world.coordinator.topics.image
    return {name: (info.topic_id, info.partitions) for name, info in image.by_name.items()}


async def committed(world: World) -> int:
    fetched = world.send(OffsetFetch("g", [("orders", "", [0])], False, False))
    await world.until(fetched)
    offset: int = fetched.offsets()["orders", 0]
    return offset


@virtual_time
async def test_topics_have_the_names_ids_and_partitions_of_the_upstream() -> None:
    upstream = FakeUpstream(orders=3, __consumer_offsets=50, big=200_001)
    upstream.create("a.b")
    upstream.create("a_b")  # metrics would call both the same; Kafka has them
    async with observing(upstream) as (world, observed):
        await observed.refresh()
        assert shown(world) == upstream.topics


@virtual_time
async def test_topics_without_ids_upstream_get_one_of_ours_that_stays() -> None:
    async with observing(FakeUpstream(version=8, orders=3)) as (world, observed):
        await observed.refresh()
        first = shown(world)
        await observed.refresh()
        assert shown(world) == first
        assert len(first["orders"][0]) == 22


@virtual_time
async def test_a_topic_grows_and_never_shrinks() -> None:
    upstream = FakeUpstream(orders=3)
    async with observing(upstream) as (world, observed):
        await observed.refresh()
        topic_id, _ = upstream.topics["orders"]
        for count, expected in ((5, 5), (4, 5)):
            upstream.topics["orders"] = topic_id, count
            await observed.refresh()
            assert shown(world) == {"orders": (topic_id, expected)}


@virtual_time
async def test_a_topic_is_deleted_after_two_look_ups_and_its_offsets_with_it() -> None:
    upstream = FakeUpstream(orders=3, other=1)
    async with observing(upstream) as (world, observed):
        await observed.refresh()
        await world.until(world.send(a_commit()))
        del upstream.topics["orders"]
        await observed.refresh()
        assert "orders" in shown(world)
        assert await committed(world) == 5
        await observed.refresh()
        assert [*shown(world)] == ["other"]
        await turns(20)
        assert await committed(world) == -1


@virtual_time
async def test_a_topic_that_comes_back_between_two_look_ups_stays() -> None:
    upstream = FakeUpstream(orders=3)
    kept = upstream.topics.copy()
    async with observing(upstream) as (world, observed):
        await observed.refresh()
        for there in ({}, kept, {}, kept):
            upstream.topics = dict(there)
            await observed.refresh()
            assert shown(world) == kept


@virtual_time
async def test_a_topic_that_our_user_may_not_see_stays() -> None:
    upstream = FakeUpstream(orders=3)
    async with observing(upstream) as (world, observed):
        await observed.refresh()
        upstream.hidden = {"orders"}
        for _ in range(3):
            await observed.refresh()
        assert shown(world) == upstream.topics


@virtual_time
async def test_a_broker_that_does_not_answer_deletes_nothing() -> None:
    upstream = FakeUpstream(orders=3)
    async with observing(upstream) as (world, observed):
        await observed.refresh()
        upstream.is_down = True
        for _ in range(3):
            with pytest.raises(BrokerError):
                await observed.refresh()
        assert shown(world) == upstream.topics


@virtual_time
async def test_a_topic_created_again_loses_its_offsets() -> None:
    upstream = FakeUpstream(orders=3)
    async with observing(upstream) as (world, observed):
        await observed.refresh()
        await world.until(world.send(a_commit()))
        upstream.create("orders", 2)
        await observed.refresh()
        assert shown(world) == upstream.topics
        await turns(20)
        assert await committed(world) == -1


@virtual_time
async def test_a_broker_that_is_behind_does_not_bring_an_old_topic_back() -> None:
    upstream = FakeUpstream(orders=3)
    async with observing(upstream) as (world, observed):
        await observed.refresh()
        old, _ = upstream.topics["orders"]
        new = upstream.create("orders")
        await observed.refresh()
        upstream.topics["orders"] = old, 3
        await observed.refresh()
        assert shown(world) == {"orders": (new, 3)}


@virtual_time
async def test_a_look_up_finds_a_new_topic_at_once() -> None:
    upstream = FakeUpstream()
    async with observing(upstream) as (world, observed):
        await observed.refresh()
        upstream.create("orders")
        await observed.look_up([ORDERS, ABSENT])
        assert shown(world) == upstream.topics
        assert upstream.asked == [None, ["orders", "absent"]]


@virtual_time
async def test_a_look_up_by_id_finds_the_name() -> None:
    upstream = FakeUpstream()
    async with observing(upstream) as (world, observed):
        topic_id = upstream.create("orders")
        await observed.look_up([("", topic_id), ("", "AAAAAAAAAAAAAAAAAAAAAQ")])
        assert shown(world) == upstream.topics


@virtual_time
async def test_a_no_is_kept_for_a_second_and_look_ups_at_once_are_one() -> None:
    upstream = FakeUpstream()
    async with observing(upstream) as (_, observed):
        await asyncio.gather(*[observed.look_up([ABSENT]) for _ in range(5)])
        await observed.look_up([ABSENT])
        assert upstream.asked == [["absent"]]
        await asyncio.sleep(LOOK_UP_S)
        assert observed.worth_asking([ABSENT]) == [ABSENT]


@virtual_time
async def test_a_name_that_is_too_long_for_a_topic_is_not_asked_for() -> None:
    """Remembered names of 32,767 bytes would need a third of a gigabyte."""
    upstream = FakeUpstream()
    async with observing(upstream) as (_, observed):
        await observed.look_up([("a" * 249, ""), ("a" * 250, "")])
        assert upstream.asked == [["a" * 249]]


@virtual_time
async def test_a_look_up_ends_after_a_second_if_nobody_answers() -> None:
    async with observing(FakeUpstream()) as (_, observed):

        async def hang(*_: object, **__: object) -> tuple[int, bytes]:
            await asyncio.sleep(3_600)
            raise AssertionError

        observed.ask = hang
        before = asyncio.get_running_loop().time()
        await observed.look_up([ORDERS])
        assert asyncio.get_running_loop().time() - before == pytest.approx(LOOK_UP_S)


@virtual_time
async def test_topics_are_there_again_after_a_restart() -> None:
    storage = FaultyStorage()
    upstream = FakeUpstream(orders=3, __transaction_state=50)
    async with observing(upstream, storage) as (_, observed):
        await observed.refresh()
    async with observing(upstream, storage) as (world, observed):
        assert shown(world) == upstream.topics
        await observed.refresh()
        assert shown(world) == upstream.topics


def test_the_errors_of_topics_that_exist() -> None:
    assert ObservedTopic("a", "", 1, 0).is_there
    assert ObservedTopic("a", "", 1, 5).is_there  # LEADER_NOT_AVAILABLE
    assert not ObservedTopic("a", "", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION).is_there
