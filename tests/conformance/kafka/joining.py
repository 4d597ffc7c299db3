"""Edge cases of joining: docs/spec/edge-cases.md#edge-1 to #edge-29."""

from __future__ import annotations

from tests.conformance.kafka.case import RANGE, SUBSCRIPTION, Case, edge
from tests.conformance.kafka.pair import PARKED
from tests.conformance.kafka.settings import (
    INITIAL_DELAY_MS,
    LONG_MS,
    MAX_SIZE,
    MIN_SESSION_MS,
    SHORT_MS,
)

STICKY = ("sticky", SUBSCRIPTION)
CHANGED = (("range", SUBSCRIPTION + b"x"),)


@edge(1, 2, 117)
def an_id_is_handed_out_first(case: Case) -> None:
    a, b = case.people("a", "b")
    answer = case.join(a)
    assert answer["error_code"] == (79 if case.v("join_group") >= 4 else 0)
    case.observe()
    case.heartbeat(a, generation=0)
    case.sync(a, generation=0)
    case.commit(a, generation=0)
    case.join(b, version=3)
    case.leave(a)
    case.join(a)
    case.join(a, version=9)
    case.observe()


@edge(3)
def a_static_member_needs_one_round_trip(case: Case) -> None:
    a, b = case.people("a", "b")
    assert case.join(a, version=case.v("join_group", 5), instance="i-1")["error_code"] == 0
    case.sync(a, {a: b"x"}, instance="i-1")
    case.join(b, instance="i-2")
    case.observe()


@edge(4)
def a_made_up_id_makes_no_group(case: Case) -> None:
    a = case.person("a")
    assert case.join(a, member_id="made-up")["error_code"] == 25
    assert case.join(a, member_id="made-up", instance="i-1")["error_code"] == 25
    case.describe(a, version=6)
    case.observe()


@edge(5, 8)
def a_first_join_with_bad_protocols_leaves_a_group(case: Case) -> None:
    a = case.person("a")
    assert case.join(a, protocols=())["error_code"] == 23
    case.describe(a, version=6)
    assert case.join(a, protocol_type="")["error_code"] == 23
    case.join(a, group_id=f"{case.group}-2", protocol_type="", protocols=())
    case.observe(case.group, f"{case.group}-2")
    case.enter(a)
    case.observe()


@edge(6, 7)
def timeouts_at_their_bounds(case: Case) -> None:
    a, b = case.people("a", "b")
    for session in (MIN_SESSION_MS - 1, 0, -1, 1_800_001, 2**31 - 1):
        assert case.join(a, session_timeout=session)["error_code"] == 26
        case.join(a, session_timeout=session, member_id="made-up")
    case.observe()
    case.enter(a, session_timeout=1_800_000)
    case.sync(a, {a: b"x"})
    # If a rebalance timeout is 0 or less, the largest one of all members counts.
    case.enter(b, rebalance_timeout=-1)
    case.join(a, rebalance_timeout=0, session_timeout=MIN_SESSION_MS)
    case.observe()


@edge(7)
def a_rebalance_timeout_below_zero_ends_the_join_at_once(case: Case) -> None:
    a, b = case.people("a", "b")
    case.enter(a, rebalance_timeout=-1)
    case.wait(200)  # the coordinator waits for the sync no longer than that
    case.sync(a, {a: b"x"})
    case.observe()
    case.enter(b, rebalance_timeout=-1)
    case.wait(200)
    case.observe()
    case.heartbeat(a)


@edge(9)
def the_second_joins_protocols_count(case: Case) -> None:
    a = case.person("a")
    case.join(a, protocols=(("first", b"1"),), session_timeout=LONG_MS)
    case.join(a, protocols=(("second", b"2"),), session_timeout=SHORT_MS)
    case.sync(a, {a: b"x"}, protocol_name="second")
    case.observe()


@edge(10)
def a_pending_id_that_never_returns_holds_the_group(case: Case) -> None:
    a, b, c = case.people("a", "b", "c")
    case.stable(a)
    case.join(b, session_timeout=SHORT_MS, version=case.v("join_group", 4))
    case.enter(c)
    assert case.join(a) is PARKED
    case.wait(SHORT_MS + 600)
    assert a.generations[0] == 2
    case.observe()


@edge(11)
def a_pending_id_with_an_instance_is_an_error(case: Case) -> None:
    a = case.person("a")
    case.join(a, version=case.v("join_group", 5))
    answer = case.join(a, version=case.v("join_group", 5), instance="i-1")
    assert answer["error_code"] == -1
    case.observe()
    case.join(a)
    case.observe()


@edge(12)
def a_group_is_deleted_under_a_pending_id(case: Case) -> None:
    a = case.person("a")
    case.join(a, version=case.v("join_group", 4))
    answer = case.send(a, "delete_groups", groups_names=[case.group])
    assert answer["results"][0]["error_code"] == 0
    assert case.join(a, version=case.v("join_group", 4))["error_code"] == 25
    case.observe()


@edge(12, small=True)
def a_group_expires_under_a_pending_id(case: Case) -> None:
    a = case.person("a")
    case.join(a, version=case.v("join_group", 4))
    case.wait(2_600)
    case.describe(a, version=6)
    assert case.join(a, version=case.v("join_group", 4))["error_code"] == 25


@edge(13, by_hand=True)
def a_new_member_is_parked_for_five_minutes_at_the_most(case: Case) -> None:
    a, b = case.people("a", "b")
    how = {"rebalance_timeout": 900_000, "session_timeout": 1_800_000}
    case.enter(a, **how)
    case.sync(a, {a: b"x"})
    case.enter(b, **how)
    case.wait(301_500)
    assert not b.waiting[0]
    case.observe()


@edge(13)
def a_new_member_is_heard_of_while_it_is_parked(case: Case) -> None:
    """Then its session counts and no longer the five minutes."""
    a, b, c, others = case.people("a", "b", "c", "others")
    case.stable(a)
    for person in (b, c):
        version = case.v("join_group", 4)
        assert case.enter(person, session_timeout=SHORT_MS, version=version) is PARKED
    case.wait(SHORT_MS + 600)
    heard_of = {"member_id": b.id, "generation": a.generation()}
    case.heartbeat(others, **heard_of)
    case.wait(SHORT_MS // 2)
    case.commit(others, **heard_of)
    case.wait(SHORT_MS + 600)
    assert not b.waiting[0]
    assert c.waiting[0]
    case.observe()


@edge(13)
def a_new_member_that_is_heard_of_once_while_it_is_parked(case: Case) -> None:
    """Nothing is sent after its heartbeat, and no timer of the id that was handed out runs any
    more: its session ends by itself.
    """
    a, b, others = case.people("a", "b", "others")
    case.stable(a)
    version = case.v("join_group", 4)
    assert case.enter(b, session_timeout=SHORT_MS, version=version) is PARKED
    case.wait(SHORT_MS + 600)
    case.heartbeat(others, member_id=b.id, generation=a.generation())
    case.wait(SHORT_MS + 600)
    assert not b.waiting[0]
    case.observe()


@edge(14)
def a_known_member_is_parked_beyond_its_session(case: Case) -> None:
    a, b = case.people("a", "b")
    case.stable(a, b, session_timeout=SHORT_MS)
    case.heartbeat(b)
    assert case.join(a, session_timeout=SHORT_MS, protocols=CHANGED) is PARKED
    case.heartbeat(b)
    case.wait(600)
    case.heartbeat(b)
    case.wait(700)
    case.heartbeat(b)
    case.observe()
    case.join(b, session_timeout=SHORT_MS)
    case.observe()


@edge(15, 16, 18)
def who_may_start_a_rebalance_by_joining_again(case: Case) -> None:
    a, b = case.people("a", "b")
    case.stable(a, b)
    assert case.join(b)["error_code"] == 0
    case.join(b, session_timeout=SHORT_MS, rebalance_timeout=SHORT_MS)
    case.observe()
    assert case.join(a) is PARKED  # the leader
    case.join(b)
    case.settle_in(a, b)
    assert case.join(b, protocols=CHANGED) is PARKED
    case.join(a)
    case.settle_in(a, b)
    assert case.join(b, protocols=(("range", SUBSCRIPTION), STICKY)) is PARKED
    case.join(a, protocols=(("range", SUBSCRIPTION), STICKY))
    case.settle_in(a, b)
    assert case.join(b, protocols=(STICKY, ("range", SUBSCRIPTION))) is PARKED
    case.join(a)
    case.observe()


@edge(17)
def a_join_repeated_before_the_sync(case: Case) -> None:
    a, b = case.people("a", "b")
    case.stable(a)
    case.enter(b)
    case.join(a)
    generation = a.generations[0]
    assert case.join(a)["generation_id"] == generation
    assert case.join(b)["generation_id"] == generation
    case.observe()
    case.join(b, protocols=CHANGED)
    case.observe()
    case.join(a)
    case.observe()


@edge(19, 20)
def a_newcomer_that_does_not_fit(case: Case) -> None:
    a, b = case.people("a", "b")
    case.stable(a)
    assert case.join(b, protocols=(STICKY,))["error_code"] == 23
    assert case.join(b, protocol_type="connect")["error_code"] == 23
    assert case.join(b, protocols=())["error_code"] == 23
    case.join(b, protocol_type="")
    case.join(a, protocol_type="connect")
    case.join(a, protocols=(STICKY,))
    case.observe()
    case.heartbeat(a)


@edge(21)
def a_new_member_names_a_protocol_twice(case: Case) -> None:
    case.join(case.person("a"), version=3, protocols=(*RANGE, *RANGE))
    case.wait(300)


@edge(21)
def a_protocol_named_twice(case: Case) -> None:
    """A known member's."""
    a = case.person("a")
    case.stable(a)
    case.join(a, protocols=(*RANGE, *RANGE))
    case.wait(300)


@edge()
def a_subscription_that_cannot_be_read(case: Case) -> None:
    """It says of five topics that they follow, and none does."""
    case.join(case.person("a"), version=3, protocols=(("range", b"\0\0\0\0\0\5"),))
    case.wait(300)


@edge(22, small=True)
def a_group_that_fills_up_between_two_joins(case: Case) -> None:
    a, b, late = case.people("a", "b", "late")
    case.reset(a)  # otherwise the expiry pass deletes the empty group
    case.join(late, version=case.v("join_group", 4))
    for person in (a, b):
        case.join(person, version=3)
    case.wait(2 * INITIAL_DELAY_MS)
    case.join(late, version=case.v("join_group", 4))
    case.join(late, member_id="")
    case.observe()
    # A member beyond the limit was removed. The members within it were not.
    case.settle_in(a, b)
    case.heartbeat(a)
    case.observe()


@edge(23, small=True)
def the_slowest_of_too_many_is_sent_away(case: Case) -> None:
    a, b, c = case.people("a", "b", "c")
    for person in (a, b):
        case.join(person, version=3)
    case.wait(2 * INITIAL_DELAY_MS)
    case.settle_in(a, b)
    case.join(a, protocols=CHANGED)
    case.join(c, version=3)
    answer = case.join(b)
    assert MAX_SIZE == 2
    assert answer["error_code"] == 81
    case.heartbeat(b)


@edge(24)
def a_member_joins_twice_at_once(case: Case) -> None:
    a, b, again = case.people("a", "b", "again")
    case.stable(a, b)
    case.join(a, protocols=CHANGED)
    case.join(again, member_id=a.id, protocols=CHANGED)  # only groupkeeper answers the older join
    case.join(b)
    case.observe()


@edge(25, small=True)
def the_initial_delay_is_waited_out(case: Case) -> None:
    a, keeper = case.people("a", "keeper")
    case.reset(keeper)  # otherwise the expiry pass deletes the empty group
    assert case.enter(a) is PARKED
    case.observe()
    case.wait(INITIAL_DELAY_MS + 500)
    assert a.generations[0] == 1
    case.observe()


@edge(26, small=True)
def newcomers_extend_the_initial_delay(case: Case) -> None:
    a, b = case.people("a", "b")
    case.join(a, version=3, rebalance_timeout=5 * INITIAL_DELAY_MS)
    case.wait(INITIAL_DELAY_MS // 2)
    case.join(b, version=3, rebalance_timeout=5 * INITIAL_DELAY_MS)
    case.wait(INITIAL_DELAY_MS * 3 // 4)  # half of the way to the second end of the delay
    case.observe()
    assert a.generations[0] == -1
    case.wait(INITIAL_DELAY_MS)
    case.observe()
    other = f"{case.group}-2"
    # The delay is not longer than the first member's rebalance timeout.
    c, d = case.people("c", "d")
    case.join(c, version=3, rebalance_timeout=INITIAL_DELAY_MS, group_id=other)
    case.wait(INITIAL_DELAY_MS // 2)
    case.join(d, version=3, rebalance_timeout=10 * INITIAL_DELAY_MS, group_id=other)
    case.wait(INITIAL_DELAY_MS)
    assert c.generations[0] == 1
    case.observe(other)


@edge(25, small=True)
def a_session_ends_in_the_initial_delay(case: Case) -> None:
    """Once all others are parked that ends the delay, which nothing else cuts short."""
    a, b, others = case.people("a", "b", "others")
    case.reset(others)  # otherwise the expiry pass deletes the empty group
    version = case.v("join_group", 4)
    for person in (a, b):
        timeouts = {"session_timeout": MIN_SESSION_MS, "rebalance_timeout": LONG_MS}
        assert case.enter(person, version=version, **timeouts) is PARKED
    case.heartbeat(others, member_id=b.id, generation=0)  # its session begins with this
    case.wait(2 * MIN_SESSION_MS)
    assert not b.waiting[0]
    assert a.generations[0] == 1
    case.observe()


@edge(27, small=True)
def the_only_member_leaves_in_the_initial_delay(case: Case) -> None:
    a, b = case.people("a", "b")
    case.reset(b)  # otherwise the expiry pass deletes the empty group
    case.join(a, version=5, instance="i-1")
    case.leave(b, ("", "i-1"), version=case.v("leave_group", 3))
    case.observe()
    case.wait(INITIAL_DELAY_MS + 500)
    case.observe()
    case.enter(b)
    case.wait(INITIAL_DELAY_MS + 500)
    case.observe()


@edge(28)
def another_leads_where_the_leader_stays_away(case: Case) -> None:
    a, b = case.people("a", "b")
    how = {"rebalance_timeout": SHORT_MS, "version": case.v("join_group", 1)}
    case.stable(a, b, **how)
    case.join(b, protocols=CHANGED, **how)
    case.wait(SHORT_MS + 500)
    assert b.leaders[0] == b.ids[0][-1]
    case.heartbeat(a)
    case.observe()


@edge(29)
def absent_static_members_hold_the_join_open(case: Case) -> None:
    a, b = case.people("a", "b")
    version = case.v("join_group", 5)
    how = {"version": version, "rebalance_timeout": SHORT_MS}
    case.join(a, instance="i-1", **how)
    case.sync(a, {a: b"x"})
    case.enter(b, **how)
    case.join(a, instance="i-1", **how)
    case.settle_in(a, b)
    case.leave(b)
    case.wait(SHORT_MS + 500)
    case.observe()
    case.heartbeat(a, instance="i-1")
    case.wait(SHORT_MS)
    case.observe()
    case.join(a, instance="i-1", **how)
    case.observe()
