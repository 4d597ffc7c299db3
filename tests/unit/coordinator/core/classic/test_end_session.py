"""EndSession: a test evicts a member without waiting for its session to end."""

from __future__ import annotations

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberEvicted, RebalanceStart
from groupkeeper.coordinator.core.requests.membership import EndSession
from tests.helpers.core.shard_driver import a_join, a_member, a_stable_group


def test_the_member_goes_as_if_its_session_had_ended(driver):
    leader, follower = a_stable_group(driver)
    assert driver.send(EndSession("g", follower.member_id)).error is ErrorCode.NONE
    (evicted,) = driver.events_of(MemberEvicted)
    assert (evicted.member_id, evicted.reason) == (follower.member_id, "session_timeout")
    assert driver.events_of(RebalanceStart)[-1].reason == "session_timeout"
    assert follower.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert leader.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_last_member_leaves_an_empty_group(driver):
    (member,) = a_stable_group(driver, members=1)
    driver.send(EndSession("g", member.member_id))
    assert driver.state() == "Empty"


def test_a_member_whose_join_is_parked_is_evicted_too_and_answered(driver):
    leader, follower = a_stable_group(driver)
    parked = leader.join()
    assert parked.parked
    assert driver.send(EndSession("g", leader.member_id)).error is ErrorCode.NONE
    assert parked.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert follower.join().error is ErrorCode.NONE


def test_an_id_that_was_handed_out_is_forgotten_and_nobody_waits_for_it(driver):
    handed_out = driver.send(a_join())
    assert handed_out.error is ErrorCode.MEMBER_ID_REQUIRED
    assert driver.send(EndSession("g", handed_out.member_id)).error is ErrorCode.NONE
    assert driver.join("g", handed_out.member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_is_not_there_is_an_unknown_member(driver):
    a_member(driver)
    assert driver.send(EndSession("g", "nobody")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.send(EndSession("nowhere", "m")).error is ErrorCode.UNKNOWN_MEMBER_ID
