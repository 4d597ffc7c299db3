"""Edge cases of syncs, heartbeats and leaving: docs/spec/edge-cases.md#edge-30 to #edge-52,
#edge-117 and #edge-118.
"""

from __future__ import annotations

from tests.conformance.kafka.case import SUBSCRIPTION, Case, edge
from tests.conformance.kafka.pair import PARKED
from tests.conformance.kafka.settings import LONG_MS, SHORT_MS

CHANGED = (("range", SUBSCRIPTION + b"x"),)


@edge(30, 32, 33)
def a_follower_syncs_before_its_leader(case: Case) -> None:
    a, b, c = case.people("a", "b", "c")
    case.stable(a)
    case.enter(b)
    case.enter(c)
    case.join(a)
    case.join(b)
    case.join(c)
    if b.waiting[0]:
        case.wait_for(b)
    assert case.sync(b) is PARKED
    # The leader leaves out c, names an unknown id, and names one id twice.
    case.send(
        a,
        "sync_group",
        generation_id=a.generation(),
        member_id=a.id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            {"member_id": a.id, "assignment": b"1"},
            {"member_id": "nobody", "assignment": b"2"},
            {"member_id": b.id, "assignment": b"3"},
            {"member_id": b.id, "assignment": b"4"},
        ],
    )
    assert case.sync(c)["assignment"] == b""
    case.observe()


@edge(31)
def a_member_syncs_twice_at_once(case: Case) -> None:
    a, b, again = case.people("a", "b", "again")
    case.stable(a)
    case.enter(b)
    case.join(a)
    assert case.sync(b) is PARKED
    # only groupkeeper answers the older sync
    how = {"member_id": b.id, "generation": b.generation()}
    assert case.sync(again, **how) is PARKED
    case.sync(a, {a: b"1", b: b"2"})
    case.observe()


@edge(31)
def a_follower_syncs_after_its_leader(case: Case) -> None:
    a, b = case.people("a", "b")
    case.stable(a)
    case.enter(b)
    case.join(a)
    case.sync(a, {a: b"1", b: b"2"})
    assert case.sync(b, {b: b"its own"})["assignment"] == b"2"
    case.sync(b)
    case.sync(a, {a: b"another"})
    case.observe()


@edge(34, 35)
def syncs_that_name_another_protocol(case: Case) -> None:
    a = case.person("a")
    case.stable(a)
    version = case.v("sync_group")
    for kind, name in (
        (None, "range"),
        ("consumer", None),
        (None, None),
        ("connect", "range"),
        ("consumer", "sticky"),
        ("", ""),
    ):
        answer = case.sync(a, protocol_type=kind, protocol_name=name)
        assert answer["error_code"] == (23 if version >= 5 else 0)
        case.sync(a, protocol_type=kind, protocol_name=name, member_id="other")
        case.sync(a, protocol_type=kind, protocol_name=name, group_id="")
    case.observe()


@edge(36, 37)
def syncs_out_of_place(case: Case) -> None:
    a, b = case.people("a", "b")
    case.sync(a, generation=1, member_id="x")
    case.reset(b)
    assert case.sync(a, generation=0, member_id="x")["error_code"] == 25
    case.stable(a)
    case.enter(b)
    assert case.sync(a)["error_code"] == 27
    # A wrong protocol is reported before the rebalance is.
    other = case.sync(a, protocol_name="sticky")
    assert other["error_code"] == (23 if case.v("sync_group") >= 5 else 27)
    case.join(a)
    for more in (-1, 1):
        assert case.sync(a, generation=a.generation(more))["error_code"] == 22
        assert case.sync(a, generation=a.generation(more), member_id="x")["error_code"] == 25
    case.sync(a, member_id="")
    case.sync(a, instance="i-1")
    case.observe()


@edge(38)
def a_newcomer_breaks_up_a_sync(case: Case) -> None:
    a, b, c = case.people("a", "b", "c")
    case.stable(a)
    case.enter(b)
    case.join(a)
    assert case.sync(b) is PARKED
    case.enter(c)
    assert not b.waiting[0]
    case.sync(a, {a: b"1"})
    case.observe()
    case.join(a)
    case.join(b)
    case.observe()


@edge(40)
def a_follower_that_never_syncs_is_removed(case: Case) -> None:
    a, b = case.people("a", "b")
    how = {"rebalance_timeout": SHORT_MS, "session_timeout": 10_000}
    case.enter(a, **how)
    case.sync(a, {a: b"1"})
    case.enter(b, **how)
    case.join(a, **how)
    version = case.v("join_group")
    case.sync(a, {a: b"1", b: b"2"})
    case.observe()
    case.wait(SHORT_MS + 500 if version else 10_500)
    case.heartbeat(a)
    case.observe()
    case.heartbeat(b)
    case.join(a, **how)
    case.observe()


@edge(40)
def a_leader_that_never_syncs_is_removed(case: Case) -> None:
    a, b = case.people("a", "b")
    how = {"rebalance_timeout": SHORT_MS, "session_timeout": 3_000}
    case.enter(a, **how)
    case.sync(a, {a: b"1"})
    case.enter(b, **how)
    case.join(a, **how)
    assert case.sync(b) is PARKED
    case.wait(SHORT_MS + 500 if case.v("join_group") else 3_500)
    assert not b.waiting[0]
    case.heartbeat(a)
    case.observe()
    case.join(b, **how)
    case.observe()


@edge(41, 42, 43, 45)
def heartbeats_in_every_state(case: Case) -> None:
    a, b = case.people("a", "b")
    assert case.heartbeat(a, generation=0, member_id="x")["error_code"] == 25
    case.heartbeat(a, group_id="", generation=0, member_id="x")
    case.enter(a)
    assert case.heartbeat(a)["error_code"] == 0  # CompletingRebalance
    case.sync(a, {a: b"1"})
    for more in (0, -1, 1):
        case.heartbeat(a, generation=a.generation(more))
    case.heartbeat(a, generation=-1)
    case.heartbeat(a, member_id="")
    case.heartbeat(a, member_id="other", generation=a.generation(1))
    version = case.v("heartbeat", 3)
    assert case.heartbeat(a, version=version, instance="i-1", generation=7)["error_code"] == 25
    case.join(b, version=5, instance="i-2")
    assert case.heartbeat(a)["error_code"] == 27  # PreparingRebalance
    assert case.heartbeat(a, version=version, instance="i-2", generation=7)["error_code"] == 82
    case.leave(a)
    case.leave(a, ("", "i-2"), version=3)
    case.heartbeat(a)  # Empty
    case.observe()


@edge(42)
def heartbeats_keep_alive_in_a_rebalance(case: Case) -> None:
    a, b = case.people("a", "b")
    version = case.v("join_group", 1)
    case.enter(a, session_timeout=SHORT_MS, rebalance_timeout=LONG_MS, version=version)
    case.sync(a, {a: b"1"})
    case.enter(b)
    for _ in range(3):
        case.wait(SHORT_MS // 2)
        assert case.heartbeat(a)["error_code"] == 27
    case.observe()
    case.wait(SHORT_MS + 500)
    assert not b.waiting[0]
    assert case.heartbeat(a)["error_code"] == 25
    case.observe()


@edge(46, 47, 48)
def leaving_of_good_and_bad(case: Case) -> None:
    a, b = case.people("a", "b")
    case.leave(b, ("x", None))
    case.leave(b, ("x", None), ("", None), ("", "i"), group_id="")
    case.stable(a)
    case.leave(b, ("x", None))
    case.leave(b, ("", None))
    case.leave(b, ("x", None), (a.id, None), (a.id, None), version=case.v("leave_group", 3))
    case.heartbeat(a)
    case.observe()
    case.send(b, "leave_group", max(3, case.v("leave_group")), members=[])
    case.leave(b, ("", None), version=case.v("leave_group", 3))
    case.enter(b)
    case.observe()


@edge(49)
def leaving_by_instance(case: Case) -> None:
    a, b, c = case.people("a", "b", "c")
    version = case.v("join_group", 5)
    case.join(a, version=version, instance="i-1")
    case.sync(a, {a: b"1"}, instance="i-1")
    leave = case.v("leave_group", 3)
    case.leave(c, ("x", "i-1"), (a.id, "i-2"), ("", "i-2"), version=leave)
    case.observe()
    answer = case.leave(c, ("", "i-1"), ("", "i-1"), version=leave)
    assert answer["members"][0]["member_id"] == ""
    case.heartbeat(a)
    case.heartbeat(a, version=3, instance="i-1")
    case.observe()
    case.join(b, version=version, instance="i-1")
    case.leave(c, (b.id, "i-1"), version=leave)
    case.observe()


@edge(50)
def leaving_of_a_pending_id_ends_the_join(case: Case) -> None:
    a, b, c = case.people("a", "b", "c")
    case.stable(a)
    case.join(b, version=case.v("join_group", 4))
    case.enter(c)
    assert case.join(a) is PARKED
    case.leave(b)
    assert not a.waiting[0]
    case.observe()
    case.join(b, version=case.v("join_group", 4))


@edge(51)
def leaving_of_the_last_member(case: Case) -> None:
    a, b, c = case.people("a", "b", "c")
    case.stable(a)
    case.commit(a)
    case.leave(a)
    case.observe()
    case.heartbeat(a)
    assert case.enter(b)["generation_id"] == 3
    case.leave(b)  # before the sync
    case.observe()
    case.enter(c)
    case.observe()


@edge(52)
def leaving_of_a_member_that_waits_to_join(case: Case) -> None:
    a, b, c = case.people("a", "b", "c")
    case.stable(a, b)
    assert case.join(a) is PARKED
    case.leave(c, (a.id, None))
    assert not a.waiting[0]
    case.observe()
    case.join(b)
    case.observe()


@edge(118)
def leaving_of_a_member_that_waits_to_sync(case: Case) -> None:
    a, b, c = case.people("a", "b", "c")
    case.stable(a, b)
    case.join(b, protocols=CHANGED)
    case.join(a)
    assert case.sync(b) is PARKED
    case.leave(c, (b.id, None))  # groupkeeper answers, Kafka never does
    case.observe()


@edge(40)
def a_session_that_ends(case: Case) -> None:
    a, b = case.people("a", "b")
    case.stable(a, b, session_timeout=2 * SHORT_MS)
    case.commit(b)
    case.wait(SHORT_MS)
    case.heartbeat(a)
    case.wait(SHORT_MS + 500)
    assert case.heartbeat(a)["error_code"] == 27
    assert case.heartbeat(b)["error_code"] == 25
    case.observe()
    case.wait(2 * SHORT_MS + 500)
    case.observe()
    case.heartbeat(a)
