"""The limit on the number of groups: who creates one more is refused, and nobody else."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.groups.census import CHARS_OF_A_GROUP, Census
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.records import SavedGroup
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.shard import Shard
from tests.helpers.core.invariants import check
from tests.helpers.core.shard_driver import IMAGE, ShardDriver

CLIENT = Client("c", "/127.0.0.1")
FULL = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.fixture
def full() -> ShardDriver:
    driver = ShardDriver(max_groups=2)
    driver.commit("a", {"orders": {0: 5}})
    driver.join("b")
    return driver


def test_a_join_that_would_create_one_more_group_is_refused(full: ShardDriver) -> None:
    refused = full.join("c")
    assert (refused.error, refused.member_id) == (FULL, "")
    assert "c" not in full.shard.groups
    assert full.shard.census.refused == 1
    check(full.shard)


def test_a_commit_that_would_create_one_more_group_is_refused_and_leaves_nothing(
    full: ShardDriver,
) -> None:
    records, events = len(full.records), len(full.events)
    assert full.commit("c", {"orders": {0: 5}}).error is FULL
    assert "c" not in full.shard.groups
    assert (len(full.records), len(full.events)) == (records, events)


def test_a_commit_of_topics_that_do_not_exist_is_answered_so_at_the_limit(
    full: ShardDriver,
) -> None:
    """It would create nothing, so it is not for the limit to refuse it."""
    call = full.commit("c", {"absent": {0: 5}})
    assert call.partition_errors() == {("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert full.shard.census.refused == 0


def test_groups_that_exist_are_served_at_the_limit(full: ShardDriver) -> None:
    assert full.commit("a", {"orders": {0: 6}}).error is ErrorCode.NONE
    assert full.join("a").error is ErrorCode.MEMBER_ID_REQUIRED


def test_a_deleted_group_makes_room(full: ShardDriver) -> None:
    assert full.send(DeleteGroup("a", CLIENT)).result is ErrorCode.NONE
    assert full.commit("c", {"orders": {0: 5}}).error is ErrorCode.NONE
    assert full.commit("d", {"orders": {0: 5}}).error is FULL


def test_a_long_id_counts_as_several_groups() -> None:
    """A million groups with ids of 32 KB would need 34 GB."""
    driver = ShardDriver(max_groups=4)
    long = "l" * (2 * CHARS_OF_A_GROUP)
    assert driver.commit(long, {"orders": {0: 5}}).error is ErrorCode.NONE
    assert driver.commit("a", {"orders": {0: 5}}).error is ErrorCode.NONE
    assert driver.commit("b", {"orders": {0: 5}}).error is FULL
    check(driver.shard)
    assert driver.send(DeleteGroup(long, CLIENT)).result is ErrorCode.NONE
    for group_id in ("b", "c", "d"):
        assert driver.commit(group_id, {"orders": {0: 5}}).error is ErrorCode.NONE
    assert driver.commit("e", {"orders": {0: 5}}).error is FULL
    check(driver.shard)


def test_an_expired_group_makes_room() -> None:
    driver = ShardDriver(max_groups=1, offsets_retention_ms=1_000)
    driver.commit("a", {"orders": {0: 5}})
    driver.advance(2 * driver.limits.retention_check_interval_ms)
    assert driver.commit("c", {"orders": {0: 5}}).error is ErrorCode.NONE
    check(driver.shard)


def test_what_only_names_a_group_creates_none() -> None:
    driver = ShardDriver(max_groups=1)
    for number in range(10):
        group = f"unknown-{number}"
        driver.heartbeat(group, "m", 1)
        driver.sync(group, "m", 1)
        driver.leave(group, "m")
        driver.fetch(group)
        driver.describe(group)
    assert not driver.shard.groups
    assert driver.shard.census.refused == 0


def test_more_groups_than_the_limit_are_loaded_and_served_and_none_is_created(
    full: ShardDriver,
) -> None:
    full.reload(max_groups=1)
    assert full.shard.census.groups == 2
    assert full.commit("a", {"orders": {0: 9}}).error is ErrorCode.NONE
    assert full.commit("c", {"orders": {0: 5}}).error is FULL
    check(full.shard)


def test_the_limit_counts_the_groups_of_all_shards() -> None:
    limits, census, now = CoreLimits(max_groups=3), Census(3), Now(0, 0)
    one, two = (Shard(number, limits, IMAGE, census) for number in range(2))
    for shard in (one, two):
        shard.loaded(now)
    one.apply(SavedGroup("a", None, {}))
    one.apply(SavedGroup("b", None, {}))
    assert census.admits()
    two.apply(SavedGroup("c", None, {}))
    assert not census.admits()
    again = Shard(1, limits, IMAGE, census)  # until it is loaded, its groups count as before
    assert not census.admits()
    again.loaded(now)
    assert census.groups == 2
