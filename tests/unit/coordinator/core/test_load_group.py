"""One group read by itself into a shard that lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.records import GroupRecord, SavedGroup, SavedMember, SavedOffset
from tests.helpers.core.shard_driver import IMAGE, ShardDriver

if TYPE_CHECKING:
    pass

ORDERS = IMAGE.by_name["orders"].topic_id
MEMBER = SavedMember("m", None, "app", "/10.0.0.1", 60_000, 10_000, b"", b"part")


def a_saved_group(topic_id: str = "", **offsets: dict[int, int]) -> SavedGroup:
    record = GroupRecord("g", "consumer", 4, "range", "m", 1_000, (MEMBER,))
    saved = {
        topic: {p: SavedOffset(o, -1, "", 1_000, -1, topic_id) for p, o in rows.items()}
        for topic, rows in offsets.items()
    }
    return SavedGroup("g", record, saved)


@pytest.fixture
def driver() -> ShardDriver:
    """Without the comparison with its log: what is read by itself does not stand there."""
    return ShardDriver()


def load(driver: ShardDriver, *groups: SavedGroup) -> None:
    driver._take(driver.shard.load_group("g", groups, driver.now))


def test_its_members_live_and_their_sessions_begin(driver: ShardDriver):
    load(driver, a_saved_group(orders={0: 7}))
    assert driver.heartbeat("g", "m", 4).error is ErrorCode.NONE
    assert driver.fetch("g").result.topics[0][2] == [(0, 7, -1, "", ErrorCode.NONE)]
    driver.advance(10_001)
    assert driver.heartbeat("g", "m", 4).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_topics_that_are_gone_go(driver: ShardDriver):
    load(driver, a_saved_group("VVVVVVVVVVVVVVVVVVVVVQ", orders={0: 7}, vanished={0: 8}))
    driver.advance(0)
    assert driver.fetch("g").offsets() == {}


def test_offsets_without_a_topic_id_stay_and_take_the_id_of_a_topic_that_exists(
    driver: ShardDriver,
):
    load(driver, a_saved_group(orders={0: 7}, vanished={0: 8}))
    assert driver.fetch("g").offsets() == {("orders", 0): 7, ("vanished", 0): 8}
    assert driver.shard.groups["g"].offsets["orders"][0].topic_id == ORDERS
    assert driver.shard.groups["g"].offsets["vanished"][0].topic_id == ""
    assert driver.shard.end_of(ORDERS, 0) == 7


def test_a_group_of_which_the_store_has_nothing_does_not_exist(driver: ShardDriver):
    load(driver)
    assert driver.shard.group_count() == 0


def test_what_is_in_the_shard_is_never_overwritten(driver: ShardDriver):
    driver.commit("g")
    with pytest.raises(AssertionError, match="newer state"):
        driver.shard.load_group("g", [a_saved_group()], driver.now)
