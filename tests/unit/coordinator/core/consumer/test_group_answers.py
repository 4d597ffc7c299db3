"""What a consumer group answers to commits, fetches, lists, descriptions and deletions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from groupkeeper.coordinator.core.cluster.group_configs import GroupOverrides
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.requests.admin import DeleteGroup, DescribeGroup, ReadGroup
from groupkeeper.coordinator.core.requests.consumer import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResult,
)
from groupkeeper.coordinator.core.requests.membership import EndSession
from groupkeeper.coordinator.core.requests.offsets import OffsetDelete
from groupkeeper.coordinator.core.waiting import AwaitedMember, Waiting
from groupkeeper.protocol.consumer_protocol import decode_assignment, decode_subscription
from tests.helpers.core.consumer_members import ConsumerStub, describe_consumer, settle
from tests.helpers.core.mixed_groups import mixed
from tests.helpers.core.shard_driver import CLIENT, ORDERS, PAYMENTS, SESSION_MS, a_stable_group

if TYPE_CHECKING:
    from tests.helpers.core.shard_driver import ShardDriver

NONE = ErrorCode.NONE


@pytest.fixture
def a(driver: ShardDriver) -> ConsumerStub:
    """The only member."""
    member = ConsumerStub(driver, "a")
    member.join()
    return member


def commit(driver: ShardDriver, member: str, epoch: int, **changes: Any) -> set[ErrorCode]:
    call = driver.commit(member_id=member, generation_id=epoch, **changes)
    return set(call.partition_errors().values())


def test_commits_need_the_epoch_of_the_member(driver, a) -> None:
    """docs/spec/offsets.md#who-may-commit."""
    assert commit(driver, "a", 2) == {NONE}
    assert commit(driver, "a", 3) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert commit(driver, "a", 1) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert commit(driver, "x", 2) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert commit(driver, "", -1) == {ErrorCode.UNKNOWN_MEMBER_ID}
    old = ErrorCode.ILLEGAL_GENERATION
    assert commit(driver, "a", 2, absent_group_error=old) == {ErrorCode.UNSUPPORTED_VERSION}
    a.leave()
    assert commit(driver, "", -1) == {NONE}
    assert commit(driver, "a", 2) == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_an_older_epoch_may_commit_what_the_member_has_had_since(driver, a) -> None:
    """docs/spec/edge-cases.md#edge-84 (KIP-1251)."""
    driver.advance(1_000)
    b = ConsumerStub(driver, "b")
    b.join()
    settle(driver, [a, b])
    assert a.epoch == 3
    kept, lost = min(a.partitions()), min(b.partitions())
    stale = {ErrorCode.STALE_MEMBER_EPOCH}
    assert commit(driver, "a", 2, topics={"orders": {kept: 7}}) == {NONE}
    by_id = {ORDERS.topic_id: {kept: 8}}
    assert commit(driver, "a", 2, topics=by_id, by_topic_id=True) == {NONE}
    assert commit(driver, "a", 2, topics={"orders": {lost: 7}}) == stale
    assert commit(driver, "a", 2, topics={"orders": {kept: 7, lost: 7}}) == stale
    assert commit(driver, "b", 2, topics={"orders": {lost: 7}}) == stale
    too_long = [("orders", "", [(kept, 9, -1, ""), (lost, 9, -1, "x" * 5_000)])]
    call = driver.commit(member_id="a", generation_id=2, topics=too_long)
    assert call.partition_errors() == {
        ("orders", kept): NONE,
        ("orders", lost): ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }


def test_an_older_epoch_may_not_commit_with_a_version_without_member_epochs(driver, a) -> None:
    driver.advance(1_000)
    b = ConsumerStub(driver, "b")
    b.join()
    settle(driver, [a, b])
    kept = {"orders": {min(a.partitions()): 7}}
    old = ErrorCode.ILLEGAL_GENERATION
    refused = commit(driver, "a", 2, topics=kept, absent_group_error=old)
    assert refused == {ErrorCode.UNSUPPORTED_VERSION}
    assert commit(driver, "a", 2, topics=kept) == {NONE}


def test_a_static_member_that_came_back_has_had_its_partitions_from_the_first_epoch(driver) -> None:
    a = ConsumerStub(driver, "a", instance_id="i")
    a.join()
    assert commit(driver, "a", 1) == {ErrorCode.STALE_MEMBER_EPOCH}
    a.leave(-2)
    a.join()
    assert commit(driver, "a", 1) == {NONE}


def test_what_has_to_be_given_up_may_still_be_committed(driver, a) -> None:
    driver.advance(1_000)
    ConsumerStub(driver, "b").join()
    had = a.partitions()
    a.beat()
    gone = min(had - a.partitions())
    assert commit(driver, "a", 2, topics={"orders": {gone: 7}}) == {NONE}


def test_it_may_be_committed_with_an_older_epoch_too(driver, a) -> None:
    driver.advance(1_000)
    b = ConsumerStub(driver, "b")
    b.join()
    settle(driver, [a, b])
    ConsumerStub(driver, "c").join()
    had = a.partitions()
    a.beat()
    gone = min(had - a.partitions())
    assert a.epoch == 3
    assert commit(driver, "a", 2, topics={"orders": {gone: 7}}) == {NONE}


def test_fetches_need_the_epoch_of_the_member_that_they_name(driver, a) -> None:
    """docs/spec/edge-cases.md#edge-74."""

    def error(member_id: str | None, epoch: int) -> ErrorCode:
        call = driver.fetch(topics={"orders": [0]}, member_id=member_id, member_epoch=epoch)
        return call.error

    assert error(None, -1) is NONE
    assert error("a", 2) is NONE
    assert error("a", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert error("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error("x", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(None, 2) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_lists_have_the_type_and_the_state(driver, a) -> None:
    listed = driver.list_groups(types=["consumer"])["g"]
    assert listed == ("g", "consumer", GroupState.STABLE, "consumer")
    assert driver.list_groups(types=["classic"]) == {}
    assert driver.list_groups(states=["stable"]).keys() == {"g"}
    assert driver.list_groups(states=["reconciling"]) == {}
    assert driver.shard.groups_by_type()[GroupType.CONSUMER, GroupState.STABLE] == 1
    assert driver.shard.groups_by_state()[GroupState.STABLE] == 1


def test_a_description_has_what_members_own_and_shall_have(driver, a) -> None:
    driver.advance(1_000)
    b = ConsumerStub(driver, "b", instance_id="i", topics=("orders", "payments"))
    b.join(server_assignor="range", rack_id="r")
    a.beat()
    group = describe_consumer(driver)
    assert (group.error, group.group_id, group.message) == (NONE, "g", None)
    assert (group.state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 3, 3)
    assert group.assignor_name == "range"
    first, second = group.members
    assert first.assignment == ((ORDERS.topic_id, "orders", tuple(range(12))),)
    assert first.target_assignment == ((ORDERS.topic_id, "orders", tuple(range(6, 12))),)
    assert first[:8] == ("a", None, None, 2, "app", "/10.0.0.1", ("orders",), "")
    assert not first.is_classic
    assert second[:4] == ("b", "i", "r", 3)
    assert {topic for _, topic, _ in second.target_assignment} == {"orders", "payments"}
    driver.change_topics(PAYMENTS)
    assert describe_consumer(driver).members[0].assignment == ()


@pytest.mark.parametrize("votes", [("uniform", "range"), ("range", "uniform")])
def test_of_assignors_with_equal_votes_the_first_by_name_is_used(driver, votes) -> None:
    for member_id, name in zip("ab", votes, strict=True):
        ConsumerStub(driver, member_id).join(server_assignor=name)
    assert describe_consumer(driver).assignor_name == "range"


def waiting_of(driver: ShardDriver) -> Waiting | None:
    result = driver.send(ConsumerGroupDescribe("g", with_waiting=True)).result
    assert isinstance(result, ConsumerGroupDescribeResult)
    return result.waiting


def test_our_command_line_learns_whom_a_group_awaits_since_when_and_until_when(driver, a) -> None:
    assert waiting_of(driver) is None
    driver.advance(1_000)
    b = ConsumerStub(driver, "b")
    b.join()
    began_ms = driver.now.wall_ms
    assert describe_consumer(driver).waiting is None  # other clients get what Kafka sends
    # a knows nothing of the target yet: without a heartbeat its session (45 s) ends
    awaited = (AwaitedMember("a", "app", "/10.0.0.1"),)
    driver.advance(2_000)
    assert waiting_of(driver) == Waiting(awaited, began_ms, began_ms + 44_000, ())
    # a has to give up partitions within its rebalance timeout (60 s)
    a.beat()
    assert waiting_of(driver) == Waiting(awaited, began_ms, began_ms + 62_000, ())
    # now only b is missing: it has to ask for what a gave up
    a.acknowledge()
    settle(driver, [a, b])
    assert waiting_of(driver) is None


def test_a_member_that_waits_for_partitions_of_others_is_not_awaited(driver, a) -> None:
    driver.advance(1_000)
    b = ConsumerStub(driver, "b")
    b.join()
    a.beat()
    b.beat()
    assert b.epoch == 3
    waiting = waiting_of(driver)
    assert waiting is not None
    assert [member.member_id for member in waiting.awaited] == ["a"]


def test_other_groups_are_not_described_as_consumer_groups(driver) -> None:
    a_stable_group(driver, "classic")
    absent = describe_consumer(driver, "absent")
    assert (absent.error, absent.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "")
    assert absent.message == "Group absent not found."
    other = describe_consumer(driver, "classic")
    assert other.message == "Group classic is not a consumer group."
    nameless = driver.send(ConsumerGroupDescribe("")).result
    assert (nameless.error, nameless.message) == (ErrorCode.INVALID_GROUP_ID, None)


def test_classic_descriptions_see_a_dead_group(driver, a) -> None:
    """docs/spec/edge-cases.md#edge-105."""
    result = driver.send(DescribeGroup("g")).result
    assert (result.error, result.state) == (ErrorCode.GROUP_ID_NOT_FOUND, GroupState.DEAD)


def test_a_host_sees_members_and_partitions(driver, a) -> None:
    driver.advance(500)
    view = driver.send(ReadGroup("g")).result.group
    assert (view.state, view.protocol_type, view.protocol_name) == ("Stable", "consumer", "uniform")
    (member,) = view.members
    assert decode_subscription(member.metadata).topics == ["orders"]
    assert decode_assignment(member.assignment).partitions == {"orders": [*range(12)]}
    assert member.last_heard_ms == driver.now.wall_ms - 500


def test_a_host_sees_that_the_config_of_a_group_leaves_classic_members_their_timeout(
    driver,
) -> None:
    _, classic = mixed(driver)
    own = GroupOverrides(consumer_session_timeout_ms=60_000)
    driver.shard.configs_changed({"g": own}, driver.now)
    members = driver.send(ReadGroup("g")).result.group.members
    timeouts = {member.member_id: member.session_timeout_ms for member in members}
    assert timeouts == {"a": 60_000, classic.member_id: SESSION_MS}


def test_offsets_of_subscribed_topics_are_kept(driver, a) -> None:
    commit(driver, "a", 2, topics={"orders": {0: 5}, "payments": {0: 5}})
    delete = OffsetDelete("g", (("orders", [0]), ("payments", [1])), CLIENT)
    (_, orders), (_, payments) = driver.send(delete).result.topics
    assert orders == [(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)]
    assert payments == [(1, NONE)]
    for _ in range(driver.limits.offsets_retention_ms // 40_000 + 20):
        driver.advance(40_000)
        a.beat()
    assert driver.shard.saved("g").offsets.keys() == {"orders"}


def test_only_an_empty_group_can_be_deleted(driver, a) -> None:
    assert driver.send(DeleteGroup("g", CLIENT)).result is ErrorCode.NON_EMPTY_GROUP
    a.leave()
    assert driver.send(DeleteGroup("g", CLIENT)).result is NONE
    assert driver.list_groups() == {}
    assert driver.shard.tally.subscribers.of(["orders"]) == []


def test_a_member_can_be_evicted(driver, a) -> None:
    assert driver.send(EndSession("g", "x")).result is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.send(EndSession("g", "a")).result is NONE
    assert describe_consumer(driver).state == "Empty"
