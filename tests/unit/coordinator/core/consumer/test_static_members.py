"""Static members of consumer groups (docs/spec/consumer-groups.md#static-members)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from groupkeeper.coordinator.core.consumer import assignment_work
from groupkeeper.coordinator.core.consumer_records import (
    ConsumerGroupRecord,
    ConsumerMember,
    ConsumerMemberFields,
    ConsumerMemberRemoved,
)
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberEvicted, MemberJoin
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from tests.helpers.core.consumer_members import ConsumerStub, describe_consumer, settle
from tests.helpers.core.mixed_groups import partitions_of, rejoin
from tests.helpers.core.shard_driver import CLIENT, ORDERS, a_member

if TYPE_CHECKING:
    from tests.helpers.core.shard_driver import ShardDriver

NONE = ErrorCode.NONE


def two_members(driver: ShardDriver) -> tuple[ConsumerStub, ConsumerStub]:
    a, b = ConsumerStub(driver, "a", instance_id="i"), ConsumerStub(driver, "b")
    a.join()
    driver.advance(1_000)
    b.join()
    settle(driver, [a, b])
    return a, b


def test_a_static_member_that_comes_back_gets_its_partitions_without_an_epoch(driver) -> None:
    a, b = two_members(driver)
    held = a.partitions()
    call = a.leave(-2)
    assert (call.result.member_epoch, call.result.assignment) == (-2, None)
    b.beat()
    assert b.epoch == 3
    again = ConsumerStub(driver, "a2", instance_id="i")
    assert again.join().error is NONE
    assert (again.epoch, again.partitions()) == (3, held)
    assert driver.events_of(MemberJoin)[-1].replaces == "a"
    assert describe_consumer(driver).state == "Stable"
    assert a.send(member_epoch=3).error is ErrorCode.FENCED_INSTANCE_ID
    a.instance_id = None
    assert a.send(member_epoch=3).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_instance_id_of_another_member_is_fenced_although_nothing_else_changes(driver) -> None:
    _, b = two_members(driver)
    assert describe_consumer(driver).state == "Stable"
    assert b.beat().error is NONE
    assert b.send(group_instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert b.send(group_instance_id="j").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.beat().error is NONE


def test_the_same_id_may_come_back_too(driver) -> None:
    a, _ = two_members(driver)
    held = a.partitions()
    a.leave(-2)
    a.join()
    assert (a.epoch, a.partitions()) == (3, held)


def test_a_member_that_left_for_now_keeps_what_it_has_until_its_session_ends(driver) -> None:
    """docs/spec/edge-cases.md#edge-93 and #edge-95; testSessionTimeoutExpirationStaticMember."""
    a, b = two_members(driver)
    a.leave(-2)
    assert a.send(member_epoch=3).error is ErrorCode.FENCED_MEMBER_EPOCH
    settle(driver, [b], rounds=40)
    assert len(b.partitions()) == 6
    settle(driver, [b], rounds=6)
    assert b.partitions() == {*range(12)}
    assert [event.reason for event in driver.events_of(MemberEvicted)] == ["session_timeout"]


def test_a_member_that_left_for_now_after_a_long_wait_is_evicted_all_the_same(
    driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session ended while its heartbeat waited for a target, and it stayed for that reason."""
    a, b = two_members(driver)
    monkeypatch.setattr(assignment_work, "LARGE_US", -1)
    waiting = a.beat(subscribed_topic_names=("orders", "payments"))
    assert waiting.parked
    settle(driver, [b], rounds=60)
    assert a.leave(-2).error is NONE
    assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID
    settle(driver, [b], rounds=60)
    assert [event.member_id for event in driver.events_of(MemberEvicted)] == ["a"]


def test_what_it_was_giving_up_is_free_at_once(driver) -> None:
    a, b = ConsumerStub(driver, "a", instance_id="i"), ConsumerStub(driver, "b")
    a.join()
    driver.advance(1_000)
    b.join()
    a.beat()
    a.leave(-2)
    b.beat()
    assert len(b.partitions()) == 6


def test_an_instance_id_in_use_is_refused(driver) -> None:
    """docs/spec/edge-cases.md#edge-94."""
    two_members(driver)
    other = ConsumerStub(driver, "c", instance_id="i")
    assert other.join().error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert other.send(member_epoch=3).error is ErrorCode.FENCED_INSTANCE_ID
    other.instance_id = "j"
    assert other.send(member_epoch=3).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_joins_under_another_instance_id_no_longer_has_the_old_one(driver) -> None:
    """docs/understand/differences.md#an-old-instance-id-is-free."""
    a, _ = two_members(driver)
    held = a.partitions()
    a.instance_id = "j"
    assert a.join().error is NONE
    assert (a.epoch, a.partitions()) == (3, held)
    other = ConsumerStub(driver, "other", instance_id="i")
    assert other.join().error is NONE
    assert ConsumerStub(driver, "third", instance_id="j").join().error is (
        ErrorCode.UNRELEASED_INSTANCE_ID
    )


def test_a_load_of_old_records_leaves_an_instance_id_to_its_newer_member(driver) -> None:
    """The removal of the older member may be read after the record of the newer one."""
    a, b = (ConsumerMemberFields(name, "i", rebalance_timeout_ms=60_000) for name in "ab")
    driver.load(
        ConsumerGroupRecord("g"),
        ConsumerMember("g", a),
        ConsumerMember("g", b),
        ConsumerMemberRemoved("g", "a"),
    )
    other = ConsumerStub(driver, "c", instance_id="i")
    assert other.join().error is ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_group_whose_only_member_left_for_now_is_not_empty(driver) -> None:
    """docs/spec/edge-cases.md#edge-108."""
    a = ConsumerStub(driver, "a", instance_id="i")
    a.join()
    a.leave(-2)
    assert driver.send(DeleteGroup("g", CLIENT)).result is ErrorCode.NON_EMPTY_GROUP


def test_a_static_member_may_leave_for_good(driver) -> None:
    a, b = two_members(driver)
    a.leave()
    settle(driver, [b], rounds=2)
    assert b.partitions() == {*range(12)}
    c = ConsumerStub(driver, "c", instance_id="i")
    assert c.join().error is NONE


def test_after_a_restart_a_member_that_left_for_now_has_nothing_to_give_up(driver) -> None:
    a, b = ConsumerStub(driver, "a", instance_id="i"), ConsumerStub(driver, "b")
    a.join(rebalance_timeout_ms=5_000)
    driver.advance(1_000)
    b.join()
    a.beat()  # told to give up one half
    a.leave(-2)
    driver.reload()
    driver.advance(5_000)
    assert driver.events_of(MemberEvicted) == []


def test_a_restart_keeps_who_left_for_now(driver) -> None:
    a, _ = two_members(driver)
    held = a.partitions()
    a.leave(-2)
    driver.reload()
    a.join()
    assert a.partitions() == held


def test_the_member_that_replaces_a_classic_one_has_what_that_one_had_to_give_up(driver) -> None:
    """Its process may have read on. So nobody else gets these partitions before it says that it
    gave them up, and the epochs at which they were assigned stay.
    """
    consumer = ConsumerStub(driver, "b")
    consumer.join()
    driver.advance(1_000)
    static = a_member(driver, instance_id="i")
    rejoin(static)
    settle(driver, [consumer], rounds=2)
    rejoin(static)
    had = partitions_of(static.sync())
    assert len(had) == 6
    third = ConsumerStub(driver, "c")
    driver.advance(1_000)
    third.join()
    rejoin(static, *had)
    again = a_member(driver, instance_id="i")
    rejoin(again, *had)
    settle(driver, [consumer, third], rounds=2)
    (held,) = [m for m in describe_consumer(driver).members if m.is_classic]
    assert held.member_id == again.member_id
    ((topic_id, _, numbers),) = held.assignment
    assert (topic_id, {*numbers}) == (ORDERS.topic_id, had)
    assert len(third.partitions()) == 2
