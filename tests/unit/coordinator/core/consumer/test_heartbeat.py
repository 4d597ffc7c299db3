"""Members of consumer groups: they join, follow their target and leave.

See docs/spec/consumer-groups.md and docs/spec/edge-cases.md#edge-85 to #edge-98. Tests that are
ported from Kafka's GroupMetadataManagerTest name it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from groupkeeper.coordinator.core.cluster.group_configs import GroupOverrides
from groupkeeper.coordinator.core.consumer_records import ConsumerGroupEpoch, ConsumerTarget
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    GroupCreated,
    MemberEvicted,
    MemberJoin,
    MemberLeave,
    PartitionsMoved,
    RebalanceEnd,
    RebalanceStart,
    TargetAssignment,
)
from groupkeeper.coordinator.core.requests.client import Client
from tests.helpers.core.consumer_members import (
    ConsumerStub,
    a_consumer_heartbeat,
    describe_consumer,
    settle,
)
from tests.helpers.core.shard_driver import ORDERS, PAYMENTS, TopicInfo

if TYPE_CHECKING:
    from tests.helpers.core.shard_driver import ShardDriver

NONE = ErrorCode.NONE
ALL = set(range(12))


def state(driver: ShardDriver) -> str:
    return describe_consumer(driver).state


def test_first_member_gets_epoch_2_and_every_partition(driver) -> None:
    """docs/spec/edge-cases.md#edge-85; testMemberJoinsEmptyConsumerGroup."""
    a = ConsumerStub(driver, "a")
    call = a.join()
    assert (call.result.member_id, a.epoch, call.result.heartbeat_interval_ms) == ("a", 2, 5_000)
    assert a.held == {ORDERS.topic_id: [*range(12)]}
    assert state(driver) == "Stable"
    assert [type(event) for event in driver.events] == [
        GroupCreated,
        MemberJoin,
        RebalanceStart,
        TargetAssignment,
        PartitionsMoved,
        RebalanceEnd,
    ]
    assert all(event.group_type == "consumer" for event in driver.events)


def test_version_0_gets_an_id_from_the_server(driver) -> None:
    call = ConsumerStub(driver, "").join(new_member_id="minted")
    assert call.result.member_id == "minted"


def test_first_member_without_topics_gets_epoch_1_and_nothing(driver) -> None:
    """docs/spec/edge-cases.md#edge-97."""
    a = ConsumerStub(driver, "a", topics=())
    assert a.join().result.assignment == ()
    assert a.epoch == 1
    assert state(driver) == "Stable"


def test_a_topic_that_does_not_exist_gives_nothing_until_it_is_created(driver) -> None:
    """docs/spec/edge-cases.md#edge-96."""
    a = ConsumerStub(driver, "a", topics=("later",))
    assert a.join().result.assignment == ()
    assert a.epoch == 2
    driver.change_topics(ORDERS, PAYMENTS, TopicInfo("later", "L" * 22, 3))
    driver.advance(1_000)
    a.beat()
    assert (a.epoch, a.held) == (3, {"L" * 22: [0, 1, 2]})


def test_a_changed_topic_of_others_begins_no_epoch(driver) -> None:
    a = ConsumerStub(driver, "a")
    a.join()
    driver.change_topics(ORDERS, TopicInfo("payments", PAYMENTS.topic_id, 40))
    driver.advance(1_000)
    a.beat()
    assert a.epoch == 2


def test_a_heartbeat_without_news_writes_nothing_and_waits_for_nothing(driver) -> None:
    a = ConsumerStub(driver, "a")
    a.join()
    records = len(driver.records)
    call = a.beat()
    assert (a.epoch, call.result.assignment, call.reply.waits) == (2, None, False)
    assert len(driver.records) == records


@pytest.mark.parametrize("timeout_ms", [60_000, 0, -2])  # only -1 says nothing
def test_a_full_heartbeat_is_told_everything(driver, timeout_ms: int) -> None:
    """docs/spec/edge-cases.md#edge-89; testConsumerGroupHeartbeatFullResponse."""
    a = ConsumerStub(driver, "a")
    a.join()
    call = a.beat(
        rebalance_timeout_ms=timeout_ms, subscribed_topic_names=("orders",), owned=a.owned()
    )
    assert call.result.assignment == ((ORDERS.topic_id, tuple(range(12))),)
    assert call.reply.waits


def test_a_heartbeat_without_its_partitions_is_not_told_the_assignment(driver) -> None:
    """Its sender asks for nothing: it only repeats its timeout and its topics."""
    a = ConsumerStub(driver, "a")
    a.join()
    call = a.beat(rebalance_timeout_ms=60_000, subscribed_topic_names=("orders",))
    assert (call.error, call.result.assignment) == (NONE, None)


def test_a_second_member_gets_its_share_when_the_first_one_has_given_it_up(driver) -> None:
    """testReconciliationProcess; docs/spec/edge-cases.md#edge-88."""
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join()
    driver.advance(1_000)
    assert b.join().result.assignment == ()
    assert b.epoch == 3
    assert state(driver) == "Reconciling"
    a.beat()
    assert (a.epoch, len(a.partitions())) == (2, 6)
    assert b.beat().result.assignment is None
    assert a.acknowledge().result.assignment is None
    assert a.epoch == 3
    b.beat()
    assert b.partitions() == ALL - a.partitions()
    assert state(driver) == "Stable"
    ends = driver.events_of(RebalanceEnd)
    assert [end.members for end in ends] == [1, 2]


def test_a_member_that_joins_within_the_interval_waits_for_the_next_target(driver) -> None:
    """docs/spec/edge-cases.md#edge-87; testConsumerGroupAssignmentInterval."""
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join()
    driver.advance(999)
    assert b.join().result.assignment == ()
    assert b.epoch == 2
    assert state(driver) == "Assigning"
    assert a.beat().result.assignment is None
    driver.advance(1)
    a.beat()
    assert len(a.partitions()) == 6
    assert state(driver) == "Reconciling"


def test_the_interval_delays_nothing_after_the_wall_clock_was_set_back(driver) -> None:
    """Otherwise the group would wait until the clock has caught up, which may take hours."""
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join()
    earlier_ms = driver.now.wall_ms - 3_600_000
    driver.now = msgspec.structs.replace(driver.now, wall_ms=earlier_ms)
    b.join()
    assert b.epoch == 3
    a.beat()
    assert len(a.partitions()) == 6


def test_two_changes_within_the_interval_are_one_computation(driver) -> None:
    """docs/spec/edge-cases.md#edge-98."""
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join()
    driver.advance(500)
    b.join()
    b.leave()
    driver.advance(500)
    a.beat()
    assert a.epoch == 4
    assert len(driver.records_of(ConsumerTarget)) == 2
    assert a.partitions() == ALL


def test_joining_again_begins_no_epoch_and_is_told_everything(driver) -> None:
    """docs/spec/edge-cases.md#edge-91; testMemberCanRejoinWithEpochZero..."""
    a = ConsumerStub(driver, "a")
    a.join()
    a.join()
    assert (a.epoch, a.partitions()) == (2, ALL)
    assert len(driver.records_of(ConsumerGroupEpoch)) == 1


def test_a_member_may_join_again_while_it_has_to_give_up_partitions(driver) -> None:
    """testMemberCanRejoinWithEpochZeroInUnrevokedPartitionsState."""
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join()
    driver.advance(1_000)
    b.join()
    a.beat()
    a.join()
    assert (a.epoch, len(a.partitions())) == (3, 6)


def test_a_lost_answer_may_be_asked_for_again(driver) -> None:
    """docs/spec/edge-cases.md#edge-90; testConsumerGroupMemberEpochValidation."""
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join()
    driver.advance(1_000)
    b.join()
    a.beat()
    owned = a.owned()
    a.acknowledge()
    assert a.epoch == 3
    assert a.send(member_epoch=2).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert a.send(member_epoch=2, owned=owned).error is NONE
    too_many = ((ORDERS.topic_id, tuple(range(12))),)
    assert a.send(member_epoch=2, owned=too_many).error is ErrorCode.FENCED_MEMBER_EPOCH
    none_of_another = (*owned, (PAYMENTS.topic_id, ()))
    assert a.send(member_epoch=2, owned=none_of_another).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert a.send(member_epoch=1, owned=owned).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert a.send(member_epoch=4).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_an_epoch_that_the_member_never_had_is_refused(driver) -> None:
    """It goes from epoch 2 to 4. So no answer with epoch 3 can have been lost."""
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join()
    b.join()
    b.leave()
    driver.advance(1_000)
    a.beat()
    assert a.epoch == 4
    assert a.send(member_epoch=3, owned=a.owned()).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert a.send(member_epoch=2, owned=a.owned()).error is NONE


def test_strangers_are_refused(driver) -> None:
    """docs/spec/edge-cases.md#edge-92."""
    a, x = ConsumerStub(driver, "a"), ConsumerStub(driver, "x")
    assert x.send(member_epoch=1).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert x.leave().error is ErrorCode.GROUP_ID_NOT_FOUND
    a.join()
    assert x.send(member_epoch=1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert x.leave().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert x.send(member_epoch=1).result.message


def test_a_full_group_admits_nobody(make_driver) -> None:
    """docs/spec/edge-cases.md#edge-122 and #edge-114."""
    driver = make_driver(consumer_max_size=1)
    a = ConsumerStub(driver, "a", instance_id="i")
    a.join()
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert ConsumerStub(driver, "b").join().error is full
    assert ConsumerStub(driver, "b").send(member_epoch=1).error is full
    assert a.join().error is ErrorCode.UNRELEASED_INSTANCE_ID
    a.leave(-2)
    assert ConsumerStub(driver, "b", instance_id="i").join().error is full
    assert a.join().error is NONE


def test_a_member_that_leaves_gives_everything_to_the_others(driver) -> None:
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join()
    driver.advance(1_000)
    b.join()
    settle(driver, [a, b])
    call = b.leave()
    assert (call.result.member_id, call.result.member_epoch) == ("b", -1)
    assert (call.result.heartbeat_interval_ms, call.result.assignment) == (0, None)
    settle(driver, [a], rounds=2)
    assert (a.epoch, a.partitions()) == (4, ALL)
    a.leave()
    assert state(driver) == "Empty"
    assert len(driver.events_of(MemberLeave)) == 2


def test_a_silent_member_is_evicted(driver) -> None:
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join()
    driver.advance(1_000)
    b.join()
    settle(driver, [a, b])
    settle(driver, [a], rounds=45)
    assert [event.reason for event in driver.events_of(MemberEvicted)] == ["session_timeout"]
    assert a.partitions() == ALL
    assert b.beat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_gives_nothing_up_is_evicted_after_its_rebalance_timeout(driver) -> None:
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join(rebalance_timeout_ms=20_000)
    driver.advance(1_000)
    b.join()
    a.beat()
    for _ in range(20):
        driver.advance(1_000)
        a.beat()
        b.beat()
    assert [event.reason for event in driver.events_of(MemberEvicted)] == ["rebalance_timeout"]
    driver.advance(1_000)
    b.beat()
    assert b.partitions() == ALL


@pytest.mark.parametrize("joins_with_it", [True, False])
def test_a_negative_rebalance_timeout_is_over_at_once(driver, joins_with_it: bool) -> None:
    """Kafka stores every value but -1."""
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join(rebalance_timeout_ms=-2 if joins_with_it else 60_000)
    if not joins_with_it:
        a.beat(rebalance_timeout_ms=-2)
    driver.advance(1_000)
    b.join()
    a.beat()
    driver.advance(1)
    assert [event.reason for event in driver.events_of(MemberEvicted)] == ["rebalance_timeout"]


def test_a_changed_subscription_takes_its_topics_away_at_once(driver) -> None:
    """docs/spec/edge-cases.md#edge-121."""
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.topics = ("orders", "payments")
    a.join()
    driver.advance(1_000)
    b.join()
    a.beat()
    assert a.held.keys() == {ORDERS.topic_id, PAYMENTS.topic_id}
    a.beat(subscribed_topic_names=("payments",))
    assert (a.epoch, a.held.keys()) == (2, {PAYMENTS.topic_id})


def test_an_assignor_and_a_rack_begin_no_epoch(driver) -> None:
    a = ConsumerStub(driver, "a")
    a.join()
    a.beat(server_assignor="range", rack_id="r", rebalance_timeout_ms=1_000)
    assert a.epoch == 2
    assert describe_consumer(driver).assignor_name == "range"


def test_a_heartbeat_without_a_rack_keeps_the_rack_of_its_member(driver) -> None:
    a = ConsumerStub(driver, "a")
    a.join(rack_id="r")
    a.beat(subscribed_topic_names=("payments",))
    (member,) = describe_consumer(driver).members
    assert (member.rack_id, member.subscribed_topic_names) == ("r", ("payments",))


def test_the_same_topics_in_another_order_begin_no_epoch(driver) -> None:
    a = ConsumerStub(driver, "a", topics=("payments", "orders"))
    a.join()
    a.beat(subscribed_topic_names=("orders", "payments"))
    (member,) = describe_consumer(driver).members
    assert member.subscribed_topic_names == ("orders", "payments")
    assert len(driver.records_of(ConsumerGroupEpoch)) == 1


def test_a_heartbeat_from_another_host_is_recorded(driver) -> None:
    a = ConsumerStub(driver, "a")
    a.join()
    a.beat(client=Client("app-2", "/10.0.0.2"))
    (member,) = describe_consumer(driver).members
    assert (member.client_id, member.client_host) == ("app-2", "/10.0.0.2")


def test_the_assignor_of_most_members_is_used(driver) -> None:
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join(server_assignor="range")
    driver.advance(1_000)
    b.join(server_assignor="range")
    settle(driver, [a, b])
    assert (a.partitions(), b.partitions()) == ({*range(6)}, {*range(6, 12)})
    for newcomer in "cde":
        ConsumerStub(driver, newcomer).join(server_assignor="uniform")
    assert describe_consumer(driver).assignor_name == "uniform"


def test_the_configs_of_a_group_apply_at_the_next_heartbeat(driver) -> None:
    a = ConsumerStub(driver, "a")
    a.join()
    a.beat()  # its answer is kept for the next one
    own = GroupOverrides(consumer_session_timeout_ms=60_000, consumer_heartbeat_interval_ms=15_000)
    driver.shard.configs_changed({"g": own}, driver.now)
    assert a.beat().result.heartbeat_interval_ms == 15_000
    driver.advance(59_999)
    assert state(driver) == "Stable"
    driver.advance(1)
    assert state(driver) == "Empty"


def test_everything_goes_on_after_a_restart(driver) -> None:
    """docs/spec/edge-cases.md#edge-104; testOnLoaded."""
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b", instance_id="i")
    a.join()
    driver.advance(1_000)
    b.join()
    a.beat()
    before = describe_consumer(driver)
    driver.reload()
    assert describe_consumer(driver) == before
    assert a.beat().result.assignment is None
    a.acknowledge()
    b.beat()
    driver.reload(from_fold=True)
    assert (a.epoch, b.epoch) == (3, 3)
    assert a.partitions() | b.partitions() == ALL
    assert state(driver) == "Stable"
    assert a.beat().error is b.beat().error is NONE
    assert (a.epoch, b.epoch) == (3, 3)


def test_the_interval_spans_a_restart(driver) -> None:
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    a.join()
    driver.reload()
    driver.advance(500)
    b.join()
    assert state(driver) == "Assigning"


def test_a_topic_that_grew_while_we_were_down_is_noticed(driver) -> None:
    a = ConsumerStub(driver, "a")
    a.join()
    driver.change_topics(TopicInfo("orders", ORDERS.topic_id, 13), PAYMENTS)
    driver.reload()
    driver.advance(1_000)
    a.beat()
    assert (a.epoch, a.partitions()) == (3, {*range(13)})


def test_a_member_too_large_to_be_stored_is_refused_before_anything_changes(make_driver) -> None:
    driver = make_driver(max_group_bytes=4_000)
    a = ConsumerStub(driver, "a", topics=tuple(f"t{n:0200}" for n in range(20)))
    assert a.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.records == []
    a.topics = ("orders",)
    assert a.join().error is NONE


def test_a_member_may_replace_metadata_by_smaller_metadata_when_there_is_no_room(
    make_driver,
) -> None:
    driver = make_driver(max_metadata_bytes=10_000)
    a, b = ConsumerStub(driver, "a"), ConsumerStub(driver, "b")
    assert a.join(rack_id="r" * 6_000).error is NONE
    assert b.join(rack_id="r" * 5_000).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert a.beat(rack_id="s" * 5_000).error is NONE


MANY_NAMES = ("orders", *(f"a-long-name-of-a-topic-{number:03}" for number in range(200)))


@pytest.mark.parametrize("names", [None, MANY_NAMES[:-1]], ids=["same names", "fewer names"])
def test_the_names_that_a_member_has_already_need_no_room_again(
    make_driver, names: tuple[str, ...] | None
) -> None:
    driver = make_driver()
    a = ConsumerStub(driver, "a", topics=MANY_NAMES)
    a.join(rack_id="one")
    driver.shard.census.max_metadata_bytes = driver.shard.census.metadata_bytes
    assert a.beat(rack_id="two", subscribed_topic_names=names).error is NONE
    assert driver.shard.census.metadata_bytes <= driver.shard.census.max_metadata_bytes


def test_other_names_than_those_of_other_members_need_room(make_driver) -> None:
    driver = make_driver()
    a, b = (ConsumerStub(driver, name, topics=MANY_NAMES) for name in "ab")
    a.join()
    b.join()
    driver.shard.census.max_metadata_bytes = driver.shard.census.metadata_bytes
    fewer = a.beat(subscribed_topic_names=MANY_NAMES[:-1])
    assert fewer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_no_group_is_created_above_the_limit(make_driver) -> None:
    driver = make_driver(max_groups=1)
    assert ConsumerStub(driver, "a").join().error is NONE
    other = ConsumerStub(driver, "a", group_id="other").join()
    assert other.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.send(a_consumer_heartbeat("other", member_epoch=5)).error is (
        ErrorCode.GROUP_ID_NOT_FOUND
    )
