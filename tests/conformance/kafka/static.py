"""Edge cases of static members: docs/spec/edge-cases.md#edge-53 to #edge-59."""

from __future__ import annotations

from tests.conformance.kafka.case import SUBSCRIPTION, Case, edge
from tests.conformance.kafka.pair import PARKED, Person
from tests.conformance.kafka.settings import SHORT_MS

CHANGED = (("range", SUBSCRIPTION + b"x"),)


def static_pair(case: Case) -> tuple[Person, Person]:
    """A stable group of two static members; the first leads."""
    a, b = case.people("a", "b")
    version = case.v("join_group", 5)
    case.join(a, version=version, instance="i-a")
    case.sync(a, {a: b"1"}, instance="i-a")
    case.join(b, version=version, instance="i-b")
    case.join(a, version=version, instance="i-a")
    case.sync(b, instance="i-b")
    case.sync(a, {a: b"1", b: b"2"}, instance="i-a")
    return a, b


@edge(53, 54, 59)
def a_static_leader_comes_back(case: Case) -> None:
    a, _ = static_pair(case)
    version = case.v("join_group", 5)
    for _round in range(2):
        generation = a.generations[0]
        answer = case.join(a, member_id="", version=version, instance="i-a")
        assert answer["generation_id"] == generation
        assert answer.get("skip_assignment", False) == (version >= 9)
        case.sync(a, instance="i-a")
        case.heartbeat(a, instance="i-a")
        case.observe()
    # a join with the member id causes a rebalance
    assert case.join(a, version=version, instance="i-a") is PARKED
    case.observe()


@edge(53, 59)
def a_static_follower_comes_back(case: Case) -> None:
    _, b = static_pair(case)
    version = case.v("join_group", 5)
    case.join(b, member_id="", version=version, instance="i-b")
    case.sync(b, instance="i-b")
    case.join(b, version=version, instance="i-b")
    case.heartbeat(b, member_id=b.old_id, instance="i-b", version=3)
    case.heartbeat(b, member_id=b.old_id)
    case.observe()


@edge(55)
def a_static_member_comes_back_with_other_topics(case: Case) -> None:
    a, b = static_pair(case)
    version = case.v("join_group", 5)
    case.join(b, member_id="", version=version, instance="i-b", protocols=CHANGED)
    case.observe()
    case.join(a, member_id="", version=version, instance="i-a", protocols=CHANGED)
    case.observe()
    both = (("range", SUBSCRIPTION), ("sticky", SUBSCRIPTION))
    case.join(b, member_id="", version=version, instance="i-b", protocols=both)
    case.observe()
    case.join(b, member_id="", version=version, instance="i-b", protocols=both[1:])
    case.observe()


@edge(56)
def a_static_member_comes_back_before_the_sync(case: Case) -> None:
    a, b = static_pair(case)
    version = case.v("join_group", 5)
    case.join(a, version=version, instance="i-a")
    case.join(b, version=version, instance="i-b")
    case.sync(b, instance="i-b")
    b2 = case.person("b2")
    case.join(b2, version=version, instance="i-b")
    case.observe()
    case.heartbeat(a, instance="i-a")
    case.join(a, version=version, instance="i-a")
    case.observe()


@edge(57)
def two_with_one_instance_id(case: Case) -> None:
    a, b = static_pair(case)
    version = case.v("join_group", 5)
    other = case.person("other")
    case.join(other, version=version, instance="i-b")
    instance = {"instance": "i-b"}
    case.heartbeat(b, version=case.v("heartbeat", 3), **instance)
    case.sync(b, version=case.v("sync_group", 3), **instance)
    case.join(b, version=version, **instance)
    case.commit(b, version=case.v("offset_commit", 7), group_instance_id="i-b")
    case.leave(b, (b.id, "i-b"), version=case.v("leave_group", 3))
    case.heartbeat(b)
    case.commit(b, version=case.v("offset_commit", 7))
    case.observe()
    # The older one waits in a join, then in a sync.
    case.join(a, version=version, instance="i-a")
    case.join(case.person("third"), version=version, instance="i-a")
    assert not a.waiting[0]
    case.observe()


@edge(57)
def two_with_one_instance_id_of_which_one_waits_to_sync(case: Case) -> None:
    a, b = static_pair(case)
    version = case.v("join_group", 5)
    case.join(a, version=version, instance="i-a")
    case.join(b, version=version, instance="i-b")
    assert case.sync(b, instance="i-b") is PARKED
    case.join(case.person("other"), version=version, instance="i-b")
    assert not b.waiting[0]
    case.observe()


@edge(58)
def a_member_id_with_an_instance_never_seen(case: Case) -> None:
    a, _ = static_pair(case)
    version = case.v("join_group", 5)
    assert case.join(a, version=version, instance="i-x")["error_code"] == 25
    case.join(a, version=version, instance="i-b")
    case.join(a, version=version, instance="i-b", member_id="made-up")
    case.join(a, version=version)
    case.observe()


@edge(29, 57)
def a_static_member_stays_away_until_its_session_ends(case: Case) -> None:
    a, b = case.people("a", "b")
    version = case.v("join_group", 5)
    case.join(a, version=version, instance="i-a", session_timeout=2 * SHORT_MS)
    case.sync(a, {a: b"1"}, instance="i-a")
    case.join(b, version=version, instance="i-b", rebalance_timeout=SHORT_MS)
    how = {"version": version, "instance": "i-a", "session_timeout": 2 * SHORT_MS}
    case.join(a, rebalance_timeout=SHORT_MS, **how)
    case.sync(a, {a: b"1", b: b"2"}, instance="i-a")
    case.sync(b, instance="i-b")
    case.join(b, version=version, instance="i-b", protocols=CHANGED, rebalance_timeout=SHORT_MS)
    case.wait(SHORT_MS + 500)  # a has not joined, and stays a member
    case.observe()
    case.wait(2 * SHORT_MS)  # and gone
    case.observe()
    case.heartbeat(b, instance="i-b")


@edge(59)
def a_static_member_comes_back_with_another_session_timeout(case: Case) -> None:
    """Until its first heartbeat the former one holds."""
    a, b = static_pair(case)
    version = case.v("join_group", 5)
    how = {"version": version, "member_id": "", "session_timeout": SHORT_MS}
    case.join(b, instance="i-b", **how)
    case.wait(SHORT_MS + 500)
    case.observe()
    case.heartbeat(b, instance="i-b", version=case.v("heartbeat", 3))
    case.wait(SHORT_MS + 500)
    case.observe()
    case.heartbeat(a, instance="i-a")


@edge(40)
def a_session_ends_with_the_time_to_sync(case: Case) -> None:
    """Of both at one moment the session comes first: the other member has not failed to sync."""
    a, b = case.people("a", "b")
    version = case.v("join_group", 5)
    how = {"version": version, "rebalance_timeout": SHORT_MS}
    case.join(b, instance="i-b", **how)
    case.sync(b, {b: b"1"}, instance="i-b")
    case.join(a, instance="i-a", session_timeout=SHORT_MS, **how)
    case.join(b, instance="i-b", **how)
    case.sync(b, {b: b"1"}, instance="i-b")
    case.sync(a, instance="i-a")
    case.wait(SHORT_MS // 5)
    case.join(a, instance="i-a", session_timeout=SHORT_MS, protocols=CHANGED, **how)
    case.join(b, instance="i-b", **how)
    case.wait(SHORT_MS + 500)
    case.observe()
