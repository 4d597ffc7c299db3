"""Who owned a partition and why, from events that the core has written."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.events import Assignment, Event
from groupkeeper.coordinator.core.requests.membership import JoinProtocol
from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from groupkeeper.storage.codec.events import Stamp, event_dict
from groupkeeper.storage.event_log.partition_owners import PartitionOwner, partition_owners
from tests.helpers.core.consumer_members import ConsumerStub, settle
from tests.helpers.core.shard_driver import MemberStub, ShardDriver, a_member, completing


@pytest.fixture
def driver() -> ShardDriver:
    return ShardDriver()


def owners(events: list[Event], partition: int) -> list[PartitionOwner]:
    """Who owned a partition of "orders". Each event is one millisecond after the last one."""
    rows = [event_dict(Stamp("log", seq, seq), seq, 0, 1, e) for seq, e in enumerate(events, 1)]
    return partition_owners(rows, "orders", partition)


def told(events: list[Event], partition: int) -> list[tuple]:
    """Each owner, why it got the partition, and why it lost it."""
    return [
        (owner.member_id, [(c.reason, c.member_id) for c in owner.causes], owner.ended_by)
        for owner in owners(events, partition)
    ]


SUBSCRIBED = (JoinProtocol("range", encode_subscription(Subscription(1, ["orders"], None, {}))),)


def assign(driver: ShardDriver, *members: MemberStub) -> list[str]:
    """Let members join and share the 12 partitions, and return their ids in this order."""
    ordered = completing(driver, *members)
    share = 12 // len(ordered)
    given = {
        member.member_id: encode_assignment(
            ConsumerAssignment(1, {"orders": [*range(at * share, at * share + share)]}, None)
        )
        for at, member in enumerate(ordered)
    }
    for member in ordered:
        member.sync(given if member.leads else None, protocol_type="consumer")
    return [member.member_id for member in ordered]


# --- consumer groups ---


def test_a_partition_moves_to_a_member_that_joins_and_back_when_it_leaves(driver) -> None:
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join()
    driver.advance(1_000)
    b.join()
    settle(driver, [a, b])
    b.leave()
    settle(driver, [a])
    assert told(driver.events, 11) == [
        ("a", [("member_join", "a")], "target_assignment"),
        ("b", [("member_join", "b")], "member_leave"),
        ("a", [("member_leave", "b")], ""),
    ]
    assert told(driver.events, 0) == [("a", [("member_join", "a")], "")]


def test_the_cause_is_that_of_the_target_which_moved_the_partition(driver) -> None:
    """Another epoch begins before the old owner has followed. It moves other partitions."""
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join(subscribed_topic_names=("orders", "payments"))
    driver.advance(1_000)
    b.join()
    driver.advance(1_000)
    b.beat(subscribed_topic_names=("orders", "payments"))
    settle(driver, [a, b])
    moved = [told(driver.events, number) for number in range(12)]
    assert ("b", [("member_join", "b")], "") in [owner for each in moved for owner in each]


def test_a_newer_target_with_the_same_owner_is_not_the_cause(driver) -> None:
    """A third member joins before the second one has its partitions. It gets only some of them."""
    a, b, c = (ConsumerStub(driver, name) for name in "abc")
    a.join()
    driver.advance(1_000)
    b.join()
    driver.advance(1_000)
    c.join()
    settle(driver, [a, b, c])
    for member in (b, c):
        owner = (member.member_id, [("member_join", member.member_id)], "")
        assert len(member.partitions()) == 4
        assert {told(driver.events, number)[-1] == owner for number in member.partitions()} == {
            True
        }


def test_an_evicted_member_loses_its_partitions_for_that_reason(driver) -> None:
    ConsumerStub(driver, "a").join()
    driver.advance(45_000)
    assert told(driver.events, 0) == [("a", [("member_join", "a")], "session_timeout")]


def test_a_static_member_that_comes_back_is_its_own_successor(driver) -> None:
    a = ConsumerStub(driver, "a", instance_id="i")
    a.join()
    a.leave(-2)
    a.member_id = "a2"
    a.join()
    assert told(driver.events, 0) == [
        ("a", [("member_join", "a")], "static_member_rejoin"),
        ("a2", [("static_member_rejoin", "a2")], ""),
    ]


def test_who_it_was_is_told_too(driver) -> None:
    ConsumerStub(driver, "a", instance_id="i").join()
    (owner,) = owners(driver.events, 0)
    assert (owner.client_id, owner.client_host, owner.instance_id) == ("app", "/10.0.0.1", "i")
    assert (owner.group_type, owner.until_ms) == ("consumer", None)


# --- classic groups ---


def test_a_classic_group_owns_from_assignment_to_assignment(driver) -> None:
    first, second = (a_member(driver, protocols=SUBSCRIBED) for _ in range(2))
    one, other = assign(driver, first, second)
    second_stub = first if first.member_id == other else second
    stays = second if second_stub is first else first
    second_stub.leave()
    driver.advance(1_000)
    assign(driver, stays)
    (before, after) = told(driver.events, 11)
    assert (before[0], before[2]) == (other, "member_leave")
    assert (after[0], after[1], after[2]) == (one, [("member_leave", other)], "")


def test_an_unreadable_assignment_ends_what_is_known(driver) -> None:
    known = Assignment(group_id="g", protocol_type="consumer", partitions={"m": {"orders": [0]}})
    opaque = Assignment(group_id="g", protocol_type="consumer", opaque_bytes={"m": 5})
    assert told([known, opaque], 0) == [("m", [], "unreadable")]


# --- groups that change their type ---


def test_an_owner_stays_the_owner_when_its_group_is_converted(driver) -> None:
    classic = a_member(driver, protocols=SUBSCRIBED)
    (one,) = assign(driver, classic)
    new = ConsumerStub(driver, "new")
    new.join()
    for _ in range(4):
        driver.advance(1_000)
        if classic.heartbeat().error:
            classic.joined(classic.join(protocols=SUBSCRIBED))
            classic.sync()
        new.acknowledge()
    new.leave()
    assert told(driver.events, 0)[0][0] == one
    assert [owner for owner, _, _ in told(driver.events, 11)][:2] == [one, "new"]
    assert told(driver.events, 11)[1][2] == "member_leave"
