"""What a consumer group has already needs no room again (docs/design.md#bounds)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from groupkeeper.coordinator.core.consumer import subscriptions
from groupkeeper.coordinator.core.consumer.pattern_work import PatternMatches
from groupkeeper.coordinator.core.consumer_records import ConsumerMember
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import PatternRefused
from groupkeeper.coordinator.core.requests.client import Client
from tests.helpers.core.consumer_members import ConsumerStub, settle
from tests.helpers.core.invariants import check
from tests.helpers.core.mixed_groups import rejoin
from tests.helpers.core.shard_driver import CLIENT, a_member

if TYPE_CHECKING:
    from tests.helpers.core.shard_driver import Call, ShardDriver

NONE = ErrorCode.NONE
NAMES = tuple(f"topic-{number:03}" for number in range(100))
"""Their names take more than 1 KiB, which is always admitted."""
OTHER_NAMES = tuple(f"other-{number:03}" for number in range(100))


def use_up_the_room(driver: ShardDriver) -> None:
    census = driver.shard.census
    census.max_metadata_bytes = census.metadata_bytes


def change(member: ConsumerStub, names: tuple[str, ...]) -> Call:
    return member.send(subscribed_topic_names=names, owned=member.owned())


# --- the metadata of all groups ---


def test_a_list_that_the_group_has_needs_no_room(driver) -> None:
    ConsumerStub(driver, "a", NAMES).join()
    ConsumerStub(driver, "b", NAMES).join()
    use_up_the_room(driver)
    ConsumerStub(driver, "b", NAMES).leave()
    assert ConsumerStub(driver, "c", NAMES).join().error is NONE
    refused = ConsumerStub(driver, "d", OTHER_NAMES).join()
    assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    check(driver.shard)


def test_a_list_of_another_order_is_the_same_list(driver) -> None:
    ConsumerStub(driver, "a", NAMES).join()
    use_up_the_room(driver)
    assert ConsumerStub(driver, "b", (*reversed(NAMES), NAMES[0])).join().error is NONE


@pytest.mark.parametrize("member_id", ["a", "another"])
@pytest.mark.parametrize("client", [CLIENT, Client("app", "/10.11.12.13")])
def test_a_static_member_comes_back_where_no_room_is_left(driver, member_id, client) -> None:
    static = ConsumerStub(driver, "a", NAMES, instance_id="i")
    static.join()
    use_up_the_room(driver)
    static.leave(-2)
    back = ConsumerStub(driver, member_id, NAMES, instance_id="i")
    assert back.join(client=client).error is NONE
    assert {*driver.shard.groups["g"].members} == {member_id}


def test_a_static_member_that_comes_back_may_change_its_topics(driver) -> None:
    static = ConsumerStub(driver, "a", NAMES, instance_id="i")
    static.join()
    use_up_the_room(driver)
    static.leave(-2)
    more = ConsumerStub(driver, "b", (*NAMES, *OTHER_NAMES), instance_id="i")
    assert more.join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    others = ConsumerStub(driver, "b", OTHER_NAMES, instance_id="i")
    assert others.join().error is NONE
    check(driver.shard)


def test_the_list_that_a_static_member_had_gives_no_room_if_others_have_it(driver) -> None:
    static = ConsumerStub(driver, "a", NAMES, instance_id="i")
    static.join()
    ConsumerStub(driver, "b", NAMES).join()
    use_up_the_room(driver)
    static.leave(-2)
    others = ConsumerStub(driver, "c", OTHER_NAMES, instance_id="i")
    assert others.join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_the_list_that_a_member_keeps_gives_no_room_for_other_fields(driver) -> None:
    a = ConsumerStub(driver, "a", NAMES)
    a.join()
    use_up_the_room(driver)
    assert a.send(rack_id="r" * 1_000).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert a.send(rack_id="r").error is NONE, "small metadata is always admitted"


def test_a_list_with_two_patterns_gives_no_room_when_one_goes(driver) -> None:
    """The members share the list of names, but not the subscription."""
    a = ConsumerStub(driver, "a", NAMES)
    a.join(subscribed_topic_regex="o.*")
    ConsumerStub(driver, "b", NAMES).join()
    use_up_the_room(driver)
    assert change(a, OTHER_NAMES).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_static_member_of_the_classic_protocol_comes_back_too(driver) -> None:
    ConsumerStub(driver, "a").join()
    static = ConsumerStub(driver, "b", NAMES, instance_id="i")
    static.join()
    use_up_the_room(driver)
    static.leave(-2)
    classic = a_member(driver, instance_id="i")
    assert rejoin(classic).error is NONE
    check(driver.shard)


@pytest.mark.parametrize("is_classic", [False, True])
def test_a_static_member_is_replaced_by_one_record(make_driver, is_classic: bool) -> None:
    """Its names may take more than half of a step, so they are recorded once."""
    driver: ShardDriver = make_driver()
    ConsumerStub(driver, "a").join()
    static = ConsumerStub(driver, "b", NAMES, instance_id="i")
    static.join()
    static.leave(-2)
    if is_classic:
        rejoin(a_member(driver, instance_id="i"))
    else:
        ConsumerStub(driver, "c", OTHER_NAMES, instance_id="i").join()
    (record,) = [each for each in driver.steps[-1].records if isinstance(each, ConsumerMember)]
    topics = ("orders",) if is_classic else OTHER_NAMES
    assert record.member.subscribed_topic_names == tuple(sorted(topics))
    assert driver.steps[-1].record_bytes > subscriptions.names_bytes(topics)
    check(driver.shard)


# --- the names of one group ---


def test_a_member_may_exchange_its_names(monkeypatch: pytest.MonkeyPatch, driver) -> None:
    monkeypatch.setattr(subscriptions, "MAX_NAMES", 250)
    a, b = ConsumerStub(driver, "a", NAMES), ConsumerStub(driver, "b", OTHER_NAMES)
    a.join()
    b.join()
    settle(driver, [a, b])
    third = tuple(f"third-{number:03}" for number in range(100))
    assert change(a, third).error is NONE
    assert change(b, (*OTHER_NAMES, *NAMES)).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert change(b, third).error is NONE
    assert change(b, NAMES).error is NONE
    assert driver.shard.groups["g"].subscriptions.name_count == 200


def test_a_member_that_leaves_a_shared_list_needs_room(
    monkeypatch: pytest.MonkeyPatch, driver
) -> None:
    monkeypatch.setattr(subscriptions, "MAX_NAMES", 150)
    a, b = ConsumerStub(driver, "a", NAMES), ConsumerStub(driver, "b", NAMES)
    a.join()
    b.join()
    settle(driver, [a, b])
    assert change(a, OTHER_NAMES).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert b.leave().error is NONE
    assert change(a, OTHER_NAMES).error is NONE


def test_a_group_with_too_many_names_may_lose_some(monkeypatch: pytest.MonkeyPatch, driver) -> None:
    a = ConsumerStub(driver, "a", NAMES)
    a.join()
    monkeypatch.setattr(subscriptions, "MAX_NAMES", 50)
    assert change(a, NAMES[:80]).error is NONE
    assert change(a, OTHER_NAMES[:80]).error is NONE
    assert change(a, OTHER_NAMES[:81]).error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_the_topics_of_a_pattern_may_be_exchanged(
    monkeypatch: pytest.MonkeyPatch, make_driver
) -> None:
    monkeypatch.setattr(subscriptions, "MAX_NAMES", 150)
    driver: ShardDriver = make_driver(consumer_regex_refresh_interval_ms=10_000)
    a = ConsumerStub(driver, "a", None)
    a.join(subscribed_topic_names=(), subscribed_topic_regex=".*")
    driver.finish_work(PatternMatches(1, {".*": NAMES}))
    driver.reload(max_group_bytes=driver.shard.groups["g"].size_bytes - 1)
    driver.advance(20_000)
    a.beat()
    driver.finish_work(PatternMatches(2, {".*": OTHER_NAMES}))
    assert driver.shard.groups["g"].subscriptions.resolved[".*"].topics == OTHER_NAMES
    assert driver.events_of(PatternRefused) == []


# --- the size of one group ---


def test_a_group_above_its_limit_takes_what_does_not_make_it_larger(driver) -> None:
    members = [ConsumerStub(driver, f"m{number}", NAMES) for number in range(3)]
    for member in members:
        member.join(rack_id="rack-1")
    settle(driver, members)
    driver.reload(max_group_bytes=driver.shard.groups["g"].size_bytes - 100)
    first, second, third = members
    assert first.send(rack_id="rack-2").error is NONE
    assert second.send(rebalance_timeout_ms=30_000).error is NONE
    shorter = Client(CLIENT.client_id, CLIENT.client_host[:-1])
    assert third.send(client=shorter).error is NONE
    assert first.send(rack_id="r" * 200).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert ConsumerStub(driver, "new", NAMES).join().error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_change_must_fit_into_a_step_even_if_the_group_shrinks(driver) -> None:
    """The storage may have become one with smaller steps."""
    a = ConsumerStub(driver, "a", NAMES)
    a.join()
    driver.reload(max_step_bytes=driver.shard.groups["g"].size_bytes - 500)
    assert change(a, NAMES[:50]).error is NONE
    driver.reload(max_step_bytes=1_000)
    assert change(a, NAMES[:40]).error is ErrorCode.GROUP_MAX_SIZE_REACHED
