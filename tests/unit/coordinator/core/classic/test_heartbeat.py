"""Heartbeat: identity, generation, then by state; what keeps a member alive
(docs/spec/membership.md#heartbeat).
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberEvicted, MemberFenced
from tests.helpers.core.shard_driver import (
    REBALANCE_MS,
    SESSION_MS,
    a_member,
    a_stable_group,
    completing,
    heartbeat_through,
    stable,
)


def test_heartbeat_with_empty_group_id_is_refused(driver):
    """docs/spec/admission.md#order."""
    assert driver.heartbeat("", "m", 1).error is ErrorCode.INVALID_GROUP_ID


def test_heartbeat_to_an_absent_group_is_unknown_member(driver):
    """docs/spec/edge-cases.md#edge-43: never GROUP_ID_NOT_FOUND, which kills a client."""
    assert driver.heartbeat("g", "m", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.list_groups() == {}


def test_heartbeat_to_an_empty_group_is_unknown_member(driver):
    """docs/spec/membership.md#heartbeat, Empty."""
    (member,) = a_stable_group(driver, members=1)
    member.leave()
    assert member.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_to_a_simple_group_is_unknown_member(driver):
    driver.commit("g")
    assert driver.heartbeat("g", "m", 0).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_while_preparing_tells_to_rejoin_and_keeps_the_member_alive(driver):
    """docs/spec/edge-cases.md#edge-42."""
    leader, follower = a_stable_group(driver)
    leader.join()
    answers = heartbeat_through(driver, 3 * SESSION_MS, follower)
    assert answers == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert len(driver.describe().members) == 2


def test_heartbeat_while_completing_is_answered_none_and_keeps_the_member_alive(driver):
    """docs/spec/edge-cases.md#edge-41."""
    members = completing(driver, a_member(driver), a_member(driver))
    assert heartbeat_through(driver, 3 * SESSION_MS, *members) == [ErrorCode.NONE] * 2
    assert driver.state() == "CompletingRebalance"


def test_heartbeat_while_stable_is_answered_none_and_keeps_the_member_alive(driver):
    """docs/spec/membership.md#heartbeat, Stable."""
    members = a_stable_group(driver)
    assert heartbeat_through(driver, 10 * SESSION_MS, *members) == [ErrorCode.NONE] * 2
    assert driver.state() == "Stable"


def test_heartbeat_of_a_member_that_only_has_an_id_is_unknown(driver):
    """docs/spec/edge-cases.md#edge-117."""
    pending = driver.join("g").member_id
    assert driver.heartbeat("g", pending, 0).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_unknown_member_wins_over_a_wrong_generation(driver):
    a_stable_group(driver)
    assert driver.heartbeat("g", "made-up", 99).error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("generation", [0, 2, -1])
def test_heartbeat_of_another_generation_is_refused(driver, generation):
    leader, _ = a_stable_group(driver)
    assert driver.heartbeat("g", leader.member_id, generation).error is ErrorCode.ILLEGAL_GENERATION


def test_generation_is_checked_before_the_state(driver):
    """docs/spec/membership.md#heartbeat: in PreparingRebalance too."""
    leader, follower = a_stable_group(driver)
    leader.join()
    call = driver.heartbeat("g", follower.member_id, 7)
    assert call.error is ErrorCode.ILLEGAL_GENERATION


def test_instance_is_checked_before_the_generation(driver):
    """docs/spec/edge-cases.md#edge-45."""
    (member,) = stable(driver, a_member(driver, instance_id="i1"))
    unknown = driver.heartbeat("g", member.member_id, 99, "never-seen")
    assert unknown.error is ErrorCode.UNKNOWN_MEMBER_ID
    fenced = driver.heartbeat("g", "another-id", 99, "i1")
    assert fenced.error is ErrorCode.FENCED_INSTANCE_ID


def test_static_member_may_heartbeat_without_its_instance_id(driver):
    """docs/spec/joining.md#join-group: the identity check looks at the instance only where one is
    given.
    """
    (member,) = stable(driver, a_member(driver, instance_id="i1"))
    assert driver.heartbeat("g", member.member_id, 1).error is ErrorCode.NONE


def test_refused_heartbeat_does_not_keep_a_member_alive(driver):
    """Only the rows NONE and REBALANCE_IN_PROGRESS restart the session."""
    leader, _ = a_stable_group(driver)
    driver.advance(SESSION_MS - 1)
    driver.heartbeat("g", leader.member_id, 7)
    driver.advance(1)
    assert driver.describe().members == ()


def test_session_ends_exactly_when_its_time_is_over(driver):
    """docs/spec/groups.md#timers."""
    leader, follower = a_stable_group(driver)
    driver.advance(SESSION_MS - 1)
    leader.heartbeat()
    assert len(driver.describe().members) == 2
    driver.advance(1)
    assert [m.member_id for m in driver.describe().members] == [leader.member_id]
    (evicted,) = driver.events_of(MemberEvicted)
    assert (evicted.group_id, evicted.member_id) == ("g", follower.member_id)
    assert (evicted.reason, evicted.generation_id) == ("session_timeout", 1)


def test_session_is_the_members_own(driver):
    leader, follower = stable(
        driver,
        a_member(driver, session_timeout_ms=6_000),
        a_member(driver, session_timeout_ms=30_000),
    )
    long_lived = leader if leader.fields["session_timeout_ms"] == 30_000 else follower
    driver.advance(6_000)
    assert [m.member_id for m in driver.describe().members] == [long_lived.member_id]
    driver.advance(23_999)
    assert [m.member_id for m in driver.describe().members] == [long_lived.member_id]
    driver.advance(1)
    assert driver.state() == "Empty"


def test_heartbeats_write_nothing_and_are_no_events(driver):
    members = a_stable_group(driver)
    records, events = len(driver.records), len(driver.events)
    heartbeat_through(driver, REBALANCE_MS, *members)
    assert (len(driver.records), len(driver.events)) == (records, events)


def test_answers_that_promise_nothing_do_not_wait_for_earlier_writes(driver):
    """docs/design.md#durable-first: NONE and REBALANCE_IN_PROGRESS; all other answers wait."""
    leader, follower = stable(
        driver, a_member(driver, instance_id="i1"), a_member(driver, instance_id="i2")
    )
    assert leader.heartbeat().reply.waits is False
    assert driver.heartbeat("g", "made-up", 1).reply.waits is True
    assert driver.heartbeat("g", leader.member_id, 9).reply.waits is True
    assert driver.heartbeat("g", "x", 1, "i1").reply.waits is True
    leader.join()
    assert follower.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    assert follower.heartbeat().reply.waits is False


def test_fenced_heartbeat_is_an_event(driver):
    (member,) = stable(driver, a_member(driver, instance_id="i1"))
    since = len(driver.events)
    driver.heartbeat("g", "older-id", 1, "i1")
    (event,) = driver.events_of(MemberFenced, since)
    assert (event.group_id, event.member_id, event.group_instance_id) == ("g", "older-id", "i1")
    assert event.error == "FENCED_INSTANCE_ID"
    assert member.heartbeat().error is ErrorCode.NONE
