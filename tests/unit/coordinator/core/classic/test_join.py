"""JoinGroup: the checks in their order, the kinds of member, the answers by state
(docs/spec/joining.md#join-group).
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    GroupCreated,
    MemberJoin,
    RebalanceEnd,
    RebalanceStart,
)
from groupkeeper.coordinator.core.records import GroupRecord
from groupkeeper.coordinator.core.requests.membership import JoinedMember, JoinProtocol
from tests.helpers.core.shard_driver import (
    CLIENT,
    REBALANCE_MS,
    SESSION_MS,
    ShardDriver,
    a_member,
    a_stable_group,
    assignment_for,
    completing,
    protocols,
    stable,
)

# --- Static checks -------------------------------------------------------------------------------


def test_join_with_empty_group_id_is_refused_and_echoes_the_member_id(driver):
    """docs/spec/admission.md#order and docs/spec/joining.md#join-group step 1."""
    call = driver.join("", "someone")
    assert call.error is ErrorCode.INVALID_GROUP_ID
    assert call.member_id == "someone"
    assert driver.list_groups() == {}


def test_group_id_is_checked_before_the_session_timeout(driver):
    """docs/spec/joining.md#join-group: step 1 before step 2."""
    assert driver.join("", session_timeout_ms=1).error is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001, 0, -1])
def test_session_timeout_outside_the_bounds_is_refused_before_the_member_id_is_looked_at(
    driver, timeout_ms
):
    """docs/spec/edge-cases.md#edge-6."""
    call = driver.join("g", "made-up", session_timeout_ms=timeout_ms)
    assert call.error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert call.member_id == "made-up"
    assert driver.list_groups() == {}
    assert driver.records == []


@pytest.mark.parametrize("timeout_ms", [6_000, 1_800_000])
def test_session_timeout_on_the_bounds_is_accepted(driver, timeout_ms):
    assert driver.join("g", session_timeout_ms=timeout_ms).error is ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_rebalance_timeout_is_not_checked(driver, timeout_ms):
    """docs/spec/edge-cases.md#edge-7: accepted as given."""
    call = driver.join("g", version=3, rebalance_timeout_ms=timeout_ms)
    driver.advance(3_000)
    assert call.error is ErrorCode.NONE


def test_join_timer_is_the_given_rebalance_timeout_however_short(driver):
    """docs/spec/edge-cases.md#edge-7: the maximum over the members."""
    leader, _ = a_stable_group(driver, rebalance_timeout_ms=1)
    rejoin = leader.join()
    driver.advance(0)
    assert rejoin.parked
    driver.advance(1)
    assert rejoin.error is ErrorCode.NONE
    assert [m.member_id for m in rejoin.result.members] == [leader.member_id]


def test_error_results_carry_no_generation_leader_or_members(driver):
    """docs/spec/edge-cases.md#edge-8, as far as the core knows it: the handler turns None into ""
    for old versions.
    """
    result = driver.join("g", "made-up").result
    assert (result.generation_id, result.leader, result.members) == (-1, "", ())
    assert result.protocol_type is None
    assert result.protocol_name is None
    assert result.skip_assignment is False


# --- Absent and Empty groups --------------------------------------------------------------------


def test_first_join_of_a_dynamic_member_only_hands_out_an_id(driver):
    """docs/spec/edge-cases.md#edge-1: KIP-394."""
    call = driver.join("g", new_member_id="app-fresh")
    assert call.error is ErrorCode.MEMBER_ID_REQUIRED
    assert call.member_id == "app-fresh"
    assert driver.state() == "Empty"
    assert driver.describe().members == ()
    assert driver.events_of(MemberJoin) == []


def test_group_is_created_empty_at_generation_zero_and_written(driver):
    """docs/spec/groups.md#states and #restart: written when it is first created."""
    driver.join("g")
    (record,) = driver.records
    assert isinstance(record, GroupRecord)
    assert (record.group_id, record.generation_id, record.members) == ("g", 0, ())
    assert (record.protocol_type, record.protocol_name, record.leader_id) == (None, None, None)
    assert record.state_timestamp_ms == driver.now.wall_ms
    (event,) = driver.events_of(GroupCreated)
    assert (event.group_id, event.group_type) == ("g", "classic")


def test_group_that_exists_is_not_created_again(driver):
    driver.join("g")
    driver.join("g")
    assert len(driver.records_of(GroupRecord)) == 1
    assert len(driver.events_of(GroupCreated)) == 1


def test_handed_out_id_makes_a_member(driver):
    """docs/spec/edge-cases.md#edge-1, second half: the id can be used."""
    member_id = driver.join("g").member_id
    call = driver.join("g", member_id)
    assert call.parked
    assert driver.state() == "PreparingRebalance"
    driver.advance(3_000)
    assert call.error is ErrorCode.NONE
    assert call.member_id == member_id
    assert call.result.leader == member_id


def test_old_client_without_member_id_is_added_at_once(driver):
    """docs/spec/edge-cases.md#edge-2: v0-3 know no MEMBER_ID_REQUIRED."""
    call = driver.join("g", version=3, new_member_id="app-1")
    assert call.parked
    driver.advance(3_000)
    assert call.error is ErrorCode.NONE
    assert call.member_id == "app-1"


def test_static_member_is_added_at_once(driver):
    """docs/spec/edge-cases.md#edge-3: one round trip in any version."""
    call = driver.join("g", group_instance_id="i1", new_member_id="i1-fresh")
    assert call.parked
    driver.advance(3_000)
    assert call.error is ErrorCode.NONE
    assert call.member_id == "i1-fresh"


def test_made_up_id_at_an_absent_group_is_unknown_and_creates_nothing(driver):
    """docs/spec/edge-cases.md#edge-4."""
    call = driver.join("g", "made-up")
    assert call.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert call.member_id == "made-up"
    assert driver.list_groups() == {}
    assert driver.records == []
    assert driver.events == []


@pytest.mark.parametrize(
    "changes",
    [{"protocol_type": ""}, {"protocols": ()}],
    ids=["no protocol type", "no protocols"],
)
@pytest.mark.parametrize("version", [3, 9])
def test_first_join_that_offers_nothing_leaves_an_empty_group_behind(driver, changes, version):
    """docs/spec/edge-cases.md#edge-5: creation sticks although the join is refused."""
    call = driver.join("g", version=version, **changes)
    assert call.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert call.member_id == ""
    group = driver.list_groups()["g"]
    assert (group.group_state, group.protocol_type) == ("Empty", "")


def test_protocol_check_comes_before_the_id_is_handed_out(driver):
    """docs/spec/joining.md#join-group: step 7 before step 8."""
    a_stable_group(driver)
    call = driver.join("g", protocols=protocols("other"))
    assert call.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert call.member_id == ""


def test_made_up_id_at_an_empty_group_is_unknown(driver):
    """docs/spec/joining.md#join-group, the row Empty of an existing member, and "id not a
    member".
    """
    driver.join("g")
    call = driver.join("g", "made-up")
    assert call.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert call.member_id == "made-up"


def test_former_member_of_an_empty_group_is_unknown(driver):
    """docs/spec/joining.md#join-group, state Empty."""
    (member,) = a_stable_group(driver, members=1)
    member.leave()
    assert driver.state() == "Empty"
    call = member.join()
    assert call.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert call.member_id == member.member_id


def test_protocol_check_of_an_empty_group_ignores_what_the_former_members_spoke(driver):
    """docs/spec/joining.md#join-group step 7: an Empty group needs any type and any protocol."""
    (member,) = a_stable_group(driver, members=1)
    member.leave()
    call = driver.join("g", version=3, protocols=protocols("entirely-new"))
    driver.advance_until_answered(call)
    assert call.result.protocol_name == "entirely-new"


# --- Pending ids --------------------------------------------------------------------------------


def test_second_join_decides_the_protocols(driver):
    """docs/spec/edge-cases.md#edge-9: those of the first request are not stored."""
    member_id = driver.join("g", protocols=protocols("range", subscription=b"first")).member_id
    call = driver.join("g", member_id, protocols=protocols("sticky", subscription=b"second"))
    driver.advance_until_answered(call)
    assert call.result.protocol_name == "sticky"
    assert call.result.members == (JoinedMember(member_id, None, b"second"),)


def test_handed_out_id_that_never_returns_holds_the_rebalance_for_its_session(driver):
    """docs/spec/edge-cases.md#edge-10."""
    first, second = a_stable_group(driver, members=2, session_timeout_ms=60_000)
    driver.join("g", session_timeout_ms=SESSION_MS)
    new = protocols("range", subscription=b"new")
    calls = [first.join(protocols=new), second.join(protocols=new)]
    driver.advance(SESSION_MS - 1)
    assert [call.parked for call in calls] == [True, True]
    driver.advance(1)
    assert [call.error for call in calls] == [ErrorCode.NONE, ErrorCode.NONE]
    assert {m.member_id for m in calls[0].result.members} == {first.member_id, second.member_id}


def test_handed_out_id_is_dead_after_its_session(driver):
    member_id = driver.join("g").member_id
    driver.advance(SESSION_MS)
    call = driver.join("g", member_id)
    assert call.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_handed_out_id_may_be_used_just_before_its_session_ends(driver):
    member_id = driver.join("g").member_id
    driver.advance(SESSION_MS - 1)
    assert driver.join("g", member_id).parked


def test_handed_out_id_that_joins_with_an_instance_id_is_an_internal_error(driver):
    """docs/spec/edge-cases.md#edge-11."""
    member_id = driver.join("g").member_id
    call = driver.join("g", member_id, group_instance_id="i1")
    assert call.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert call.member_id == ""
    assert driver.state() == "Empty"


def test_every_id_less_join_of_a_modern_client_gets_an_id_of_its_own(driver):
    first, second = driver.join("g"), driver.join("g")
    assert first.member_id != second.member_id
    assert driver.join("g", first.member_id).parked
    assert driver.join("g", second.member_id).parked


# --- Identity -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["Stable", "CompletingRebalance", "PreparingRebalance"])
def test_made_up_id_at_a_group_with_members_is_unknown(driver, state):
    """docs/spec/joining.md#join-group, the last row of the kinds of member."""
    put_group_in(driver, state)
    call = driver.join("g", "made-up")
    assert call.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert call.member_id == "made-up"
    assert driver.state() == state


def put_group_in(driver: ShardDriver, state: str) -> None:
    """A group "g" of two members in a state."""
    if state == "Stable":
        a_stable_group(driver)
    elif state == "CompletingRebalance":
        completing(driver, a_member(driver), a_member(driver))
    else:
        a_stable_group(driver)[0].join()
    assert driver.state() == state


# --- Protocols ----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["Stable", "CompletingRebalance", "PreparingRebalance"])
def test_newcomer_that_shares_no_protocol_is_refused_and_nobody_notices(driver, state):
    """docs/spec/edge-cases.md#edge-19."""
    put_group_in(driver, state)
    call = driver.join("g", version=3, protocols=protocols("other"))
    assert call.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert call.member_id == ""
    assert driver.state() == state
    assert len(driver.describe().members) == 2


def test_newcomer_must_share_a_protocol_that_all_support(driver):
    """docs/spec/edge-cases.md#edge-19: one that some support is not enough."""
    stable(
        driver,
        a_member(driver, protocols=protocols("range", "sticky")),
        a_member(driver, protocols=protocols("range")),
    )
    call = driver.join("g", version=3, protocols=protocols("sticky"))
    assert call.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.state() == "Stable"


def test_newcomer_of_another_protocol_type_is_refused(driver):
    """docs/spec/edge-cases.md#edge-20."""
    a_stable_group(driver)
    call = driver.join("g", version=3, protocol_type="connect")
    assert call.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.state() == "Stable"


def test_known_member_that_changes_its_protocol_type_is_refused_with_its_id(driver):
    """docs/spec/joining.md#join-group step 7: the member id is the request's where it is not
    new.
    """
    leader, follower = a_stable_group(driver)
    call = driver.join("g", follower.member_id, protocol_type="connect")
    assert call.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert call.member_id == follower.member_id
    assert leader.heartbeat().error is ErrorCode.NONE


def test_protocol_named_twice_is_taken_once_and_keeps_the_first_metadata(driver):
    """docs/spec/edge-cases.md#edge-21 and docs/understand/differences.md#nobody-waits-in-vain:
    Kafka never answers such a member.
    """
    twice = (JoinProtocol("range", b"first"), JoinProtocol("range", b"second"))
    call = driver.join("g", version=3, protocols=twice)
    driver.advance_until_answered(call)
    assert call.result.protocol_name == "range"
    assert call.result.members[0].metadata == b"first"


def test_repeating_a_join_with_a_doubled_protocol_counts_as_unchanged(driver):
    """docs/spec/edge-cases.md#edge-21: what is compared is what was kept."""
    twice = (JoinProtocol("range", b"first"), JoinProtocol("range", b"second"))
    _, follower = a_stable_group(driver, protocols=twice)
    assert follower.join().error is ErrorCode.NONE
    assert driver.state() == "Stable"


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        ([("range", "sticky"), ("sticky", "range"), ("sticky", "range")], "sticky"),
        ([("range", "sticky"), ("range",), ("sticky", "range")], "range"),
        ([("new", "range"), ("new", "range"), ("range",)], "range"),
        ([("a", "b", "c"), ("b", "c", "a"), ("b", "a", "c")], "b"),
    ],
    ids=["majority", "only shared", "favourite not shared", "three candidates"],
)
def test_members_vote_for_their_first_protocol_that_all_support(driver, offers, chosen):
    """docs/spec/joining.md#completing, protocol choice (ClassicGroupTest.testSelectProtocol)."""
    members = [a_member(driver, protocols=protocols(*names)) for names in offers]
    calls = [member.join() for member in members]
    driver.advance_until_answered(*calls)
    assert {call.result.protocol_name for call in calls} == {chosen}
    assert {call.result.protocol_type for call in calls} == {"consumer"}


def test_leader_is_shown_the_metadata_of_the_chosen_protocol(driver):
    """docs/spec/joining.md#completing step 4."""
    one = a_member(
        driver, protocols=(JoinProtocol("range", b"one-range"), JoinProtocol("sticky", b"one-s"))
    )
    two = a_member(driver, protocols=(JoinProtocol("sticky", b"two-s"),))
    calls = [one.join(), two.join()]
    driver.advance_until_answered(*calls)
    (shown,) = [call.result.members for call in calls if call.result.members]
    assert {m.member_id: m.metadata for m in shown} == {
        calls[0].member_id: b"one-s",
        calls[1].member_id: b"two-s",
    }


# --- Completion ---------------------------------------------------------------------------------


def test_completed_join_gives_all_the_generation_and_only_the_leader_the_members(driver):
    """docs/spec/joining.md#completing steps 3 and 4."""
    calls = [driver.join("g", version=9, group_instance_id=f"i{n}") for n in range(3)]
    driver.advance_until_answered(*calls)
    leader = calls[0].result.leader
    assert leader in {call.member_id for call in calls}
    for call in calls:
        assert call.error is ErrorCode.NONE
        assert call.result.generation_id == 1
        assert call.result.leader == leader
        assert call.result.skip_assignment is False
        assert len(call.result.members) == (3 if call.member_id == leader else 0)
    (shown,) = [call.result.members for call in calls if call.result.members]
    assert {(m.member_id, m.group_instance_id) for m in shown} == {
        (call.member_id, call.request.group_instance_id) for call in calls
    }


def test_leader_stays_leader_when_it_rejoins(driver):
    """docs/spec/joining.md#completing step 2."""
    leader, follower = a_stable_group(driver)
    calls = [follower.join(protocols=protocols("range", subscription=b"new")), leader.join()]
    assert [call.error for call in calls] == [ErrorCode.NONE, ErrorCode.NONE]
    assert {call.result.leader for call in calls} == {leader.member_id}


def test_a_member_that_rejoined_becomes_leader_when_the_leader_does_not(driver):
    """docs/spec/edge-cases.md#edge-28."""
    leader, follower = a_stable_group(driver, session_timeout_ms=600_000)
    call = follower.join(protocols=protocols("range", subscription=b"new"))
    assert driver.advance_until_answered(call) == REBALANCE_MS
    assert call.result.leader == follower.member_id
    assert [m.member_id for m in call.result.members] == [follower.member_id]
    assert leader.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_join_phase_completes_at_once_when_all_members_are_parked(driver):
    """docs/spec/joining.md#preparing, last rule."""
    leader, follower = a_stable_group(driver)
    first = leader.join()
    assert first.parked
    second = follower.join()
    assert (first.error, second.error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert first.result.generation_id == second.result.generation_id == 2
    assert driver.state() == "CompletingRebalance"


def test_completed_join_phase_writes_nothing(driver):
    """docs/spec/groups.md#restart: the generation bump of a join phase that was never synced is not
    persisted.
    """
    before = len(driver.records)
    completing(driver, a_member(driver), a_member(driver))
    assert [r for r in driver.records[before:] if getattr(r, "generation_id", 0) > 0] == []
    assert driver.saved()["g"].metadata.generation_id == 0


# --- Rejoining ----------------------------------------------------------------------------------


def test_the_older_of_two_joins_of_one_member_is_told_that_the_group_rebalances(driver):
    """docs/understand/differences.md#nobody-waits-in-vain: its client gave up waiting and asked
    again; Kafka never answers it.
    """
    leader, follower = a_stable_group(driver)
    first = leader.join()
    second = leader.join()
    assert (first.error, first.member_id) == (ErrorCode.REBALANCE_IN_PROGRESS, leader.member_id)
    follower.join()
    assert second.error is ErrorCode.NONE


def test_follower_rejoining_stable_group_with_same_protocols_gets_current_generation(driver):
    """docs/spec/edge-cases.md#edge-15."""
    leader, follower = a_stable_group(driver)
    call = follower.join()
    assert call.error is ErrorCode.NONE
    assert call.result.generation_id == 1
    assert call.result.members == ()
    assert call.result.leader == leader.member_id
    assert call.result.protocol_name == "range"
    assert call.result.protocol_type == "consumer"
    assert driver.state() == "Stable"
    assert follower.sync().result.assignment == f"part-of-{follower.member_id}".encode()


def test_leader_rejoining_stable_group_with_same_protocols_starts_a_rebalance(driver):
    """docs/spec/edge-cases.md#edge-16: it is how a leader asks for one."""
    leader, _ = a_stable_group(driver)
    since = len(driver.events)
    assert leader.join().parked
    assert driver.state() == "PreparingRebalance"
    (event,) = driver.events_of(RebalanceStart, since)
    assert (event.group_id, event.member_id, event.generation_id) == ("g", leader.member_id, 1)
    assert event.reason


@pytest.mark.parametrize(
    "offered",
    [
        (JoinProtocol("range", b"sub"), JoinProtocol("sticky", b"other")),
        (JoinProtocol("sticky", b"sub"), JoinProtocol("range", b"sub")),
        (JoinProtocol("range", b"sub"),),
        (JoinProtocol("range", b"sub"), JoinProtocol("sticky", b"sub"), JoinProtocol("x", b"")),
    ],
    ids=["other bytes", "other order", "one less", "one more"],
)
def test_protocols_that_differ_in_anything_start_a_rebalance(driver, offered):
    """docs/spec/edge-cases.md#edge-18 and docs/spec/joining.md#join-group, Stable with changed
    protocols.
    """
    _, follower = a_stable_group(driver, protocols=protocols("range", "sticky"))
    assert follower.join(protocols=offered).parked
    assert driver.state() == "PreparingRebalance"


def test_join_repeated_unchanged_while_completing_gets_the_same_generation_again(driver):
    """docs/spec/edge-cases.md#edge-17."""
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    again = leader.join()
    assert again.error is ErrorCode.NONE
    assert again.result.generation_id == 1
    assert {m.member_id for m in again.result.members} == {leader.member_id, follower.member_id}
    again = follower.join()
    assert again.error is ErrorCode.NONE
    assert (again.result.generation_id, again.result.members) == (1, ())
    assert again.result.leader == leader.member_id
    assert driver.state() == "CompletingRebalance"


def test_changed_protocols_while_completing_restart_the_rebalance(driver):
    """docs/spec/joining.md#join-group, CompletingRebalance with changed protocols."""
    _, follower = completing(driver, a_member(driver), a_member(driver))
    assert follower.join(protocols=protocols("range", subscription=b"new")).parked
    assert driver.state() == "PreparingRebalance"


def test_changed_protocols_while_preparing_are_those_that_count(driver):
    """docs/spec/joining.md#join-group, PreparingRebalance: update the member, park, maybe
    complete.
    """
    leader, follower = a_stable_group(driver)
    leader.join()
    call = follower.join(protocols=protocols("range", subscription=b"new"))
    assert call.error is ErrorCode.NONE
    assert driver.state() == "CompletingRebalance"
    again = leader.join()
    assert {m.member_id: m.metadata for m in again.result.members}[follower.member_id] == b"new"


def test_changed_timeout_alone_is_ignored_where_the_answer_is_immediate(driver):
    """docs/spec/joining.md#join-group: the session of the follower is as long as before, and not
    restarted either.
    """
    leader, follower = a_stable_group(driver)
    driver.advance(6_000)
    leader.heartbeat()
    assert follower.join(session_timeout_ms=600_000).error is ErrorCode.NONE
    driver.advance(3_999)
    assert len(driver.describe().members) == 2
    driver.advance(1)
    assert [m.member_id for m in driver.describe().members] == [leader.member_id]


def test_changed_timeout_is_stored_where_the_join_is_parked(driver):
    """docs/spec/joining.md#join-group: "stored in the others"."""
    leader, follower = a_stable_group(driver)
    parked = leader.join(session_timeout_ms=600_000)
    follower.joined(follower.join())
    leader.joined(parked)
    leader.sync(assignment_for([leader, follower]))
    follower.sync()
    driver.advance(SESSION_MS)
    assert [m.member_id for m in driver.describe().members] == [leader.member_id]


def test_newer_join_of_a_member_gets_the_answer_and_the_older_one_is_not_told_success(driver):
    """docs/spec/edge-cases.md#edge-24 and docs/understand/differences.md#nobody-waits-in-vain:
    both are answered, one of them with success.
    """
    leader, follower = a_stable_group(driver)
    first = leader.join()
    second = leader.join()
    assert second.parked
    assert first.error is not ErrorCode.NONE
    follower.join()
    assert second.error is ErrorCode.NONE


def test_newcomer_to_a_stable_group_starts_a_rebalance_and_waits_for_the_others(driver):
    """docs/spec/joining.md#adding: state Stable -> prepare a rebalance."""
    leader, follower = a_stable_group(driver)
    since = len(driver.events)
    newcomer = driver.join("g", version=3, new_member_id="new")
    assert newcomer.parked
    assert driver.state() == "PreparingRebalance"
    assert leader.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    (start,) = driver.events_of(RebalanceStart, since)
    assert start.member_id == "new"
    calls = [leader.join(), follower.join()]
    assert [c.error for c in (*calls, newcomer)] == [ErrorCode.NONE] * 3
    assert newcomer.result.generation_id == 2


def test_newcomer_to_a_completing_group_starts_the_rebalance_again(driver):
    """docs/spec/joining.md#adding: state CompletingRebalance -> prepare a rebalance."""
    completing(driver, a_member(driver), a_member(driver))
    assert driver.join("g", version=3).parked
    assert driver.state() == "PreparingRebalance"


def test_newcomer_to_a_preparing_group_may_be_what_it_waited_for(driver):
    """docs/spec/joining.md#adding: state PreparingRebalance -> try to complete (the last pending id
    comes back).
    """
    (leader,) = a_stable_group(driver, members=1)
    pending = driver.join("g").member_id
    parked = leader.join()
    assert parked.parked
    newcomer = driver.join("g", pending)
    assert (parked.error, newcomer.error) == (ErrorCode.NONE, ErrorCode.NONE)


# --- Events -------------------------------------------------------------------------------------


def test_member_that_was_added_is_an_event_with_all_that_is_known_of_it(driver):
    driver.join(
        "g",
        version=3,
        new_member_id="app-1",
        protocols=protocols("range", "sticky"),
        reason="I was started",
    )
    (event,) = driver.events_of(MemberJoin)
    assert (event.group_id, event.member_id, event.group_instance_id) == ("g", "app-1", None)
    assert (event.client_id, event.client_host) == (CLIENT.client_id, CLIENT.client_host)
    assert event.principal == CLIENT.principal
    assert event.protocols == ["range", "sticky"]
    assert (event.session_timeout_ms, event.rebalance_timeout_ms) == (SESSION_MS, REBALANCE_MS)
    assert (event.replaces, event.reason) == (None, "I was started")


def test_join_phase_is_two_events_with_its_cause_and_its_length(driver):
    call = driver.join("g", version=3, new_member_id="app-1")
    driver.advance_until_answered(call)
    (start,) = driver.events_of(RebalanceStart)
    assert (start.group_id, start.member_id, start.generation_id) == ("g", "app-1", 0)
    (end,) = driver.events_of(RebalanceEnd)
    assert (end.group_id, end.generation_id, end.duration_ms) == ("g", 1, 3_000)
    assert (end.members, end.awaited) == (1, [])
    assert (end.protocol_name, end.leader_id) == ("range", "app-1")


def test_members_that_did_not_come_back_are_named_at_the_end_of_the_rebalance(driver):
    leader, follower = a_stable_group(driver, session_timeout_ms=600_000)
    since = len(driver.events)
    leader.join()
    driver.advance(REBALANCE_MS)
    (end,) = driver.events_of(RebalanceEnd, since)
    assert end.awaited == [follower.member_id]
    assert (end.duration_ms, end.generation_id) == (REBALANCE_MS, 2)


# --- Memory of idle members ----------------------------------------------------------------------


def test_members_that_offer_the_same_hold_it_once(driver):
    a_stable_group(driver, members=3)
    first, *others = driver.shard.groups["g"].members.values()
    assert len(others) == 2
    assert all(member.protocols is first.protocols for member in others)


def test_members_that_offer_something_else_hold_their_own(driver):
    leader, follower = a_stable_group(driver)
    follower.join(protocols=protocols("range", subscription=b"other"))
    leader.join()
    members = driver.shard.groups["g"].members
    assert members[leader.member_id].metadata("range") != b"other"
    assert members[follower.member_id].metadata("range") == b"other"
