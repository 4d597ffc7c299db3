"""Topics of static mode: their life in the cluster shard, and the ends of their partitions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics, mint_topic_id
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.offsets import OffsetFetch
from groupkeeper.coordinator.core.requests.topics import ChangeTopics, NewTopic
from tests.helpers.runtime.coordinator import (
    CLIENT,
    RecordingTicket,
    World,
    a_commit,
    a_coordinator,
)
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.storage.faulty_storage import FaultyStorage, Gate, fail, lie, slow


def topics_of(world: World) -> Topics:
    assert world.coordinator.topics is not None
    return world.coordinator.topics


def id_of(world: World, name: str = "orders") -> str:
    return topics_of(world).image.by_name[name].topic_id


def end_of(world: World, partition: int = 0, name: str = "orders") -> int:
    return topics_of(world).end_offset(id_of(world, name), partition)


def create(world: World, name: str, partitions: int = 3) -> RecordingTicket:
    return world.send(ChangeTopics(CLIENT, create=(NewTopic(name, partitions, mint_topic_id()),)))


def delete(world: World, name: str) -> RecordingTicket:
    return world.send(ChangeTopics(CLIENT, delete=((name, ""),)))


@virtual_time
async def test_topics_of_the_config_exist_once_the_start_returns() -> None:
    async with a_coordinator() as world:
        image = topics_of(world).image
        assert {t.name: t.partitions for t in image.by_name.values()} == {
            "orders": 12,
            "payments": 4,
        }
        assert {len(topic_id) for topic_id in image.by_id} == {22}


@virtual_time
async def test_ids_survive_a_restart_and_topics_grow_to_the_config() -> None:
    storage = FaultyStorage()
    async with a_coordinator(storage) as world:
        ids = {name: t.topic_id for name, t in topics_of(world).image.by_name.items()}
    configured = [ConfiguredTopic("orders", 20), ConfiguredTopic("payments", 1)]
    async with a_coordinator(storage, Topics(configured)) as world:
        image = topics_of(world).image
        assert {name: t.topic_id for name, t in image.by_name.items()} == ids
        assert image.by_name["orders"].partitions == 20
        assert image.by_name["payments"].partitions == 4  # never cut


@virtual_time
async def test_a_topic_that_left_the_config_stays_and_is_told_in_one_line() -> None:
    storage = FaultyStorage()
    async with a_coordinator(storage):
        pass
    with capture_logs() as lines:
        async with a_coordinator(storage, Topics([ConfiguredTopic("orders", 6)])) as world:
            assert set(topics_of(world).image.by_name) == {"orders", "payments"}
    told = [(line["event"], line["topic"]) for line in lines if line["event"].startswith("topic_")]
    assert told == [
        ("topic_has_more_partitions_than_config", "orders"),
        ("topic_not_in_config", "payments"),
    ]


@virtual_time
async def test_the_end_has_grown_when_the_commit_is_answered() -> None:
    """Whoever is told that 7 is committed, and reads there, must not be told it is out of range."""
    async with a_coordinator() as world:
        seen: list[int] = []

        class Reader(RecordingTicket):
            def resolve(self, result: Any) -> None:
                super().resolve(result)
                seen.append(end_of(world))

        reader = Reader(a_commit("g", 7))
        world.tickets.append(reader)
        world.coordinator.submit(a_commit("g", 7), reader)
        await world.until(reader)
        assert seen == [7]


@virtual_time
async def test_a_created_topic_can_be_committed_to_as_soon_as_the_answer_is_there() -> None:
    async with a_coordinator() as world:
        unknown = world.send(a_commit(topics=[("new", "", [(0, 5, -1, "")])]))
        created = create(world, "new")
        await world.until(created, unknown)
        commit = world.send(a_commit(topics=[("new", "", [(0, 5, -1, "")])]))
        await world.until(commit)
        assert commit.error is ErrorCode.NONE
        assert end_of(world, 0, "new") == 5


@virtual_time
async def test_a_topic_is_not_seen_before_it_is_durable() -> None:
    async with a_coordinator() as world:
        gate = world.storage.hold_next_append()
        created = create(world, "new")
        await asyncio.sleep(1)
        assert "new" not in topics_of(world).image.by_name
        assert created.is_waiting
        gate.open()
        await turns(5)
        assert "new" in topics_of(world).image.by_name
        assert created.error is ErrorCode.NONE


@virtual_time
async def test_a_topic_made_again_has_a_new_id_and_nothing_of_the_old_one() -> None:
    async with a_coordinator() as world:
        await world.until(world.commit("g", 50))
        first = id_of(world)
        await world.until(delete(world, "orders"))
        await world.until(create(world, "orders", 12))
        await asyncio.sleep(0.1)
        assert id_of(world) != first
        assert end_of(world) == 0
        fetched = world.send(OffsetFetch("g", [("orders", "", [0])], False, False))
        await world.until(fetched)
        assert fetched.offsets() == {("orders", 0): -1}
        assert topics_of(world).end_offset(first, 0) == 0


@virtual_time
async def test_a_deleted_topic_of_the_config_comes_back_at_the_next_start_with_a_new_id() -> None:
    storage = FaultyStorage()
    async with a_coordinator(storage) as world:
        first = id_of(world)
        await world.until(world.commit("g", 50))
        await world.until(delete(world, "orders"))
    async with a_coordinator(storage) as world:
        assert id_of(world) not in ("", first)
        assert end_of(world) == 0


# --- Ends -----------------------------------------------------------------------------------------


@virtual_time
async def test_the_end_is_the_largest_offset_that_any_group_ever_committed() -> None:
    async with a_coordinator() as world:
        commits = [world.commit(f"g{n}", offset) for n, offset in enumerate((7, 90, 30))]
        await world.until(*commits)
        assert end_of(world) == 90
        await world.until(world.commit("g1", 10))
        assert end_of(world) == 90
        assert end_of(world, 1) == 0


@virtual_time
async def test_the_end_survives_a_restart_also_where_a_commit_lowered_the_offset() -> None:
    storage = FaultyStorage()
    async with a_coordinator(storage) as world:
        await world.until(world.commit("g", 90))
        await world.until(world.commit("g", 10))
    async with a_coordinator(storage) as world:
        assert end_of(world) == 90


@virtual_time
async def test_commits_below_what_they_replace_are_counted_by_partition() -> None:
    async with a_coordinator() as world:
        for group, offset in (("a", 5), ("a", 5), ("b", 3), ("a", 4), ("a", 9), ("b", 2)):
            await world.until(world.commit(group, offset))
        assert world.coordinator.topics is not None
        assert world.coordinator.topics.ends.rewinds == 2


@virtual_time
async def test_an_end_grows_only_when_the_append_is_durable() -> None:
    async with a_coordinator() as world:
        gate = world.storage.hold_next_append()
        commit = world.commit("g", 90)
        await asyncio.sleep(1)
        assert end_of(world) == 0
        gate.open()
        await world.until(commit)
        assert end_of(world) == 90


@virtual_time
async def test_ends_are_kept_through_a_reload_and_take_in_what_it_finds() -> None:
    async with a_coordinator() as world:
        await world.until(world.commit("g", 50))
        gate = Gate()
        world.storage.script("append", lie())
        world.storage.script("load", slow(gate))
        lost = world.commit("h", 80)
        await world.until(lost)
        assert lost.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert end_of(world) == 50
        gate.open()
        await world.until_ready()
        assert end_of(world) == 80


@virtual_time
async def test_the_config_names_a_least_end() -> None:
    topics = Topics([ConfiguredTopic("orders", 12, end_offset=1_000)])
    async with a_coordinator(topics=topics) as world:
        assert end_of(world) == 1_000
        await world.until(world.commit("g", 1_500))
        assert (end_of(world), end_of(world, 1)) == (1_500, 1_000)


@virtual_time
async def test_while_the_topics_load_the_image_stays_and_changes_are_refused() -> None:
    async with a_coordinator() as world:
        gate = Gate()
        world.storage.script("append", fail())
        world.storage.script("load", slow(gate))
        lost = create(world, "new")
        await world.until(lost)
        assert lost.error is ErrorCode.NOT_CONTROLLER
        assert set(topics_of(world).image.by_name) == {"orders", "payments"}
        assert create(world, "new").error is ErrorCode.NOT_CONTROLLER
        gate.open()
        await world.until_ready()
        again = create(world, "new")
        await world.until(again)
        assert again.error is ErrorCode.NONE


@virtual_time
async def test_a_topic_stored_by_an_append_that_reported_failure_is_there_after_the_load() -> None:
    async with a_coordinator() as world:
        world.storage.script("append", lie())
        await world.until(create(world, "new"))
        await world.until_ready()
        commit = world.send(a_commit(topics=[("new", "", [(0, 5, -1, "")])]))
        await world.until(commit)
        assert commit.error is ErrorCode.NONE


@virtual_time
async def test_the_start_goes_on_until_the_configured_topics_are_stored() -> None:
    storage = FaultyStorage()
    storage.script("append", fail(), fail())
    async with a_coordinator(storage) as world:
        assert set(topics_of(world).image.by_name) == {"orders", "payments"}


@virtual_time
async def test_topics_and_a_coordinator_without_them() -> None:
    async with a_coordinator(without_topics=True) as world:
        commit = world.send(a_commit(topics=[("anything", "", [(999, 5, -1, "")])]))
        await world.until(commit)
        assert commit.error is ErrorCode.NONE
        refused: Any = await world.coordinator.ask(ChangeTopics(CLIENT))
        assert refused.error is ErrorCode.NOT_CONTROLLER


def test_a_minted_id_has_kafkas_form() -> None:
    ids = {mint_topic_id() for _ in range(500)}
    assert len(ids) == 500
    assert {len(topic_id) for topic_id in ids} == {22}
    assert not any(topic_id.startswith("-") for topic_id in ids)


@pytest.mark.parametrize(
    ("topic", "error", "message"),
    [
        (ConfiguredTopic("orders", "12"), TypeError, "the partitions of orders must be a whole"),  # type: ignore[arg-type]
        (ConfiguredTopic("orders", 2**31), ValueError, "the partitions of orders must be at most"),
        (ConfiguredTopic("orders", 1, 1.5), TypeError, "the end offset of orders must be a whole"),  # type: ignore[arg-type]
        (ConfiguredTopic(b"orders", 1), TypeError, "topic must be a string, not b'orders'"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_topic_is_told_before_anything_starts(
    topic: ConfiguredTopic, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Topics([topic])


@pytest.mark.parametrize(
    "wrong", [None, "orders", ["orders"], {"orders": 12}, [("orders", 12)], ConfiguredTopic("o", 1)]
)
def test_topics_are_made_of_topics_and_of_nothing_else(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^Topics takes a list of ConfiguredTopic\(name"):
        Topics(wrong)
