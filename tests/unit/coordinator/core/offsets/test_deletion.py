"""OffsetDelete and DeleteGroups: docs/spec/offsets.md#delete and
docs/spec/administration.md#delete-groups, docs/spec/edge-cases.md#edge-77 to #edge-79 and
#edge-106.
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    GroupDeleted,
    LostPartition,
    LostTopic,
    OffsetDeleted,
)
from groupkeeper.coordinator.core.offsets import deletion
from groupkeeper.coordinator.core.records import GroupRemoved, OffsetsRemoved, PartitionEnd
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.requests.membership import JoinProtocol
from groupkeeper.coordinator.core.requests.offsets import OffsetDelete
from groupkeeper.protocol.consumer_protocol import Subscription, encode_subscription
from tests.helpers.core.shard_driver import CLIENT, ORDERS, ShardDriver, protocols


@pytest.fixture
def driver():
    return ShardDriver(initial_rebalance_delay_ms=0)


def delete_offsets(driver, group_id, **topics):
    call = driver.send(OffsetDelete(group_id, tuple(topics.items()), CLIENT))
    errors = {(name, p): e for name, parts in call.result.topics for p, e in parts}
    return call.error, errors


def delete_group(driver, group_id):
    return driver.send(DeleteGroup(group_id, CLIENT)).error


def a_member(driver, *topics, protocol_type="consumer"):
    offered = (JoinProtocol("range", encode_subscription(Subscription(1, list(topics)))),)
    join = driver.join(version=3, protocols=offered, protocol_type=protocol_type)
    driver.sync("g", join.member_id, 1, protocol_type=None, assignments={join.member_id: b""})
    return join.member_id


def test_offset_of_an_empty_group_is_deleted_and_leaves_its_last_value(driver):
    driver.commit(topics=[("orders", "", [(3, 77, 4, "note")])])
    assert delete_offsets(driver, "g", orders=[3]) == (
        ErrorCode.NONE,
        {("orders", 3): ErrorCode.NONE},
    )
    assert driver.fetch().offsets() == {}
    assert OffsetsRemoved("g", [("orders", 3)]) in driver.records
    (event,) = [e for e in driver.events if isinstance(e, OffsetDeleted)]
    assert event.topics == [
        LostTopic("orders", ORDERS.topic_id, [LostPartition(3, 77, 4, "note", driver.now.wall_ms)])
    ]
    assert (event.reason, event.client_id) == ("deleted", CLIENT.client_id)


def test_the_group_stays_until_the_next_pass(driver):
    driver.commit()
    delete_offsets(driver, "g", orders=[0])
    assert "g" in driver.list_groups()


def test_a_partition_that_was_never_committed_is_no_error(driver):
    """docs/spec/edge-cases.md#edge-79."""
    driver.commit()
    before = len(driver.records)
    assert delete_offsets(driver, "g", orders=[5]) == (
        ErrorCode.NONE,
        {("orders", 5): ErrorCode.NONE},
    )
    assert driver.records[before:] == []


def test_unknown_topics_and_partitions_are_told_one_by_one(driver):
    driver.commit()
    assert delete_offsets(driver, "g", orders=[0, 12, -1], nothing=[0]) == (
        ErrorCode.NONE,
        {
            ("orders", 0): ErrorCode.NONE,
            ("orders", 12): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("orders", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        },
    )


UNKNOWN, NONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ([("orders", [0]), ("orders", [1])], [("orders", [(0, NONE)]), ("orders", [(1, NONE)])]),
        ([("orders", [90]), ("orders", [91])], [("orders", [(90, UNKNOWN), (91, UNKNOWN)])]),
        (
            [("orders", [0]), ("orders", [91]), ("orders", [1])],
            [("orders", [(91, UNKNOWN), (0, NONE), (1, NONE)])],
        ),
        (
            [("orders", [0]), ("nothing", [0]), ("orders", [1]), ("nothing", [2])],
            [("nothing", [(0, UNKNOWN), (2, UNKNOWN)]), ("orders", [(0, NONE), (1, NONE)])],
        ),
        ([("nothing", []), ("orders", [])], [("nothing", [])]),
    ],
)
def test_topics_are_merged_only_where_something_of_them_is_unknown(driver, asked, answered):
    driver.commit()
    call = driver.send(OffsetDelete("g", tuple(asked), CLIENT))
    assert list(call.result.topics) == answered


def test_a_partition_named_twice_is_deleted_once(driver):
    driver.commit()
    error, _ = delete_offsets(driver, "g", orders=[0, 0])
    assert error is ErrorCode.NONE
    assert OffsetsRemoved("g", [("orders", 0)]) in driver.records


@pytest.mark.parametrize(
    ("group_id", "error"),
    [("", ErrorCode.INVALID_GROUP_ID), ("absent", ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_group_wide_errors_drop_what_was_found_of_topics(driver, group_id, error):
    assert delete_offsets(driver, group_id, nothing=[0]) == (error, {})


def test_subscribed_topic_is_refused_and_another_is_deleted(driver):
    member = a_member(driver, "orders")
    topics = {"orders": {0: 1}, "payments": {0: 2}}
    driver.commit(topics=topics, generation_id=1, member_id=member)
    assert delete_offsets(driver, "g", orders=[0, 1], payments=[0]) == (
        ErrorCode.NONE,
        {
            ("orders", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ("orders", 1): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ("payments", 0): ErrorCode.NONE,
        },
    )
    assert driver.fetch().offsets() == {("orders", 0): 1}


@pytest.mark.parametrize("topic", ["orders", "payments"])
def test_every_topic_counts_as_subscribed_while_the_first_rebalance_runs(topic):
    """docs/spec/edge-cases.md#edge-77."""
    driver = ShardDriver(initial_rebalance_delay_ms=3_000)
    driver.join(version=3)
    _, errors = delete_offsets(driver, "g", **{topic: [0]})
    assert errors == {(topic, 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_every_topic_counts_as_subscribed_where_subscriptions_cannot_be_read(driver):
    join = driver.join(version=3, protocols=protocols("range", subscription=b"?"))
    driver.sync("g", join.member_id, 1, assignments={join.member_id: b""})
    _, errors = delete_offsets(driver, "g", payments=[0])
    assert errors == {("payments", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_group_of_another_protocol_type_is_refused_while_it_has_members(driver):
    """docs/spec/edge-cases.md#edge-78."""
    member = a_member(driver, "orders", protocol_type="connect")
    assert delete_offsets(driver, "g", orders=[0]) == (ErrorCode.NON_EMPTY_GROUP, {})
    driver.leave("g", member)
    assert delete_offsets(driver, "g", orders=[0])[0] is ErrorCode.NONE


def test_the_end_that_a_deleted_offset_held_is_kept(driver):
    driver.commit(topics={"orders": {0: 500}})
    delete_offsets(driver, "g", orders=[0])
    assert driver.records[-1] == PartitionEnd(ORDERS.topic_id, 0, 500)


def test_an_empty_group_is_deleted_with_its_offsets_and_pending_ids(driver):
    driver.commit(topics={"orders": {0: 500}})
    pending = driver.join().member_id
    assert delete_group(driver, "g") is ErrorCode.NONE
    assert driver.list_groups() == {}
    assert driver.fetch().offsets() == {}
    assert GroupRemoved("g") in driver.records
    assert PartitionEnd(ORDERS.topic_id, 0, 500) in driver.records
    assert driver.join(member_id=pending).error is ErrorCode.UNKNOWN_MEMBER_ID
    (event,) = [e for e in driver.events if isinstance(e, GroupDeleted)]
    assert (event.reason, event.offsets) == ("deleted", 1)


def test_a_group_with_members_is_not_deleted(driver):
    a_member(driver, "orders")
    assert delete_group(driver, "g") is ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize("group_id", ["", "absent"])
def test_an_absent_group_is_not_found(driver, group_id):
    """docs/spec/edge-cases.md#edge-106; a repeated name is collapsed by the handler."""
    assert delete_group(driver, group_id) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deleted_group_begins_at_generation_zero_again(driver):
    member = a_member(driver, "orders")
    driver.leave("g", member)
    delete_group(driver, "g")
    a_member(driver, "orders")
    assert driver.shard.groups["g"].generation_id == 1


def in_portions(call):
    """Ask until it is done, as clients do; how often it took."""
    for count in range(1, 100):
        if (error := call()) is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            assert error is ErrorCode.NONE
            return count
    raise AssertionError("never done")


def lost_offsets(driver):
    events = [e for e in driver.events if isinstance(e, OffsetDeleted)]
    lost = [
        (t.topic, p.partition, p.offset, e.reason)
        for e in events
        for t in e.topics
        for p in t.partitions
    ]
    return len(events), lost


def test_a_group_too_large_for_one_step_is_deleted_in_portions():
    driver = ShardDriver(max_step_bytes=5_000)
    for partition in range(12):
        driver.commit(topics=[("orders", "", [(partition, 100 + partition, -1, "m" * 600)])])
    assert in_portions(lambda: delete_group(driver, "g")) == 4
    assert driver.list_groups() == {}
    portions, lost = lost_offsets(driver)
    assert portions == 4
    assert sorted(lost) == [("orders", p, 100 + p, "group_deleted") for p in range(12)]
    (event,) = [e for e in driver.events if isinstance(e, GroupDeleted)]
    assert event.offsets < 12


def test_a_large_group_is_deleted_in_portions_that_the_loop_can_bear(monkeypatch):
    """However much a storage takes in a step: 100,000 offsets held the loop for 140 ms."""
    monkeypatch.setattr(deletion, "MAX_GROUP_BYTES", 5_000)
    driver = ShardDriver()
    for partition in range(12):
        driver.commit(topics=[("orders", "", [(partition, 100 + partition, -1, "m" * 600)])])
    assert in_portions(lambda: delete_group(driver, "g")) == 4


def test_the_deletion_of_a_very_large_group_writes_metadata_only_at_the_end(monkeypatch):
    """To write 1.3 GB of metadata once more took 46 s, and clients wait for at most 60."""
    monkeypatch.setattr(deletion, "MAX_GROUP_BYTES", 8_000)
    monkeypatch.setattr(deletion, "MAX_LOGGED_BYTES", 25_000)
    driver = ShardDriver()
    for partition in range(12):
        driver.commit(topics=[("orders", "", [(partition, 100 + partition, -1, "m" * 4_000)])])
    in_portions(lambda: delete_group(driver, "g"))
    assert driver.list_groups() == {}
    _, lost = lost_offsets(driver)
    assert sorted(lost) == sorted(("orders", p, 100 + p, "group_deleted") for p in range(12))
    logged = [
        p.metadata
        for e in driver.events
        if isinstance(e, OffsetDeleted)
        for t in e.topics
        for p in t.partitions
    ]
    without = logged.index("m" * 4_000)
    assert 0 < without < 12
    assert logged == [""] * without + ["m" * 4_000] * (12 - without)


def test_offsets_too_large_for_one_step_are_deleted_in_portions():
    driver = ShardDriver(max_step_bytes=5_000)
    for partition in range(12):
        driver.commit(topics=[("orders", "", [(partition, 100 + partition, -1, "m" * 600)])])
    everything = {"orders": list(range(12))}
    assert in_portions(lambda: delete_offsets(driver, "g", **everything)[0]) == 4
    assert driver.fetch().offsets() == {}
    assert sorted(lost_offsets(driver)[1]) == [("orders", p, 100 + p, "deleted") for p in range(12)]
