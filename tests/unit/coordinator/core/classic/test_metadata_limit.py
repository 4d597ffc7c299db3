"""What the members of all groups may subscribe with: it stays when their connections are gone."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.groups.census import LARGE_METADATA_BYTES, SMALL_METADATA_BYTES
from groupkeeper.coordinator.core.requests.membership import JoinProtocol
from tests.helpers.core.invariants import check
from tests.helpers.core.shard_driver import Call, ShardDriver, a_member, completing

LARGE = 10 * LARGE_METADATA_BYTES


def join(driver: ShardDriver, group_id: str, *sizes: int) -> Call:
    protocols = tuple(JoinProtocol(f"p{n}", bytes(size)) for n, size in enumerate(sizes))
    return driver.join(group_id, protocols=protocols, requires_known_member_id=False)


def test_metadata_that_would_be_too_much_is_refused() -> None:
    driver = ShardDriver(max_metadata_bytes=4 * LARGE)
    assert join(driver, "a", LARGE).parked
    assert join(driver, "b", LARGE).parked
    refused = join(driver, "c", LARGE)
    assert (refused.error, refused.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert join(driver, "d", LARGE_METADATA_BYTES).parked
    check(driver.shard)


def test_usual_metadata_has_room_of_its_own_which_ends_as_well() -> None:
    """Joins of 16 KiB, each from a connection that is closed, must not fill memory either."""
    driver = ShardDriver(max_metadata_bytes=2 * LARGE)
    assert join(driver, "a", LARGE).parked
    assert join(driver, "b", LARGE_METADATA_BYTES + 1).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    for number in range(LARGE // LARGE_METADATA_BYTES):
        assert join(driver, f"c-{number}", LARGE_METADATA_BYTES).parked
    refused = join(driver, "d", SMALL_METADATA_BYTES + 1)
    assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert join(driver, "e", SMALL_METADATA_BYTES).parked
    check(driver.shard)


def test_a_member_that_grows_step_by_step_counts_as_large_as_it_is() -> None:
    driver = ShardDriver(max_metadata_bytes=2 * LARGE)
    assert join(driver, "a", LARGE - 1).parked
    member = join(driver, "b", SMALL_METADATA_BYTES)
    driver.advance(3_000)
    protocols = (JoinProtocol("p0", bytes(2 * SMALL_METADATA_BYTES)),)
    assert driver.join("b", member.member_id, protocols=protocols).error is ErrorCode.NONE
    protocols = (JoinProtocol("p0", bytes(LARGE_METADATA_BYTES + 1)),)
    grown = driver.join("b", member.member_id, protocols=protocols)
    assert grown.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    check(driver.shard)


def test_every_protocol_counts_for_all_are_held() -> None:
    driver = ShardDriver(max_metadata_bytes=4 * LARGE)
    assert join(driver, "a", LARGE, LARGE, LARGE).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.shard.census.metadata_bytes == 0


def test_there_is_room_again_when_the_members_are_gone() -> None:
    driver = ShardDriver(max_metadata_bytes=2 * LARGE)
    assert join(driver, "a", LARGE).parked
    assert join(driver, "b", LARGE).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.advance(3_600_000)
    assert driver.shard.census.metadata_bytes == 0
    assert join(driver, "b", LARGE).parked
    check(driver.shard)


def test_a_member_that_comes_back_brings_no_more_than_it_had() -> None:
    driver = ShardDriver(max_metadata_bytes=2 * LARGE)
    first = join(driver, "a", LARGE)
    driver.advance(3_000)
    protocols = (JoinProtocol("p0", bytes(LARGE)),)
    again = driver.join("a", first.member_id, protocols=protocols)
    assert again.error is not ErrorCode.COORDINATOR_NOT_AVAILABLE
    check(driver.shard)


def test_what_was_loaded_counts() -> None:
    driver = ShardDriver(max_metadata_bytes=4 * LARGE)
    member = join(driver, "a", LARGE)
    driver.advance(3_000)
    assert driver.sync("a", member.member_id, 1, assignments={member.member_id: b""}).error == 0
    driver.reload()
    assert driver.shard.census.metadata_bytes == LARGE
    check(driver.shard)


@pytest.mark.parametrize("limit", ["max_metadata_bytes", "max_group_bytes"])
def test_a_static_member_that_comes_back_needs_no_room_for_what_it_had(limit: str) -> None:
    driver = ShardDriver()
    protocols = (JoinProtocol("range", bytes(2 * SMALL_METADATA_BYTES)),)
    (leader,) = completing(driver, a_member(driver, instance_id="i", protocols=protocols))
    leader.sync({})
    group = driver.shard.groups["g"]
    size = {"max_metadata_bytes": group.metadata_bytes(), "max_group_bytes": group.size_bytes - 10}
    driver.reload(**{limit: size[limit]})
    back = driver.join("g", group_instance_id="i", protocols=protocols)
    assert back.error is ErrorCode.NONE
    larger = (JoinProtocol("range", bytes(3 * SMALL_METADATA_BYTES)),)
    refused = driver.join("g", group_instance_id="i", protocols=larger)
    assert refused.error is not ErrorCode.NONE
    check(driver.shard)


def test_a_member_may_join_again_with_what_it_had_when_the_limit_is_lower_now() -> None:
    driver = ShardDriver()
    protocols = (JoinProtocol("range", bytes(2 * SMALL_METADATA_BYTES)),)
    (leader,) = completing(driver, a_member(driver, protocols=protocols))
    driver.shard.census.max_metadata_bytes = 0
    completing(driver, leader)
    larger = leader.join(protocols=(JoinProtocol("range", bytes(3 * SMALL_METADATA_BYTES)),))
    assert larger.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    check(driver.shard)
