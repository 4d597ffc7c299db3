"""The timers of a classic group: initial delay, join phase, sessions
(docs/spec/joining.md#preparing, docs/spec/groups.md#timers).
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberEvicted, RebalanceEnd, RebalanceStart
from groupkeeper.coordinator.core.records import GroupRecord
from tests.helpers.core.shard_driver import (
    NEW_MEMBER_MS,
    REBALANCE_MS,
    SESSION_MS,
    START_MONOTONIC_MS,
    a_member,
    a_stable_group,
    assignment_for,
    completing,
    heartbeat_through,
    protocols,
    stable,
)

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
NEW = protocols("range", subscription=b"new")


# --- The initial delay --------------------------------------------------------------------------


def test_initial_rebalance_waits_for_the_delay_although_all_known_members_are_parked(driver):
    """docs/spec/edge-cases.md#edge-25."""
    call = driver.join("g", version=3)
    driver.advance(2_999)
    assert call.parked
    driver.advance(1)
    assert call.error is ErrorCode.NONE


def test_initial_delay_of_zero_answers_the_first_join_at_once(make_driver):
    """docs/spec/joining.md#preparing: 0 is allowed."""
    driver = make_driver(initial_rebalance_delay_ms=0)
    call = driver.join("g", version=3)
    assert (call.error, call.result.generation_id) == (ErrorCode.NONE, 1)


def test_newcomer_in_the_initial_delay_extends_it_by_one_step(driver):
    """docs/spec/edge-cases.md#edge-26
    (testResetRebalanceDelayWhenNewMemberJoinsGroupDuringInitialRebalance).
    """
    first = driver.join("g", version=3)
    driver.advance(1_000)
    second = driver.join("g", version=3)
    driver.advance(4_999)
    assert first.parked
    driver.advance(1)
    assert (first.error, second.error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert first.result.generation_id == second.result.generation_id == 1


def test_initial_delay_is_extended_only_by_who_came_during_its_last_step(driver):
    """docs/spec/joining.md#preparing: the flag is cleared when the timer fires."""
    first = driver.join("g", version=3)
    driver.advance(1_000)
    driver.join("g", version=3)
    driver.advance(2_500)  # in the second step now, and nobody comes any more
    driver.advance(2_499)
    assert first.parked
    driver.advance(1)
    assert first.error is ErrorCode.NONE


def test_initial_delay_never_passes_the_first_members_rebalance_timeout(driver):
    """docs/spec/edge-cases.md#edge-26 (testDelayRebalanceUptoRebalanceTimeout): 3 + 3 + 3 + 1
    seconds.
    """
    first = driver.join("g", version=3, rebalance_timeout_ms=10_000)
    for _ in range(9):
        driver.advance(1_000)
        driver.join("g", version=3, rebalance_timeout_ms=600_000)
    driver.advance(999)
    assert first.parked
    driver.advance(1)
    assert first.error is ErrorCode.NONE
    assert len(driver.describe().members) == 10
    assert driver.events_of(RebalanceEnd)[0].duration_ms == 10_000


def test_rebalance_timeout_below_the_delay_leaves_no_budget_for_extensions(driver):
    """docs/spec/joining.md#preparing: the budget is never negative, the first delay is always
    whole.
    """
    first = driver.join("g", version=3, rebalance_timeout_ms=1_000)
    driver.advance(1_500)
    second = driver.join("g", version=3, rebalance_timeout_ms=60_000)
    driver.advance(1_499)
    assert first.parked
    driver.advance(1)
    assert (first.error, second.error) == (ErrorCode.NONE, ErrorCode.NONE)


def test_who_is_parked_when_the_budget_of_the_initial_delay_is_spent_is_in(make_driver):
    """The delay ends with the first rebalance timeout, and no further step of 0 ms begins: by that
    one the sessions that are due at the same time would be over before the answers.
    """
    driver = make_driver(initial_rebalance_delay_ms=10_000)
    timeouts = {"rebalance_timeout_ms": 20_000, "session_timeout_ms": 6_000}
    calls = [driver.join("g", version=3, **timeouts)]
    for pause_ms in (1_000, 11_000):  # once in each of the two steps
        driver.advance(pause_ms)
        calls.append(driver.join("g", version=3, **timeouts))
    driver.advance(2_000)
    driver.heartbeat("g", calls[1].request.new_member_id, 0)  # its session: until 20 s
    driver.advance(6_000)
    assert [call.error for call in calls] == [ErrorCode.NONE] * 3
    assert not driver.events_of(MemberEvicted)


def test_only_member_that_leaves_in_the_initial_delay_ends_it_empty_when_it_is_over(driver):
    """docs/spec/edge-cases.md#edge-27."""
    call = driver.join("g", version=3)
    driver.advance(1_000)
    driver.leave("g", call.request.new_member_id)
    assert call.error is UNKNOWN
    assert driver.state() == "PreparingRebalance"
    since = len(driver.records)
    driver.advance(1_999)
    assert driver.records[since:] == []
    driver.advance(1)
    assert driver.state() == "Empty"
    (record,) = driver.records[since:]
    assert isinstance(record, GroupRecord)
    assert (record.generation_id, record.members, record.protocol_name) == (1, (), None)


def test_group_that_was_empty_again_has_an_initial_delay_again(driver):
    """docs/spec/joining.md#preparing: "From Empty"."""
    (member,) = a_stable_group(driver, members=1)
    member.leave()
    call = driver.join("g", version=3)
    assert driver.advance_until_answered(call) == 3_000


def test_handed_out_id_does_not_hold_up_the_initial_rebalance(driver):
    """docs/spec/joining.md#completing: the delay decides there."""
    driver.join("g")
    call = driver.join("g", version=3)
    assert driver.advance_until_answered(call) == 3_000


def test_handed_out_id_that_expires_in_the_initial_delay_does_not_cut_it_short(make_driver):
    """docs/spec/groups.md#timers: "maybe complete join", which the initial rebalance excludes."""
    driver = make_driver(initial_rebalance_delay_ms=20_000)
    driver.join("g")
    call = driver.join("g", version=3)
    driver.advance(19_999)
    assert call.parked
    driver.advance(1)
    assert call.error is ErrorCode.NONE


def test_eviction_in_the_initial_delay_completes_it_when_all_others_are_parked(make_driver):
    """docs/spec/groups.md#timers, last rule: "even during the initial rebalance"."""
    driver = make_driver(initial_rebalance_delay_ms=400_000)
    first = driver.join("g", version=3, rebalance_timeout_ms=900_000)
    driver.advance(100_000)
    second = driver.join("g", version=3, rebalance_timeout_ms=900_000)
    driver.advance(NEW_MEMBER_MS - 100_000)
    assert (first.error, first.member_id) == (UNKNOWN, "")
    assert (second.error, second.result.generation_id) == (ErrorCode.NONE, 1)


# --- The join timer -----------------------------------------------------------------------------


def test_rebalance_waits_for_the_largest_rebalance_timeout(driver):
    """docs/spec/joining.md#preparing."""
    members = stable(
        driver,
        a_member(driver, rebalance_timeout_ms=20_000, session_timeout_ms=600_000),
        a_member(driver, rebalance_timeout_ms=90_000, session_timeout_ms=600_000),
    )
    call = members[0].join(protocols=NEW)
    assert driver.advance_until_answered(call) == 90_000


def test_rebalance_timeout_is_what_a_member_said_last(driver):
    """docs/spec/joining.md#join-group: a member that joins again may have another configuration."""
    leader, _ = stable(
        driver,
        a_member(driver, rebalance_timeout_ms=90_000, session_timeout_ms=600_000),
        a_member(driver, rebalance_timeout_ms=20_000, session_timeout_ms=600_000),
    )
    call = leader.join(rebalance_timeout_ms=30_000)
    assert driver.advance_until_answered(call) == 30_000


def test_member_that_heartbeats_but_does_not_rejoin_is_removed_by_the_join_timer(driver):
    """docs/spec/joining.md#completing step 1."""
    leader, follower = a_stable_group(driver)
    call = leader.join()
    heartbeat_through(driver, REBALANCE_MS, follower)
    assert call.error is ErrorCode.NONE
    assert follower.heartbeat().error is UNKNOWN
    (evicted,) = driver.events_of(MemberEvicted)
    assert (evicted.member_id, evicted.reason) == (follower.member_id, "join_timeout")


def test_handed_out_id_does_not_hold_up_the_end_of_the_join_timer(driver):
    """docs/spec/joining.md#completing: the timer completes the phase whatever is pending."""
    (leader,) = a_stable_group(driver, members=1)
    driver.join("g", session_timeout_ms=1_800_000)
    call = leader.join()
    assert driver.advance_until_answered(call) == REBALANCE_MS
    assert call.error is ErrorCode.NONE


def test_completing_group_that_rebalances_gets_a_whole_join_timer(driver):
    leader, follower = completing(
        driver, *(a_member(driver, session_timeout_ms=600_000) for _ in range(2))
    )
    driver.advance(REBALANCE_MS - 1_000)
    call = follower.join(protocols=NEW)
    assert driver.advance_until_answered(call) == REBALANCE_MS
    assert leader.heartbeat().error is UNKNOWN


def test_join_phase_that_everyone_left_ends_empty_at_once(driver):
    """docs/spec/groups.md#states: 0 members -> generation + 1, Empty."""
    leader, follower = a_stable_group(driver)
    parked = leader.join()
    driver.leave("g", leader.member_id, follower.member_id)
    assert parked.error is UNKNOWN
    assert driver.state() == "Empty"
    assert driver.saved()["g"].metadata.generation_id == 2


# --- New members --------------------------------------------------------------------------------


def test_new_member_that_is_parked_too_long_is_removed(driver):
    """docs/spec/edge-cases.md#edge-13: five minutes, though its join is parked; the group goes on
    waiting.
    """
    (leader,) = a_stable_group(driver, members=1, rebalance_timeout_ms=900_000)
    newcomer = driver.join("g", version=3, new_member_id="new", session_timeout_ms=1_800_000)
    heartbeat_through(driver, NEW_MEMBER_MS - 1, leader)
    assert newcomer.parked
    driver.advance(1)
    assert (newcomer.error, newcomer.member_id) == (UNKNOWN, "")
    assert driver.state() == "PreparingRebalance"
    (evicted,) = driver.events_of(MemberEvicted)
    assert (evicted.member_id, evicted.reason) == ("new", "new_member_timeout")
    assert leader.join().error is ErrorCode.NONE


def test_new_member_does_not_need_its_session_while_it_is_parked(driver):
    """docs/spec/joining.md#adding: the new-member timer replaces the session timer, the pending one
    too.
    """
    (leader,) = a_stable_group(driver, members=1, rebalance_timeout_ms=900_000)
    pending = driver.join("g").member_id
    newcomer = driver.join("g", pending)
    heartbeat_through(driver, 10 * SESSION_MS, leader)
    assert newcomer.parked
    leader.join()
    assert newcomer.error is ErrorCode.NONE


@pytest.mark.parametrize("heard", ["heartbeat", "commit"])
def test_new_member_that_is_heard_of_while_it_is_parked_has_a_session_from_then(driver, heard):
    """Kafka 4.3.1: rescheduleClassicGroupMemberHeartbeat takes the session timeout of new members
    too, and ClassicGroupMember.hasSatisfiedHeartbeat is false for them; a random life told it.
    """
    (leader,) = a_stable_group(driver, members=1, rebalance_timeout_ms=900_000)
    newcomer = driver.join("g", driver.join("g").member_id)
    member_id = newcomer.request.member_id
    driver.advance(5_000)
    leader.heartbeat()
    if heard == "heartbeat":
        assert driver.heartbeat("g", member_id, 1).error is ErrorCode.REBALANCE_IN_PROGRESS
    else:
        assert driver.commit("g", member_id=member_id, generation_id=1).error is ErrorCode.NONE
    heartbeat_through(driver, SESSION_MS - 1, leader)
    assert newcomer.parked
    driver.advance(1)
    assert (newcomer.error, newcomer.member_id) == (UNKNOWN, "")
    (evicted,) = driver.events_of(MemberEvicted)
    assert (evicted.member_id, evicted.reason) == (member_id, "session_timeout")


def test_new_member_timeout_removes_the_last_one_awaited_and_completes_the_phase(driver):
    """docs/spec/groups.md#timers: PreparingRebalance, everybody parked and none pending ->
    complete.
    """
    (leader,) = a_stable_group(driver, members=1, rebalance_timeout_ms=900_000)
    newcomer = driver.join("g", version=3, new_member_id="new")
    pending = driver.join("g", session_timeout_ms=600_000).member_id
    call = leader.join()
    assert call.parked
    driver.advance(NEW_MEMBER_MS)
    assert newcomer.error is UNKNOWN
    assert call.parked
    driver.leave("g", pending)
    assert call.error is ErrorCode.NONE


def test_new_member_is_an_ordinary_one_once_the_join_phase_is_complete(driver):
    """docs/spec/joining.md#completing step 5: is-new is cleared, its session counts from there."""
    member = a_member(driver)
    call = member.join()
    driver.advance_until_answered(call)
    driver.advance(SESSION_MS - 1)
    assert len(driver.describe().members) == 1
    driver.advance(1)
    assert driver.describe().members == ()


# --- Sessions in a rebalance --------------------------------------------------------------------


def test_existing_member_outlives_its_session_while_its_join_is_parked(driver):
    """docs/spec/edge-cases.md#edge-14."""
    leader, follower = a_stable_group(driver)
    parked = leader.join()
    heartbeat_through(driver, 4 * SESSION_MS, follower)
    assert parked.parked
    assert len(driver.describe().members) == 2
    assert follower.join().error is ErrorCode.NONE
    assert parked.error is ErrorCode.NONE


def test_completed_join_phase_gives_everybody_a_new_session(driver):
    """docs/spec/joining.md#completing step 5."""
    leader, follower = a_stable_group(driver)
    leader.join()
    driver.advance(SESSION_MS - 1)
    follower.join()
    driver.advance(SESSION_MS - 1)
    assert len(driver.describe().members) == 2
    driver.advance(1)
    assert driver.state() == "Empty"


def test_member_that_dies_in_a_rebalance_completes_it_when_the_others_are_parked(driver):
    """docs/spec/groups.md#timers: session expiry in PreparingRebalance."""
    leader, follower = a_stable_group(driver)
    call = leader.join()
    assert driver.advance_until_answered(call) == SESSION_MS
    assert [m.member_id for m in call.result.members] == [leader.member_id]
    (evicted,) = driver.events_of(MemberEvicted)
    assert (evicted.member_id, evicted.reason) == (follower.member_id, "session_timeout")


def test_member_that_dies_while_an_id_is_pending_does_not_complete_the_rebalance(driver):
    """docs/spec/groups.md#timers: "everybody parked and none pending"."""
    leader, follower = a_stable_group(driver)
    pending = driver.join("g", session_timeout_ms=30_000).member_id
    call = leader.join()
    driver.advance(SESSION_MS)
    assert follower.heartbeat().error is UNKNOWN
    assert call.parked
    driver.join("g", pending)
    assert call.error is ErrorCode.NONE


@pytest.mark.parametrize("state", ["Stable", "CompletingRebalance"])
def test_session_timeout_starts_a_rebalance(driver, state):
    """docs/spec/groups.md#states and #timers."""
    make = stable if state == "Stable" else completing
    leader, follower = make(driver, a_member(driver), a_member(driver))
    since = len(driver.events)
    driver.advance(SESSION_MS - 1)
    leader.heartbeat()
    driver.advance(1)
    assert driver.state() == "PreparingRebalance"
    (start,) = driver.events_of(RebalanceStart, since)
    assert start.member_id == follower.member_id


def test_leader_that_dies_is_followed_by_a_survivor(driver):
    leader, follower = a_stable_group(driver)
    heartbeat_through(driver, SESSION_MS, follower)
    call = follower.join()
    assert call.error is ErrorCode.NONE
    assert call.result.leader == follower.member_id
    assert leader.member_id not in {m.member_id for m in call.result.members}


def test_last_member_that_dies_leaves_the_group_empty_in_the_next_generation(driver):
    """docs/spec/groups.md#states and #restart: persisted when the group becomes Empty."""
    a_stable_group(driver, members=1)
    since = len(driver.records)
    driver.advance(SESSION_MS)
    assert driver.state() == "Empty"
    (record,) = driver.records[since:]
    assert isinstance(record, GroupRecord)
    assert (record.generation_id, record.members) == (2, ())
    assert record.state_timestamp_ms == driver.now.wall_ms


def test_two_members_that_die_at_the_same_moment_are_both_removed(driver):
    a_stable_group(driver, members=2)
    driver.advance(SESSION_MS)
    assert driver.state() == "Empty"
    assert [e.reason for e in driver.events_of(MemberEvicted)] == ["session_timeout"] * 2


def test_groups_expire_on_their_own(driver):
    one = a_stable_group(driver, "one")
    a_stable_group(driver, "two")
    heartbeat_through(driver, 10 * SESSION_MS, *one)
    assert driver.state("one") == "Stable"
    assert driver.state("two") == "Empty"


def test_deadline_of_a_heartbeating_group_is_never_in_the_past(driver):
    """docs/design.md#deadlines: a stale entry is corrected when it is popped."""
    members = a_stable_group(driver)
    for _ in range(20):
        heartbeat_through(driver, 3_000, *members)
        due = driver.shard.next_deadline()
        assert due is not None
        assert driver.now.monotonic_ms < due


def test_shard_without_groups_has_at_most_its_periodic_deadline(driver):
    due = driver.shard.next_deadline()
    assert due is None or due >= START_MONOTONIC_MS + driver.limits.retention_check_interval_ms


# --- Generations --------------------------------------------------------------------------------


def test_generation_grows_by_one_with_every_completed_join_phase(driver):
    """docs/spec/groups.md#generations."""
    leader, follower = a_stable_group(driver)
    for generation in (2, 3, 4):
        calls = [leader.join(), follower.join()]
        assert [c.result.generation_id for c in calls] == [generation] * 2
        for member, call in zip((leader, follower), calls, strict=True):
            member.joined(call)
        leader.sync(assignment_for([leader, follower]))
        follower.sync()


def test_generation_survives_an_empty_time(driver):
    """docs/spec/groups.md#generations."""
    (member,) = a_stable_group(driver, members=1)
    member.leave()
    driver.advance(3_000)
    (again,) = a_stable_group(driver, members=1)
    assert again.generation_id == 3


def test_generation_wraps_to_one(driver):
    """docs/spec/groups.md#generations: a negative generation would look like none."""
    driver.load(GroupRecord("g", "consumer", 2**31 - 1, None, None, driver.now.wall_ms, ()))
    (member,) = a_stable_group(driver, members=1)
    assert member.generation_id == 1
    assert member.commit().partition_errors() == {("orders", 0): ErrorCode.NONE}
