"""group.max.size: who is let in, and who has to go (docs/spec/joining.md#size)."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberEvicted, RebalanceStart
from tests.helpers.core.shard_driver import (
    REBALANCE_MS,
    a_member,
    a_stable_group,
    completing,
    protocols,
    stable,
)

FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
NEW = protocols("range", subscription=b"new")


@pytest.fixture
def full(make_driver):
    """A driver whose groups hold two members."""
    return make_driver(group_max_size=2)


def test_newcomer_to_a_full_stable_group_is_refused_and_nobody_notices(full):
    a_stable_group(full, members=2)
    call = full.join("g", version=3)
    assert (call.error, call.member_id) == (FULL, "")
    assert full.state() == "Stable"


def test_full_group_hands_out_no_ids(full):
    """docs/spec/joining.md#join-group: step 5 before step 8."""
    a_stable_group(full, members=2)
    call = full.join("g", version=9)
    assert (call.error, call.member_id) == (FULL, "")


def test_newcomer_to_a_full_completing_group_is_refused(full):
    completing(full, a_member(full), a_member(full))
    assert full.join("g", version=3).error is FULL
    assert full.state() == "CompletingRebalance"


def test_size_is_checked_before_the_protocol(full):
    """docs/spec/joining.md#join-group: step 5 before step 7."""
    a_stable_group(full, members=2)
    assert full.join("g", version=3, protocol_type="connect").error is FULL


@pytest.mark.parametrize("state", ["Stable", "CompletingRebalance"])
def test_member_of_a_full_group_may_always_rejoin(full, state):
    make = stable if state == "Stable" else completing
    leader, follower = make(full, a_member(full), a_member(full))
    assert follower.join().error is ErrorCode.NONE
    assert leader.join(protocols=NEW).parked


def test_restarted_static_member_is_not_let_into_a_full_group(full):
    """docs/spec/joining.md#join-group: step 5 looks at the member id, and a restarted static member
    has none yet.
    """
    leader, _ = stable(full, a_member(full, instance_id="i1"), a_member(full, instance_id="i2"))
    call = full.join("g", group_instance_id=leader.instance_id)
    assert (call.error, call.member_id) == (FULL, "")
    assert leader.heartbeat().error is ErrorCode.NONE


def test_empty_group_always_lets_in(full):
    """docs/spec/joining.md#size, Empty."""
    assert full.join("g", version=3).parked


def test_ids_do_not_count(full):
    """docs/spec/joining.md#size: pending members do not count; docs/spec/edge-cases.md#edge-22:
    full when the third comes back.
    """
    ids = [full.join("g").member_id for _ in range(3)]
    calls = [full.join("g", member_id) for member_id in ids]
    assert [call.parked for call in calls] == [True, True, False]
    assert (calls[2].error, calls[2].member_id) == (FULL, "")
    full.advance_until_answered(*calls[:2])
    assert [call.error for call in calls[:2]] == [ErrorCode.NONE] * 2


def test_group_that_became_full_after_the_id_was_handed_out_refuses_the_second_join(full):
    """docs/spec/edge-cases.md#edge-22."""
    (leader,) = a_stable_group(full, members=1)
    late = full.join("g", session_timeout_ms=1_800_000).member_id
    newcomer = full.join("g", version=3)
    full.advance_until_answered(newcomer, leader.join())
    call = full.join("g", late)
    assert (call.error, call.member_id) == (FULL, "")
    assert len(full.describe().members) == 2


def test_id_that_is_turned_away_is_awaited_no_longer(full):
    (leader,) = a_stable_group(full, members=1)
    late = full.join("g", session_timeout_ms=1_800_000).member_id
    calls = [full.join("g", version=3), leader.join()]
    assert all(call.parked for call in calls)
    assert full.join("g", late).error is FULL
    assert [call.error for call in calls] == [ErrorCode.NONE] * 2


def test_preparing_group_counts_who_is_parked(full):
    """docs/spec/joining.md#size: a newcomer may take the place of a member that has not come back
    yet.
    """
    leader, follower = a_stable_group(full, members=2, session_timeout_ms=600_000)
    leader.join()
    newcomer = full.join("g", version=3)
    assert newcomer.parked
    since = len(full.events)
    late = follower.join()
    assert (late.error, late.member_id) == (FULL, "")
    assert follower.member_id not in {m.member_id for m in full.describe().members}
    (evicted,) = full.events_of(MemberEvicted, since)
    assert (evicted.member_id, evicted.reason) == (follower.member_id, "group_max_size")
    full.advance(REBALANCE_MS)
    assert full.everything_answered()
    assert newcomer.error is ErrorCode.NONE


def test_parked_member_may_repeat_its_join_in_a_full_preparing_group(full):
    """docs/spec/joining.md#size: accepted if the member is already parked."""
    calls = [full.join("g", version=3) for _ in range(2)]
    again = full.join("g", calls[0].request.new_member_id)
    assert again.parked
    full.advance_until_answered(again)
    assert again.error is ErrorCode.NONE


def test_loaded_group_above_the_limit_rebalances_at_once(driver):
    """docs/spec/groups.md#restart (testOnLoadedExceedGroupMaxSizeTriggersRebalance)."""
    members = a_stable_group(driver, members=3)
    since = len(driver.events)
    driver.reload(group_max_size=2)
    assert driver.state() == "PreparingRebalance"
    assert len(driver.events_of(RebalanceStart, since)) == 1
    assert members[0].heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS


def test_slowest_rejoiners_of_a_group_above_the_limit_are_kicked_out(driver):
    """docs/spec/edge-cases.md#edge-23."""
    members = a_stable_group(driver, members=4)
    driver.reload(group_max_size=2)
    calls = [member.join() for member in members]
    assert [call.error for call in calls[2:]] == [FULL, FULL]
    assert [call.member_id for call in calls[2:]] == ["", ""]
    driver.advance_until_answered(*calls)
    assert [call.error for call in calls[:2]] == [ErrorCode.NONE] * 2
    assert {m.member_id for m in driver.describe().members} == {m.member_id for m in members[:2]}
    assert driver.state() == "CompletingRebalance"


def test_loaded_group_at_the_limit_stays_stable(driver):
    a_stable_group(driver, members=2)
    driver.reload(group_max_size=2)
    assert driver.state() == "Stable"
