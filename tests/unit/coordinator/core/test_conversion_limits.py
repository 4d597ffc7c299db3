"""Classic groups that no consumer group can be made of: they are left as they are."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.membership import JoinProtocol
from groupkeeper.protocol.consumer_protocol import MAX_NAMES, Subscription, encode_subscription
from tests.helpers.core.consumer_members import ConsumerStub
from tests.helpers.core.mixed_groups import (
    assigned,
    classic_group,
    mixed,
    partitions_of,
    subscribed,
)
from tests.helpers.core.shard_driver import a_member, completing

if TYPE_CHECKING:
    from tests.helpers.core.shard_driver import MemberStub, ShardDriver

NONE = ErrorCode.NONE
ABSENT = ErrorCode.GROUP_ID_NOT_FOUND
MANY_TOPICS = ("orders", *(f"topic-{number}" for number in range(3_000)))
"""Their names take more than 16 KiB."""


def of_many_topics(count: int) -> tuple[JoinProtocol, ...]:
    metadata = encode_subscription(Subscription(0, ["orders"] * count))
    return (JoinProtocol("range", metadata),)


def test_a_member_whose_first_protocol_cannot_be_read_prevents_a_conversion(driver) -> None:
    """Answers to the member have the version of the protocol that it lists first."""
    odd = a_member(driver, protocols=(JoinProtocol("own", b"x"), *subscribed()))
    other = a_member(driver, protocols=subscribed())
    for member in completing(driver, odd, other):
        given = {odd.member_id: assigned(0), other.member_id: assigned(1)}
        assert member.sync(given if member.leads else None, protocol_type="consumer").error is NONE
    before = driver.saved()
    assert ConsumerStub(driver, "new").join().error is ABSENT
    assert driver.saved() == before
    assert odd.heartbeat().error is NONE


def test_a_partition_that_one_member_got_twice_counts_once(driver) -> None:
    (member,) = classic_group(driver, assigned(0, 0, 1))
    assert ConsumerStub(driver, "new").join().error is NONE
    assert member.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("assignor", "error"),
    [("sticky", NONE), ("cooperative-sticky", NONE), ("range", ABSENT), ("own", ABSENT)],
)
def test_only_the_data_of_a_sticky_assignor_is_ignored(driver, assignor: str, error) -> None:
    """librdkafka puts the data of each member into its assignment."""
    (protocol,) = subscribed()
    member = a_member(driver, protocols=(JoinProtocol(assignor, protocol.metadata),))
    completing(driver, member)
    told = {member.member_id: assigned(*range(12), user_data=b"data")}
    assert member.sync(told, protocol_type="consumer").error is NONE
    assert ConsumerStub(driver, "new").join().error is error


def test_a_group_with_more_names_than_can_be_read_at_once_is_not_converted(driver) -> None:
    first, second = (a_member(driver, protocols=of_many_topics(60_000)) for _ in range(2))
    for member in completing(driver, first, second):
        member.sync({} if member.leads else None, protocol_type="consumer")
    before = driver.saved()
    assert ConsumerStub(driver, "new").join().error is ABSENT
    assert driver.saved() == before


@pytest.mark.parametrize("lists", [1, 9])
def test_members_whose_topics_have_orders_of_their_own_are_converted(driver, lists: int) -> None:
    """aiokafka and kafka-python keep topics in a set, so the order differs in each process."""
    members = []
    for number in range(250):
        names = ["orders", *(f"topic-{number % lists}-{at}" for at in range(99))]
        names = random.Random(number).sample(names, len(names))
        protocol = JoinProtocol("range", encode_subscription(Subscription(1, names)))
        members.append(a_member(driver, protocols=(protocol,)))
    for member in completing(driver, *members):
        member.sync({} if member.leads else None, protocol_type="consumer")
    topics = driver.shard.groups["g"].subscribed_topics
    assert len(topics) == 1 + 99 * lists
    assert ConsumerStub(driver, "new").join().error is NONE
    group = driver.shard.groups["g"]
    assert group.subscriptions.topics() == topics
    assert group.subscriptions.name_count == 100 * lists + 1, "and the list of the newcomer"


def test_a_classic_member_with_more_names_than_can_be_read_at_once_is_refused(driver) -> None:
    ConsumerStub(driver, "a").join()
    for count in (200_000, MAX_NAMES + 1):
        call = driver.join("g", "b", protocols=of_many_topics(count))
        assert call.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert list(driver.shard.groups["g"].members) == ["a"]
    call = driver.join("g", "b", protocols=of_many_topics(MAX_NAMES))
    assert call.error is ErrorCode.NONE


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        ("max_group_bytes", ErrorCode.GROUP_MAX_SIZE_REACHED),
        ("max_metadata_bytes", ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_classic_member_without_room_is_told_whether_to_repeat_its_join(
    make_driver, limit: str, error: ErrorCode
) -> None:
    driver = make_driver(**{limit: 10_000})
    ConsumerStub(driver, "a").join()
    call = driver.join("g", protocols=of_many_topics(5_000), requires_known_member_id=False)
    assert (call.error, call.result.member_id) == (error, "")
    assert list(driver.shard.groups["g"].members) == ["a"]


def converted_bytes(make_driver) -> int:
    """The bound of the step that converts a group of one member for a newcomer."""
    driver: ShardDriver = make_driver()
    classic_group(driver, assigned(*range(12)))
    ConsumerStub(driver, "new").join()
    return driver.steps[-1].record_bytes


def test_a_conversion_that_the_storage_would_not_take_changes_nothing(make_driver) -> None:
    refused = 0
    for most_bytes in range(1_000, converted_bytes(make_driver) + 1_000, 100):
        driver = make_driver()
        (member,) = classic_group(driver, assigned(*range(12)))
        driver.reload(max_step_bytes=most_bytes)
        before = driver.saved()
        new = ConsumerStub(driver, "new")
        call = new.join()
        assert driver.steps[-1].record_bytes <= most_bytes
        if call.error is NONE:
            continue
        refused += 1
        assert call.error is ABSENT
        assert driver.saved() == before
        assert member.heartbeat().error is NONE
        assert partitions_of(member.sync(protocol_type="consumer")) == {*range(12)}
    assert refused


def test_metadata_that_a_conversion_would_make_too_large_changes_nothing(make_driver) -> None:
    """A consumer group has more metadata than the classic group that it was: the topic names of its
    members too.
    """

    def group_with_many_names(driver: ShardDriver) -> MemberStub:
        metadata = encode_subscription(Subscription(0, MANY_TOPICS))
        (member,) = completing(driver, a_member(driver, protocols=(JoinProtocol("a", metadata),)))
        member.sync({}, protocol_type="consumer")
        return member

    driver: ShardDriver = make_driver()
    group_with_many_names(driver)
    held_bytes = driver.shard.census.metadata_bytes
    assert ConsumerStub(driver, "new").join().error is NONE
    needed_bytes = driver.shard.census.metadata_bytes
    assert needed_bytes > 2 * held_bytes

    half_used = make_driver(max_metadata_bytes=2 * needed_bytes)  # large metadata may use half
    group_with_many_names(half_used)
    assert ConsumerStub(half_used, "new").join().error is NONE

    full = make_driver(max_metadata_bytes=2 * needed_bytes - 2 * 2_048)
    member = group_with_many_names(full)
    before = full.saved()
    assert ConsumerStub(full, "new").join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert full.saved() == before
    assert member.heartbeat().error is NONE


def test_small_metadata_may_join_and_convert_although_there_is_no_room(make_driver) -> None:
    driver = make_driver(max_metadata_bytes=0)
    (member,) = classic_group(driver, assigned(*range(12)))
    assert ConsumerStub(driver, "new").join().error is NONE
    assert member.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    assert ConsumerStub(driver, "another").join().error is NONE


@pytest.mark.parametrize("limit", ["max_group_bytes", "max_step_bytes"])
def test_a_group_too_large_to_be_stored_as_a_classic_one_stays(driver, limit: str) -> None:
    consumer, _ = mixed(driver)
    driver.reload(**{limit: 500})
    assert consumer.leave().error is NONE
    assert driver.list_groups()["g"].group_type == "consumer"
    driver.reload(**{limit: 100_000})
    other = ConsumerStub(driver, "b")
    assert other.join().error is NONE
    other.leave()
    assert driver.list_groups()["g"].group_type == "classic"


def test_a_group_that_became_classic_is_no_longer_told_of_topics(driver) -> None:
    consumer, _ = mixed(driver)
    subscribers = driver.shard.tally.subscribers
    assert subscribers.of(["orders"]) == ["g"]
    consumer.leave()
    assert driver.list_groups()["g"].group_type == "classic"
    assert subscribers.of(["orders"]) == []


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        ("max_group_bytes", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("max_step_bytes", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("max_metadata_bytes", ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_join_without_room_leaves_an_empty_consumer_group_as_it_is(
    make_driver, limit: str, error: ErrorCode
) -> None:
    driver = make_driver(**{limit: 10_000})
    consumer = ConsumerStub(driver, "a")
    consumer.join()
    consumer.leave()
    before = driver.saved()
    call = driver.join("g", protocols=of_many_topics(5_000))
    assert (call.error, call.result.member_id) == (error, "")
    assert driver.saved() == before
    assert driver.list_groups()["g"].group_type == "consumer"


def test_a_join_with_wrong_protocols_makes_an_empty_consumer_group_classic_as_in_kafka(
    driver,
) -> None:
    consumer = ConsumerStub(driver, "a")
    consumer.join()
    consumer.leave()
    assert driver.join("g", protocols=()).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.list_groups()["g"].group_type == "classic"
