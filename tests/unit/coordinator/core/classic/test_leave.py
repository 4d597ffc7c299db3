"""LeaveGroup: one entry at a time, then what the batch did to the group
(docs/spec/membership.md#leave-group).
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberLeave, RebalanceStart
from groupkeeper.coordinator.core.records import GroupRecord
from groupkeeper.coordinator.core.requests.membership import LeavingMember, LeftMember
from tests.helpers.core.shard_driver import (
    a_member,
    a_stable_group,
    assignment_for,
    completing,
    protocols,
    stable,
)

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def errors(call):
    """The error of each entry, in order."""
    assert call.error is ErrorCode.NONE
    return [member.error for member in call.result.members]


def test_leave_with_empty_group_id_is_refused_as_a_whole(driver):
    """docs/spec/admission.md#order and #placement: top-level error, no members."""
    call = driver.leave("", "m")
    assert (call.error, call.result.members) == (ErrorCode.INVALID_GROUP_ID, ())


def test_leave_of_an_absent_group_is_unknown_for_every_entry(driver):
    """docs/spec/membership.md#leave-group; handlers of v0-2 move it to the top
    (docs/spec/edge-cases.md#edge-47).
    """
    call = driver.leave("g", "a", LeavingMember("b", "i1"), LeavingMember("", "i2"))
    assert call.error is ErrorCode.NONE
    assert call.result.members == (
        LeftMember("a", None, UNKNOWN),
        LeftMember("b", "i1", UNKNOWN),
        LeftMember("", "i2", UNKNOWN),
    )
    assert driver.list_groups() == {}


@pytest.mark.parametrize("exists", [False, True])
def test_leave_of_nobody_does_nothing(driver, exists):
    """docs/spec/membership.md#leave-group."""
    if exists:
        a_stable_group(driver)
    call = driver.leave("g")
    assert (call.error, call.result.members) == (ErrorCode.NONE, ())
    assert driver.state() == ("Stable" if exists else "Dead")


def test_each_entry_is_answered_on_its_own_in_order(driver):
    """docs/spec/edge-cases.md#edge-46."""
    leader, follower = a_stable_group(driver)
    call = driver.leave("g", "made-up", follower.member_id)
    assert errors(call) == [UNKNOWN, ErrorCode.NONE]
    assert driver.state() == "PreparingRebalance"
    assert [m.member_id for m in driver.describe().members] == [leader.member_id]


def test_batch_in_which_everybody_failed_changes_nothing(driver):
    """docs/spec/membership.md#leave-group: a rebalance needs one entry that succeeded."""
    a_stable_group(driver)
    assert errors(driver.leave("g", "made-up", LeavingMember("", "no-such"))) == [UNKNOWN] * 2
    assert driver.state() == "Stable"


def test_entry_without_any_id_is_unknown(driver):
    """docs/spec/edge-cases.md#edge-48."""
    a_stable_group(driver)
    assert errors(driver.leave("g", LeavingMember("", None))) == [UNKNOWN]


def test_leave_by_instance_id_alone_removes_the_static_member_and_echoes_the_request(driver):
    """docs/spec/edge-cases.md#edge-49: the administrative removal."""
    stable(driver, a_member(driver, instance_id="i1"), a_member(driver))
    call = driver.leave("g", LeavingMember("", "i1"))
    assert call.result.members == (LeftMember("", "i1", ErrorCode.NONE),)
    assert [m.group_instance_id for m in driver.describe().members] == [None]


def test_leave_by_unknown_instance_id_is_unknown(driver):
    stable(driver, a_member(driver, instance_id="i1"))
    assert errors(driver.leave("g", LeavingMember("", "i2"))) == [UNKNOWN]


def test_leave_with_both_ids_must_own_the_instance(driver):
    """docs/spec/membership.md#leave-group: otherwise the identity check."""
    (member,) = stable(driver, a_member(driver, instance_id="i1"))
    call = driver.leave(
        "g", LeavingMember("older-id", "i1"), LeavingMember(member.member_id, "never-seen")
    )
    assert errors(call) == [ErrorCode.FENCED_INSTANCE_ID, UNKNOWN]
    assert errors(driver.leave("g", LeavingMember(member.member_id, "i1"))) == [ErrorCode.NONE]


def test_same_member_twice_in_a_batch_leaves_once(driver):
    leader, follower = a_stable_group(driver)
    assert errors(driver.leave("g", follower.member_id, follower.member_id)) == [
        ErrorCode.NONE,
        UNKNOWN,
    ]
    assert leader.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS


def test_handed_out_id_leaves_and_is_dead(driver):
    """docs/spec/edge-cases.md#edge-50 and #edge-117."""
    pending = driver.join("g").member_id
    assert errors(driver.leave("g", pending)) == [ErrorCode.NONE]
    assert driver.join("g", pending).error is UNKNOWN
    assert errors(driver.leave("g", pending)) == [UNKNOWN]


def test_leave_of_a_handed_out_id_may_complete_the_join_phase(driver):
    """docs/spec/edge-cases.md#edge-50."""
    (leader,) = a_stable_group(driver, members=1)
    pending = driver.join("g").member_id
    parked = leader.join()
    assert parked.parked
    driver.leave("g", pending)
    assert parked.error is ErrorCode.NONE


def test_last_member_leaving_a_stable_group_ends_empty_in_the_next_generation(driver):
    """docs/spec/edge-cases.md#edge-51."""
    (member,) = a_stable_group(driver, members=1)
    since = len(driver.records)
    assert errors(member.leave()) == [ErrorCode.NONE]
    assert driver.state() == "Empty"
    record = driver.records_of(GroupRecord, since)[-1]
    assert (record.generation_id, record.members) == (2, ())
    assert (record.protocol_name, record.leader_id) == (None, None)
    assert record.protocol_type == "consumer"
    assert record.state_timestamp_ms == driver.now.wall_ms
    again = a_member(driver)
    call = again.join()
    driver.advance_until_answered(call)
    assert call.result.generation_id == 3


def test_all_members_leaving_in_one_batch_end_empty_after_one_generation(driver):
    members = a_stable_group(driver, members=3)
    call = driver.leave("g", *(m.member_id for m in members))
    assert errors(call) == [ErrorCode.NONE] * 3
    assert driver.state() == "Empty"
    assert driver.saved()["g"].metadata.generation_id == 2


def test_leave_of_a_member_with_a_parked_join_answers_that_join(driver):
    """docs/spec/edge-cases.md#edge-52: UNKNOWN_MEMBER_ID with an empty member id."""
    leader, follower = a_stable_group(driver)
    parked = follower.join(protocols=protocols("range", subscription=b"new"))
    assert errors(driver.leave("g", follower.member_id)) == [ErrorCode.NONE]
    assert (parked.error, parked.member_id) == (UNKNOWN, "")
    assert leader.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS


def test_leave_of_a_member_with_a_parked_sync_answers_that_sync(driver):
    """docs/spec/edge-cases.md#edge-118 and docs/understand/differences.md#nobody-waits-in-vain:
    Kafka never does.
    """
    _, follower, other = completing(driver, *(a_member(driver) for _ in range(3)))
    parked, others = follower.sync(), other.sync()
    assert errors(driver.leave("g", follower.member_id)) == [ErrorCode.NONE]
    assert (parked.error, parked.result.assignment) == (UNKNOWN, b"")
    assert others.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.everything_answered()


def test_leave_from_a_completing_group_starts_a_rebalance(driver):
    """docs/spec/membership.md#leave-group: Stable/CompletingRebalance -> prepare rebalance."""
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    driver.leave("g", follower.member_id)
    assert driver.state() == "PreparingRebalance"
    assert leader.sync().error is ErrorCode.REBALANCE_IN_PROGRESS


def test_leave_from_a_preparing_group_may_complete_the_join_phase(driver):
    """docs/spec/membership.md#leave-group: PreparingRebalance -> try to complete."""
    leader, follower = a_stable_group(driver)
    parked = leader.join()
    follower.leave()
    assert parked.error is ErrorCode.NONE
    assert [m.member_id for m in parked.result.members] == [leader.member_id]


def test_leader_that_leaves_is_followed_by_another(driver):
    leader, follower = a_stable_group(driver)
    leader.leave()
    call = follower.join()
    assert call.error is ErrorCode.NONE
    assert call.result.leader == follower.member_id


def test_member_that_left_is_gone_for_every_request(driver):
    leader, follower = a_stable_group(driver)
    follower.leave()
    assert follower.heartbeat().error is UNKNOWN
    assert follower.sync().error is UNKNOWN
    assert follower.join().error is UNKNOWN
    assert follower.commit().partition_errors() == {("orders", 0): UNKNOWN}
    assert leader.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS


def test_leave_is_an_event_with_its_reason_and_so_is_the_rebalance_that_follows(driver):
    _, follower = a_stable_group(driver)
    since = len(driver.events)
    driver.leave("g", LeavingMember(follower.member_id, None, "going home"))
    (left,) = driver.events_of(MemberLeave, since)
    assert (left.group_id, left.member_id, left.reason) == ("g", follower.member_id, "going home")
    assert (left.generation_id, left.client_id) == (1, "app")
    (start,) = driver.events_of(RebalanceStart, since)
    assert start.member_id == follower.member_id


def test_leave_of_an_unknown_member_is_no_event(driver):
    a_stable_group(driver)
    since = len(driver.events)
    driver.leave("g", "made-up")
    assert driver.events_of(MemberLeave, since) == []


def test_saved_members_stay_until_the_next_assignment(driver):
    """docs/design.md#hard-state: a leave inside a rebalance may be forgotten by a kill, as in
    Kafka.
    """
    leader, follower = a_stable_group(driver)
    follower.leave()
    assert len(driver.saved()["g"].metadata.members) == 2
    leader.joined(leader.join())
    leader.sync(assignment_for([leader]))
    assert [m.member_id for m in driver.saved()["g"].metadata.members] == [leader.member_id]
