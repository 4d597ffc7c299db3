"""Groups that change their type, and classic members of consumer groups.

See docs/spec/migration.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    Assignment,
    GroupConverted,
    MemberEvicted,
    PatternRefused,
)
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.records import GroupRecord
from groupkeeper.coordinator.core.requests.membership import JoinProtocol, LeavingMember
from groupkeeper.coordinator.core.requests.offsets import OffsetDelete
from groupkeeper.protocol import consumer_protocol
from groupkeeper.protocol.consumer_protocol import Subscription, encode_subscription
from tests.helpers.core.consumer_members import ConsumerStub, describe_consumer, settle
from tests.helpers.core.invariants import check
from tests.helpers.core.mixed_groups import (
    assigned,
    classic_group,
    mixed,
    partitions_of,
    rejoin,
    subscribed,
)
from tests.helpers.core.shard_driver import (
    CLIENT,
    ORDERS,
    ShardDriver,
    TopicInfo,
    a_member,
    completing,
    heartbeat_through,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NONE = ErrorCode.NONE
ABSENT = ErrorCode.GROUP_ID_NOT_FOUND


def conversions(driver: ShardDriver) -> list[tuple[str, str, str, int, str]]:
    """What the events say about groups that changed their type."""
    return [
        (event.from_type, event.to_type, event.group_type, event.members, event.member_id)
        for event in driver.events
        if isinstance(event, GroupConverted)
    ]


# --- Empty groups ---


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(driver) -> None:
    driver.commit("g", {"orders": {0: 5}})
    assert ConsumerStub(driver, "a").join().result.member_epoch == 2
    assert conversions(driver) == [("classic", "consumer", "consumer", 0, "a")]
    assert driver.list_groups()["g"].group_type == "consumer"
    assert driver.fetch("g", {"orders": [0]}).offsets() == {("orders", 0): 5}
    driver.reload()
    assert driver.list_groups()["g"].group_type == "consumer"


def test_an_empty_consumer_group_becomes_a_classic_group_and_keeps_its_offsets(driver) -> None:
    a = ConsumerStub(driver, "a")
    a.join()
    driver.commit("g", {"orders": {0: 5}}, member_id="a", generation_id=2)
    a.leave()
    classic_group(driver, assigned(0))
    assert conversions(driver) == [("consumer", "classic", "classic", 0, "")]
    assert driver.list_groups()["g"].group_type == "classic"
    assert driver.fetch("g", {"orders": [0]}).offsets() == {("orders", 0): 5}
    assert driver.shard.tally.subscribers.of(["orders"]) == []
    driver.reload(from_fold=True)
    assert driver.state() == "Stable"


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade"])
def test_empty_groups_are_converted_whatever_the_policy(make_driver, policy: str) -> None:
    driver = make_driver(consumer_migration_policy=policy)
    driver.commit("g", {"orders": {0: 5}})
    a = ConsumerStub(driver, "a")
    assert a.join().error is NONE
    a.leave()
    classic_group(driver, assigned(0))
    assert driver.list_groups()["g"].group_type == "classic"


# --- upgrade ---


def test_a_classic_group_becomes_a_consumer_group_and_its_members_go_on(driver) -> None:
    """testMigratesClassicGroup...: classic members learn it from their heartbeats."""
    first, second = classic_group(driver, assigned(*range(6)), assigned(*range(6, 12)))
    generation = first.generation_id
    new = ConsumerStub(driver, "new")
    assert new.join().error is NONE
    assert conversions(driver) == [("classic", "consumer", "consumer", 2, "new")]
    group = describe_consumer(driver)
    assert (group.group_epoch, group.state) == (generation + 1, "Reconciling")
    assert new.epoch == generation + 1
    assert new.partitions() == set()
    classic = [member for member in group.members if member.is_classic]
    assert {member.member_id for member in classic} == {first.member_id, second.member_id}
    for member in (first, second):
        assert member.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    kept = {}
    for member, had in ((first, range(6)), (second, range(6, 12))):
        rejoin(member, *had)
        kept[member.member_id] = partitions_of(member.sync())
        rejoin(member, *kept[member.member_id])
        assert partitions_of(member.sync()) == kept[member.member_id]
        assert member.heartbeat().error is NONE
    new.beat()
    assert [len(each) for each in kept.values()] == [4, 4]
    assert new.partitions() == {*range(12)}.difference(*kept.values())
    assert describe_consumer(driver).state == "Stable"


def test_requests_that_wait_are_answered_by_an_upgrade(driver) -> None:
    first, second = classic_group(driver, assigned(0), assigned(1))
    third = a_member(driver, protocols=subscribed())
    joining = third.join()
    assert joining.parked
    new = ConsumerStub(driver, "new")
    assert new.join().error is NONE
    assert joining.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(describe_consumer(driver).members) == 4
    assert first.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_upgrade_in_the_first_join_phase_is_asked_to_come_again(driver) -> None:
    """docs/spec/edge-cases.md#edge-119: Kafka's answer is fatal to clients."""
    joining = a_member(driver, protocols=subscribed()).join()
    call = ConsumerStub(driver, "new").join()
    assert call.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert joining.parked
    assert driver.state() == "PreparingRebalance"


@pytest.mark.parametrize(
    ("assignments", "fields", "limits", "error"),
    [
        ((assigned(0),), {}, {"consumer_migration_policy": "disabled"}, ABSENT),
        ((assigned(0),), {}, {"consumer_migration_policy": "downgrade"}, ABSENT),
        ((assigned(0),), {"protocol_type": "connect"}, {}, ABSENT),
        ((assigned(0), assigned(1)), {}, {"consumer_max_size": 1}, ABSENT),
        ((b"\x00",), {}, {}, ABSENT),
        # docs/spec/edge-cases.md#edge-100
        ((assigned(0, user_data=b"sticky"),), {}, {}, ABSENT),
        # docs/spec/edge-cases.md#edge-120
        ((assigned(0), assigned(0)), {}, {}, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_group_that_cannot_be_converted_is_left_alone(
    make_driver: Callable[..., ShardDriver],
    assignments: tuple[bytes, ...],
    fields: dict[str, Any],
    limits: dict[str, Any],
    error: ErrorCode,
) -> None:
    driver = make_driver(**limits)
    members = classic_group(driver, *assignments, **fields)
    before = driver.saved()
    assert ConsumerStub(driver, "new").join().error is error
    assert driver.saved() == before
    assert heartbeat_through(driver, 30_000, *members) == [NONE] * len(members)


def test_a_member_whose_first_protocol_cannot_be_read_is_not_converted(driver) -> None:
    """Its SyncGroup could not be answered: the answer has the version of this protocol."""
    odd = (JoinProtocol("odd", b""), *subscribed())
    members = completing(
        driver, a_member(driver, protocols=odd), a_member(driver, protocols=subscribed())
    )
    members[0].sync({member.member_id: b"" for member in members})
    assert ConsumerStub(driver, "new").join().error is ABSENT


def test_a_converted_member_has_the_subscription_of_the_protocol_of_its_group(driver) -> None:
    others = encode_subscription(Subscription(1, ["payments"], None, {}))
    first = a_member(driver, protocols=(JoinProtocol("own", others), *subscribed()))
    members = completing(driver, first, a_member(driver, protocols=subscribed()))
    members[0].sync({member.member_id: b"" for member in members})
    assert ConsumerStub(driver, "new").join().error is NONE
    names = {tuple(member.subscribed_topic_names) for member in describe_consumer(driver).members}
    assert names == {("orders",)}


def test_a_member_that_was_assigned_a_partition_twice_is_converted(driver) -> None:
    classic_group(driver, assigned(0, 0, 1))
    assert ConsumerStub(driver, "new").join().error is NONE
    assert len(describe_consumer(driver).members) == 2


def test_a_group_with_too_many_names_and_partitions_is_not_converted(
    driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_protocol, "MAX_PARTS", 9)  # each topic counts twice
    classic_group(driver, assigned(0, 1, 2), assigned(3, 4, 5))
    assert ConsumerStub(driver, "new").join().error is ABSENT
    monkeypatch.setattr(consumer_protocol, "MAX_PARTS", 10)
    assert ConsumerStub(driver, "new").join().error is NONE


def test_equal_lists_of_topics_count_once_in_a_conversion(
    driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand members that subscribe to the same hundred topics can be converted."""
    monkeypatch.setattr(consumer_protocol, "MAX_NAMES", 1)
    classic_group(driver, assigned(0, 1, 2), assigned(3, 4, 5))
    assert ConsumerStub(driver, "new").join().error is NONE
    assert describe_consumer(driver).state == "Reconciling"


def test_the_sessions_before_a_conversion_end_nobody(driver) -> None:
    members = classic_group(driver, assigned(0), assigned(1))
    consumer = ConsumerStub(driver, "new")
    consumer.join()
    for _ in range(60):
        driver.advance(1_000)
        consumer.acknowledge()
        for member in members:
            if member.heartbeat().error is not NONE:
                rejoin(member)
                member.sync()
    consumer.leave()
    assert driver.list_groups()["g"].group_type == "classic"
    completing(driver, *members)
    for member in members:
        member.sync({})
    assert heartbeat_through(driver, 60_000, *members) == [NONE] * len(members)
    assert driver.events_of(MemberEvicted) == []


def test_a_newcomer_that_is_refused_converts_nothing(driver) -> None:
    (member,) = classic_group(driver, assigned(0))
    call = ConsumerStub(driver, "new", topics=None).join(
        subscribed_topic_regex="(", pattern_error="missing closing )"
    )
    assert call.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    (event,) = driver.events_of(PatternRefused)
    assert (event.group_type, event.member_id, event.detail) == (
        GroupType.CLASSIC,
        "new",
        "missing closing )",
    )
    assert driver.state() == "Stable"
    assert member.heartbeat().error is NONE


def test_a_heartbeat_that_does_not_join_does_not_convert(driver) -> None:
    """docs/spec/edge-cases.md#edge-99."""
    classic_group(driver, assigned(0))
    assert ConsumerStub(driver, "a").send(member_epoch=1).error is ABSENT
    assert ConsumerStub(driver, "a").leave().error is ABSENT


# --- classic members of consumer groups ---


def test_a_classic_member_joins_a_consumer_group_at_once(driver) -> None:
    """docs/spec/edge-cases.md#edge-102; testJoiningConsumerGroupWithNewDynamicMember."""
    consumer = ConsumerStub(driver, "a")
    consumer.join()
    driver.advance(1_000)
    first = driver.join(protocols=subscribed())
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert len(describe_consumer(driver).members) == 1
    call = driver.join("g", first.member_id, protocols=subscribed())
    result = call.result
    assert (result.error, result.generation_id, result.leader, result.members) == (NONE, 3, "", ())
    assert (result.protocol_type, result.protocol_name) == ("consumer", "range")


def test_both_protocols_share_the_partitions(driver) -> None:
    consumer, classic = mixed(driver)
    held = partitions_of(classic.sync(protocol_name="range"))
    assert held == {*range(12)} - consumer.partitions()
    assert len(held) == 6
    assert classic.commit({"orders": {min(held): 5}}).error is NONE
    assert {*classic.commit(generation_id=9).partition_errors().values()} == {
        ErrorCode.ILLEGAL_GENERATION
    }


def test_classic_requests_are_checked(driver) -> None:
    """docs/spec/migration.md#classic-requests; docs/spec/edge-cases.md#edge-101 and #edge-115."""
    consumer, classic = mixed(driver)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat("g", "a", consumer.epoch).error is unknown
    assert driver.sync("g", "a", consumer.epoch).error is unknown
    assert driver.heartbeat("g", "x", 1).error is unknown
    assert driver.sync("g", "x", 1).error is unknown
    assert driver.heartbeat("g", classic.member_id, 1).error is ErrorCode.ILLEGAL_GENERATION
    assert classic.sync(protocol_name="other").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert classic.sync(protocol_type="other").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    refused = driver.join("g", "y", protocol_type="connect", protocols=subscribed())
    assert (refused.error, refused.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    refused = driver.join("g", "y", protocols=(JoinProtocol("other", b""),))
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    refused = driver.join("g", "y", protocols=(JoinProtocol("range", b"\x00"),))
    assert refused.error is ErrorCode.UNKNOWN_SERVER_ERROR
    refused = driver.join("g", "y", session_timeout_ms=1, protocols=subscribed())
    assert refused.error is ErrorCode.INVALID_SESSION_TIMEOUT
    refused = driver.join("g", "y", group_instance_id="i", protocols=subscribed())
    assert refused.error is unknown


def test_a_policy_may_keep_classic_members_out(make_driver) -> None:
    driver = make_driver(consumer_migration_policy="disabled")
    ConsumerStub(driver, "a").join()
    refused = driver.join("g", "y", protocols=subscribed())
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_member_that_does_not_sync_is_evicted(driver) -> None:
    consumer = ConsumerStub(driver, "a")
    consumer.join()
    driver.advance(1_000)
    classic = a_member(driver, rebalance_timeout_ms=20_000, session_timeout_ms=60_000)
    rejoin(classic)
    settle(driver, [consumer], rounds=21)
    assert [each.reason for each in driver.events_of(MemberEvicted)] == ["sync_timeout"]


def test_a_classic_member_that_does_not_join_again_is_evicted(driver) -> None:
    consumer, classic = mixed(driver)
    other = ConsumerStub(driver, "b")
    other.join()
    driver.advance(1_000)
    other.beat()
    assert classic.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(61):
        settle(driver, [consumer, other], rounds=1)
        classic.heartbeat()
    assert [each.reason for each in driver.events_of(MemberEvicted)] == ["join_timeout"]


def test_leave_group_removes_members_of_both_protocols_at_once(driver) -> None:
    _, classic = mixed(driver)
    third = ConsumerStub(driver, "b", instance_id="i")
    third.join()
    epoch = describe_consumer(driver).group_epoch
    call = driver.leave(
        "g", "a", "a", "x", LeavingMember("", "i"), LeavingMember("", "j"), LeavingMember("b", "j")
    )
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.error for each in call.result.members] == [
        NONE, NONE, unknown, NONE, unknown, unknown,
    ]  # fmt: skip
    assert driver.list_groups()["g"].group_type == "classic"
    assert driver.records_of(GroupRecord)[-1].generation_id == epoch, "as in Kafka, no new epoch"
    assert classic.heartbeat().error is not NONE


# --- downgrade ---


def test_when_the_last_consumer_leaves_the_group_is_classic_and_rebalances(driver) -> None:
    """docs/spec/edge-cases.md#edge-103; testLastConsumerProtocolMemberLeavingConsumerGroup."""
    consumer, classic = mixed(driver)
    epoch = describe_consumer(driver).group_epoch
    held = partitions_of(classic.sync(protocol_name="range"))
    consumer.leave()
    assert conversions(driver)[-1] == ("consumer", "classic", "classic", 1, "")
    event = next(each for each in driver.events if type(each) is Assignment)
    assert event.partitions == {classic.member_id: {"orders": sorted(held)}}
    assert driver.state() == "PreparingRebalance"
    classic.generation_id = epoch
    assert classic.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    call = classic.join()
    driver.advance_until_answered(call)
    classic.joined(call)
    assert classic.generation_id == epoch + 1
    assert classic.leads
    assert classic.sync({classic.member_id: assigned(*range(12))}).error is NONE
    assert driver.state() == "Stable"


def test_an_evicted_last_consumer_downgrades_too(driver) -> None:
    consumer, classic = mixed(driver)
    for _ in range(50):
        driver.advance(1_000)
        classic.heartbeat()
    assert consumer.beat().error is ABSENT
    assert driver.list_groups()["g"].group_type == "classic"


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_a_policy_may_keep_a_group_of_classic_members_a_consumer_group(
    make_driver, policy: str
) -> None:
    driver = make_driver()
    consumer, _ = mixed(driver)
    driver.reload(consumer_migration_policy=policy)
    consumer.leave()
    assert driver.list_groups()["g"].group_type == "consumer"


def test_a_group_too_large_for_the_classic_protocol_stays(driver) -> None:
    """testNoConversionWhenSizeExceedsClassicMaxGroupSize."""
    consumer, _ = mixed(driver)
    rejoin(a_member(driver))
    driver.reload(group_max_size=1)
    consumer.leave()
    assert driver.list_groups()["g"].group_type == "consumer"


def test_a_group_that_just_fits_the_classic_protocol_is_converted(driver) -> None:
    consumer, _ = mixed(driver)
    rejoin(a_member(driver))
    driver.reload(group_max_size=2)
    consumer.leave()
    assert driver.list_groups()["g"].group_type == "classic"


def test_a_classic_client_may_take_the_place_of_a_static_consumer(driver) -> None:
    """testLastStaticConsumerProtocolMemberReplacedByClassicProtocolMember."""
    consumer = ConsumerStub(driver, "a", instance_id="i")
    consumer.join()
    consumer.leave(-2)
    classic = a_member(driver, instance_id="i")
    assert rejoin(classic).error is NONE
    assert driver.state() == "Stable"
    assert driver.list_groups()["g"].group_type == "classic"
    assert partitions_of(classic.sync()) == {*range(12)}
    assert classic.heartbeat().error is NONE


def test_a_conversion_survives_a_restart(driver) -> None:
    first, second = classic_group(driver, assigned(*range(6)), assigned(*range(6, 12)))
    new = ConsumerStub(driver, "new")
    new.join()
    driver.reload()
    assert first.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.reload(from_fold=True)
    assert second.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    new.leave()
    driver.reload()
    assert driver.list_groups()["g"].group_type == "classic"


def test_after_a_downgrade_and_a_restart_no_member_gets_what_another_one_has(driver) -> None:
    """The rebalance begins again after the restart, so a static member gets nothing at once."""
    (first,) = classic_group(driver, assigned(*range(12)))
    consumer = ConsumerStub(driver, "new", instance_id="i")
    consumer.join()
    consumer.leave(-2)
    classic = a_member(driver, instance_id="i")
    assert rejoin(classic).error is NONE
    assert driver.list_groups()["g"].group_type == "classic"
    assert driver.state() == "PreparingRebalance"
    driver.reload()
    assert rejoin(classic).parked, "the other member still has all"
    assert first.heartbeat().error is ErrorCode.ILLEGAL_GENERATION
    check(driver.shard)


def test_a_sync_that_waits_is_answered_by_an_upgrade(driver) -> None:
    first, second = classic_group(driver, assigned(0), assigned(1))
    joining = [member.join() for member in (first, second)]
    driver.advance_until_answered(*joining)
    for member, call in zip((first, second), joining, strict=True):
        member.joined(call)
    follower = second if first.leads else first
    waiting = follower.sync()
    assert waiting.parked
    assert ConsumerStub(driver, "new").join().error is NONE
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.everything_answered()


def test_a_group_that_becomes_classic_knows_all_protocols_of_its_members(driver) -> None:
    consumer = ConsumerStub(driver, "a")
    consumer.join()
    (named,) = subscribed()
    both = (named, JoinProtocol("roundrobin", named.metadata))
    assert driver.join("g", "b", protocols=both).error is NONE
    consumer.leave()
    call = driver.join("g", protocols=both[1:], requires_known_member_id=False)
    assert call.parked, "it shares one protocol with the others"


def test_a_newcomer_without_topics_begins_no_epoch_in_a_group_that_it_converts(driver) -> None:
    (member,) = classic_group(driver, assigned(*range(12)))
    new = ConsumerStub(driver, "new", topics=())
    assert new.join().result.member_epoch == member.generation_id
    assert describe_consumer(driver).group_epoch == member.generation_id
    assert member.heartbeat().error is NONE


def test_a_static_consumer_that_changes_its_protocol_under_its_own_id_converts_the_group(
    driver,
) -> None:
    consumer = ConsumerStub(driver, "a", instance_id="i")
    consumer.join()
    call = driver.join("g", "a", group_instance_id="i", protocols=subscribed())
    assert (call.error, call.result.generation_id) == (NONE, consumer.epoch)
    assert driver.list_groups()["g"].group_type == "classic"
    assert driver.state() == "Stable"


def test_a_replacement_with_another_subscription_begins_no_epoch_before_the_rebalance(
    driver,
) -> None:
    """As in Kafka: the classic group begins with the epoch of the consumer group, and the member
    joins again in its first rebalance.
    """
    consumer = ConsumerStub(driver, "a", topics=("payments",), instance_id="i")
    consumer.join()
    epoch = consumer.epoch
    consumer.leave(-2)
    classic = a_member(driver, instance_id="i")
    call = rejoin(classic)
    assert (call.error, call.result.generation_id) == (NONE, 0)
    assert driver.state() == "PreparingRebalance"
    assert classic.heartbeat().error is ErrorCode.ILLEGAL_GENERATION
    assert rejoin(classic).result.generation_id == epoch + 1


def test_a_replacement_after_a_change_of_topics_begins_no_epoch(
    driver,
) -> None:
    consumer = ConsumerStub(driver, "a", instance_id="i")
    consumer.join()
    epoch = consumer.epoch
    consumer.leave(-2)
    driver.change_topics(TopicInfo("orders", ORDERS.topic_id, 20))
    classic = a_member(driver, instance_id="i")
    assert rejoin(classic).result.generation_id == 0
    assert driver.state() == "PreparingRebalance"
    assert rejoin(classic).result.generation_id == epoch + 1


def test_a_replacement_while_a_target_is_owed_rebalances_without_it(driver) -> None:
    consumer, other = ConsumerStub(driver, "a", instance_id="i"), ConsumerStub(driver, "b")
    consumer.join()
    driver.advance(1_000)
    other.join()
    other.leave()  # begins an epoch, whose target nobody asks for
    epoch = describe_consumer(driver).group_epoch
    consumer.leave(-2)
    classic = a_member(driver, instance_id="i")
    assert rejoin(classic).result.generation_id == 0
    assert driver.state() == "PreparingRebalance"
    assert rejoin(classic).result.generation_id == epoch + 1


@pytest.mark.parametrize(
    ("member_id", "session_timeout_ms", "error"),
    [
        ("nobody", 30_000, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_a_refused_join_leaves_an_empty_consumer_group_as_it_is(
    driver, member_id: str, session_timeout_ms: int, error: ErrorCode
) -> None:
    consumer = ConsumerStub(driver, "a")
    consumer.join()
    driver.commit("g", {"orders": {0: 5}}, member_id="a", generation_id=2)
    consumer.leave()
    call = driver.join(
        "g", member_id, protocols=subscribed(), session_timeout_ms=session_timeout_ms
    )
    assert call.error is error
    assert driver.list_groups()["g"].group_type == "consumer"
    assert driver.fetch("g", {"orders": [0]}).offsets() == {("orders", 0): 5}


def test_a_group_that_became_classic_knows_its_topics_at_once(driver) -> None:
    """Before the rebalance after the conversion has ended."""
    consumer, classic = mixed(driver)
    epoch = classic.generation_id
    both = {"orders": {0: 5}, "payments": {0: 5}}
    driver.commit("g", both, member_id=classic.member_id, generation_id=epoch)
    consumer.leave()
    assert driver.state() == "PreparingRebalance"
    asked = OffsetDelete("g", (("orders", [0]), ("payments", [0])), CLIENT)
    answered = dict(driver.send(asked).result.topics)
    assert answered["orders"] == [(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)]
    assert answered["payments"] == [(0, NONE)]
