"""A new image of topics: what goes with a topic that is gone (docs/spec/offsets.md#deleted-topics,
docs/design.md#pure-shard and #ends).
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import OffsetDeleted
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.offsets import sweep as topic_sweep
from groupkeeper.coordinator.core.records import OffsetsRemoved, PartitionEnd
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.shard import BEHAVIOUR_OF
from tests.helpers.core.shard_driver import CLIENT, ORDERS, PAYMENTS, a_stable_group

NEW_ORDERS = TopicInfo("orders", "CCCCCCCCCCCCCCCCCCCCCA", 12)


def ends(driver):
    """The shard's ends, by (topic id, partition)."""
    return dict(driver.shard.ends())


def test_new_topic_can_be_committed_at_once(driver):
    extra = TopicInfo("extra", "DDDDDDDDDDDDDDDDDDDDDA", 1)
    assert driver.commit("g", {"extra": {0: 1}}).partition_errors() == {
        ("extra", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    driver.change_topics(ORDERS, PAYMENTS, extra)
    assert driver.commit("g", {"extra": {0: 1}}).partition_errors() == {
        ("extra", 0): ErrorCode.NONE
    }


def test_grown_topic_can_be_committed_beyond_its_former_size(driver):
    driver.commit("g", {"orders": {0: 1}})
    driver.change_topics(ORDERS._replace(partitions=20), PAYMENTS)
    assert set(driver.commit("g", {"orders": {19: 1}}).partition_errors().values()) == {
        ErrorCode.NONE
    }
    assert driver.fetch("g").offsets() == {("orders", 0): 1, ("orders", 19): 1}


def test_offsets_of_a_deleted_topic_go_from_every_group(driver):
    """docs/spec/offsets.md#deleted-topics."""
    driver.commit("g", {"orders": {0: 1, 5: 2}, "payments": {0: 3}})
    driver.commit("h", {"orders": {0: 9}})
    (member,) = a_stable_group(driver, "i", members=1)
    member.commit({"orders": {1: 7}})
    driver.change_topics(PAYMENTS)
    driver.advance(0)
    assert driver.fetch("g").offsets() == {("payments", 0): 3}
    assert driver.fetch("h").offsets() == {}
    assert driver.fetch("i").offsets() == {}
    removed = {
        (record.group_id, *key)
        for record in driver.records_of(OffsetsRemoved)
        for key in record.partitions
    }
    assert removed == {
        ("g", "orders", 0),
        ("g", "orders", 5),
        ("h", "orders", 0),
        ("i", "orders", 1),
    }
    assert driver.state("i") == "Stable"


def test_group_that_loses_nothing_by_a_deleted_topic_is_told_nothing(driver):
    driver.commit("g", {"payments": {0: 3}})
    driver.change_topics(PAYMENTS)
    driver.advance(0)
    assert driver.records_of(OffsetsRemoved) == []
    assert driver.events_of(OffsetDeleted) == []


def test_deleted_offset_is_an_event_with_its_last_value(driver):
    driver.commit("g", [("orders", "", [(3, 42, 7, "note")])])
    committed_ms = driver.now.wall_ms
    driver.change_topics(PAYMENTS)
    driver.advance(0)
    (event,) = driver.events_of(OffsetDeleted)
    (topic,) = event.topics
    assert (event.group_id, topic.topic, topic.topic_id) == ("g", "orders", ORDERS.topic_id)
    (lost,) = topic.partitions
    assert (lost.partition, lost.offset, lost.metadata) == (3, 42, "note")
    assert (lost.leader_epoch, lost.commit_time_ms) == (7, committed_ms)
    assert event.reason == "topic_deleted"


def test_offsets_of_a_topic_that_was_made_again_are_not_its(driver):
    """docs/spec/edge-cases.md#edge-69 and docs/spec/offsets.md#deleted-topics: the stored id is the
    old topic's.
    """
    driver.commit("g", {"orders": {0: 1}})
    driver.change_topics(NEW_ORDERS, PAYMENTS)
    driver.advance(0)
    call = driver.fetch("g", {NEW_ORDERS.topic_id: [0]}, by_topic_id=True)
    assert call.offsets() == {("orders", 0): -1}
    assert driver.fetch("g").offsets() == {}
    by_name = driver.fetch("g", {"orders": [0]})
    assert by_name.offsets() == {("orders", 0): -1}


def test_offsets_committed_to_the_topic_that_was_made_again_stay(driver):
    driver.commit("g", {"orders": {0: 1}})
    driver.change_topics(NEW_ORDERS, PAYMENTS)
    driver.commit("g", {"orders": {0: 50}})
    driver.advance(1_000)
    assert driver.fetch("g").offsets() == {("orders", 0): 50}
    assert driver.saved()["g"].offsets["orders"][0].topic_id == NEW_ORDERS.topic_id


def test_same_image_again_changes_nothing(driver):
    driver.commit("g")
    step = driver.change_topics(ORDERS, PAYMENTS)
    driver.advance(0)
    assert not step.records
    assert not step.events
    assert driver.fetch("g").offsets() == {("orders", 0): 100}


def test_offsets_of_topics_that_went_while_nobody_looked_go_after_the_load(driver):
    """docs/design.md#pure-shard: after a load, offsets and ends whose topic id left the image are
    removed.
    """
    driver.commit("g", {"orders": {0: 1}, "payments": {0: 3}})
    driver.image = TopicImage.of(PAYMENTS)
    driver.reload()
    driver.change_topics(PAYMENTS)
    driver.advance(0)
    assert driver.fetch("g").offsets() == {("payments", 0): 3}
    assert set(ends(driver)) == {(PAYMENTS.topic_id, 0)}


def test_host_without_topics_loses_nothing_by_a_load(make_driver):
    """docs/design.md#pure-shard: not where a host embeds us without topics."""
    driver = make_driver(image=TopicImage.any())
    driver.commit("g", {"anything": {0: 1}})
    driver.reload()
    driver.advance(0)
    assert driver.fetch("g").offsets() == {("anything", 0): 1}


def groups_per_step(steps):
    """How many groups lose offsets, in each of the steps in which any does."""
    removed = [sum(isinstance(r, OffsetsRemoved) for r in step.records) for step in steps]
    return [count for count in removed if count]


def test_step_of_a_sweep_counts_the_groups_and_offsets_that_it_looks_at(driver, monkeypatch):
    monkeypatch.setattr(topic_sweep, "MAX_OFFSETS_PER_STEP", 6)
    for name in "abcdef":
        driver.commit(name, {"orders": {0: 1}})
    driver.change_topics(PAYMENTS)
    driver.advance(1_000)
    assert groups_per_step(driver.steps) == [3, 3]


def offsets_per_step(steps):
    """How many offsets are deleted in each of the steps in which any is."""
    gone = [
        sum(len(r.partitions) for r in s.records if isinstance(r, OffsetsRemoved)) for s in steps
    ]
    return [count for count in gone if count]


def test_a_large_group_of_a_deleted_topic_is_cut_into_steps(driver, monkeypatch):
    monkeypatch.setattr(topic_sweep, "MAX_OFFSETS_PER_STEP", 4)
    driver.commit("g", {"orders": dict.fromkeys(range(10), 1), "payments": {0: 5}})
    driver.change_topics(PAYMENTS)
    driver.advance(1_000)
    assert offsets_per_step(driver.steps) == [4, 4, 2]
    assert driver.fetch("g").offsets() == {("payments", 0): 5}


@pytest.mark.parametrize(("partitions", "steps"), [(2, 1), (3, 3)])
def test_ends_of_a_topic_that_is_gone_go_in_as_few_steps_as_they_fit(
    driver, monkeypatch, partitions, steps
):
    driver.commit("g", {"orders": dict.fromkeys(range(partitions), 9)})
    driver.commit("g", {"orders": dict.fromkeys(range(partitions), 1)})
    monkeypatch.setattr(topic_sweep, "MAX_OFFSETS_PER_STEP", 2)
    since = len(driver.steps)
    driver.change_topics(PAYMENTS)
    driver.advance(1_000)
    assert driver.shard.saved_ends == {}
    assert len(driver.steps) == since + steps


def test_step_of_a_sweep_counts_a_group_that_went_meanwhile_as_one(driver, monkeypatch):
    for name in "abcdef":
        driver.commit(name, {"orders": {0: 1}})
    monkeypatch.setattr(topic_sweep, "MAX_OFFSETS_PER_STEP", 1)
    driver.change_topics(PAYMENTS)
    for name in driver.shard.sweep_left[-2:]:
        driver.send(DeleteGroup(name, CLIENT))
    since = len(driver.steps)
    monkeypatch.setattr(topic_sweep, "MAX_OFFSETS_PER_STEP", 4)
    driver.advance(1_000)
    assert groups_per_step(driver.steps[since:]) == [1, 2]


# --- Ends ---------------------------------------------------------------------------------------


def test_end_is_the_largest_offset_over_all_groups(driver):
    """docs/design.md#static-mode."""
    driver.commit("g", {"orders": {0: 10}})
    driver.commit("h", {"orders": {0: 30}})
    driver.commit("g", {"orders": {0: 20}})
    assert ends(driver) == {(ORDERS.topic_id, 0): 30}
    assert driver.records_of(PartitionEnd) == []


@pytest.mark.parametrize("later", [5, -1])
def test_lowering_the_value_that_holds_the_end_writes_the_end_in_the_same_step(driver, later):
    """docs/design.md#ends: the end only grows."""
    driver.commit("g", {"orders": {0: 30}})
    driver.commit("h", {"orders": {0: 10}})
    driver.commit("g", {"orders": {0: later}})
    assert driver.records_of(PartitionEnd) == [PartitionEnd(ORDERS.topic_id, 0, 30)]
    assert any(
        driver.records_of(PartitionEnd)[0] in step.records and len(step.records) == 2
        for step in driver.steps
    )
    assert ends(driver) == {(ORDERS.topic_id, 0): 30}
    driver.reload(from_fold=True)
    assert ends(driver) == {(ORDERS.topic_id, 0): 30}


def test_end_that_is_loaded_after_a_larger_offset_does_not_lower_it(driver):
    """A store gives what it has in an order of its own."""
    driver.commit("g", {"orders": {0: 40}})
    driver.shard.apply(PartitionEnd(ORDERS.topic_id, 0, 30))
    assert ends(driver) == {(ORDERS.topic_id, 0): 40}


def test_lowering_another_value_writes_no_end(driver):
    driver.commit("g", {"orders": {0: 30}})
    driver.commit("h", {"orders": {0: 10}})
    driver.commit("h", {"orders": {0: 5}})
    assert driver.records_of(PartitionEnd) == []
    assert ends(driver) == {(ORDERS.topic_id, 0): 30}


@pytest.mark.parametrize("stored", [[], [30]])
def test_larger_of_two_offsets_for_one_partition_in_one_request_is_its_end(driver, stored):
    """The last is kept, and the end was reached all the same: log and fold must agree on it."""
    for offset in stored:
        driver.commit("g", {"orders": {0: offset}})
    driver.commit("g", [("orders", "", [(0, 40, -1, ""), (0, 5, -1, "")])])
    assert driver.fetch("g").offsets() == {("orders", 0): 5}
    live = ends(driver)
    driver.reload(from_fold=True)
    assert ends(driver) == live


def test_end_that_is_written_is_not_written_again(driver):
    for offset in (30, 5, 30, 5):
        driver.commit("g", {"orders": {0: offset}})
    assert driver.records_of(PartitionEnd) == [PartitionEnd(ORDERS.topic_id, 0, 30)]
    driver.reload()
    driver.commit("g", {"orders": {0: 30}})
    driver.commit("g", {"orders": {0: 4}})
    assert len(driver.records_of(PartitionEnd)) == 1
    assert ends(driver) == {(ORDERS.topic_id, 0): 30}


def test_end_grows_again_beyond_one_that_was_written(driver):
    driver.commit("g", {"orders": {0: 30}})
    driver.commit("g", {"orders": {0: 5}})
    driver.commit("g", {"orders": {0: 40}})
    assert ends(driver) == {(ORDERS.topic_id, 0): 40}
    driver.commit("g", {"orders": {0: 5}})
    driver.reload(from_fold=True)
    assert ends(driver) == {(ORDERS.topic_id, 0): 40}


def test_ends_go_with_their_topic(driver):
    """docs/design.md#ends: a topic made again starts at 0."""
    driver.commit("g", {"orders": {0: 30, 1: 7}})
    driver.commit("g", {"orders": {0: 5}})
    driver.change_topics(NEW_ORDERS, PAYMENTS)
    driver.advance(0)
    assert ends(driver) == {}
    assert driver.records_of(PartitionEnd)[-1] == PartitionEnd(ORDERS.topic_id, 0, -1)
    driver.reload()
    assert driver.shard.saved_ends == {}, "the store would keep it for ever"
    driver.change_topics(NEW_ORDERS, PAYMENTS)
    assert ends(driver) == {}


def test_groups_that_subscribe_to_a_changed_topic_are_told_once(driver, monkeypatch):
    """Each type of groups decides what it does; groups of other topics are not asked."""
    told = []

    def topics_changed(shard, group):
        told.append(group.group_id)

    behaviour = BEHAVIOUR_OF[GroupType.CLASSIC]._replace(topics_changed=topics_changed)
    monkeypatch.setitem(BEHAVIOUR_OF, GroupType.CLASSIC, behaviour)
    subscribers = driver.shard.tally.subscribers
    for group_id, topics in {"g": {"orders", "later"}, "h": {"payments"}, "i": {"later"}}.items():
        driver.commit(group_id, {"payments": {0: 1}})
        subscribers.change(group_id, set(), topics)
    later = TopicInfo("later", "DDDDDDDDDDDDDDDDDDDDDA", 1)
    driver.change_topics(ORDERS._replace(partitions=20), PAYMENTS, later)
    assert told == ["g", "i"]
