"""OffsetFetch: reads never fail for what is not there (docs/spec/offsets.md#fetch)."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.offsets import sweep as topic_sweep
from tests.helpers.core.shard_driver import ORDERS, PAYMENTS, a_member, a_stable_group, completing

OK = ErrorCode.NONE
NOTHING = (-1, -1, "", OK)


def partitions(call):
    """What each partition was answered, by (name, partition)."""
    assert call.error is OK
    return {(t[0] or t[1], p[0]): tuple(p[1:]) for t in call.result.topics for p in t[2]}


def test_absent_group_has_nothing_and_that_is_no_error(driver):
    """docs/spec/edge-cases.md#edge-71, named topics."""
    assert partitions(driver.fetch("g", {"orders": [0, 3]})) == {
        ("orders", 0): NOTHING,
        ("orders", 3): NOTHING,
    }
    assert driver.list_groups() == {}


def test_all_topics_of_an_absent_group_are_none(driver):
    """docs/spec/edge-cases.md#edge-71, null topics."""
    call = driver.fetch("g")
    assert (call.error, call.result.topics) == (OK, [])


def test_stored_offsets_come_back_with_epoch_and_metadata(driver):
    driver.commit("g", [("orders", "", [(0, 42, 7, "note"), (1, 5, -1, None)])])
    assert partitions(driver.fetch("g", {"orders": [1, 0, 2]})) == {
        ("orders", 1): (5, -1, "", OK),
        ("orders", 0): (42, 7, "note", OK),
        ("orders", 2): NOTHING,
    }


def test_partitions_come_in_the_order_of_the_request(driver):
    driver.commit("g", {"orders": {0: 1, 1: 2, 2: 3}})
    ((_, _, fetched),) = driver.fetch("g", {"orders": [2, 0, 1]}).result.topics
    assert [p[0] for p in fetched] == [2, 0, 1]


def test_unknown_topic_and_unknown_partition_are_no_errors(driver):
    """docs/spec/edge-cases.md#edge-72: topics are not checked for existence."""
    driver.commit("g")
    assert partitions(driver.fetch("g", {"nowhere": [0], "orders": [99, -1]})) == {
        ("nowhere", 0): NOTHING,
        ("orders", 99): NOTHING,
        ("orders", -1): NOTHING,
    }


def test_all_topics_are_only_what_is_stored(driver):
    driver.commit("g", {"orders": {1: 10, 4: 40}, "payments": {0: 7}})
    driver.commit("other", {"orders": {0: 1}})
    assert driver.fetch("g").offsets() == {
        ("orders", 1): 10,
        ("orders", 4): 40,
        ("payments", 0): 7,
    }


def test_no_topics_are_none_though_some_are_stored(driver):
    driver.commit("g")
    assert driver.fetch("g", {}).result.topics == []


def test_topics_by_id_come_back_with_name_and_id(driver):
    """docs/spec/offsets.md#fetch step 2, v10."""
    driver.commit("g", {"orders": {0: 10}})
    call = driver.fetch("g", {ORDERS.topic_id: [0, 1]}, by_topic_id=True)
    ((name, topic_id, fetched),) = call.result.topics
    assert (name, topic_id) == ("orders", ORDERS.topic_id)
    assert [p[:2] for p in fetched] == [(0, 10), (1, -1)]


@pytest.mark.parametrize("topic_id", ["BBBBBBBBBBBBBBBBBBBBBA", ""], ids=["unknown", "zero"])
def test_unknown_topic_id_is_an_error_of_its_partitions_and_comes_last(driver, topic_id):
    """docs/spec/offsets.md#fetch step 2."""
    driver.commit("g", {"orders": {0: 10}})
    call = driver.fetch("g", {topic_id: [0, 1], ORDERS.topic_id: [0]}, by_topic_id=True)
    assert call.error is OK
    assert [t[1] for t in call.result.topics] == [ORDERS.topic_id, topic_id]
    unknown = call.result.topics[1][2]
    assert unknown == [(n, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID) for n in (0, 1)]


def test_unknown_topic_id_is_an_error_for_an_absent_group_too(driver):
    """docs/spec/offsets.md#fetch: step 2 comes before step 4."""
    call = driver.fetch("g", {"BBBBBBBBBBBBBBBBBBBBBA": [0]}, by_topic_id=True)
    ((_, _, [partition]),) = call.result.topics
    assert partition[4] is ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("by_id", [True, False], ids=["by id", "by name"])
def test_a_topic_made_again_has_nothing_though_the_old_ones_is_not_swept_yet(
    driver, by_id, monkeypatch
):
    """docs/spec/edge-cases.md#edge-69 and docs/spec/offsets.md#fetch: until its sweep comes by, the
    offset of the old topic is stored.
    """
    monkeypatch.setattr(topic_sweep, "MAX_OFFSETS_PER_STEP", 1)
    driver.commit("g", {"orders": {0: 10}})
    driver.commit("swept before it", {"orders": {0: 10}})
    again = ORDERS._replace(topic_id="made again")
    driver.change_topics(again, PAYMENTS)
    assert driver.shard.saved("g").offsets, "it is to be swept later"
    asked = again.topic_id if by_id else "orders"
    ((name, topic_id, fetched),) = driver.fetch("g", {asked: [0]}, by_topic_id=by_id).result.topics
    assert (name, topic_id, fetched) == ("orders", again.topic_id, [(0, *NOTHING)])
    if by_id:
        assert driver.fetch("g", None, by_topic_id=True).result.topics == []


def test_all_topics_by_id_come_with_their_ids(driver):
    """docs/spec/offsets.md#fetch step 3, v10."""
    driver.commit("g", {"orders": {0: 10}, "payments": {1: 11}})
    topics = driver.fetch("g", None, by_topic_id=True).result.topics
    assert {t[1]: t[0] for t in topics} == {
        ORDERS.topic_id: "orders",
        PAYMENTS.topic_id: "payments",
    }


@pytest.mark.parametrize("state", ["Stable", "CompletingRebalance", "PreparingRebalance", "Empty"])
def test_member_id_and_epoch_are_ignored_in_a_classic_group(driver, state):
    """docs/spec/edge-cases.md#edge-73."""
    driver.commit("g")
    if state == "CompletingRebalance":
        completing(driver, a_member(driver))
    elif state != "Empty":
        (leader,) = a_stable_group(driver, members=1)
        if state == "PreparingRebalance":
            driver.join("g", version=3)
            leader.heartbeat()
    assert driver.state() == state
    call = driver.fetch("g", {"orders": [0]}, member_id="garbage", member_epoch=77)
    assert partitions(call) == {("orders", 0): (100, -1, "", OK)}


def test_require_stable_answers_the_committed_value(driver):
    """docs/spec/offsets.md#fetch step 6: there are no transactions here, so nothing is ever
    pending.
    """
    driver.commit("g")
    call = driver.fetch("g", {"orders": [0]}, require_stable=True)
    assert partitions(call) == {("orders", 0): (100, -1, "", OK)}
    assert call.reply.waits is True


def test_fetch_waits_like_every_read(driver):
    """docs/design.md#durable-first."""
    assert driver.fetch("g").reply.waits is True


def test_fetch_changes_and_writes_nothing(driver):
    driver.commit("g")
    records, events, saved = len(driver.records), len(driver.events), driver.saved()
    driver.fetch("g")
    driver.fetch("absent", {"orders": [0]})
    assert (len(driver.records), len(driver.events), driver.saved()) == (records, events, saved)
