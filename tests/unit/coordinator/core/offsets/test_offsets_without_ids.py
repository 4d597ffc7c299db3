"""Offsets that were committed where there were no topics, in a shard that has topics now."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import OffsetDeleted
from groupkeeper.coordinator.core.offsets import sweep as topic_sweep
from groupkeeper.coordinator.core.records import (
    AdoptedTopic,
    OffsetsAdopted,
    OffsetsRemoved,
    PartitionEnd,
)
from tests.helpers.core.shard_driver import ORDERS, PAYMENTS, ShardDriver

NEW_ORDERS = TopicInfo("orders", "CCCCCCCCCCCCCCCCCCCCCA", 12)

MakeDriver = Callable[..., ShardDriver]


def with_topics(driver: ShardDriver, *topics: TopicInfo) -> None:
    """Start over with topics, as a later process does."""
    driver.image = TopicImage.of(*topics)
    driver.reload()


@pytest.fixture
def host(make_driver: MakeDriver) -> ShardDriver:
    """A host without topics, with offsets of two topics."""
    driver = make_driver(image=TopicImage.any())
    driver.commit("g", {"orders": {0: 7, 3: 9}, "payments": {1: 5}})
    driver.commit("h", {"orders": {0: 2}})
    return driver


def ids(driver: ShardDriver, group_id: str = "g") -> dict[str, set[str]]:
    saved = driver.saved()[group_id].offsets
    return {topic: {offset.topic_id for offset in rows.values()} for topic, rows in saved.items()}


def test_nothing_goes_where_there_are_topics_and_none_of_its_name(host: ShardDriver):
    with_topics(host)
    host.change_topics(PAYMENTS)
    host.advance(1_000)
    assert host.fetch("g").offsets() == {("orders", 0): 7, ("orders", 3): 9, ("payments", 1): 5}
    assert host.records_of(OffsetsRemoved) == []
    assert host.events_of(OffsetDeleted) == []


def test_offsets_take_the_id_of_the_topic_of_their_name(host: ShardDriver):
    with_topics(host, ORDERS)
    assert ids(host) == {"orders": {ORDERS.topic_id}, "payments": {""}}
    assert host.records_of(OffsetsAdopted)[-1] == OffsetsAdopted(
        "g", [AdoptedTopic("orders", ORDERS.topic_id, [(0, 7), (3, 9)])]
    )
    by_id = host.fetch("g", {ORDERS.topic_id: [3]}, by_topic_id=True)
    assert by_id.offsets() == {("orders", 3): 9}


def test_offsets_take_the_id_of_a_topic_that_is_made_later(host: ShardDriver):
    with_topics(host)
    host.change_topics(ORDERS, PAYMENTS)
    assert ids(host) == {"orders": {ORDERS.topic_id}, "payments": {PAYMENTS.topic_id}}
    steps = len(host.steps)
    host.change_topics(ORDERS, PAYMENTS, TopicInfo("third", "DDDDDDDDDDDDDDDDDDDDDA", 1))
    assert not host.steps[steps].records, "nothing is left to look for"


def test_the_end_of_a_partition_is_that_of_the_offsets_that_it_took(host: ShardDriver):
    with_topics(host, ORDERS)
    assert host.shard.ends() == {(ORDERS.topic_id, 0): 7, (ORDERS.topic_id, 3): 9}
    host.commit("g", {"orders": {0: 1}})
    assert host.records_of(PartitionEnd) == [PartitionEnd(ORDERS.topic_id, 0, 7)]


def test_offsets_that_took_an_id_go_with_their_topic(host: ShardDriver):
    with_topics(host, ORDERS, PAYMENTS)
    host.change_topics(PAYMENTS)
    host.advance(0)
    assert host.fetch("g").offsets() == {("payments", 1): 5}
    (topic,) = host.events_of(OffsetDeleted)[0].topics
    assert topic.topic_id == ORDERS.topic_id


def test_a_deletion_reaches_offsets_that_had_not_taken_the_id_yet(
    host: ShardDriver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(topic_sweep, "MAX_OFFSETS_PER_STEP", 1)
    host.image = TopicImage.of()
    host.reload()
    host.advance(1_000)
    host.change_topics(ORDERS)
    assert len(host.records_of(OffsetsAdopted)) == 1, "the rest waits for its portion"
    host.change_topics(NEW_ORDERS, PAYMENTS)
    host.advance(1_000)
    assert host.fetch("g").offsets() == {("payments", 1): 5}
    assert host.fetch("h").offsets() == {}
    host.commit("g", {"orders": {0: 1}})
    assert ids(host) == {"orders": {NEW_ORDERS.topic_id}, "payments": {PAYMENTS.topic_id}}


def test_a_name_that_was_deleted_once_is_not_held_against_what_comes_later(host: ShardDriver):
    with_topics(host, ORDERS)
    host.change_topics()
    host.advance(1_000)
    with_topics_of_a_host = host.commit("g", {"payments": {0: 1}})
    assert with_topics_of_a_host.partition_errors() == {
        ("payments", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert host.shard.deleted_topics == set()
    assert host.fetch("g").offsets() == {("payments", 1): 5}


def test_many_offsets_take_their_ids_in_portions(
    make_driver: MakeDriver, monkeypatch: pytest.MonkeyPatch
):
    driver = make_driver(image=TopicImage.any())
    for number in range(20):
        driver.commit(f"g{number}", {"orders": {0: number}})
    monkeypatch.setattr(topic_sweep, "MAX_OFFSETS_PER_STEP", 4)
    since = len(driver.steps)
    with_topics(driver, ORDERS)
    driver.advance(1_000)
    made = [len(step.records) for step in driver.steps[since:] if step.records]
    assert sum(made) == 20
    assert max(made) == 2
    assert {id_ for n in range(20) for id_ in ids(driver, f"g{n}")["orders"]} == {ORDERS.topic_id}


def test_one_large_group_takes_its_ids_in_portions_of_a_step(make_driver: MakeDriver):
    driver = make_driver(image=TopicImage.any(), max_step_bytes=2_000)
    for number in range(12):
        driver.commit("g", {"orders": {number: number}})
    with_topics(driver, ORDERS)
    driver.advance(1_000)
    made = [record.topics[0].partitions for record in driver.records_of(OffsetsAdopted)]
    assert len(made) > 2
    assert [number for part in made for number, _ in part] == [*range(12)]
    assert all(before[-1] < after[0] for before, after in pairwise(made))


def test_nothing_goes_with_a_topic_where_topics_are_not_stored(make_driver: MakeDriver):
    driver = make_driver()
    driver.commit("g", {"orders": {0: 7}})
    driver.shard.are_topics_stored = False
    driver.change_topics(PAYMENTS)
    driver.advance(1_000)
    assert driver.fetch("g").offsets() == {("orders", 0): 7}
    assert driver.records_of(OffsetsRemoved) == []


@pytest.mark.parametrize("offset", [1, 50])
def test_a_host_without_topics_keeps_the_end_of_a_topic_whose_offset_it_replaces(
    make_driver: MakeDriver, offset: int
):
    driver = make_driver()
    driver.commit("g", {"orders": {0: 10}})
    driver.image = TopicImage.any()
    driver.reload()
    driver.commit("g", {"orders": {0: offset}})
    driver.commit("g", {"orders": {0: 2}})
    with_topics(driver, ORDERS, PAYMENTS)
    assert driver.fetch("g").offsets() == {("orders", 0): 2}
    assert driver.shard.end_of(ORDERS.topic_id, 0) == 10


def test_a_commit_names_the_offset_without_an_id_that_it_replaces(
    host: ShardDriver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(topic_sweep, "MAX_OFFSETS_PER_STEP", 1)
    with_topics(host, ORDERS)
    assert ids(host)["orders"] == {""}, "it waits for its portion"
    again = host.commit("g", {"orders": {0: 3}})
    assert again.error is ErrorCode.NONE
    assert host.records[-2].topics[0].partitions[0][2] == 7


def test_it_says_while_offsets_lack_the_id_of_a_topic(
    host: ShardDriver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(topic_sweep, "MAX_OFFSETS_PER_STEP", 1)
    with_topics(host)
    host.advance(1_000)
    assert not host.shard.lacks_topic_ids({})
    assert host.shard.lacks_topic_ids({"orders": ORDERS}), "a topic that is about to be"
    host.change_topics(ORDERS)
    assert host.shard.lacks_topic_ids({"orders": ORDERS}), "one of two groups has its ids"
    host.advance(1_000)
    assert not host.shard.lacks_topic_ids({"orders": ORDERS})
    assert host.shard.lacks_topic_ids({"payments": PAYMENTS})
