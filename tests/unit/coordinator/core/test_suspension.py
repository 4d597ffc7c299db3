"""A shard that answered nothing for a while and continues with its state
(docs/design.md#lapses).
"""

from __future__ import annotations

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberEvicted
from tests.helpers.core.consumer_members import ConsumerStub
from tests.helpers.core.shard_driver import (
    REBALANCE_MS,
    SESSION_MS,
    a_member,
    a_stable_group,
    assignment_for,
    completing,
    heartbeat_through,
)

HOUR_MS = 3_600_000


def test_sessions_start_again_at_full_length(driver):
    leader, _ = a_stable_group(driver)
    driver.advance(SESSION_MS - 1)
    step = driver.stop_for(HOUR_MS)
    assert not step.records
    driver.advance(SESSION_MS - 1)
    assert leader.heartbeat().error is ErrorCode.NONE
    assert len(driver.describe().members) == 2
    driver.advance(1)
    assert [m.member_id for m in driver.describe().members] == [leader.member_id]


def test_a_rebalance_continues_with_its_parked_joins_and_the_whole_timeout(driver):
    leader, follower = a_stable_group(driver)
    heartbeat_through(driver, SESSION_MS, leader, follower)
    call = a_member(driver).join()
    heartbeat_through(driver, REBALANCE_MS - 1, leader, follower)
    driver.stop_for(HOUR_MS)
    heartbeat_through(driver, REBALANCE_MS - 1, leader, follower)
    assert call.parked
    calls = [leader.join(), follower.join()]
    assert [each.error for each in (call, *calls)] == [ErrorCode.NONE] * 3


def test_members_may_still_sync_after_it(driver):
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    heartbeat_through(driver, REBALANCE_MS - 1, leader, follower)
    driver.stop_for(HOUR_MS)
    heartbeat_through(driver, REBALANCE_MS - 1, leader, follower)
    calls = [leader.sync(assignment_for([leader, follower])), follower.sync()]
    assert [call.error for call in calls] == [ErrorCode.NONE] * 2


def test_the_initial_delay_of_a_group_has_stood_still(driver):
    call = a_member(driver).join()
    delay_ms = driver.limits.initial_rebalance_delay_ms
    driver.advance(delay_ms // 2)
    driver.stop_for(HOUR_MS)
    driver.advance(delay_ms - delay_ms // 2 - 1)
    assert call.parked
    driver.advance(1)
    assert call.error is ErrorCode.NONE


def test_an_id_that_was_handed_out_stays_valid(driver):
    pending = driver.join("g").member_id
    driver.advance(SESSION_MS - 1)
    driver.stop_for(60_000)
    call = driver.join("g", pending)
    driver.advance_until_answered(call)
    assert call.error is ErrorCode.NONE


def test_a_member_of_a_consumer_group_has_its_whole_timeout_to_give_up_partitions(driver):
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join(rebalance_timeout_ms=20_000)
    driver.advance(1_000)
    b.join()
    a.beat()
    driver.advance(19_999)
    driver.stop_for(HOUR_MS)
    for _ in range(19):
        driver.advance(1_000)
        a.beat()
        b.beat()
    assert not driver.events_of(MemberEvicted)
    driver.advance(1_000)
    assert [event.reason for event in driver.events_of(MemberEvicted)] == ["rebalance_timeout"]


def test_sessions_of_a_consumer_group_start_again_at_full_length(driver):
    a = ConsumerStub(driver, "a")
    a.join()
    session_ms = driver.limits.consumer_session_timeout_ms
    driver.advance(session_ms - 1)
    driver.stop_for(HOUR_MS)
    driver.advance(session_ms - 1)
    assert a.beat().error is ErrorCode.NONE
