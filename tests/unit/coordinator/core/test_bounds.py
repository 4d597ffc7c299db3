"""What would be too large for the storage is refused before anything is changed
(docs/design.md#bounds).

Kafka answers a record that is too large with UNKNOWN_SERVER_ERROR
(docs/spec/admission.md#storage-failures).
"""

from __future__ import annotations

import struct

import msgspec
import pytest

from groupkeeper.coordinator.core.classic.member import encoded_bytes
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.membership import LeavingMember
from tests.helpers.core.consumer_members import ConsumerStub, settle
from tests.helpers.core.mixed_groups import subscribed
from tests.helpers.core.shard_driver import (
    PAYMENTS,
    SESSION_MS,
    a_member,
    a_stable_group,
    assignment_for,
    completing,
    protocols,
    stable,
)

TOO_LARGE = ErrorCode.UNKNOWN_SERVER_ERROR
LIMIT = 20_000


@pytest.fixture
def driver(make_driver):
    """A driver whose storage takes 20,000 bytes a step."""
    return make_driver(max_step_bytes=LIMIT)


def encoded(*records):
    """What records cost at least, in the plainest encoding that there is."""
    return sum(len(msgspec.json.encode(record)) for record in records)


def notes(count, size):
    """A commit of ``count`` partitions with ``size`` characters of metadata each."""
    return [("orders", "", [(n, n, -1, "x" * size) for n in range(count)])]


def snapshot(driver):
    """What must not change."""
    return driver.saved(), len(driver.records), driver.shard.ends(), driver.describe()


# --- Commits ------------------------------------------------------------------------------------


def test_commit_that_would_not_fit_is_refused_whole(driver):
    leader, _ = a_stable_group(driver)
    before = snapshot(driver)
    call = leader.commit(notes(12, 4_000))
    assert set(call.partition_errors().values()) == {TOO_LARGE}
    assert snapshot(driver) == before


def test_partitions_refused_before_keep_their_own_error(driver):
    call = driver.commit("g", [*notes(12, 4_000), ("nowhere", "", [(0, 1, -1, "")])])
    errors = call.partition_errors()
    assert errors.pop(("nowhere", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(errors.values()) == {TOO_LARGE}


def test_commit_that_would_not_fit_creates_no_group(driver):
    driver.commit("g", notes(12, 4_000))
    assert driver.list_groups() == {}
    assert (driver.records, driver.events_of(object)) == ([], driver.events)


def test_commit_that_fits_is_stored(driver):
    """The bound may be generous; a sixth of the limit fits whatever the characters are."""
    assert set(driver.commit("g", notes(3, 1_000)).partition_errors().values()) == {ErrorCode.NONE}


@pytest.mark.parametrize("character", ["x", "é", "😀", "\x01", '"', "\\", "\u2028"])
def test_no_accepted_commit_is_larger_than_the_limit(driver, character):
    """Escapes and wide characters count for what they become."""
    for size in range(100, 2_000, 100):
        since = len(driver.records)
        topics = [("orders", "", [(n, 2**62, 2**30, character * size) for n in range(12)])]
        driver.commit("g", topics)
        assert encoded(*driver.records[since:]) <= LIMIT


def test_commit_of_exactly_the_limit_is_stored_and_a_byte_less_refuses_it(make_driver):
    driver = make_driver()
    driver.commit("g")
    bound_bytes = driver.steps[-1].record_bytes
    for limit, error in ((bound_bytes, ErrorCode.NONE), (bound_bytes - 1, TOO_LARGE)):
        call = make_driver(max_step_bytes=limit).commit("g")
        assert set(call.partition_errors().values()) == {error}


def test_no_character_of_a_name_counts_for_more_than_it_can_become(make_driver):
    """Six bytes in JSON; a bound that is larger than that refuses what would fit."""
    driver = make_driver()
    sizes = []
    for length in (10, 11):
        driver.commit("g" * length)
        sizes.append(driver.steps[-1].record_bytes)
    assert sizes[1] - sizes[0] == 6


def test_no_accepted_commit_of_long_names_is_larger_than_the_limit(driver):
    """Group, member and instance id are the client's, and as long as it likes."""
    for size in (100, 1_000, 5_000, 30_000):
        since = len(driver.records)
        driver.commit("g" * size, member_id="\x01" * size)
        driver.commit("g", group_instance_id="\x01" * size)
        assert encoded(*driver.records[since:]) <= LIMIT


# --- Syncs --------------------------------------------------------------------------------------


def test_assignment_that_would_not_fit_is_refused_and_the_leader_may_bring_a_smaller_one(driver):
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    before = snapshot(driver)
    call = leader.sync({leader.member_id: b"x" * LIMIT})
    assert (call.error, call.result.assignment) == (TOO_LARGE, b"")
    assert snapshot(driver) == before
    assert driver.state() == "CompletingRebalance"
    assert leader.sync(assignment_for([leader, follower])).error is ErrorCode.NONE


def test_assignment_of_exactly_the_limit_is_stored_and_a_byte_less_refuses_it(make_driver):
    (leader,) = completing(probe := make_driver(), a_member(probe))
    limit = encoded_bytes(100) + 2 * probe.shard.groups["g"].size_bytes
    for max_step_bytes, error in ((limit, ErrorCode.NONE), (limit - 1, TOO_LARGE)):
        limited = make_driver(max_step_bytes=max_step_bytes)
        (leader,) = completing(limited, a_member(limited))
        assert leader.sync({leader.member_id: b"x" * 100}).error is error
    assert probe.everything_answered()


def test_bytes_of_strangers_in_an_assignment_do_not_count(driver):
    """docs/spec/membership.md#sync-group: ids that are not members are dropped."""
    (leader,) = completing(driver, a_member(driver))
    call = leader.sync({leader.member_id: b"mine", "stranger": b"x" * 2 * LIMIT})
    assert (call.error, call.result.assignment) == (ErrorCode.NONE, b"mine")


def test_no_accepted_assignment_is_larger_than_the_limit(driver):
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    for size in range(LIMIT, 0, -500):
        since = len(driver.records)
        half = b"x" * (size // 2)
        call = leader.sync({leader.member_id: half, follower.member_id: half})
        assert encoded(*driver.records[since:]) <= LIMIT
        if call.error is ErrorCode.NONE:
            break
    assert driver.state() == "Stable"


def test_commits_go_on_after_something_was_refused(driver):
    leader, _ = a_stable_group(driver)
    leader.commit(notes(12, 4_000))
    assert set(leader.commit().partition_errors().values()) == {ErrorCode.NONE}


# --- Joins --------------------------------------------------------------------------------------


def test_static_replacement_that_would_not_fit_is_refused_and_nothing_moves(driver):
    """docs/spec/joining.md#static-members: the mapped error with member id ""; the old id stays in
    its place.
    """
    leader, follower = stable(
        driver, a_member(driver, instance_id="i1"), a_member(driver, instance_id="i2")
    )
    before = snapshot(driver)
    big = protocols("range", subscription=b"x" * LIMIT)
    call = driver.join("g", group_instance_id=leader.instance_id, protocols=big)
    assert (call.error, call.member_id) == (TOO_LARGE, "")
    assert snapshot(driver) == before
    assert leader.heartbeat().error is ErrorCode.NONE
    assert follower.heartbeat().error is ErrorCode.NONE


def test_member_that_fills_its_group_to_exactly_the_limit_joins_and_a_byte_less_refuses_it(
    make_driver,
):
    driver = make_driver()
    driver.join("g", version=3)
    filled_bytes = driver.shard.groups["g"].size_bytes
    errors = []
    for limit in (filled_bytes, filled_bytes - 1):
        limited = make_driver(max_step_bytes=limit)
        call = limited.join("g", version=3)
        errors.append(None if call.parked else call.error)
    assert errors == [None, TOO_LARGE]


def test_group_id_that_would_not_fit_creates_no_group(driver):
    call = driver.join("g" * 2 * LIMIT)
    assert (call.error, call.member_id) == (TOO_LARGE, "")
    assert driver.list_groups() == {}
    assert (driver.records, driver.events) == ([], [])


def test_newcomer_whose_subscription_could_never_be_stored_does_not_spoil_the_group(driver):
    """Whether it is refused at its join or the leader at its sync: no step is ever too large."""
    leader, _ = a_stable_group(driver)
    driver.join("g", version=3, protocols=protocols("range", subscription=b"x" * LIMIT))
    driver.advance(400_000)
    assert driver.everything_answered()
    for step in driver.steps:
        assert encoded(*step.records) <= LIMIT
    assert leader.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def large_steps(driver, since):
    """The sizes of the steps that are beyond the limit."""
    sizes = [encoded(*step.records, *step.events) for step in driver.steps[since:]]
    return [size for size in sizes if size > LIMIT]


def many_offsets(driver):
    """Sixty groups of twelve offsets, and one with more metadata than a step may hold."""
    for n in range(60):
        driver.commit(f"group-{n}", {"orders": dict.fromkeys(range(12), 1)})
    for n in range(12):
        driver.commit("large", [("orders", "", [(n, n, -1, "x" * 2_000)])])


def test_steps_of_an_expiry_pass_are_cut_to_the_limit(make_driver):
    """docs/design.md#bounds: steps of our own making; one group may have to go in several."""
    driver = make_driver(
        max_step_bytes=LIMIT, retention_check_interval_ms=600_000, offsets_retention_ms=1_000
    )
    many_offsets(driver)
    since = len(driver.steps)
    driver.advance(601_000)
    assert driver.list_groups() == {}
    assert large_steps(driver, since) == []


def test_steps_of_the_sweep_after_a_deleted_topic_are_cut_to_the_limit(driver):
    """docs/design.md#bounds."""
    many_offsets(driver)
    since = len(driver.steps)
    driver.change_topics(PAYMENTS)
    driver.advance(1_000)
    assert driver.shard.offset_count() == 0
    assert large_steps(driver, since) == []


def test_sessions_of_many_groups_that_end_at_once_are_cut_into_steps(make_driver):
    """docs/design.md#bounds: each group that became Empty is a record."""
    driver = make_driver(max_step_bytes=LIMIT, initial_rebalance_delay_ms=0)
    for n in range(60):
        call = driver.join(f"{n}-" + "g" * 1_000, version=3)
        driver.sync(call.request.group_id, call.member_id, 1)
    since = len(driver.steps)
    driver.advance(SESSION_MS + 1_000)
    assert set(driver.list_groups({"empty"})) == set(driver.list_groups())
    assert large_steps(driver, since) == []


@pytest.mark.parametrize(("missing_bytes", "steps"), [(0, 1), (1, 2)])
def test_deadlines_that_fill_a_step_to_the_byte_are_one_step(make_driver, missing_bytes, steps):
    def two_groups(**limits):
        driver = make_driver(**limits)
        for name in "gh":
            driver.join(name, version=3)
        return driver

    due_bytes = 3 * two_groups().shard.groups["g"].size_bytes
    driver = two_groups(max_step_bytes=2 * due_bytes - missing_bytes)
    since = len(driver.steps)
    driver.advance(3_000)
    assert driver.everything_answered()
    assert len(driver.steps) == since + steps


def test_initial_delays_of_many_groups_that_end_at_once_are_cut_into_steps(driver):
    """docs/design.md#bounds: the events count too."""
    for n in range(60):
        driver.join(f"{n}-" + "g" * 1_000, version=3)
    since = len(driver.steps)
    driver.advance(3_000 + 1_000)
    assert driver.everything_answered()
    assert large_steps(driver, since) == []


# --- Events of requests ---------------------------------------------------------------------------


@pytest.mark.parametrize("topic", [b"t", b"\x01" * 100], ids=["short names", "names to escape"])
def test_assignment_that_is_larger_when_it_is_decoded_is_bounded_as_its_event(driver, topic):
    """An int of four bytes becomes eleven characters in the event, a control character six."""
    leader, _ = completing(driver, a_member(driver), a_member(driver))
    one = (
        struct.pack(">h", len(topic))
        + topic
        + struct.pack(">iiii", 3, -(2**31), -(2**31), -(2**31))
    )
    for count in range(LIMIT // len(one), 0, -5):
        since = len(driver.steps)
        held = struct.pack(">hi", 0, count) + one * count + struct.pack(">i", -1)
        error = leader.sync({leader.member_id: held}).error
        assert large_steps(driver, since) == []
        if error is ErrorCode.NONE:
            break
    assert driver.state() == "Stable"


def test_join_that_offers_long_names_is_bounded_as_its_event(driver):
    """The event of a new member lists what it offers."""
    since = len(driver.steps)
    names = [f"{n}-" + "\x01" * 1_000 for n in range(30)]
    driver.join("g", version=3, protocols=protocols(*names))
    driver.advance(3_000)
    assert driver.everything_answered()
    assert large_steps(driver, since) == []


def test_leave_of_many_with_long_reasons_is_bounded_as_its_events(driver):
    members = a_stable_group(driver, members=5)
    since = len(driver.steps)
    driver.leave("g", *(LeavingMember(m.member_id, None, "\x01" * 2_000) for m in members))
    assert large_steps(driver, since) == []


def leave_of_all(driver, group_id, member_ids, most):
    """Remove all members with one request. No step so far is larger than allowed."""
    driver.leave(group_id, *(LeavingMember(each, None, None) for each in member_ids))
    assert not driver.shard.groups[group_id].members
    assert [encoded(*s.records, *s.events) for s in driver.steps[-1:]] <= [most]


LONG_IDS = pytest.mark.parametrize(
    "group_id", ["g" * 1_000, "\x01" * 1_000], ids=["long", "escaped"]
)


@LONG_IDS
def test_leave_of_all_members_of_a_consumer_group_with_a_long_id_is_bounded(make_driver, group_id):
    """Each record and each event of a member has the id of its group."""
    driver = make_driver(max_step_bytes=10 * LIMIT, consumer_assignment_interval_ms=0)
    members = []
    while len(members) < 100:
        member = ConsumerStub(driver, f"m{len(members)}", group_id=group_id)
        if member.join().error is not ErrorCode.NONE:
            break
        members.append(member)
    settle(driver, members, rounds=3)
    assert 3 < len(members) < 100
    leave_of_all(driver, group_id, [member.member_id for member in members], 10 * LIMIT)


@LONG_IDS
def test_leave_of_all_classic_members_of_a_consumer_group_with_a_long_id_is_bounded(
    make_driver, group_id
):
    driver = make_driver(max_step_bytes=10 * LIMIT, consumer_assignment_interval_ms=0)
    assert ConsumerStub(driver, "a", group_id=group_id).join().error is ErrorCode.NONE
    members = ["a"]
    while len(members) < 100:
        call = driver.join(group_id, f"m{len(members)}", protocols=subscribed())
        if call.error is not ErrorCode.NONE:
            break
        members.append(call.result.member_id)
    assert 3 < len(members) < 100
    leave_of_all(driver, group_id, members, 10 * LIMIT)


@LONG_IDS
def test_leave_of_all_members_of_a_classic_group_with_a_long_id_is_bounded(make_driver, group_id):
    driver = make_driver(max_step_bytes=10 * LIMIT)
    while len(driver.calls) < 100:
        call = driver.join(group_id, version=3)
        if call.reply is not None:
            break
    assert call.error is TOO_LARGE
    members = list(driver.shard.groups[group_id].members)
    assert len(members) > 3
    leave_of_all(driver, group_id, members, 10 * LIMIT)
