"""What survives a restart, and what is as if it had never been (docs/spec/groups.md#restart,
docs/design.md#hard-state and #loading).
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from tests.helpers.core.invariants import parked_tickets
from tests.helpers.core.shard_driver import (
    REBALANCE_MS,
    SESSION_MS,
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
FOLD = pytest.mark.parametrize("from_fold", [False, True], ids=["from the log", "from the fold"])


@FOLD
def test_stable_group_goes_on_with_members_assignment_and_generation(driver, from_fold):
    leader, follower = stable(driver, a_member(driver, instance_id="i1"), a_member(driver))
    before = driver.describe()
    driver.reload(from_fold=from_fold)
    assert driver.describe() == before
    assert [m.heartbeat().error for m in (leader, follower)] == [ErrorCode.NONE] * 2
    assert follower.sync().result.assignment == f"part-of-{follower.member_id}".encode()
    assert driver.state() == "Stable"


@FOLD
def test_load_makes_no_records_and_answers_nobody(driver, from_fold):
    a_stable_group(driver)
    step = driver.reload(from_fold=from_fold)
    assert not step.records
    assert not step.replies


def test_second_restart_straight_after_the_first_changes_nothing(driver):
    a_stable_group(driver)
    driver.commit("simple")
    driver.reload()
    saved = driver.saved()
    driver.reload()
    assert driver.saved() == saved


def test_sessions_start_afresh_at_full_length(driver):
    """docs/spec/groups.md#restart."""
    leader, _ = a_stable_group(driver)
    driver.advance(SESSION_MS - 1)
    driver.reload()
    driver.advance(SESSION_MS - 1)
    leader.heartbeat()
    assert len(driver.describe().members) == 2
    driver.advance(1)
    assert [m.member_id for m in driver.describe().members] == [leader.member_id]


def test_loaded_session_is_the_members_own(driver):
    stable(driver, a_member(driver, session_timeout_ms=25_000))
    driver.reload()
    driver.advance(24_999)
    assert driver.state() == "Stable"
    driver.advance(1)
    assert driver.state() == "Empty"


def test_loaded_timeouts_are_those_that_were_asked_for(driver):
    asked = {"session_timeout_ms": 25_000, "rebalance_timeout_ms": 70_000}
    leader, follower = a_stable_group(driver, **asked)
    driver.reload()
    for member in driver.shard.groups["g"].members.values():
        assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (25_000, 70_000)
    call = a_member(driver, rebalance_timeout_ms=30_000).join()
    answers = heartbeat_through(driver, 69_999, leader, follower)
    assert answers == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    assert call.parked
    driver.advance(1)
    assert call.error is ErrorCode.NONE


def test_loaded_members_owe_no_sync(driver):
    """Groups with members load as Stable: nobody goes for a sync missed before the restart."""
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    leader.sync(assignment_for([leader, follower]))
    driver.reload()
    answers = heartbeat_through(driver, 2 * REBALANCE_MS, leader, follower)
    assert answers == [ErrorCode.NONE] * 2


def test_group_without_members_loads_empty(driver):
    (member,) = a_stable_group(driver, members=1)
    member.leave()
    driver.reload()
    assert driver.state() == "Empty"
    group = driver.list_groups()["g"]
    assert group.protocol_type == "consumer"
    (again,) = a_stable_group(driver, members=1)
    assert again.generation_id == 3


def test_group_whose_first_rebalance_was_never_synced_loads_empty_without_a_type(driver):
    """docs/spec/groups.md#restart."""
    (member,) = completing(driver, a_member(driver))
    driver.reload()
    group = driver.list_groups()["g"]
    assert (group.group_state, group.protocol_type) == ("Empty", "")
    assert member.heartbeat().error is UNKNOWN
    assert member.sync().error is UNKNOWN
    other = a_member(driver, protocol_type="connect")
    call = other.join()
    driver.advance_until_answered(call)
    assert (call.error, call.result.generation_id) == (ErrorCode.NONE, 1)


def test_handed_out_ids_are_forgotten(driver):
    """docs/spec/groups.md#restart."""
    pending = driver.join("g").member_id
    driver.reload()
    call = driver.join("g", pending)
    assert (call.error, call.member_id) == (UNKNOWN, pending)


def test_unfinished_rebalance_is_forgotten_and_its_generation_issued_again(driver):
    """docs/spec/groups.md#restart: back at the last synced generation; N+1 comes again with other
    contents.
    """
    leader, follower = a_stable_group(driver)
    third = a_member(driver)
    calls = [third.join(), leader.join(), follower.join()]
    for member, call in zip((third, leader, follower), calls, strict=True):
        member.joined(call)
    assert third.generation_id == 2
    driver.reload()
    assert driver.state() == "Stable"
    assert leader.heartbeat().error is ErrorCode.ILLEGAL_GENERATION
    assert follower.sync().error is ErrorCode.ILLEGAL_GENERATION
    assert third.heartbeat().error is UNKNOWN
    assert leader.commit().partition_errors() == {("orders", 0): ErrorCode.ILLEGAL_GENERATION}
    calls = [leader.join(), follower.join(protocols=NEW)]
    assert [c.error for c in calls] == [ErrorCode.NONE] * 2
    assert {c.result.generation_id for c in calls} == {2}


def test_group_in_mid_rebalance_finishes_within_one_rebalance_timeout(driver):
    leader, follower = a_stable_group(driver)
    leader.join()
    driver.reload()
    assert driver.state() == "Stable"
    call = leader.join()
    elapsed = driver.advance_until_answered(call)
    assert elapsed <= REBALANCE_MS
    assert call.error is ErrorCode.NONE
    assert follower.heartbeat().error is UNKNOWN


def test_leave_in_an_unfinished_rebalance_is_forgotten_and_the_session_ends_the_member(driver):
    """docs/design.md#hard-state."""
    leader, follower = a_stable_group(driver)
    follower.leave()
    driver.reload()
    assert len(driver.describe().members) == 2
    assert driver.state() == "Stable"
    heartbeat_through(driver, SESSION_MS, leader)
    assert [m.member_id for m in driver.describe().members] == [leader.member_id]


def test_loaded_members_know_one_protocol_until_they_rejoin(driver):
    """docs/spec/groups.md#restart."""
    leader, follower = a_stable_group(driver, protocols=protocols("range", "sticky"))
    driver.reload()
    call = driver.join("g", version=3, protocols=protocols("sticky"))
    assert call.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for member, rejoin in [(m, m.join()) for m in (leader, follower)]:
        assert rejoin.error is ErrorCode.NONE
        member.joined(rejoin)
    newcomer = driver.join("g", version=3, protocols=protocols("sticky"))
    assert newcomer.parked


def test_loaded_follower_that_offers_one_protocol_rejoins_unchanged(driver):
    """Its one protocol and its bytes were kept."""
    _, follower = a_stable_group(driver)
    driver.reload()
    call = follower.join()
    assert (call.error, call.result.generation_id) == (ErrorCode.NONE, 1)
    assert driver.state() == "Stable"


def test_loaded_follower_that_offers_more_than_was_kept_counts_as_changed(driver):
    _, follower = a_stable_group(driver, protocols=protocols("range", "sticky"))
    driver.reload()
    assert follower.join().parked
    assert driver.state() == "PreparingRebalance"


def test_loaded_leader_still_leads(driver):
    leader, follower = a_stable_group(driver)
    driver.reload()
    assert follower.join().result.leader == leader.member_id
    assert leader.join().parked


def test_loaded_static_member_may_be_replaced(driver):
    leader, follower = stable(
        driver, a_member(driver, instance_id="i1"), a_member(driver, instance_id="i2")
    )
    driver.reload()
    call = driver.join("g", group_instance_id=leader.instance_id)
    assert (call.error, call.result.skip_assignment) == (ErrorCode.NONE, True)
    assert {m.member_id for m in call.result.members} == {call.member_id, follower.member_id}
    assert leader.heartbeat().error is ErrorCode.FENCED_INSTANCE_ID


def test_replacement_of_a_static_member_survives(driver):
    leader, _ = stable(
        driver, a_member(driver, instance_id="i1"), a_member(driver, instance_id="i2")
    )
    call = driver.join("g", group_instance_id=leader.instance_id)
    driver.reload()
    assert driver.heartbeat("g", call.member_id, 1, leader.instance_id).error is ErrorCode.NONE
    assert leader.heartbeat().error is ErrorCode.FENCED_INSTANCE_ID


@FOLD
def test_offsets_survive_with_everything_about_them(driver, from_fold):
    driver.commit("g", [("orders", "", [(3, 42, 7, "note")])], retention_ms=5_000)
    before = driver.fetch().result
    driver.reload(from_fold=from_fold)
    assert driver.fetch().result == before
    saved = driver.saved()["g"].offsets["orders"][3]
    assert (saved.offset, saved.leader_epoch, saved.metadata) == (42, 7, "note")
    assert saved.expire_time_ms == saved.commit_time_ms + 5_000


def test_simple_group_survives(driver):
    driver.commit("g")
    driver.reload()
    group = driver.list_groups()["g"]
    assert (group.group_state, group.protocol_type) == ("Empty", "")


def test_commits_are_accepted_from_loaded_members(driver):
    leader, _ = a_stable_group(driver)
    driver.reload()
    assert leader.commit().partition_errors() == {("orders", 0): ErrorCode.NONE}


def test_apply_alone_asks_for_nothing(driver):
    """docs/design.md#hard-state: a shard that is being loaded has no deadlines and owes no answers
    of its own.
    """
    a_stable_group(driver)
    shard = driver.replayed()
    assert parked_tickets(shard) == []
