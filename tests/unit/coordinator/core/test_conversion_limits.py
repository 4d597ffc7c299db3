"""Classic groups that no consumer group can be made of: they are left as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.membership import JoinProtocol
from groupkeeper.protocol.consumer_protocol import Subscription, encode_subscription
from tests.helpers.core.consumer_members import ConsumerStub
from tests.helpers.core.mixed_groups import assigned, classic_group, partitions_of, subscribed
from tests.helpers.core.shard_driver import a_member, completing

if TYPE_CHECKING:
    from tests.helpers.core.shard_driver import ShardDriver

NONE = ErrorCode.NONE
ABSENT = ErrorCode.GROUP_ID_NOT_FOUND


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


def test_a_group_with_more_names_than_can_be_read_at_once_is_not_converted(driver) -> None:
    first, second = (a_member(driver, protocols=of_many_topics(60_000)) for _ in range(2))
    for member in completing(driver, first, second):
        member.sync({} if member.leads else None, protocol_type="consumer")
    before = driver.saved()
    assert ConsumerStub(driver, "new").join().error is ABSENT
    assert driver.saved() == before


def test_a_classic_member_with_more_names_than_can_be_read_at_once_is_refused(driver) -> None:
    ConsumerStub(driver, "a").join()
    call = driver.join("g", "b", protocols=of_many_topics(200_000))
    assert call.error is ErrorCode.UNKNOWN_SERVER_ERROR
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
