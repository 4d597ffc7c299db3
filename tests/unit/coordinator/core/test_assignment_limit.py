"""What the assignments of all groups may take: they stay for as long as their groups."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.consumer.member import target_bytes, target_room_bytes
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import AssignmentFailed
from groupkeeper.coordinator.core.groups.census import (
    LARGE_ASSIGNMENT_BYTES,
    SMALL_ASSIGNMENT_BYTES,
)
from tests.helpers.core.consumer_members import ConsumerStub, settle
from tests.helpers.core.invariants import check
from tests.helpers.core.mixed_groups import assigned, classic_group, subscribed
from tests.helpers.core.shard_driver import Call, ShardDriver, TopicInfo, a_member, completing

BOUND = 2 * LARGE_ASSIGNMENT_BYTES
USUAL = 3 * LARGE_ASSIGNMENT_BYTES // 8
"""A third more when it is encoded: three of them fit."""
MANY_RETRIES_MS = 2_000


def assign(driver: ShardDriver, group_id: str, size_bytes: int) -> Call:
    (leader,) = completing(driver, a_member(driver, group_id))
    return leader.sync({leader.member_id: bytes(size_bytes)})


def test_assignments_that_would_be_too_much_are_refused() -> None:
    driver = ShardDriver(max_metadata_bytes=BOUND)
    answers = [assign(driver, f"g{n}", USUAL).error for n in range(4)]
    assert answers == [ErrorCode.NONE] * 3 + [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert driver.shard.census.reserved_bytes <= BOUND
    check(driver.shard)


def test_small_assignments_are_stored_where_no_room_is_left() -> None:
    driver = ShardDriver(max_metadata_bytes=BOUND)
    for group_id in ("a", "b"):
        half = assign(driver, group_id, LARGE_ASSIGNMENT_BYTES * 3 // 4 - 8)
        assert half.error is ErrorCode.NONE
    small = assign(driver, "small", SMALL_ASSIGNMENT_BYTES // 2)
    assert small.error is ErrorCode.NONE
    assert driver.shard.census.reserved_bytes > BOUND
    check(driver.shard)


def test_large_assignments_leave_room_for_usual_ones() -> None:
    driver = ShardDriver(max_metadata_bytes=BOUND)
    assert assign(driver, "a", USUAL).error is ErrorCode.NONE
    large = assign(driver, "b", LARGE_ASSIGNMENT_BYTES)
    assert large.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert assign(driver, "c", USUAL).error is ErrorCode.NONE


def test_a_group_whose_members_leave_makes_room() -> None:
    driver = ShardDriver(max_metadata_bytes=BOUND)
    leaders = []
    for number in range(3):
        (leader,) = completing(driver, a_member(driver, f"g{number}"))
        assert leader.sync({leader.member_id: bytes(USUAL)}).error is ErrorCode.NONE
        leaders.append(leader)
    assert assign(driver, "more", USUAL).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    leaders[0].leave()
    driver.advance(60_000)
    assert assign(driver, "again", USUAL).error is ErrorCode.NONE
    check(driver.shard)


def test_what_was_loaded_counts() -> None:
    driver = ShardDriver(max_metadata_bytes=BOUND)
    assert assign(driver, "a", USUAL).error is ErrorCode.NONE
    held = driver.shard.census.reserved_bytes
    driver.reload()
    assert driver.shard.census.reserved_bytes == held > USUAL


# --- consumer groups ---


PAIRS = TopicImage.of(
    TopicInfo("first", f"{1:022}", 500),
    TopicInfo("second", f"{2:022}", 500),
    TopicInfo("few", f"{3:022}", 2),
)
ROOM = 5 * target_bytes(topics=1, partitions=500)
"""Room for the partitions of one of the two topics, which take four times this while members move.
"""


def test_a_target_without_room_is_not_stored_and_the_old_one_stays() -> None:
    driver = ShardDriver(image=PAIRS, max_metadata_bytes=ROOM)
    first = ConsumerStub(driver, "a", group_id="g1", topics=("first",))
    first.join()
    assert list(first.held) == [f"{1:022}"]
    second = ConsumerStub(driver, "b", group_id="g2", topics=("second",))
    assert second.join().error is ErrorCode.NONE
    (event,) = driver.events_of(AssignmentFailed)
    assert (event.group_id, event.reason) == ("g2", "refused")
    assert "no more room" in event.detail
    assert (second.held, driver.shard.census.reserved_bytes <= ROOM) == ({}, True)
    check(driver.shard)

    first.leave()
    driver.advance(MANY_RETRIES_MS)
    second.beat()
    assert second.held == {f"{2:022}": list(range(500))}


def test_partitions_that_only_move_need_no_more_room() -> None:
    driver = ShardDriver(image=PAIRS, max_metadata_bytes=ROOM)
    a, b = (ConsumerStub(driver, name, topics=("first",)) for name in "ab")
    a.join()
    driver.shard.census.max_metadata_bytes = 0
    b.join()
    settle(driver, [a, b])
    assert [len(each.held[f"{1:022}"]) for each in (a, b)] == [250, 250]
    assert driver.events_of(AssignmentFailed) == []


def test_a_small_target_is_stored_where_no_room_is_left() -> None:
    driver = ShardDriver(image=PAIRS, max_metadata_bytes=0)
    a = ConsumerStub(driver, "a", topics=("few",))
    a.join()
    assert a.held == {f"{3:022}": [0, 1]}


def three_of_the_first_topic(driver: ShardDriver) -> list[ConsumerStub]:
    """A Stable group of three members."""
    members = [ConsumerStub(driver, name, topics=("first",)) for name in "abc"]
    for member in members:
        member.join()
    settle(driver, members)
    return members


def test_the_members_that_are_left_get_the_partitions_of_one_that_leaves() -> None:
    """They need the room that it had. No other group may take it in between."""
    driver = ShardDriver(image=PAIRS, max_metadata_bytes=ROOM)
    members = three_of_the_first_topic(driver)
    reserved = driver.shard.census.reserved_bytes
    driver.shard.census.max_metadata_bytes = reserved
    other = ConsumerStub(driver, "other", group_id="other", topics=("second",))
    driver.advance(MANY_RETRIES_MS)
    assert other.join().error is ErrorCode.NONE
    *left, last = members
    last.leave()
    assert driver.shard.census.reserved_bytes == reserved
    other.beat()
    driver.advance(MANY_RETRIES_MS)
    other.beat()
    settle(driver, left)
    assert [len(each.held[f"{1:022}"]) for each in left] == [250, 250]
    assert other.held == {}
    check(driver.shard)


def test_a_group_whose_members_all_come_back_needs_the_room_that_it_had() -> None:
    driver = ShardDriver(image=PAIRS, max_metadata_bytes=ROOM)
    members = three_of_the_first_topic(driver)
    driver.shard.census.max_metadata_bytes = driver.shard.census.reserved_bytes
    for member in members:
        member.leave()
    assert driver.shard.census.reserved_bytes == 0
    driver.advance(MANY_RETRIES_MS)
    back = ConsumerStub(driver, "back", topics=("first",))
    back.join()
    assert len(back.held[f"{1:022}"]) == 500
    check(driver.shard)


@pytest.mark.parametrize("new_id", ["a", "c"])
def test_a_static_member_that_is_left_alone_and_comes_back_needs_no_more_room(new_id: str) -> None:
    driver = ShardDriver(
        image=PAIRS, max_metadata_bytes=ROOM, consumer_assignment_interval_ms=10_000
    )
    a = ConsumerStub(driver, "a", topics=("first",), instance_id="i")
    b = ConsumerStub(driver, "b", topics=("first",))
    a.join()
    driver.advance(10_000)
    b.join()
    settle(driver, [a, b], rounds=3)
    reserved = driver.shard.census.reserved_bytes
    b.leave()
    a.leave(-2)
    back = ConsumerStub(driver, new_id, topics=("first",), instance_id="i")
    assert back.join().error is ErrorCode.NONE
    assert len(back.held[f"{1:022}"]) == 250, "its next target is not computed yet"
    assert driver.shard.census.reserved_bytes == reserved
    driver.shard.census.max_metadata_bytes = 0
    settle(driver, [back])
    assert len(back.held[f"{1:022}"]) == 500
    back.leave()
    assert driver.shard.census.reserved_bytes == 0


TENS = TopicImage.of(*[TopicInfo(f"t{n}", f"{n:022}", 10) for n in range(40)])
"""Topics whose partitions are a small target for a member."""


def test_a_group_that_grows_in_small_steps_is_refused_too() -> None:
    driver = ShardDriver(image=TENS, max_metadata_bytes=0, consumer_assignment_interval_ms=0)
    member = ConsumerStub(driver, "a", topics=("t0",))
    member.join()
    for count in range(2, 41):
        driver.advance(MANY_RETRIES_MS)
        names = tuple(f"t{n}" for n in range(count))
        member.send(subscribed_topic_names=names, owned=member.owned())
    assert member.held == {f"{0:022}": [*range(10)]}
    assert driver.shard.census.reserved_bytes <= SMALL_ASSIGNMENT_BYTES
    check(driver.shard)


def test_a_group_that_loses_a_topic_gives_its_room_back() -> None:
    driver = ShardDriver(image=PAIRS, consumer_assignment_interval_ms=0)
    member = ConsumerStub(driver, "a", topics=("first", "second"))
    member.join()
    reserved = driver.shard.census.reserved_bytes
    assert reserved == target_room_bytes(topics=2, partitions=1_000)
    member.send(subscribed_topic_names=("second",), owned=member.owned())
    assert driver.shard.census.reserved_bytes == reserved // 2
    check(driver.shard)


def test_a_group_that_gave_its_room_back_asks_for_it_again() -> None:
    driver = ShardDriver(image=PAIRS, consumer_assignment_interval_ms=0)
    member = ConsumerStub(driver, "a", topics=("first", "second"))
    member.join()
    member.send(subscribed_topic_names=("second",), owned=member.owned())
    driver.shard.census.max_metadata_bytes = driver.shard.census.reserved_bytes
    member.send(subscribed_topic_names=("first", "second"), owned=member.owned())
    settle(driver, [member])
    assert [*member.held] == [f"{2:022}"]


def test_a_group_needs_room_only_for_what_is_added() -> None:
    """A target of some members counts with those of the others, and each target once."""
    driver = ShardDriver(image=PAIRS, consumer_assignment_interval_ms=0)
    a, b = (ConsumerStub(driver, name, topics=("first",)) for name in "ab")
    a.join()
    b.join()
    settle(driver, [a, b])
    needed = target_room_bytes(topics=2, partitions=500) + target_room_bytes(1, 2)
    driver.shard.census.max_metadata_bytes = needed - 1
    a.send(subscribed_topic_names=("few", "first"), owned=a.owned())
    assert f"{3:022}" not in a.held
    driver.shard.census.max_metadata_bytes = needed
    settle(driver, [a, b])
    assert a.held[f"{3:022}"] == [0, 1]
    assert driver.shard.census.reserved_bytes == needed


def test_a_small_target_of_each_member_is_stored_where_no_room_is_left() -> None:
    """Each member adds to what is always admitted, even if the first one alone had no room."""
    driver = ShardDriver(image=TENS, max_metadata_bytes=0)
    members = [ConsumerStub(driver, f"m{n}", topics=("t0", "t1")) for n in range(10)]
    for member in members:
        member.join()
    settle(driver, members)
    assert [sum(map(len, member.held.values())) for member in members] == [2] * 10
    assert driver.shard.census.reserved_bytes > SMALL_ASSIGNMENT_BYTES


def test_a_target_that_takes_less_than_before_is_stored_in_a_group_above_the_limit() -> None:
    """More partitions of fewer topics may take less."""
    tens = [TopicInfo(f"t{n}", f"{n:022}", 10) for n in range(40)]
    image = TopicImage.of(*tens, TopicInfo("large", f"{99:022}", 410))
    driver = ShardDriver(image=image, consumer_assignment_interval_ms=0)
    member = ConsumerStub(driver, "a", topics=tuple(topic.name for topic in tens))
    member.join()
    driver.shard.census.max_metadata_bytes = 0
    member.send(subscribed_topic_names=("large",), owned=member.owned())
    settle(driver, [member])
    assert member.held == {f"{99:022}": [*range(410)]}


def test_partitions_of_a_member_that_left_go_to_many_after_a_static_one_came_back() -> None:
    driver = ShardDriver(image=TENS, consumer_assignment_interval_ms=10_000)
    names = tuple(f"t{n}" for n in range(40))
    a = ConsumerStub(driver, "a", topics=names, instance_id="i")
    b = ConsumerStub(driver, "b", topics=names)
    a.join()
    driver.advance(10_000)
    b.join()
    settle(driver, [a, b], rounds=3)
    b.leave()
    a.leave(-2)
    driver.shard.census.max_metadata_bytes = 0
    members = [ConsumerStub(driver, "back", topics=names, instance_id="i")]
    members += [ConsumerStub(driver, f"m{n}", topics=names) for n in range(4)]
    for member in members:
        assert member.join().error is ErrorCode.NONE
    settle(driver, members)
    assert [sum(map(len, member.held.values())) for member in members] == [80] * 5


def test_a_group_that_is_stored_smaller_has_less_room() -> None:
    driver = ShardDriver(image=PAIRS, consumer_assignment_interval_ms=0)
    member = ConsumerStub(driver, "a", topics=("first",))
    member.join()
    small = driver.shard.groups["g"].to_record()
    member.send(subscribed_topic_names=("first", "second"), owned=member.owned())
    driver.shard.apply(small)
    reserved = target_room_bytes(topics=1, partitions=500)
    assert driver.shard.census.reserved_bytes == reserved


def test_a_leader_may_assign_the_same_again_in_a_group_above_the_limit() -> None:
    driver = ShardDriver(max_metadata_bytes=BOUND)
    (leader,) = completing(driver, a_member(driver))
    assert leader.sync({leader.member_id: bytes(USUAL)}).error is ErrorCode.NONE
    driver.shard.census.max_metadata_bytes = 0
    completing(driver, leader)
    assert leader.sync({leader.member_id: bytes(USUAL)}).error is ErrorCode.NONE
    completing(driver, leader)
    more = leader.sync({leader.member_id: bytes(USUAL + 3)})
    assert more.error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_partitions_move_to_many_members_where_no_room_is_left() -> None:
    """Each of them needs room for each of its topics, and the sum is larger than before."""
    driver = ShardDriver(image=TENS, consumer_assignment_interval_ms=0)
    names = tuple(f"t{n}" for n in range(40))
    members = [ConsumerStub(driver, f"m{n:02}", topics=names) for n in range(10)]
    members[0].join()
    census = driver.shard.census
    census.max_metadata_bytes = reserved = census.reserved_bytes
    for member in members[1:]:
        assert member.join().error is ErrorCode.NONE
    settle(driver, members)
    assert {sum(map(len, member.held.values())) for member in members} == {40}
    assert census.reserved_bytes > reserved
    check(driver.shard)


def test_a_classic_group_is_not_converted_without_room_for_its_partitions() -> None:
    """They take more in a consumer group, which keeps room for their moves."""
    image = TopicImage.of(TopicInfo("orders", f"{1:022}", 1_000))
    driver = ShardDriver(image=image)
    (leader,) = classic_group(driver, assigned(*range(1_000)))
    census = driver.shard.census
    needed = target_room_bytes(topics=1, partitions=1_000)
    census.max_metadata_bytes = needed - 1
    refused = ConsumerStub(driver, "new").join()
    assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert leader.heartbeat().error is ErrorCode.NONE
    assert census.reserved_bytes < needed
    census.max_metadata_bytes = needed
    assert ConsumerStub(driver, "new").join().error is ErrorCode.NONE
    assert census.reserved_bytes >= needed
    check(driver.shard)


def test_a_classic_group_of_small_members_is_converted_where_no_room_is_left() -> None:
    driver = ShardDriver()
    shares = [range(3 * n, 3 * n + 3) for n in range(4)]
    classic_group(driver, *[assigned(*share) for share in shares])
    needed = target_room_bytes(topics=4, partitions=12)
    assert SMALL_ASSIGNMENT_BYTES < needed <= 4 * SMALL_ASSIGNMENT_BYTES
    driver.shard.census.max_metadata_bytes = 0
    assert ConsumerStub(driver, "new").join().error is ErrorCode.NONE
    check(driver.shard)


def test_partitions_that_a_converted_member_must_give_up_need_room_too() -> None:
    driver = ShardDriver(image=TopicImage.of(TopicInfo("orders", f"{1:022}", 1_000)))
    member = a_member(driver, protocols=subscribed(*range(1_000)))
    completing(driver, member)
    member.sync({member.member_id: assigned()}, protocol_type="consumer")
    census = driver.shard.census
    census.max_metadata_bytes = 15_000  # enough for the metadata
    refused = ConsumerStub(driver, "new").join()
    assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert member.heartbeat().error is ErrorCode.NONE
    census.max_metadata_bytes = 1_000_000
    assert ConsumerStub(driver, "new").join().error is ErrorCode.NONE
    assert driver.shard.groups["g"].assigned_bytes > 15_000
    check(driver.shard)
