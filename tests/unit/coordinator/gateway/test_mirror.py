from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

from groupkeeper.coordinator.cluster.topics import mint_topic_id
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.requests.offsets import OffsetDelete
from groupkeeper.coordinator.core.requests.topics import ChangeTopics, NewTopic
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.coordinator.gateway.ends import UpstreamEnds
from groupkeeper.coordinator.gateway.gateway_topics import UNKNOWN_END, GatewayTopics
from groupkeeper.coordinator.gateway.mirror import INTERVAL_S, UpstreamMirror
from groupkeeper.coordinator.gateway.upstream_groups import UpstreamGroups
from tests.helpers.runtime.coordinator import CLIENT, World, a_commit, a_coordinator
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.storage.faulty_storage import Gate, fail, lie, slow
from tests.helpers.wire.fake_groups import FakeGroups


def a_mirror(world: World, upstream: FakeGroups, *, is_ours: bool = True) -> UpstreamMirror:
    coordinator = world.coordinator
    return UpstreamMirror(
        UpstreamGroups(upstream), coordinator.live_groups, lambda: is_ours, coordinator.is_loading
    )


@asynccontextmanager
async def mirroring() -> AsyncIterator[tuple[World, FakeGroups, UpstreamMirror]]:
    topics = GatewayTopics()
    async with a_coordinator(None, topics) as world:
        create = (NewTopic("orders", 4, mint_topic_id()),)
        await topics.change_and_wait(ChangeTopics(CLIENT, create, observed=True))
        upstream = FakeGroups()
        mirror = a_mirror(world, upstream)
        topics.gateway_ends.when_committed = mirror.committed
        yield world, upstream, mirror


async def commit(world: World, offset: int, partition: int = 0, group_id: str = "g") -> None:
    await world.until(world.send(a_commit(group_id, offset, partition)))


@virtual_time
async def test_commits_go_to_the_upstream_merged() -> None:
    async with mirroring() as (world, upstream, mirror):
        for offset in (1, 2, 3):
            await commit(world, offset)
        await commit(world, 8, partition=1)
        await mirror.round()
        assert upstream.stored == {"g": {("orders", 0): (3, -1, ""), ("orders", 1): (8, -1, "")}}
        await commit(world, 9, partition=1)
        await mirror.round()
        assert [len(offsets) for _, offsets in upstream.commits] == [2, 1]


@virtual_time
async def test_the_lag_is_the_age_of_the_oldest_offset_that_is_not_sent() -> None:
    async with mirroring() as (world, upstream, mirror):
        assert mirror.lag_s == 0
        upstream.is_down = True
        await commit(world, 1)
        await mirror.round()
        await asyncio.sleep(60)
        await commit(world, 2)
        await mirror.round()
        assert mirror.lag_s >= 60
        assert mirror.waiting_groups == 1
        upstream.is_down = False
        await mirror.round()
        assert (mirror.lag_s, mirror.waiting_groups) == (0, 0)
        assert upstream.stored["g"]["orders", 0] == (2, -1, "")


@virtual_time
async def test_commits_are_sent_when_their_shard_is_loaded_again() -> None:
    """While it is LOADING, nobody knows the group, and it is not one that was deleted."""
    async with mirroring() as (world, upstream, mirror):
        await commit(world, 1)
        await mirror.round()
        await commit(world, 2)
        gate = Gate()
        world.storage.script("append", fail())
        world.storage.script("load", slow(gate))
        world.send(a_commit("g", 3, 0))
        await gate.reached.wait()
        await mirror.round()
        assert mirror.waiting_groups == 1
        gate.open()
        await asyncio.sleep(1)
        await mirror.round()
        assert upstream.stored["g"]["orders", 0] == (2, -1, "")
        assert mirror.waiting_groups == 0


@virtual_time
async def test_what_was_sent_of_deleted_groups_and_offsets_is_forgotten() -> None:
    """Otherwise clients that create and delete groups would fill the memory."""
    async with mirroring() as (world, upstream, mirror):
        for partition in (0, 1):
            await commit(world, 7, partition)
            await commit(world, 7, partition, "gone")
        await mirror.round()
        deletions = [DeleteGroup("gone", CLIENT), OffsetDelete("g", (("orders", [1]),), CLIENT)]
        await world.until(*map(world.send, deletions))
        await mirror.round()
        upstream.commits.clear()
        for partition in (0, 1):
            await commit(world, 7, partition)
            await commit(world, 7, partition, "gone")
        await mirror.round()
        sent = [(group, each.partition) for group, offsets in upstream.commits for each in offsets]
        assert sorted(sent) == [("g", 1), ("gone", 0), ("gone", 1)]


@virtual_time
async def test_after_a_start_every_offset_is_sent() -> None:
    async with mirroring() as (world, upstream, _):
        await commit(world, 1, group_id="a")
        await commit(world, 2, group_id="b")
        mirror = a_mirror(world, upstream)
        mirror.start()
        await asyncio.sleep(INTERVAL_S)
        assert {group: rows["orders", 0][0] for group, rows in upstream.stored.items()} == {
            "a": 1,
            "b": 2,
        }
        await mirror.stop()


@virtual_time
async def test_a_group_with_members_upstream_is_counted_as_refused() -> None:
    async with mirroring() as (world, upstream, mirror):
        upstream.members["g"] = "classic"
        await commit(world, 1)
        await mirror.round()
        assert mirror.refused == 1
        assert mirror.waiting_groups == 0


@virtual_time
async def test_a_shard_that_loads_late_is_sent_too() -> None:
    """Its groups were missing in the upstream until their next commits."""
    async with mirroring() as (world, upstream, _):
        shards = world.coordinator.config.shards
        late = next(g for g in map(str, range(99)) if shard_of(g, shards) != shard_of("g", shards))
        await commit(world, 1)
        await commit(world, 2, group_id=late)
        loading = {late}

        def live_groups() -> Iterator[Mapping[str, Group]]:
            return (each for each in world.coordinator.live_groups() if loading.isdisjoint(each))

        groups = UpstreamGroups(upstream)
        mirror = UpstreamMirror(groups, live_groups, lambda: True, loading.__contains__)
        mirror.start()
        await asyncio.sleep(INTERVAL_S)
        assert [*upstream.stored] == ["g"]
        loading.clear()
        await asyncio.sleep(INTERVAL_S)
        assert upstream.stored[late]["orders", 0] == (2, -1, "")
        await mirror.stop()


@virtual_time
async def test_a_commit_that_failed_and_was_durable_is_sent() -> None:
    """Only the load that follows knows of it."""
    async with mirroring() as (world, upstream, mirror):
        await commit(world, 1)
        mirror.start()
        await asyncio.sleep(INTERVAL_S)
        world.storage.script("append", lie())
        await commit(world, 2)
        await asyncio.sleep(3 * INTERVAL_S)
        assert upstream.stored["g"]["orders", 0] == (2, -1, "")
        await mirror.stop()


@virtual_time
async def test_nothing_is_sent_to_another_cluster() -> None:
    async with mirroring() as (world, upstream, _):
        mirror = a_mirror(world, upstream, is_ours=False)
        mirror.start()
        await commit(world, 1)
        await asyncio.sleep(5)
        assert upstream.asked == []
        await mirror.stop()
        assert upstream.asked == []


@virtual_time
async def test_ends_are_those_of_partitions_with_a_commit() -> None:
    async with mirroring() as (world, upstream, _):
        topics = world.coordinator.topics
        assert isinstance(topics, GatewayTopics)
        await commit(world, 500)
        assert topics.end_offset(topics.image.by_name["orders"].topic_id, 0) == UNKNOWN_END
        upstream.ends = {("orders", 0): 120, ("orders", 1): 77}
        ends = UpstreamEnds(upstream, topics, world.coordinator.live_groups, lambda: True)
        await ends.refresh()
        topic_id = topics.image.by_name["orders"].topic_id
        assert topics.end_offset(topic_id, 0) == 120  # lower than the commit: the topic was cut
        assert topics.end_offset(topic_id, 1) == UNKNOWN_END  # nobody has committed there
        await commit(world, 1, partition=1)
        upstream.ends["orders", 0] = 600
        await ends.refresh()
        assert [topics.end_offset(topic_id, each) for each in (0, 1)] == [600, 77]
