"""ReadGroup: a group as a host is shown it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.requests.admin import GroupView, ReadGroup

if TYPE_CHECKING:
    from tests.helpers.core.shard_driver import ShardDriver


def view(driver: ShardDriver, group_id: str = "g") -> GroupView:
    result = driver.send(ReadGroup(group_id)).result
    assert result.error is ErrorCode.NONE
    return result.group


def test_an_absent_group_is_not_found(driver: ShardDriver):
    assert driver.send(ReadGroup("absent")).result.error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_without_members_shows_no_more_than_its_state(driver: ShardDriver):
    driver.commit()
    group = view(driver)
    assert (group.state, group.generation_id, group.members) == (GroupState.EMPTY, 0, ())
    assert (group.protocol_type, group.leader_id) == (None, None)


def test_a_member_is_shown_while_its_join_is_parked(driver: ShardDriver):
    driver.join("g", version=3, session_timeout_ms=10_000, rebalance_timeout_ms=20_000)
    (member,) = view(driver).members
    assert (member.is_joining, member.is_syncing) == (True, False)
    assert member.join_time_ms == driver.now.wall_ms
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, 20_000)


def test_the_first_member_leads_before_there_is_a_generation(driver: ShardDriver):
    """Kafka's ClassicGroup.add; whether it still does is told when the join phase ends."""
    driver.join("g", version=3)
    driver.join("g", version=3)
    group = view(driver)
    assert (group.generation_id, group.leader_id) == (0, group.members[0].member_id)


def test_the_last_heartbeat_is_told_by_the_wall_clock(driver: ShardDriver):
    joined = driver.join("g", version=3, session_timeout_ms=10_000)
    driver.advance(3_000)
    (member,) = view(driver).members
    assert (member.is_joining, member.is_syncing) == (False, True)
    at = driver.now.wall_ms
    assert member.last_heard_ms == at
    driver.advance(1_000)
    assert view(driver).members[0].last_heard_ms == at
    driver.heartbeat("g", joined.result.member_id, 1)
    assert view(driver).members[0].last_heard_ms == at + 1_000
    assert view(driver).members[0].join_time_ms == at - 3_000
