"""SyncGroup: identity, generation, protocol, then by state; and the sync timer
(docs/spec/membership.md#sync-group).
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import Assignment, MemberEvicted, RebalanceStart
from groupkeeper.coordinator.core.records import GroupRecord
from tests.helpers.core.shard_driver import (
    REBALANCE_MS,
    SESSION_MS,
    a_member,
    a_stable_group,
    assignment_for,
    completing,
    heartbeat_through,
    protocols,
)

EMPTY_SYNC = (b"", None, None)


def answer(call):
    """What a refused sync carries besides its code."""
    return (call.result.assignment, call.result.protocol_type, call.result.protocol_name)


# --- Who may sync -------------------------------------------------------------------------------


def test_sync_with_empty_group_id_is_refused(driver):
    """docs/spec/admission.md#order."""
    assert driver.sync("", "m", 1).error is ErrorCode.INVALID_GROUP_ID


def test_sync_of_an_absent_group_is_unknown_member(driver):
    """docs/spec/membership.md#sync-group step 1."""
    call = driver.sync("g", "m", 1)
    assert call.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert answer(call) == EMPTY_SYNC


def test_sync_of_an_empty_group_is_unknown_member(driver):
    """docs/spec/edge-cases.md#edge-37."""
    (member,) = a_stable_group(driver, members=1)
    member.leave()
    assert member.sync().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_of_a_simple_group_is_unknown_member(driver):
    driver.commit("g")
    assert driver.sync("g", "m", 0).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_of_a_member_that_only_has_an_id_is_unknown(driver):
    """docs/spec/edge-cases.md#edge-117."""
    pending = driver.join("g").member_id
    assert driver.sync("g", pending, 0).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_unknown_member_wins_over_a_wrong_generation(driver):
    """docs/spec/edge-cases.md#edge-36."""
    completing(driver, a_member(driver))
    assert driver.sync("g", "made-up", 99).error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("generation", [0, 2, -1])
def test_sync_of_another_generation_is_refused(driver, generation):
    """docs/spec/edge-cases.md#edge-36."""
    (member,) = completing(driver, a_member(driver))
    call = driver.sync("g", member.member_id, generation)
    assert call.error is ErrorCode.ILLEGAL_GENERATION
    assert answer(call) == EMPTY_SYNC


def test_unknown_instance_is_unknown_member_and_another_owner_is_fenced_first(driver):
    """docs/spec/membership.md#sync-group step 2, before the generation of step 3."""
    (member,) = completing(driver, a_member(driver, instance_id="i1"))
    unknown = driver.sync("g", member.member_id, 99, group_instance_id="i2")
    assert unknown.error is ErrorCode.UNKNOWN_MEMBER_ID
    fenced = driver.sync("g", "someone-else", 99, group_instance_id="i1")
    assert fenced.error is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(
    "changes", [{"protocol_type": "connect"}, {"protocol_name": "sticky"}], ids=["type", "name"]
)
@pytest.mark.parametrize("is_stable", [False, True])
def test_sync_that_names_another_protocol_is_inconsistent(driver, changes, is_stable):
    """docs/spec/membership.md#sync-group step 4."""
    if is_stable:
        (member,) = a_stable_group(driver, members=1)
    else:
        (member,) = completing(driver, a_member(driver))
    call = member.sync(**changes)
    assert call.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert answer(call) == EMPTY_SYNC


def test_generation_is_checked_before_the_protocol(driver):
    """docs/spec/membership.md#sync-group: step 3 before step 4."""
    (member,) = completing(driver, a_member(driver))
    call = driver.sync("g", member.member_id, 7, protocol_type="connect")
    assert call.error is ErrorCode.ILLEGAL_GENERATION


def test_protocol_is_checked_before_the_state(driver):
    """docs/spec/membership.md#sync-group: step 4 before step 5."""
    leader, follower = a_stable_group(driver)
    leader.join()
    call = follower.sync(protocol_type="connect")
    assert call.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_sync_without_type_and_name_is_not_compared(driver):
    """docs/spec/edge-cases.md#edge-35: v0-4."""
    (member,) = completing(driver, a_member(driver))
    call = member.sync(protocol_type=None, protocol_name=None)
    assert call.error is ErrorCode.NONE


# --- By state -----------------------------------------------------------------------------------


def test_sync_while_preparing_is_told_to_rejoin(driver):
    """docs/spec/membership.md#sync-group step 5."""
    leader, follower = a_stable_group(driver)
    leader.join()
    call = follower.sync()
    assert call.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert answer(call) == EMPTY_SYNC


def test_follower_that_syncs_first_waits_for_the_leader(driver):
    """docs/spec/edge-cases.md#edge-30."""
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    waiting = follower.sync()
    assert waiting.parked
    assert driver.state() == "CompletingRebalance"
    done = leader.sync({leader.member_id: b"L", follower.member_id: b"F"})
    assert (done.error, waiting.error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert (done.result.assignment, waiting.result.assignment) == (b"L", b"F")
    assert driver.state() == "Stable"


def test_follower_that_syncs_later_gets_the_stored_assignment(driver):
    """docs/spec/edge-cases.md#edge-31."""
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    leader.sync({leader.member_id: b"L", follower.member_id: b"F"})
    call = follower.sync()
    assert call.result.assignment == b"F"
    assert follower.sync().result.assignment == b"F"


def test_success_echoes_type_and_name_of_the_group(driver):
    """docs/spec/membership.md#sync-group: v5 echoes the group's."""
    (member,) = completing(driver, a_member(driver))
    parked_answer = member.sync().result
    assert (parked_answer.protocol_type, parked_answer.protocol_name) == ("consumer", "range")
    stored = member.sync(protocol_type=None).result
    assert (stored.protocol_type, stored.protocol_name) == ("consumer", "range")


def test_member_that_the_leader_leaves_out_gets_empty_bytes(driver):
    """docs/spec/edge-cases.md#edge-32."""
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    waiting = follower.sync()
    leader.sync({leader.member_id: b"everything"})
    assert (waiting.error, waiting.result.assignment) == (ErrorCode.NONE, b"")


def test_unknown_member_that_the_leader_names_is_ignored(driver):
    """docs/spec/edge-cases.md#edge-33."""
    (leader,) = completing(driver, a_member(driver))
    call = leader.sync({leader.member_id: b"L", "stranger": b"S"})
    assert call.result.assignment == b"L"
    (saved,) = driver.saved()["g"].metadata.members
    assert saved.member_id == leader.member_id


def test_last_assignment_of_a_member_named_twice_wins(driver):
    """docs/spec/membership.md#sync-group: later duplicates win."""
    (leader,) = completing(driver, a_member(driver))
    twice = ((leader.member_id, b"first"), (leader.member_id, b"second"))
    assert leader.sync(twice).result.assignment == b"second"


def test_assignments_of_a_follower_are_ignored(driver):
    """docs/spec/membership.md#sync-group."""
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    waiting = follower.sync({follower.member_id: b"mine", leader.member_id: b"yours"})
    leader.sync({})
    assert waiting.result.assignment == b""


def test_assignments_sent_to_a_stable_group_are_ignored(driver):
    """docs/spec/membership.md#sync-group: Stable answers what is stored, the leader too."""
    leader, _ = a_stable_group(driver)
    call = leader.sync({leader.member_id: b"changed"})
    assert call.result.assignment == f"part-of-{leader.member_id}".encode()


def test_leaders_assignment_is_written_with_all_that_a_restart_needs(driver):
    """docs/spec/groups.md#restart; the record is applied at once (docs/design.md#hard-state)."""
    leader, follower = completing(
        driver,
        a_member(driver, instance_id="i1", protocols=protocols("range", subscription=b"one")),
        a_member(driver, protocols=protocols("range", "sticky", subscription=b"two")),
    )
    since = len(driver.records)
    leader.sync(assignment_for([leader, follower]))
    (record,) = driver.records[since:]
    assert isinstance(record, GroupRecord)
    assert (record.group_id, record.generation_id) == ("g", 1)
    assert (record.protocol_type, record.protocol_name) == ("consumer", "range")
    assert record.leader_id == leader.member_id
    assert record.state_timestamp_ms == driver.now.wall_ms
    by_id = {m.member_id: m for m in record.members}
    assert set(by_id) == {leader.member_id, follower.member_id}
    for member in (leader, follower):
        saved = by_id[member.member_id]
        assert saved.group_instance_id == member.instance_id
        assert (saved.client_id, saved.client_host) == ("app", "/10.0.0.1")
        assert saved.session_timeout_ms == SESSION_MS
        assert saved.rebalance_timeout_ms == REBALANCE_MS
        assert saved.subscription == member.fields["protocols"][0].metadata
        assert saved.assignment == f"part-of-{member.member_id}".encode()
    assert driver.saved()["g"].metadata == record


def test_follower_syncs_write_nothing(driver):
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    since = len(driver.records)
    follower.sync()
    assert driver.records[since:] == []
    leader.sync(assignment_for([leader, follower]))
    since = len(driver.records)
    follower.sync()
    assert driver.records[since:] == []


def test_newer_sync_of_a_member_gets_the_answer_and_the_older_one_is_not_told_success(driver):
    """docs/understand/differences.md#nobody-waits-in-vain: the superseded one of two parked syncs
    is answered too.
    """
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    first = follower.sync()
    second = follower.sync()
    assert second.parked
    assert first.error is not ErrorCode.NONE
    leader.sync(assignment_for([leader, follower]))
    assert second.error is ErrorCode.NONE


def test_parked_syncs_are_told_when_a_newcomer_starts_a_rebalance(driver):
    """docs/spec/edge-cases.md#edge-38."""
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    waiting = follower.sync()
    driver.join("g", version=3)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert answer(waiting) == EMPTY_SYNC
    assert leader.sync({}).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_parked_sync_keeps_its_member_and_the_rebalance_gives_it_a_new_session(driver):
    """docs/spec/joining.md#preparing: those members' session timers are restarted."""
    leader, follower, third = completing(driver, *(a_member(driver) for _ in range(3)))
    waiting = follower.sync()
    driver.advance(SESSION_MS - 1)
    leader.heartbeat()
    third.heartbeat()
    driver.advance(SESSION_MS - 1)  # the follower's own session ended in here, while it was parked
    assert waiting.parked
    leader.heartbeat()
    third.heartbeat()
    driver.join("g", version=3)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(SESSION_MS - 1)
    leader.heartbeat()
    assert follower.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS


def test_parked_sync_outlives_its_session_and_its_answer_starts_a_new_one(driver):
    """docs/spec/groups.md#timers: ignored while parked, re-armed when the parked reply is sent."""
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    waiting = follower.sync()
    heartbeat_through(driver, 2 * SESSION_MS, leader)
    assert waiting.parked
    leader.sync(assignment_for([leader, follower]))
    assert waiting.error is ErrorCode.NONE
    driver.advance(SESSION_MS - 1)
    leader.heartbeat()
    assert len(driver.describe().members) == 2
    driver.advance(1)
    assert [m.member_id for m in driver.describe().members] == [leader.member_id]


def test_assignments_are_cleared_when_a_completing_group_rebalances(driver):
    """docs/spec/joining.md#preparing; from Stable they are kept
    (docs/spec/administration.md#describe-groups).
    """
    leader, follower = a_stable_group(driver)
    calls = [leader.join(), follower.join()]
    assert [c.error for c in calls] == [ErrorCode.NONE, ErrorCode.NONE]
    driver.join("g", version=3)
    assert driver.state() == "PreparingRebalance"
    assert {m.member_assignment for m in driver.describe().members} == {b""}


# --- The sync timer -----------------------------------------------------------------------------


def test_follower_that_never_syncs_is_removed_although_the_group_is_stable(driver):
    """docs/spec/edge-cases.md#edge-40."""
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    assert leader.sync(assignment_for([leader, follower])).error is ErrorCode.NONE
    assert driver.state() == "Stable"
    since = len(driver.events)
    answers = heartbeat_through(driver, REBALANCE_MS - 1, leader, follower)
    assert answers == [ErrorCode.NONE, ErrorCode.NONE]
    driver.advance(1)
    assert leader.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    assert follower.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    (evicted,) = driver.events_of(MemberEvicted, since)
    assert (evicted.member_id, evicted.reason) == (follower.member_id, "sync_timeout")
    assert len(driver.events_of(RebalanceStart, since)) == 1


def test_leader_that_never_syncs_is_removed_and_the_waiting_followers_rebalance(driver):
    """docs/spec/edge-cases.md#edge-40
    (testRebalanceTimesOutWhenSyncRequestIsNotReceivedFromLeaders).
    """
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    waiting = follower.sync()
    heartbeat_through(driver, REBALANCE_MS - 1, leader)
    assert waiting.parked
    driver.advance(1)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert leader.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    call = follower.join()
    assert call.error is ErrorCode.NONE
    assert call.result.leader == follower.member_id


def test_group_where_nobody_ever_syncs_becomes_empty(driver):
    members = completing(driver, a_member(driver), a_member(driver))
    heartbeat_through(driver, REBALANCE_MS, *members)
    assert driver.state() == "Empty"
    assert driver.saved()["g"].metadata.generation_id == 2


def test_sync_timer_lasts_the_largest_rebalance_timeout(driver):
    """docs/spec/joining.md#completing step 5."""
    leader, follower = completing(
        driver,
        a_member(driver, rebalance_timeout_ms=30_000),
        a_member(driver, rebalance_timeout_ms=90_000),
    )
    leader.sync(assignment_for([leader, follower]))
    assert heartbeat_through(driver, 89_999, leader, follower) == [ErrorCode.NONE] * 2
    driver.advance(1)
    assert follower.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_timer_does_nothing_once_all_have_synced(driver):
    members = a_stable_group(driver)
    assert heartbeat_through(driver, 3 * REBALANCE_MS, *members) == [ErrorCode.NONE] * 2


def test_sync_timer_of_an_older_generation_does_nothing(driver):
    """docs/spec/membership.md#sync-group: "in the same generation"."""
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    leader.sync(assignment_for([leader, follower]))
    heartbeat_through(driver, REBALANCE_MS - 2_000, leader, follower)
    calls = [leader.join(), follower.join()]
    for member, call in zip((leader, follower), calls, strict=True):
        member.joined(call)
    assert heartbeat_through(driver, REBALANCE_MS - 1, leader, follower) == [ErrorCode.NONE] * 2
    assert len(driver.describe().members) == 2


# --- Events -------------------------------------------------------------------------------------


def test_assignment_of_consumers_is_an_event_that_a_person_can_read(driver):
    """Decoded for protocol type "consumer"."""
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    # ConsumerProtocolAssignment v0: version, "orders" with partitions 0 and 2, no user data
    held = (
        b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x06orders" + b"\x00\x00\x00\x02"
        b"\x00\x00\x00\x00" + b"\x00\x00\x00\x02" + b"\xff\xff\xff\xff"
    )
    leader.sync({leader.member_id: held})
    (event,) = driver.events_of(Assignment)
    assert (event.group_id, event.generation_id, event.member_id) == ("g", 1, leader.member_id)
    assert (event.protocol_type, event.protocol_name) == ("consumer", "range")
    assert event.partitions == {leader.member_id: {"orders": [0, 2]}, follower.member_id: {}}
    assert event.opaque_bytes is None


def test_assignment_of_another_type_is_an_event_with_sizes(driver):
    (leader,) = completing(driver, a_member(driver, protocol_type="connect"))
    leader.sync({leader.member_id: b"12345"}, protocol_type="connect")
    (event,) = driver.events_of(Assignment)
    assert event.protocol_type == "connect"
    assert event.partitions is None
    assert event.opaque_bytes == {leader.member_id: 5}


def test_assignment_that_cannot_be_read_is_an_event_with_sizes_and_is_stored_all_the_same(driver):
    (leader,) = completing(driver, a_member(driver))
    garbage = b"\x00\x00\xff\xff\xff\xff\x01"
    assert leader.sync({leader.member_id: garbage}).result.assignment == garbage
    (event,) = driver.events_of(Assignment)
    assert event.partitions is None
    assert event.opaque_bytes == {leader.member_id: len(garbage)}
