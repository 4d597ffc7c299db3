"""The tables of states are those of docs/spec/groups.md; what no request can reach is checked here
alone.

A shard keeps no Dead group (one that is dropped answers from the runtime's table), so the Dead rows
are held as data.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from groupkeeper.coordinator.core.classic.transitions import (
    AFTER_JOIN,
    AFTER_LEAVE,
    COMMIT_ANSWER,
    COMMIT_EXTENDS_SESSION,
    HEARTBEAT_ANSWER,
    PREDECESSORS,
    REJOIN_ACTION,
    STATIC_REJOIN_ACTION,
    SYNC_ACTION,
    SYNC_REFUSAL,
    MembershipChange,
    RejoinAction,
    StaticRejoinAction,
    SyncAction,
)
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_state import GroupState
from tests.helpers.core.shard_driver import (
    SESSION_MS,
    a_member,
    a_stable_group,
    assignment_for,
    completing,
)

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD


def test_states_are_spelled_as_on_the_wire():
    """docs/spec/groups.md#states."""
    assert [str(state) for state in GroupState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
        "Assigning",
        "Reconciling",
    ]


def test_allowed_predecessors_are_kafkas():
    """docs/spec/groups.md#states, "Allowed predecessors"."""
    assert PREDECESSORS[EMPTY] == {PREPARING}
    assert PREDECESSORS[PREPARING] == {STABLE, COMPLETING, EMPTY}
    assert PREDECESSORS[COMPLETING] == {PREPARING}
    assert PREDECESSORS[STABLE] == {COMPLETING}
    assert PREDECESSORS[DEAD] == {EMPTY, PREPARING, COMPLETING, STABLE, DEAD}


def test_heartbeat_answers_are_kafkas():
    """docs/spec/membership.md#heartbeat."""
    assert HEARTBEAT_ANSWER == {
        EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
        COMPLETING: ErrorCode.NONE,
        STABLE: ErrorCode.NONE,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }


def test_a_sync_waits_where_the_assignment_is_awaited_and_is_answered_where_it_is_there():
    """docs/spec/membership.md#sync-group step 5."""
    assert SYNC_ACTION == {
        EMPTY: SyncAction.REFUSE,
        PREPARING: SyncAction.REFUSE,
        COMPLETING: SyncAction.PARK,
        STABLE: SyncAction.ANSWER,
        DEAD: SyncAction.REFUSE,
    }


def test_refusals_of_a_sync_are_kafkas():
    """docs/spec/membership.md#sync-group steps 1, 3 and 5; in an Empty group nobody is a member,
    and hears of it before.
    """
    assert SYNC_REFUSAL == {
        EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }


def test_answers_to_commits_are_kafkas():
    """docs/spec/offsets.md#who-may-commit; in an Empty group nobody is a member, and hears of it
    before.
    """
    assert COMMIT_ANSWER == {
        EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        PREPARING: ErrorCode.NONE,
        COMPLETING: ErrorCode.REBALANCE_IN_PROGRESS,
        STABLE: ErrorCode.NONE,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }


def test_a_commit_extends_the_session_where_kafka_does():
    """docs/spec/offsets.md#commit step 7."""
    assert {PREPARING, STABLE} == COMMIT_EXTENDS_SESSION


@pytest.mark.parametrize(
    ("state", "is_leader", "changed", "action"),
    [
        (PREPARING, False, False, RejoinAction.PARK),
        (PREPARING, False, True, RejoinAction.PARK),
        (PREPARING, True, False, RejoinAction.PARK),
        (PREPARING, True, True, RejoinAction.PARK),
        (COMPLETING, False, False, RejoinAction.ANSWER),
        (COMPLETING, False, True, RejoinAction.REBALANCE),
        (COMPLETING, True, False, RejoinAction.ANSWER),
        (COMPLETING, True, True, RejoinAction.REBALANCE),
        (STABLE, False, False, RejoinAction.ANSWER),
        (STABLE, False, True, RejoinAction.REBALANCE),
        (STABLE, True, False, RejoinAction.REBALANCE),
        (STABLE, True, True, RejoinAction.REBALANCE),
    ],
)
def test_a_member_that_joins_again_is_parked_answered_or_starts_a_rebalance(
    state, is_leader, changed, action
):
    """docs/spec/joining.md#join-group, "Existing member rejoining, by state"."""
    assert REJOIN_ACTION[state, is_leader, changed] is action


def test_a_static_member_that_comes_back_keeps_its_generation_in_a_stable_group_alone():
    """docs/spec/joining.md#static-members."""
    assert STATIC_REJOIN_ACTION == {
        STABLE: StaticRejoinAction.KEEP,
        COMPLETING: StaticRejoinAction.REBALANCE,
        PREPARING: StaticRejoinAction.PARK,
    }


def test_members_that_come_and_go_start_a_rebalance_or_complete_the_one_that_runs():
    """docs/spec/joining.md#join-group and docs/spec/membership.md#leave-group; whom an Empty group
    loses was no member.
    """
    of_change = {
        PREPARING: MembershipChange.TRY_COMPLETE,
        COMPLETING: MembershipChange.PREPARE,
        STABLE: MembershipChange.PREPARE,
        DEAD: MembershipChange.NOTHING,
    }
    assert {**of_change, EMPTY: MembershipChange.PREPARE} == AFTER_JOIN
    assert {**of_change, EMPTY: MembershipChange.NOTHING} == AFTER_LEAVE


@pytest.mark.parametrize("state", [EMPTY, DEAD])
def test_nobody_comes_back_to_a_group_without_members(state):
    """docs/spec/joining.md#join-group, "Existing member rejoining, by state": whoever it was, it is
    no member.
    """
    actions = {action for (of, _, _), action in REJOIN_ACTION.items() if of is state}
    assert actions == {RejoinAction.REFUSE}


def test_life_of_a_group_goes_through_the_states_in_order(driver):
    """docs/spec/groups.md#states, every row that one group can show."""
    states = []

    def look():
        states.append(driver.state())

    first = driver.join("g", version=3)
    look()
    driver.advance_until_answered(first)
    look()
    driver.sync("g", first.member_id, 1)
    look()
    second = driver.join("g", version=3)
    look()
    driver.join("g", first.member_id)
    look()
    driver.leave("g", second.member_id)
    look()
    driver.join("g", first.member_id)
    driver.sync("g", first.member_id, 3)
    look()
    driver.leave("g", first.member_id)
    look()
    driver.join("g", version=3)
    look()
    assert states == [
        PREPARING,
        COMPLETING,
        STABLE,
        PREPARING,
        COMPLETING,
        PREPARING,
        STABLE,
        EMPTY,
        PREPARING,
    ]
    for before, after in pairwise(states):
        assert before in PREDECESSORS[after] or (before, after) in {
            (PREPARING, STABLE),  # through CompletingRebalance,
            (STABLE, EMPTY),  # and through PreparingRebalance, within one request
        }


def test_groups_are_counted_by_state(driver):
    """The gauges of docs/spec/settings.md#metrics."""
    a_stable_group(driver, "stable")
    completing(driver, a_member(driver, "completing"))
    driver.join("preparing", version=3)
    driver.commit("simple")
    driver.join("pending")
    counts = {str(k): n for k, n in driver.shard.groups_by_state().items() if n}
    assert counts == {
        "Stable": 1,
        "CompletingRebalance": 1,
        "PreparingRebalance": 1,
        "Empty": 2,
    }
    assert driver.shard.group_count() == 5


def test_stable_group_that_loses_a_member_by_time_goes_back_to_preparing(driver):
    leader, follower = a_stable_group(driver)
    assert driver.state() == "Stable"
    driver.advance(SESSION_MS - 1)
    follower.heartbeat()
    driver.advance(1)
    assert driver.state() == "PreparingRebalance"
    follower.joined(follower.join())
    assert driver.state() == "CompletingRebalance"
    follower.sync(assignment_for([follower]))
    assert driver.state() == "Stable"
    assert leader.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
