"""The periodic pass: which offsets and groups are nobody's any more
(docs/spec/groups.md#generations, docs/spec/offsets.md#retention-time, #expiry).
"""

from __future__ import annotations

import struct

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import GroupDeleted, OffsetExpired
from groupkeeper.coordinator.core.records import GroupRemoved, OffsetsRemoved
from tests.helpers.core.shard_driver import (
    ORDERS,
    SESSION_MS,
    a_member,
    a_stable_group,
    assignment_for,
    completing,
    protocols,
    stable,
)

CHECK_MS = 600_000
RETENTION_MS = 3_600_000
"""An hour, in these tests."""
DAY_MS = 86_400_000


def subscription(*topics):
    """A ConsumerProtocolSubscription of version 0."""
    names = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


@pytest.fixture
def driver(make_driver):
    """A driver that keeps offsets for an hour and looks every ten minutes."""
    return make_driver(offsets_retention_ms=RETENTION_MS, retention_check_interval_ms=CHECK_MS)


def live_through(driver, ms, *members):
    """Let time pass while members with long sessions stay alive."""
    while ms > 0:
        driver.advance(min(ms, 500_000))
        ms -= 500_000
        for member in members:
            assert member.heartbeat().error is ErrorCode.NONE


# --- Groups -------------------------------------------------------------------------------------


def test_empty_group_without_offsets_goes_with_the_next_pass(driver):
    """docs/spec/groups.md#generations."""
    driver.join("g", protocols=())
    driver.advance(CHECK_MS - 1)
    assert "g" in driver.list_groups()
    driver.advance(1)
    assert driver.list_groups() == {}
    assert isinstance(driver.records[-1], GroupRemoved)
    (event,) = driver.events_of(GroupDeleted)
    assert (event.group_id, event.reason, event.offsets) == ("g", "expired", 0)


def test_handed_out_id_dies_with_its_group(driver):
    """docs/spec/edge-cases.md#edge-12 and docs/spec/groups.md#generations: even if ids are
    pending.
    """
    driver.advance(CHECK_MS - 1_000)
    member_id = driver.join("g", session_timeout_ms=1_800_000).member_id
    driver.advance(1_000)
    assert driver.list_groups() == {}
    call = driver.join("g", member_id)
    assert (call.error, call.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, member_id)


def test_group_with_members_stays(driver):
    members = a_stable_group(driver, session_timeout_ms=1_800_000)
    live_through(driver, 3 * CHECK_MS, *members)
    assert driver.state() == "Stable"


def test_generation_starts_again_after_the_group_was_removed(driver):
    """docs/spec/groups.md#generations."""
    (member,) = a_stable_group(driver, members=1)
    member.leave()
    driver.advance(CHECK_MS)
    assert driver.list_groups() == {}
    (again,) = a_stable_group(driver, members=1)
    assert again.generation_id == 1


def test_removed_group_stays_removed_after_a_restart(driver):
    driver.commit("simple")
    driver.join("g")
    driver.advance(CHECK_MS)
    driver.reload()
    assert set(driver.list_groups()) == {"simple"}


# --- Offsets ------------------------------------------------------------------------------------


def test_offsets_of_a_simple_group_live_from_their_commit(driver):
    """docs/spec/offsets.md#expiry, simple; the group goes in the same pass."""
    driver.commit("g", {"orders": {0: 1}})
    driver.advance(30 * 60_000)
    driver.commit("g", {"orders": {1: 2}})
    driver.advance(RETENTION_MS - 30 * 60_000 - 1)
    assert driver.fetch("g").offsets() == {("orders", 0): 1, ("orders", 1): 2}
    driver.advance(1)
    assert driver.fetch("g").offsets() == {("orders", 1): 2}
    driver.advance(30 * 60_000)
    assert driver.list_groups() == {}


def test_offsets_of_an_emptied_group_live_from_when_it_became_empty(driver):
    """docs/spec/offsets.md#expiry: classic with a type, Empty."""
    (member,) = a_stable_group(driver, members=1, session_timeout_ms=1_800_000)
    member.commit()
    live_through(driver, RETENTION_MS, member)
    member.leave()
    driver.advance(RETENTION_MS - 1)
    assert driver.fetch("g").offsets() == {("orders", 0): 100}
    driver.advance(CHECK_MS)
    assert driver.list_groups() == {}
    driver.reload()
    assert driver.list_groups() == {}


def test_time_of_emptiness_survives_a_restart(driver):
    (member,) = a_stable_group(driver, members=1)
    member.commit()
    member.leave()
    driver.advance(RETENTION_MS - CHECK_MS)
    driver.reload()
    driver.advance(CHECK_MS)
    assert driver.list_groups() == {}


def test_stable_consumers_keep_what_they_subscribe_to_and_lose_the_rest(driver):
    """docs/spec/offsets.md#expiry: type "consumer", Stable, subscription known."""
    (member,) = a_stable_group(
        driver,
        members=1,
        session_timeout_ms=1_800_000,
        protocols=protocols("range", subscription=subscription("orders")),
    )
    member.commit({"orders": {0: 1}, "payments": {0: 2}})
    live_through(driver, RETENTION_MS + CHECK_MS, member)
    assert driver.fetch("g").offsets() == {("orders", 0): 1}
    assert driver.state() == "Stable"


def test_what_any_member_subscribes_to_is_kept(driver):
    """docs/spec/offsets.md#delete: the union over the members, not what the leader reads alone."""
    leader, other = stable(
        driver,
        *(
            a_member(
                driver,
                session_timeout_ms=1_800_000,
                protocols=protocols("range", subscription=subscription(topic)),
            )
            for topic in ("orders", "payments")
        ),
    )
    leader.commit({"orders": {0: 1}, "payments": {0: 2}})
    live_through(driver, RETENTION_MS + CHECK_MS, leader, other)
    assert driver.fetch("g").offsets() == {("orders", 0): 1, ("payments", 0): 2}


def test_subscriptions_are_known_again_after_a_restart(driver):
    """docs/spec/offsets.md#delete: computed when the last join phase completed, or at load."""
    (member,) = a_stable_group(
        driver,
        members=1,
        session_timeout_ms=1_800_000,
        protocols=protocols("range", subscription=subscription("orders")),
    )
    member.commit({"orders": {0: 1}, "payments": {0: 2}})
    driver.reload()
    live_through(driver, RETENTION_MS + CHECK_MS, member)
    assert driver.fetch("g").offsets() == {("orders", 0): 1}


@pytest.mark.parametrize(
    "fields",
    [
        {"protocols": protocols("range", subscription=b"\x00")},
        {"protocol_type": "connect", "protocols": protocols("x", subscription=b"")},
    ],
    ids=["unreadable subscription", "not of type consumer"],
)
def test_group_with_members_whose_subscriptions_are_unknown_loses_nothing(driver, fields):
    """docs/spec/offsets.md#expiry: any other non-Empty situation."""
    member = a_member(driver, session_timeout_ms=1_800_000, **fields)
    completing(driver, member)
    member.sync(assignment_for([member]), protocol_type=None)
    member.commit({"payments": {0: 2}})
    live_through(driver, RETENTION_MS + 2 * CHECK_MS, member)
    assert driver.fetch("g").offsets() == {("payments", 0): 2}


def test_rebalancing_group_loses_nothing(driver):
    """docs/spec/offsets.md#expiry: any other non-Empty situation, whatever a commit's own retention
    says.
    """
    (member,) = a_stable_group(
        driver,
        members=1,
        rebalance_timeout_ms=1_800_000,
        session_timeout_ms=1_800_000,
        protocols=protocols("range", subscription=subscription("orders")),
    )
    member.commit({"payments": {0: 2}}, retention_ms=1)
    driver.join("g", session_timeout_ms=1_800_000)
    member.join()
    driver.advance(CHECK_MS)
    assert driver.state() == "PreparingRebalance"
    assert driver.fetch("g").offsets() == {("payments", 0): 2}


def test_own_retention_of_a_commit_overrides_that_of_the_group(driver):
    """docs/spec/offsets.md#retention-time: both ways, shorter and longer."""
    driver.commit("g", {"orders": {0: 1}}, retention_ms=1)
    driver.commit("g", {"orders": {1: 2}}, retention_ms=DAY_MS)
    driver.commit("g", {"orders": {2: 3}})
    driver.advance(CHECK_MS)
    assert driver.fetch("g").offsets() == {("orders", 1): 2, ("orders", 2): 3}
    driver.advance(RETENTION_MS)
    assert driver.fetch("g").offsets() == {("orders", 1): 2}
    driver.advance(DAY_MS)
    assert driver.list_groups() == {}


@pytest.mark.parametrize("retention_ms", [-2, -(2**63), 0, 2**63 - 1])
def test_retention_below_none_or_beyond_all_numbers_is_over_at_once(driver, retention_ms):
    """As in Kafka, where -1 alone is none and the sum goes over into negative numbers."""
    driver.commit("g", {"orders": {0: 1}}, retention_ms=retention_ms)
    driver.commit("g", {"orders": {1: 2}}, retention_ms=-1)
    assert driver.fetch("g").offsets() == {("orders", 0): 1, ("orders", 1): 2}
    driver.advance(CHECK_MS)
    assert driver.fetch("g").offsets() == {("orders", 1): 2}


def test_expired_offset_is_an_event_with_its_last_value(driver):
    driver.commit("g", [("orders", "", [(3, 42, 7, "note")])])
    committed_ms = driver.now.wall_ms
    driver.commit("g", {"orders": {0: 1}}, retention_ms=DAY_MS)
    driver.advance(RETENTION_MS)
    (event,) = driver.events_of(OffsetExpired)
    (topic,) = event.topics
    assert (event.group_id, topic.topic, topic.topic_id) == ("g", "orders", ORDERS.topic_id)
    (lost,) = topic.partitions
    assert (lost.partition, lost.offset, lost.metadata) == (3, 42, "note")
    assert (lost.leader_epoch, lost.commit_time_ms) == (7, committed_ms)
    (record,) = driver.records_of(OffsetsRemoved)
    assert (record.group_id, record.partitions) == ("g", [("orders", 3)])


def test_end_of_a_partition_outlives_the_offset_that_held_it(driver):
    """docs/design.md#ends: the end only grows, and goes with the topic."""
    driver.commit("g", {"orders": {0: 500}})
    driver.advance(RETENTION_MS + CHECK_MS)
    assert driver.list_groups() == {}
    assert driver.shard.ends()[(ORDERS.topic_id, 0)] == 500
    driver.reload()
    assert driver.shard.ends()[(ORDERS.topic_id, 0)] == 500


def test_pass_over_many_offsets_is_cut_into_steps_and_finishes(driver):
    """docs/design.md#bounds: steps of our own making are cut to the limits."""
    for n in range(300):
        topics = {"orders": dict.fromkeys(range(12), 1)}
        driver.commit(f"g{n:03}", topics, retention_ms=1)
    driver.commit("kept")
    driver.advance(CHECK_MS + 1_000)
    assert set(driver.list_groups()) == {"kept"}
    lost = [t for event in driver.events_of(OffsetExpired) for t in event.topics]
    assert sum(len(topic.partitions) for topic in lost) == 300 * 12


def test_member_that_comes_back_in_time_saves_the_offsets(driver):
    (member,) = a_stable_group(driver, members=1)
    member.commit()
    driver.advance(SESSION_MS)
    assert driver.state() == "Empty"
    driver.advance(RETENTION_MS - CHECK_MS - SESSION_MS)
    (again,) = stable(driver, a_member(driver, session_timeout_ms=1_800_000))
    live_through(driver, 2 * CHECK_MS, again)
    assert driver.fetch("g").offsets() == {("orders", 0): 100}
