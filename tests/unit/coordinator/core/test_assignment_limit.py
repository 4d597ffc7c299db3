"""What the assignments of all groups may take: they stay for as long as their groups."""

from __future__ import annotations

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.groups.census import (
    LARGE_ASSIGNMENT_BYTES,
    SMALL_ASSIGNMENT_BYTES,
)
from tests.helpers.core.invariants import check
from tests.helpers.core.shard_driver import Call, ShardDriver, a_member, completing

BOUND = 2 * LARGE_ASSIGNMENT_BYTES
USUAL = 3 * LARGE_ASSIGNMENT_BYTES // 8
"""A third more when it is encoded: three of them fit."""


def assign(driver: ShardDriver, group_id: str, size_bytes: int) -> Call:
    (leader,) = completing(driver, a_member(driver, group_id))
    return leader.sync({leader.member_id: bytes(size_bytes)})


def test_assignments_that_would_be_too_much_are_refused() -> None:
    driver = ShardDriver(max_metadata_bytes=BOUND)
    answers = [assign(driver, f"g{n}", USUAL).error for n in range(4)]
    assert answers == [ErrorCode.NONE] * 3 + [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert driver.shard.census.assigned_bytes <= BOUND
    check(driver.shard)


def test_small_assignments_are_stored_where_no_room_is_left() -> None:
    driver = ShardDriver(max_metadata_bytes=BOUND)
    for group_id in ("a", "b"):
        half = assign(driver, group_id, LARGE_ASSIGNMENT_BYTES * 3 // 4 - 8)
        assert half.error is ErrorCode.NONE
    small = assign(driver, "small", SMALL_ASSIGNMENT_BYTES // 2)
    assert small.error is ErrorCode.NONE
    assert driver.shard.census.assigned_bytes > BOUND
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
    held = driver.shard.census.assigned_bytes
    driver.reload()
    assert driver.shard.census.assigned_bytes == held > USUAL
