"""Static membership: KIP-345 and KIP-814 (docs/spec/joining.md#static-members)."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    MemberEvicted,
    MemberFenced,
    MemberJoin,
    RebalanceStart,
)
from groupkeeper.coordinator.core.records import GroupRecord
from tests.helpers.core.shard_driver import (
    REBALANCE_MS,
    SESSION_MS,
    a_member,
    assignment_for,
    completing,
    heartbeat_through,
    protocols,
    stable,
)

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID


def static_pair(driver, **fields):
    """A Stable group of two static members, the leader first."""
    return stable(
        driver,
        a_member(driver, instance_id="i1", **fields),
        a_member(driver, instance_id="i2", **fields),
    )


def restart(driver, member, **changes):
    """The member's process starts again: its instance id, and no member id."""
    fields = {**member.fields, "version": 9, **changes}
    return driver.join(member.group_id, "", group_instance_id=member.instance_id, **fields)


# --- Stable -------------------------------------------------------------------------------------


def test_static_leader_restarts_into_the_same_generation_and_is_told_to_skip_assigning(driver):
    """docs/spec/edge-cases.md#edge-53: v9."""
    leader, follower = static_pair(driver)
    call = restart(driver, leader)
    assert call.error is ErrorCode.NONE
    assert call.member_id != leader.member_id
    assert call.result.generation_id == 1
    assert call.result.leader == call.member_id
    assert call.result.skip_assignment is True
    assert {m.member_id for m in call.result.members} == {call.member_id, follower.member_id}
    assert (call.result.protocol_type, call.result.protocol_name) == ("consumer", "range")
    assert driver.state() == "Stable"


def test_static_leader_of_an_old_version_is_told_of_its_former_id_and_no_members(driver):
    """docs/spec/edge-cases.md#edge-54: so that it does not think it leads."""
    leader, _ = static_pair(driver)
    call = restart(driver, leader, version=8)
    assert call.error is ErrorCode.NONE
    assert call.member_id != leader.member_id
    assert call.result.leader == leader.member_id
    assert (call.result.members, call.result.skip_assignment) == ((), False)
    assert driver.state() == "Stable"


@pytest.mark.parametrize("version", [8, 9])
def test_static_follower_restarts_into_the_same_generation(driver, version):
    """docs/spec/joining.md#static-members, Stable, follower."""
    leader, follower = static_pair(driver)
    call = restart(driver, follower, version=version)
    assert call.error is ErrorCode.NONE
    assert call.result.generation_id == 1
    assert call.result.leader == leader.member_id
    assert (call.result.members, call.result.skip_assignment) == ((), False)
    assert driver.state() == "Stable"


def test_restarted_member_gets_the_assignment_of_its_former_self(driver):
    leader, follower = static_pair(driver)
    call = restart(driver, follower)
    sync = driver.sync("g", call.member_id, 1, group_instance_id=follower.instance_id)
    assert sync.result.assignment == f"part-of-{follower.member_id}".encode()
    assert leader.heartbeat().error is ErrorCode.NONE


def test_replacement_is_written_before_it_is_answered(driver):
    """docs/spec/joining.md#static-members: the group with the new id is persisted."""
    leader, follower = static_pair(driver)
    since = len(driver.records)
    call = restart(driver, leader, protocols=protocols("range", subscription=b"changed"))
    (record,) = driver.records[since:]
    assert isinstance(record, GroupRecord)
    assert (record.generation_id, record.leader_id) == (1, call.member_id)
    by_id = {m.member_id: m for m in record.members}
    assert set(by_id) == {call.member_id, follower.member_id}
    assert by_id[call.member_id].assignment == f"part-of-{leader.member_id}".encode()
    assert by_id[call.member_id].subscription == b"changed"
    assert by_id[call.member_id].group_instance_id == leader.instance_id
    assert call.reply.waits is True


def test_changed_subscription_with_the_same_choice_starts_no_rebalance(driver):
    """docs/spec/edge-cases.md#edge-55: the new bytes are shown to the leader, nothing is
    reassigned.
    """
    leader, follower = static_pair(driver)
    call = restart(driver, leader, protocols=protocols("range", subscription=b"changed"))
    assert call.result.skip_assignment is True
    shown = {m.member_id: m.metadata for m in call.result.members}
    assert shown == {call.member_id: b"changed", follower.member_id: b"sub"}
    assert follower.heartbeat().error is ErrorCode.NONE


def test_changed_choice_of_protocol_starts_a_rebalance(driver):
    """docs/spec/joining.md#static-members, Stable, changed choice."""
    leader, follower = static_pair(driver, protocols=protocols("range", "sticky"))
    since = len(driver.events)
    call = restart(driver, follower, protocols=protocols("sticky"))
    assert call.parked
    assert driver.state() == "PreparingRebalance"
    assert leader.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    (start,) = driver.events_of(RebalanceStart, since)
    assert start.member_id == call.request.new_member_id
    leader.joined(leader.join())
    assert call.result.protocol_name == "sticky"
    assert call.result.generation_id == 2


def test_each_restart_gets_a_fresh_id_in_the_same_generation(driver):
    """docs/spec/edge-cases.md#edge-59."""
    leader, follower = static_pair(driver)
    ids = {follower.member_id}
    for _ in range(3):
        call = restart(driver, follower)
        assert call.result.generation_id == 1
        ids.add(call.member_id)
    assert len(ids) == 4
    assert len(driver.describe().members) == 2
    assert leader.heartbeat().error is ErrorCode.NONE


def test_restart_gives_the_member_a_new_session_as_long_as_its_former_one(driver):
    """Kafka restarts it before it takes the new timeouts: seen on 4.3.1."""
    leader, follower = static_pair(driver)
    driver.advance(SESSION_MS - 1)
    leader.heartbeat()
    call = restart(driver, follower, session_timeout_ms=20_000)
    assert call.error is ErrorCode.NONE
    assert heartbeat_through(driver, SESSION_MS - 1, leader) == [ErrorCode.NONE]
    driver.advance(1)
    assert leader.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    assert [m.member_id for m in driver.describe().members] == [leader.member_id]


def test_new_timeouts_of_a_restarted_member_hold_from_its_first_heartbeat(driver):
    """docs/spec/joining.md#static-members: store the new protocols and timeouts."""
    leader, follower = static_pair(driver)
    call = restart(driver, follower, session_timeout_ms=20_000)
    follower.member_id = call.member_id
    assert follower.heartbeat().error is ErrorCode.NONE
    assert heartbeat_through(driver, 19_999, leader) == [ErrorCode.NONE]
    driver.advance(1)
    assert leader.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS


def test_static_leader_that_rejoins_with_its_id_starts_a_rebalance(driver):
    """docs/spec/joining.md#static-members: the ordinary rules of an existing member."""
    leader, _ = static_pair(driver)
    assert leader.join().parked
    assert driver.state() == "PreparingRebalance"


def test_static_follower_that_rejoins_with_its_id_gets_the_current_generation(driver):
    _, follower = static_pair(driver)
    call = follower.join()
    assert (call.error, call.result.generation_id) == (ErrorCode.NONE, 1)
    assert call.member_id == follower.member_id


# --- Fencing ------------------------------------------------------------------------------------


def test_former_id_is_fenced_with_the_instance_id_and_unknown_without(driver):
    """docs/spec/joining.md#static-members and docs/spec/edge-cases.md#edge-57: every later request
    of the older process.
    """
    _, follower = static_pair(driver)
    restart(driver, follower)
    old, instance = follower.member_id, follower.instance_id
    assert driver.heartbeat("g", old, 1, instance).error is FENCED
    assert driver.heartbeat("g", old, 1).error is UNKNOWN
    assert driver.sync("g", old, 1, group_instance_id=instance).error is FENCED
    assert driver.sync("g", old, 1).error is UNKNOWN
    assert driver.join("g", old, group_instance_id=instance).error is FENCED
    assert driver.join("g", old).error is UNKNOWN
    fenced = follower.commit()
    assert fenced.partition_errors() == {("orders", 0): FENCED}
    alone = follower.commit(group_instance_id=None)
    assert alone.partition_errors() == {("orders", 0): UNKNOWN}
    (entry,) = follower.leave().result.members
    assert entry.error is FENCED
    (entry,) = driver.leave("g", old).result.members
    assert entry.error is UNKNOWN
    assert driver.state() == "Stable"


def test_fenced_join_is_answered_with_the_id_that_was_sent(driver):
    """docs/spec/joining.md#join-group: the last row of the kinds of member."""
    _, follower = static_pair(driver)
    restart(driver, follower)
    call = follower.join()
    assert (call.error, call.member_id) == (FENCED, follower.member_id)


def test_known_id_with_an_instance_that_was_never_seen_is_unknown(driver):
    """docs/spec/edge-cases.md#edge-58."""
    leader, _ = static_pair(driver)
    call = driver.join("g", leader.member_id, group_instance_id="never-seen")
    assert (call.error, call.member_id) == (UNKNOWN, leader.member_id)


def test_takeover_answers_the_parked_join_of_the_older_process(driver):
    """docs/spec/edge-cases.md#edge-57, in PreparingRebalance: park, try to complete."""
    leader, follower = static_pair(driver)
    older = follower.join(protocols=protocols("range", subscription=b"new"))
    assert older.parked
    newer = restart(driver, follower)
    assert older.error is FENCED
    assert newer.parked
    leader.join()
    assert newer.error is ErrorCode.NONE
    assert len(driver.describe().members) == 2


def test_takeover_answers_the_parked_sync_of_the_older_process(driver):
    """docs/spec/edge-cases.md#edge-57, in CompletingRebalance."""
    _, follower = completing(
        driver, a_member(driver, instance_id="i1"), a_member(driver, instance_id="i2")
    )
    older = follower.sync()
    newer = restart(driver, follower)
    assert (older.error, older.result.assignment) == (FENCED, b"")
    assert newer.parked
    assert driver.state() == "PreparingRebalance"


def test_takeover_during_the_initial_delay_fences_the_first(driver):
    first = driver.join("g", group_instance_id="i1")
    second = driver.join("g", group_instance_id="i1")
    assert first.error is FENCED
    driver.advance_until_answered(second)
    assert second.error is ErrorCode.NONE
    assert [m.member_id for m in second.result.members] == [second.member_id]


def test_takeover_is_an_event_for_both_processes(driver):
    _, follower = static_pair(driver)
    since = len(driver.events)
    call = restart(driver, follower)
    (joined,) = driver.events_of(MemberJoin, since)
    assert (joined.member_id, joined.replaces) == (call.member_id, follower.member_id)
    assert joined.group_instance_id == follower.instance_id
    follower.heartbeat()
    fenced = driver.events_of(MemberFenced, since)[-1]
    assert fenced.member_id == follower.member_id
    assert fenced.group_instance_id == follower.instance_id


def test_fencing_of_a_parked_join_is_an_event(driver):
    _, follower = static_pair(driver)
    follower.join(protocols=protocols("range", subscription=b"new"))
    since = len(driver.events)
    restart(driver, follower)
    (fenced,) = driver.events_of(MemberFenced, since)
    assert (fenced.member_id, fenced.error) == (follower.member_id, "FENCED_INSTANCE_ID")
    assert fenced.api == "JoinGroup"


def test_fencing_of_a_parked_sync_is_an_event(driver):
    _, follower = completing(
        driver, a_member(driver, instance_id="i1"), a_member(driver, instance_id="i2")
    )
    follower.sync()
    since = len(driver.events)
    restart(driver, follower)
    (fenced,) = driver.events_of(MemberFenced, since)
    assert (fenced.member_id, fenced.error) == (follower.member_id, "FENCED_INSTANCE_ID")
    assert fenced.api == "SyncGroup"


# --- The other states ---------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1], ids=["leader", "follower"])
def test_restart_while_completing_always_starts_a_rebalance(driver, which):
    """docs/spec/edge-cases.md#edge-56: the leader may already be assigning to the old id."""
    members = completing(
        driver, a_member(driver, instance_id="i1"), a_member(driver, instance_id="i2")
    )
    newer = restart(driver, members[which])
    assert newer.parked
    assert driver.state() == "PreparingRebalance"
    other = members[1 - which]
    other.joined(other.join())
    assert newer.result.generation_id == other.generation_id == 2


def test_restarted_leader_leads_the_rebalance_it_meets(driver):
    """docs/spec/joining.md#static-members: the leader id follows."""
    leader, follower = static_pair(driver)
    follower.join(protocols=protocols("range", subscription=b"new"))
    newer = restart(driver, leader)
    assert newer.error is ErrorCode.NONE
    assert newer.result.leader == newer.member_id
    assert newer.result.skip_assignment is False
    assert len(newer.result.members) == 2


def test_restart_into_an_empty_group_is_a_first_join(driver):
    """The instance left with the member: nothing is replaced."""
    (member,) = stable(driver, a_member(driver, instance_id="i1"))
    member.leave()
    assert driver.state() == "Empty"
    call = restart(driver, member)
    driver.advance_until_answered(call)
    assert (call.error, call.result.generation_id) == (ErrorCode.NONE, 3)
    assert driver.events_of(MemberJoin)[-1].replaces is None


# --- Absence ------------------------------------------------------------------------------------


def test_static_member_that_misses_a_rebalance_is_kept_and_gets_an_assignment(driver):
    """docs/spec/joining.md#static-members."""
    leader, absent = static_pair(driver, session_timeout_ms=600_000)
    call = leader.join()
    assert driver.advance_until_answered(call) == REBALANCE_MS
    leader.joined(call)
    assert {m.member_id for m in call.result.members} == {leader.member_id, absent.member_id}
    leader.sync(assignment_for([leader, absent]))
    assert {m.member_assignment for m in driver.describe().members} == {
        f"part-of-{m.member_id}".encode() for m in (leader, absent)
    }


def test_completed_join_phase_gives_an_absent_static_member_a_new_session_too(driver):
    """docs/spec/joining.md#completing step 5: for all members, absent static ones too."""
    leader, absent = static_pair(driver, session_timeout_ms=90_000)
    call = leader.join()
    assert driver.advance_until_answered(call) == REBALANCE_MS
    leader.joined(call)
    leader.sync(assignment_for([leader, absent]))
    driver.advance(REBALANCE_MS - 1)  # its first session would have ended by now
    assert len(driver.describe().members) == 2
    assert absent.heartbeat().error is ErrorCode.ILLEGAL_GENERATION


def test_kept_member_is_removed_by_the_sync_timer(driver):
    """docs/spec/joining.md#static-members: it disappears by missing the sync timer."""
    leader, absent = static_pair(driver, session_timeout_ms=600_000)
    call = leader.join()
    driver.advance_until_answered(call)
    leader.joined(call)
    leader.sync(assignment_for([leader, absent]))
    driver.advance(REBALANCE_MS)
    assert [m.member_id for m in driver.describe().members] == [leader.member_id]
    assert driver.events_of(MemberEvicted)[-1].reason == "sync_timeout"


def test_sync_that_is_awaited_of_a_member_is_awaited_of_the_one_that_takes_its_place(driver):
    """Kafka: ClassicGroup.replaceStaticMember; else nothing would end the wait for it."""
    leader, follower = completing(
        driver, a_member(driver, instance_id="i1"), a_member(driver, instance_id="i2")
    )
    leader.sync(assignment_for([leader, follower]))
    follower.joined(restart(driver, follower))
    assert driver.state() == "Stable"
    assert driver.shard.groups["g"].pending_sync == {follower.member_id}
    heartbeat_through(driver, REBALANCE_MS, leader, follower)
    (event,) = driver.events_of(MemberEvicted)
    assert (event.member_id, event.reason) == (follower.member_id, "sync_timeout")


def test_absent_static_member_goes_by_session_timeout(driver):
    leader, absent = static_pair(driver)
    heartbeat_through(driver, SESSION_MS, leader)
    assert [m.member_id for m in driver.describe().members] == [leader.member_id]
    (evicted,) = driver.events_of(MemberEvicted)
    assert (evicted.group_instance_id, evicted.reason) == (absent.instance_id, "session_timeout")


def test_instance_id_of_an_expired_member_is_free_again(driver):
    leader, absent = static_pair(driver)
    heartbeat_through(driver, SESSION_MS, leader)
    assert absent.heartbeat().error is UNKNOWN
    call = restart(driver, absent)
    assert call.parked
    leader.join()
    assert call.error is ErrorCode.NONE


def test_rebalance_waits_for_absent_static_members_and_goes_on_waiting(driver):
    """docs/spec/edge-cases.md#edge-29: only absent static members remain, so the join timer is
    armed again.
    """
    leader, absent = static_pair(driver, session_timeout_ms=600_000)
    # A newcomer starts the rebalance and leaves again: nobody is parked.
    newcomer = driver.join("g", version=3, new_member_id="passing")
    driver.leave("g", "passing")
    assert newcomer.error is UNKNOWN
    driver.advance(3 * REBALANCE_MS)
    assert driver.state() == "PreparingRebalance"
    assert len(driver.describe().members) == 2
    calls = [leader.join(), absent.join()]
    assert [c.error for c in calls] == [ErrorCode.NONE, ErrorCode.NONE]
    assert calls[0].result.generation_id == 2


def test_rearmed_join_timer_completes_with_who_came_back(driver):
    """docs/spec/edge-cases.md#edge-29, continued: after the re-arming one of two returns."""
    leader, absent = static_pair(driver, session_timeout_ms=1_200_000)
    driver.join("g", version=3, new_member_id="passing")
    driver.leave("g", "passing")
    driver.advance(REBALANCE_MS + 10_000)
    call = leader.join()
    assert call.parked
    assert driver.advance_until_answered(call) == REBALANCE_MS - 10_000
    assert {m.member_id for m in call.result.members} == {leader.member_id, absent.member_id}


def test_leader_that_is_absent_and_static_is_followed_by_a_member_that_rejoined(driver):
    """docs/spec/joining.md#completing step 2: keep the current one only if it rejoined."""
    leader, follower = static_pair(driver, session_timeout_ms=600_000)
    call = follower.join(protocols=protocols("range", subscription=b"new"))
    driver.advance_until_answered(call)
    assert call.result.leader == follower.member_id
    assert {m.member_id for m in call.result.members} == {leader.member_id, follower.member_id}


def test_dynamic_member_that_missed_the_rebalance_goes_while_the_static_one_stays(driver):
    """docs/spec/joining.md#completing step 1."""
    members = stable(
        driver,
        a_member(driver, instance_id="i1", session_timeout_ms=600_000),
        a_member(driver, session_timeout_ms=600_000),
        a_member(driver, session_timeout_ms=600_000),
    )
    static = next(m for m in members if m.instance_id)
    comes_back, missing = [m for m in members if m is not static]
    call = comes_back.join(protocols=protocols("range", subscription=b"new"))
    driver.advance_until_answered(call)
    assert {m.member_id for m in driver.describe().members} == {
        static.member_id,
        comes_back.member_id,
    }
    (evicted,) = driver.events_of(MemberEvicted)
    assert (evicted.member_id, evicted.reason) == (missing.member_id, "join_timeout")
