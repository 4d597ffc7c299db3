"""Another process takes the shards in the middle of an append: all of it is stored, or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from groupkeeper.coordinator.core.events import GroupCreated
from groupkeeper.storage.base import Batch, StorageError, StoreRefused
from tests.helpers.core.records import commit
from tests.helpers.storage.fake_kafka import FakeKafka, Pause
from tests.helpers.storage.kafka_topic_site import FakeKafkaSite, KafkaTopicSite
from tests.helpers.storage.storage_owner import Owner

Site = FakeKafkaSite | KafkaTopicSite

OFFSET = ("offset", 0, "g", "orders", 0)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka_topic)])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    if request.param == "fake":
        site: Site = FakeKafkaSite(FakeKafka())
    else:
        site = KafkaTopicSite(request.getfixturevalue("kafka"))
    yield site
    for owner in site.owners:
        await owner.storage.close()


def at(stage: tuple[str, bool], work: Callable[[], object]) -> Pause:
    """Do something once, at one point of an append."""
    left = [stage]

    async def pause(call: str, is_done: bool) -> None:
        await asyncio.sleep(0)
        if left == [(call, is_done)]:
            left.clear()
            await work()  # type: ignore[misc]

    return pause


async def hung(site: Site, owner: Owner) -> Owner:
    """The process of ``owner`` beats no more. Return the owner that takes its shards."""
    owner.storage._beating.cancel()  # type: ignore[attr-defined]  # as if it were suspended
    return await site.owner(2)


@pytest.mark.parametrize(
    ("stage", "is_stored"),
    [
        (("begin", False), False),
        (("begin", True), False),
        (("send", True), False),
        (("commit", False), False),
        (("commit", True), True),
    ],
    ids=["before it begins", "before it is sent", "after it is sent", "before its commit", "after"],
)
async def test_an_append_of_a_hung_process_is_there_wholly_or_never(
    site: Site, stage: tuple[str, bool], is_stored: bool
):
    successors: list[Owner] = []

    async def take() -> None:
        successors.append(await hung(site, first))

    first = await site.owner(1)
    await first.append(0, [commit("g", 1)])
    site.pause = at(stage, take)
    first = await site.again(first)
    late = commit("g", 2, partitions=3)
    batch = Batch([late], [GroupCreated(group_id="g")])
    outcome = await first.storage.append([first.item(0, batch)])
    (second,) = successors
    assert [*outcome] == ([] if is_stored else [0])
    assert second.model.keys[OFFSET][0] == (2 if is_stored else 1)
    assert (("offset", 0, "g", "orders", 2) in second.model.keys) == is_stored
    await second.append(0, [commit("g", 3)])
    assert (await second.read()).keys == second.model.keys
    kinds = [event["kind"] for event in site.events() if event["kind"] != "log_started"]
    assert kinds == ["commit"] + ["group_created", "commit"] * is_stored + ["commit"]


async def test_a_process_that_lost_its_life_gets_no_shard(site: Site):
    first = await site.owner(1)
    second = await hung(site, first)
    with pytest.raises(StorageError, match="the life ended during an acquire"):
        await first.reload()
    with pytest.raises(StoreRefused, match=r"in use by node 2 \(host:2\)"):
        await first.reload()
    await second.append(0, [commit("g", 1)])
    assert first.storage.read_time_left_ms() == 0  # type: ignore[attr-defined]


async def test_after_an_append_in_doubt_the_shard_is_acquired_again(site: Site):
    async def fail() -> None:
        raise StorageError("the connection broke")

    site.pause = at(("send", True), fail)
    owner = await site.owner(1)
    with pytest.raises(StorageError, match="the connection broke"):
        await owner.storage.append([owner.item(0, Batch([commit("g", 9)], []))])
    with pytest.raises(StorageError, match="nobody knows whether the last append"):
        await owner.storage.append([owner.item(0, Batch([commit("g", 9)], []))])
    await owner.reload()
    assert owner.model.keys == {}
    await owner.append(0, [commit("g", 1)])
    assert (await owner.read()).keys == owner.model.keys
    assert [(event["kind"], event["seq"]) for event in site.events()] == [("commit", 1)]


async def test_other_shards_go_on_after_an_append_in_doubt(site: Site):
    async def fail() -> None:
        raise StorageError("the connection broke")

    site.pause = at(("commit", False), fail)
    owner = await site.owner(1)
    with pytest.raises(StorageError, match="the connection broke"):
        await owner.storage.append([owner.item(0, Batch([commit("g", 9)], []))])
    await owner.append(1, [commit("h", 1)])
    leases = await owner.storage.acquire([0], owner.name)
    assert leases[0].epoch > owner.epoch
    assert (await owner.read([0])).keys == {}
    assert (await owner.read([1])).keys == owner.model.keys


async def test_no_fence_goes_on_after_an_acquire_has_failed() -> None:
    site = FakeKafkaSite(FakeKafka())
    owner = await site.owner(1)
    begun: list[str] = []
    ended: list[str] = []

    async def pause(call: str, is_done: bool) -> None:
        if call != "fence" or is_done:
            return
        begun.append(call)
        if len(begun) == 1:
            raise StorageError("the connection broke")
        for _ in range(20):
            await asyncio.sleep(0)
        ended.append(call)

    site.pause = pause
    with pytest.raises(StorageError, match="the connection broke"):
        await owner.storage.acquire([0, 1, 2, 3], owner.name)
    assert len(ended) == 3
    await owner.storage.close()
