"""Classic groups that become consumer groups while they rebalance, or while they should.

The conversion ends the rebalance. Nobody may get what another member still reads, and nothing may
stay unread.
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.admin import DescribeGroup
from groupkeeper.coordinator.core.requests.membership import JoinProtocol
from groupkeeper.protocol.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_subscription,
)
from tests.helpers.core.consumer_members import ConsumerStub, describe_consumer
from tests.helpers.core.mixed_groups import (
    assigned,
    classic_group,
    mixed,
    partitions_of,
    rejoin,
    subscribed,
)
from tests.helpers.core.shard_driver import (
    ORDERS,
    MemberStub,
    ShardDriver,
    TopicInfo,
    a_member,
    completing,
)

NONE = ErrorCode.NONE
ALL = {*range(12)}


def followed(driver: ShardDriver, consumer: ConsumerStub, *classic: MemberStub) -> set[int]:
    """Let the members follow the target. Return the partitions that they have then."""
    told: dict[str, set[int]] = {}
    for _ in range(6):
        driver.advance(1_000)
        consumer.acknowledge()
        for member in classic:
            if member.heartbeat().error is not NONE:
                member.joined(member.join())  # and has given up everything before
            told[member.member_id] = partitions_of(member.sync())
    return consumer.partitions().union(*told.values())


def static_member_alone(driver: ShardDriver, assignment: bytes) -> MemberStub:
    """The only member of a Stable classic group."""
    (member,) = classic_group(driver, assignment, instance_id="i")
    return member


# --- nobody gets what another one reads ---


def test_a_member_is_not_told_its_target_of_before_a_downgrade(driver) -> None:
    """It waited for these partitions, and the member that reads them has not yet heard of it."""
    (first,) = classic_group(driver, assigned(*ALL))
    consumer = ConsumerStub(driver, "consumer")
    consumer.join()
    driver.advance(1_000)
    second = a_member(driver)
    rejoin(second)
    consumer.leave()
    assert driver.state() == "PreparingRebalance"
    assert second.join().parked
    again = ConsumerStub(driver, "again")
    assert again.join().error is NONE
    rejoin(second)
    assert partitions_of(second.sync()) == set()
    assert again.partitions() == set()
    assert first.heartbeat().error is not NONE
    rejoin(first)
    assert followed(driver, again, first, second) == ALL


def test_members_keep_what_they_read_before_a_rebalance_that_was_abandoned(driver) -> None:
    """Members with a cooperative assignor read on while they join again."""
    first, second = classic_group(driver, assigned(*range(6)), assigned(*range(6, 12)))
    completing(driver, first, second)
    third = a_member(driver, protocols=first.fields["protocols"])
    assert third.join().parked
    assert driver.state() == "PreparingRebalance"
    new = ConsumerStub(driver, "new")
    assert new.join().error is NONE
    assert new.partitions() == set()
    has = {m.member_id: m.assignment for m in describe_consumer(driver).members}
    assert has[first.member_id][0][2] == (*range(6),)
    assert has[second.member_id][0][2] == (*range(6, 12),)


def test_a_static_member_that_came_back_in_a_rebalance_keeps_what_it_read(driver) -> None:
    static = static_member_alone(driver, assigned(*ALL))
    other = a_member(driver, protocols=static.fields["protocols"])
    completing(driver, static, other)
    back = a_member(driver, instance_id="i", protocols=static.fields["protocols"])
    assert back.join().parked, "no record has its new id"
    new = ConsumerStub(driver, "new")
    assert new.join().error is NONE
    assert new.partitions() == set()


def test_a_downgrade_shows_the_targets_while_the_group_rebalances(driver) -> None:
    """As in Kafka."""
    (first,) = classic_group(driver, assigned(*ALL))
    consumer = ConsumerStub(driver, "consumer")
    consumer.join()
    consumer.leave()
    (member,) = driver.send(DescribeGroup("g")).result.members
    assert decode_assignment(member.member_assignment).partitions == {"orders": [*range(6)]}
    assert first.heartbeat().error is not NONE


def revoking(driver: ShardDriver) -> tuple[MemberStub, MemberStub]:
    """Return the members of a Stable classic group with a cooperative assignor. The first one has
    all partitions, and was told to give up one half. The leader has assigned this half to nobody.
    """
    (first,) = classic_group(driver, assigned(*ALL))
    second = a_member(driver, protocols=subscribed())
    waiting = second.join()
    first.joined(rejoin(first, *ALL))
    second.joined(waiting)
    told = {first.member_id: assigned(*range(6)), second.member_id: assigned()}
    assert partitions_of(first.sync(told)) == {*range(6)}
    assert partitions_of(second.sync()) == set()
    assert driver.state() == "Stable"
    return first, second


def test_partitions_that_a_cooperative_member_must_give_up_wait_for_its_next_join(driver) -> None:
    first, second = revoking(driver)
    new = ConsumerStub(driver, "new")
    assert new.join().error is NONE
    assert new.partitions() == set()
    driver.advance(1_000)
    new.acknowledge()
    assert new.partitions() == set()
    assert first.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin(second)
    assert partitions_of(second.sync()) == set()
    rejoin(first, *range(6))
    new.acknowledge()
    assert new.partitions()
    rejoin(first)
    assert followed(driver, new, first, second) == ALL


def test_they_wait_even_if_the_group_rebalances_again_or_the_coordinator_restarts(driver) -> None:
    first, second = revoking(driver)
    second.leave()
    assert driver.state() == "PreparingRebalance"
    new = ConsumerStub(driver, "new")
    assert new.join().error is NONE
    assert new.partitions() == set()
    driver.reload()
    new.acknowledge()
    assert new.partitions() == set()
    rejoin(first)
    assert followed(driver, new, first) == ALL


def test_a_member_that_has_not_synced_keeps_what_it_read(driver) -> None:
    (first,) = classic_group(driver, assigned(*ALL))
    second = a_member(driver, protocols=subscribed())
    waiting = second.join()
    first.joined(rejoin(first, *ALL))
    second.joined(waiting)
    assert first.leads
    first.sync({first.member_id: assigned(*range(6)), second.member_id: assigned(6, 7)})
    new = ConsumerStub(driver, "new")
    assert new.join().error is NONE
    has = {m.member_id: m.assignment for m in describe_consumer(driver).members}
    assert has[second.member_id][0][2] == (6, 7), "an eager leader assigned them"
    assert has[first.member_id][0][2] == (*range(6), *range(8, 12))


def test_what_two_members_report_has_one_owner(driver) -> None:
    members = [a_member(driver, protocols=subscribed(3, 4, 12, -1)) for _ in range(2)]
    first, second = completing(driver, *members)
    leader, other = (first, second) if first.leads else (second, first)
    leader.sync({leader.member_id: assigned(4), other.member_id: assigned()})
    assert other.sync().error is NONE
    new = ConsumerStub(driver, "new")
    assert new.join().error is NONE
    has = {m.member_id: m.assignment for m in describe_consumer(driver).members}
    owned = [n for each in members for _, _, numbers in has[each.member_id] for n in numbers]
    assert sorted(owned) == [3, 4], "partitions that do not exist have no owner"


# --- nothing stays unread ---


@pytest.mark.parametrize("from_fold", [False, True])
def test_the_rebalance_of_a_downgrade_begins_again_after_a_restart(driver, from_fold) -> None:
    """No record names the member that left, so no session ends."""
    consumer, classic = mixed(driver)
    consumer.leave()
    driver.reload(from_fold=from_fold)
    assert driver.state() == "PreparingRebalance"
    assert classic.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    classic.joined(rejoin(classic))
    assert classic.leads
    classic.sync({classic.member_id: assigned(*ALL)})
    driver.reload()
    assert driver.state() == "Stable"


def test_a_downgrade_without_a_rebalance_begins_none_after_a_restart(driver) -> None:
    consumer = ConsumerStub(driver, "a", instance_id="i")
    consumer.join()
    classic = a_member(driver, instance_id="i")
    rejoin(classic)
    assert driver.list_groups()["g"].group_type == "classic"
    assert driver.state() == "Stable"
    driver.reload()
    assert driver.state() == "Stable"
    assert classic.heartbeat().error is NONE


def test_the_partitions_of_a_member_that_left_are_read(driver) -> None:
    first, second = classic_group(driver, assigned(*range(6)), assigned(*range(6, 12)))
    second.leave()
    new = ConsumerStub(driver, "new", topics=())
    assert new.join().result.member_epoch == first.generation_id + 1
    assert followed(driver, new, first) == ALL


def test_the_partitions_of_a_member_that_left_are_read_by_a_static_one_that_comes_back(
    driver,
) -> None:
    static = static_member_alone(driver, assigned(*range(6)))
    assert driver.state() == "Stable"
    new = ConsumerStub(driver, "new", instance_id="i")
    assert new.join().result.member_epoch == static.generation_id + 1
    assert followed(driver, new) == ALL


def test_they_are_read_if_a_member_that_stays_changes_its_protocol_under_its_own_id(driver) -> None:
    first, second = classic_group(driver, assigned(*range(6)), assigned(*range(6, 12)))
    second.leave()
    same = ConsumerStub(driver, first.member_id)
    assert same.join().result.member_epoch == first.generation_id + 1
    assert followed(driver, same) == ALL


def test_the_new_partitions_of_a_topic_are_read_after_a_conversion(driver) -> None:
    static_member_alone(driver, assigned(*ALL))
    driver.change_topics(TopicInfo("orders", ORDERS.topic_id, 20))
    new = ConsumerStub(driver, "new", instance_id="i")
    assert new.join().error is NONE
    assert followed(driver, new) == {*range(20)}


def test_a_topic_that_only_a_member_without_it_was_assigned_is_read(driver) -> None:
    """It changed its topics when it came back, and kept its assignment
    (docs/spec/edge-cases.md#edge-55).
    """
    static = a_member(driver, instance_id="i", protocols=subscribed())
    other = a_member(driver, protocols=subscribed())
    for member in completing(driver, static, other):
        assignments = {
            static.member_id: assigned(*range(6)),
            other.member_id: assigned(*range(6, 12)),
        }
        assert member.sync(assignments if member.leads else None).error is NONE
    absent = encode_subscription(Subscription(1, ["absent"]))
    back = a_member(driver, instance_id="i", protocols=(JoinProtocol("range", absent),))
    back.joined(back.join())
    assert driver.state() == "Stable"
    new = ConsumerStub(driver, "new", topics=())
    assert new.join().result.member_epoch == back.generation_id + 1
    assert followed(driver, new, back, other) == ALL


@pytest.mark.parametrize("number", [12, -1])
def test_partitions_that_do_not_exist_do_not_count(driver, number: int) -> None:
    static = static_member_alone(driver, assigned(*range(11), number))
    new = ConsumerStub(driver, "new", instance_id="i")
    assert new.join().result.member_epoch == static.generation_id + 1
    assert followed(driver, new) >= ALL


def test_a_static_member_of_a_group_that_reads_all_begins_no_epoch(driver) -> None:
    static = static_member_alone(driver, assigned(*ALL))
    new = ConsumerStub(driver, "new", instance_id="i")
    assert new.join().result.member_epoch == static.generation_id
    assert new.partitions() == ALL
