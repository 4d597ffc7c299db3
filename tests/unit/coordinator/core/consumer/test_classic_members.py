"""Members of a consumer group that change from one protocol to the other under the same id."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.consumer import assignment_work
from groupkeeper.coordinator.core.consumer.pattern_work import PatternMatches
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberEvicted, MemberLeave
from groupkeeper.coordinator.core.requests.membership import JoinProtocol
from groupkeeper.protocol.consumer_protocol import Subscription, encode_subscription
from tests.helpers.core.consumer_members import ConsumerStub, describe_consumer, settle
from tests.helpers.core.mixed_groups import mixed, partitions_of, rejoin, subscribed
from tests.helpers.core.shard_driver import a_member

NONE = ErrorCode.NONE


@pytest.fixture
def computes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment_work, "LARGE_US", -1)


def test_an_id_that_a_consumer_group_hands_out_is_not_reserved(driver):
    """docs/spec/edge-cases.md#edge-113; testJoiningConsumerGroupWithNewDynamicMember."""
    consumer = ConsumerStub(driver, "a")
    consumer.join()
    before = driver.shard.saved("g"), driver.list_groups()
    call = driver.join("g", "", protocols=subscribed(), version=4)
    assert call.error is ErrorCode.MEMBER_ID_REQUIRED
    handed_out = call.result.member_id
    assert handed_out
    assert (driver.shard.saved("g"), driver.list_groups()) == before
    assert driver.heartbeat("g", handed_out, 2).error is ErrorCode.UNKNOWN_MEMBER_ID
    (left,) = driver.leave("g", handed_out).result.members
    assert left.error is ErrorCode.UNKNOWN_MEMBER_ID
    for member_id in (handed_out, "made up"):
        assert driver.join("g", member_id, protocols=subscribed(), version=4).error is NONE


@pytest.mark.usefixtures("computes_elsewhere")
def test_a_heartbeat_that_waits_is_answered_when_its_member_joins_by_the_classic_protocol(driver):
    waiting = ConsumerStub(driver, "a").join()
    other = ConsumerStub(driver, "b")
    other.join()
    assert waiting.parked
    assert driver.join("g", "a", protocols=subscribed()).error is NONE
    assert waiting.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    other.leave()
    assert driver.list_groups()["g"].group_type == "classic"
    assert driver.everything_answered()


@pytest.mark.usefixtures("computes_elsewhere")
def test_a_static_member_that_changed_its_protocol_while_it_waited_can_be_replaced(driver):
    waiting = ConsumerStub(driver, "a", instance_id="i").join()
    join = driver.join("g", "a", group_instance_id="i", protocols=subscribed())
    assert join.error is NONE
    assert waiting.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    next_one = ConsumerStub(driver, "b", instance_id="i").join()
    assert next_one.parked, "the first target is not computed yet"
    del driver.work[0]  # of the group before it was converted
    (work,) = driver.work
    assert isinstance(work, assignment_work.AssignmentWork)
    driver.finish_work(assignment_work.compute(work.assignor, work.spec))
    assert next_one.error is NONE
    assert next_one.result.member_epoch > 0


@pytest.mark.usefixtures("computes_elsewhere")
def test_a_heartbeat_that_waits_is_answered_when_a_classic_member_replaces_its_member(driver):
    waiting = ConsumerStub(driver, "a", instance_id="i").join()
    ConsumerStub(driver, "b").join()
    assert waiting.parked
    assert rejoin(a_member(driver, instance_id="i")).error is NONE
    assert waiting.error is ErrorCode.FENCED_INSTANCE_ID
    assert "a" not in driver.shard.groups["g"].members


def test_a_classic_member_keeps_its_rack_until_it_names_another(driver):
    ConsumerStub(driver, "a").join()
    for version, rack_id, expected in (
        (3, "r", "r"),
        (1, None, "r"),
        (3, None, "r"),
        (3, "s", "s"),
    ):
        metadata = encode_subscription(Subscription(version, ["orders"], rack_id=rack_id))
        assert driver.join("g", "b", protocols=(JoinProtocol("range", metadata),)).error is NONE
        assert driver.shard.groups["g"].members["b"].fields.rack_id == expected


def test_a_protocol_must_be_supported_by_all_classic_members(driver):
    """docs/spec/migration.md#classic-requests."""
    mixed(driver)
    (only_range,) = subscribed()
    own = JoinProtocol("own", only_range.metadata)
    assert driver.join("g", "y", protocols=(own, only_range)).error is NONE
    refused = driver.join("g", "z", protocols=(own,))
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.join("g", "z", protocols=(only_range,)).error is NONE


def test_a_member_that_leaves_the_classic_protocol_has_no_more_classic_deadlines(driver):
    consumer, classic = mixed(driver)
    rejoin(classic)  # from now on a SyncGroup is expected
    changed = ConsumerStub(driver, classic.member_id)
    assert changed.join().error is NONE
    settle(driver, [consumer, changed], rounds=100)
    assert driver.events_of(MemberEvicted) == []
    assert len(consumer.partitions() | changed.partitions()) == 12


def test_a_member_that_leaves_the_classic_protocol_keeps_the_time_to_give_partitions_up(driver):
    consumer, classic = mixed(driver)
    owned = partitions_of(classic.sync())
    newcomer = ConsumerStub(driver, "b")
    newcomer.join()
    rejoin(classic, *owned)  # told to give up some
    changed = ConsumerStub(driver, classic.member_id, epoch=classic.generation_id)
    for _ in range(60):
        changed.beat()  # reports nothing
        driver.advance(1_000)
        consumer.acknowledge()
        newcomer.acknowledge()
    assert [event.reason for event in driver.events_of(MemberEvicted)] == ["rebalance_timeout"]


def test_a_classic_member_that_waits_joins_again_only_when_its_partitions_are_free(driver):
    consumer = ConsumerStub(driver, "a")
    consumer.join()
    driver.advance(1_000)
    classic = a_member(driver)
    rejoin(classic)
    assert partitions_of(classic.sync()) == set()
    consumer.beat()  # told to give up one half
    assert classic.heartbeat().error is NONE
    consumer.acknowledge()
    assert classic.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_member_that_waits_for_a_partition_gets_it_after_a_conversion(driver):
    """The static member that had to give it up is replaced before it did. So the group becomes a
    classic one, in which nobody asks for partitions again without a rebalance.
    """
    static = ConsumerStub(driver, "a", instance_id="i")
    static.join()
    driver.advance(1_000)
    waiting = a_member(driver)
    rejoin(waiting)
    static.beat()  # told to give up one half
    rejoin(waiting)
    assert len(partitions_of(waiting.sync())) == 0
    static.leave(-2)
    replacing = a_member(driver, instance_id="i")
    rejoin(replacing)
    assert driver.list_groups()["g"].group_type == "classic"
    assert waiting.heartbeat().error is not NONE


def test_a_classic_member_does_not_inherit_the_pattern_of_the_member_that_it_replaces(driver):
    """It would get partitions of topics that it does not subscribe to."""
    static = ConsumerStub(driver, "a", topics=None, instance_id="i")
    static.join(subscribed_topic_names=(), subscribed_topic_regex="o.*|p.*")
    driver.finish_work(PatternMatches(0, {"o.*|p.*": ("orders", "payments")}))
    ConsumerStub(driver, "b").join()
    static.leave(-2)
    replacing = a_member(driver, instance_id="i")
    driver.advance(1_000)
    rejoin(replacing)
    (member,) = [m for m in describe_consumer(driver).members if m.is_classic]
    assert member.subscribed_topic_names == ("orders",)
    assert not member.subscribed_topic_regex
    assert not driver.shard.groups["g"].subscriptions.resolved


def test_a_member_that_changes_its_protocol_still_votes_for_its_assignor(driver):
    consumer = ConsumerStub(driver, "a")
    consumer.join(server_assignor="range")
    ConsumerStub(driver, "b").join()
    driver.join("g", "a", protocols=subscribed())
    assert describe_consumer(driver).assignor_name == "range"


def test_a_classic_member_that_joined_in_time_stays(driver):
    """It needs no longer than its rebalance timeout for the join, however long the group lives."""
    consumer, classic = mixed(driver)
    other = ConsumerStub(driver, "b")
    other.join()
    driver.advance(1_000)
    other.beat()
    assert classic.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(100):
        settle(driver, [consumer, other], rounds=1)
        if classic.heartbeat().error is not NONE:
            rejoin(classic)
            classic.sync()
    assert driver.events_of(MemberEvicted) == []


def test_a_classic_member_has_time_to_give_up_from_the_heartbeat_that_tells_it(driver):
    classic = a_member(driver, rebalance_timeout_ms=5_000)
    consumer, other = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    consumer.join()
    driver.advance(1_000)
    rejoin(classic)
    settle(driver, [consumer], rounds=2)
    rejoin(classic)
    kept = partitions_of(classic.sync())
    assert len(kept) == 6
    other.join()
    driver.advance(1_000)
    consumer.beat()  # computes the target
    assert classic.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin(classic, *kept)  # it has to give up two of them
    classic.sync()
    driver.advance(4_000)
    assert classic.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(4_000)
    assert classic.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(2_000)
    assert classic.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert [event.reason for event in driver.events_of(MemberEvicted)] == ["join_timeout"]


def test_a_member_that_a_leave_group_names_twice_leaves_once(driver):
    ConsumerStub(driver, "a").join()
    ConsumerStub(driver, "b").join()
    call = driver.leave("g", "a", "a")
    assert [each.error for each in call.result.members] == [NONE, NONE]
    assert [event.member_id for event in driver.events_of(MemberLeave)] == ["a"]
