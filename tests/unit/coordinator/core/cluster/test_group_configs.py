"""What may be set for one group (docs/spec/administration.md#group-configs and
docs/understand/differences.md), and what it changes.
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.cluster.group_configs import (
    CONFIG_KEYS,
    GroupOverrides,
    config_error,
    default_value,
    to_overrides,
)
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberEvicted
from groupkeeper.coordinator.core.limits import CoreLimits
from tests.helpers.core.shard_driver import REBALANCE_MS, SESSION_MS, ShardDriver

HOUR_MS = 3_600_000
LIMITS = CoreLimits()


@pytest.fixture
def driver():
    return ShardDriver(initial_rebalance_delay_ms=0)


def configure(driver, **settings):
    driver._take(driver.shard.configs_changed({"g": GroupOverrides(**settings)}, driver.now))


def a_member(driver, **changes):
    join = driver.join(version=3, **changes)
    driver.sync("g", join.member_id, join.result.generation_id, assignments={join.member_id: b"x"})
    return join.member_id


# --- Keys and values ---


def test_the_keys_of_consumer_and_streams_groups_are_known_and_four_of_ours():
    ours = {
        "commit.monotonic",
        "rebalance.max.join.ms",
        "initial.rebalance.delay.ms",
        "offsets.retention.minutes",
    }
    assert ours < CONFIG_KEYS.keys()
    assert len(CONFIG_KEYS) == 8 + len(ours)


def test_ours_change_nothing_by_default():
    assert to_overrides({}, LIMITS) == GroupOverrides()
    limits = CoreLimits(initial_rebalance_delay_ms=7, offsets_retention_ms=120_000)
    values = {name: default_value(key, limits) for name, key in CONFIG_KEYS.items()}
    assert values["commit.monotonic"] == "false"
    assert values["rebalance.max.join.ms"] == "0"
    assert values["initial.rebalance.delay.ms"] == "7"
    assert values["offsets.retention.minutes"] == "2"


def test_control_characters_around_a_value_do_not_count_as_in_java():
    assert config_error({"consumer.session.timeout.ms": "\x0446000\x1f"}, LIMITS) is None


@pytest.mark.parametrize("name", CONFIG_KEYS)
def test_every_default_is_a_valid_value(name):
    assert config_error({name: default_value(CONFIG_KEYS[name], LIMITS)}, LIMITS) is None


@pytest.mark.parametrize(
    "configs",
    [
        {"no.such.key": "1"},
        {"commit.monotonic": "yes"},
        {"rebalance.max.join.ms": "-1"},
        {"rebalance.max.join.ms": "ten"},
        {"rebalance.max.join.ms": ""},
        {"rebalance.max.join.ms": "\u00a03"},
        {"rebalance.max.join.ms": "99999999999999999999"},
        {"offsets.retention.minutes": "0"},
        {"consumer.session.timeout.ms": "44999"},
        {"consumer.session.timeout.ms": "60001"},
        {"share.partition.max.record.locks": "4000"},
    ],
)
def test_a_wrong_value_is_told(configs):
    error = config_error(configs, LIMITS)
    assert error is not None
    assert next(iter(configs)) in error


def test_spaces_around_a_value_do_not_count():
    configs = {
        "commit.monotonic": " TRUE ",
        "rebalance.max.join.ms": "\t 500 ",
        "initial.rebalance.delay.ms": "0",
        "offsets.retention.minutes": "3",
    }
    assert config_error(configs, LIMITS) is None
    assert to_overrides(configs, LIMITS) == GroupOverrides(
        commit_monotonic=True,
        rebalance_max_join_ms=500,
        initial_rebalance_delay_ms=0,
        offsets_retention_ms=180_000,
    )


# --- Keys of consumer groups ---

LOWERED = CoreLimits(
    consumer_min_session_timeout_ms=4_000,
    consumer_session_timeout_ms=5_000,
    consumer_heartbeat_interval_ms=1_000,
    consumer_min_heartbeat_interval_ms=500,
)


def test_the_bounds_and_defaults_of_consumer_groups_are_those_of_the_daemon():
    session = "consumer.session.timeout.ms"
    assert default_value(CONFIG_KEYS[session], LOWERED) == "5000"
    assert config_error({session: "4000"}, LOWERED) is None
    assert "at least 4000" in (config_error({session: "3999"}, LOWERED) or "")
    assert "at least 45000" in (config_error({session: "4000"}, LIMITS) or "")


@pytest.mark.parametrize(
    "configs",
    [
        {"consumer.heartbeat.interval.ms": "5000"},
        {"consumer.session.timeout.ms": "4500", "consumer.heartbeat.interval.ms": "4500"},
    ],
    ids=["the daemon's session", "its own session"],
)
def test_a_member_must_heartbeat_more_often_than_its_session_lasts(configs):
    wrong = "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"
    assert config_error(configs, LOWERED) == wrong


def test_a_value_outside_bounds_that_changed_later_counts_as_the_nearest_bound():
    configs = {"consumer.session.timeout.ms": "4000", "consumer.assignment.interval.ms": "15000"}
    assert to_overrides(configs, LOWERED).consumer_session_timeout_ms == 4_000
    later = to_overrides(configs, CoreLimits(consumer_max_assignment_interval_ms=2_000))
    assert later.consumer_session_timeout_ms == 45_000
    assert later.consumer_assignment_interval_ms == 2_000
    assert later.consumer_heartbeat_interval_ms is None


# --- commit.monotonic ---


def test_a_member_s_rewind_is_refused_for_its_partition_alone(driver):
    member = a_member(driver)
    configure(driver, commit_monotonic=True)
    driver.commit(topics={"orders": {0: 10, 1: 10}}, generation_id=1, member_id=member)
    call = driver.commit(topics={"orders": {0: 9, 1: 11}}, generation_id=1, member_id=member)
    assert call.partition_errors() == {
        ("orders", 0): ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ("orders", 1): ErrorCode.NONE,
    }
    assert driver.fetch().offsets() == {("orders", 0): 10, ("orders", 1): 11}


def test_the_same_offset_again_is_no_rewind(driver):
    member = a_member(driver)
    configure(driver, commit_monotonic=True)
    for _ in range(2):
        call = driver.commit(topics={"orders": {0: 10}}, generation_id=1, member_id=member)
        assert call.error is ErrorCode.NONE


@pytest.mark.parametrize(
    "topics",
    [
        [("orders", "", [(0, 10, -1, ""), (0, 9, -1, "")])],
        [("orders", "", [(0, 10, -1, "")]), ("orders", "", [(0, 9, -1, "")])],
    ],
    ids=["in one entry", "in two"],
)
def test_a_rewind_within_one_request_is_refused(driver, topics):
    member = a_member(driver)
    configure(driver, commit_monotonic=True)
    driver.commit(topics=topics, generation_id=1, member_id=member)
    assert driver.fetch().offsets() == {("orders", 0): 10}


def test_an_administrator_may_rewind(driver):
    configure(driver, commit_monotonic=True)
    driver.commit(topics={"orders": {0: 10}})
    assert driver.commit(topics={"orders": {0: 9}}).error is ErrorCode.NONE
    assert driver.fetch().offsets() == {("orders", 0): 9}


def test_other_groups_may_rewind(driver):
    configure(driver, commit_monotonic=True)
    join = driver.join("h", version=3)
    driver.sync("h", join.member_id, 1, assignments={join.member_id: b"x"})
    for offset in (10, 9):
        call = driver.commit(
            "h", {"orders": {0: offset}}, generation_id=1, member_id=join.member_id
        )
        assert call.error is ErrorCode.NONE


# --- rebalance.max.join.ms ---


def test_a_join_phase_ends_at_the_bound_whatever_the_members_ask_for(driver):
    first = a_member(driver, session_timeout_ms=1_800_000)
    configure(driver, rebalance_max_join_ms=5_000)
    second = driver.join(version=3)
    driver.advance(4_999)
    assert second.parked
    driver.advance(1)
    assert second.error is ErrorCode.NONE
    evicted = [e.member_id for e in driver.events if isinstance(e, MemberEvicted)]
    assert evicted == [first]


def test_a_bound_that_is_set_during_a_join_phase_holds_for_it(driver):
    a_member(driver, session_timeout_ms=1_800_000)
    second = driver.join(version=3)
    driver.advance(2_000)
    configure(driver, rebalance_max_join_ms=5_000)
    driver.advance(2_999)
    assert second.parked
    driver.advance(1)
    assert second.error is ErrorCode.NONE


def test_static_members_that_stay_away_hold_a_group_no_longer_than_the_bound(driver):
    a_member(driver, group_instance_id="i", session_timeout_ms=1_800_000)
    configure(driver, rebalance_max_join_ms=5_000)
    second = driver.join(version=3)
    driver.leave("g", "absent")
    driver.advance(5_000)
    assert second.error is ErrorCode.NONE
    third_id = second.member_id
    driver.leave("g", third_id)
    driver.advance(5_000)
    assert driver.state() == "Empty"


def test_a_bound_above_the_rebalance_timeout_changes_nothing(driver):
    a_member(driver, session_timeout_ms=1_800_000)
    configure(driver, rebalance_max_join_ms=10 * REBALANCE_MS)
    second = driver.join(version=3)
    driver.advance(REBALANCE_MS - 1)
    assert second.parked
    driver.advance(1)
    assert second.error is ErrorCode.NONE


def test_the_initial_delay_is_extended_no_further_than_the_bound():
    driver = ShardDriver(initial_rebalance_delay_ms=3_000)
    configure(driver, rebalance_max_join_ms=4_000)
    first = driver.join(version=3)
    driver.advance(1_000)
    driver.join(version=3)
    driver.advance(3_000)
    assert first.error is ErrorCode.NONE


# --- initial.rebalance.delay.ms and offsets.retention.minutes ---


def test_a_group_has_its_own_initial_delay():
    driver = ShardDriver(initial_rebalance_delay_ms=3_000)
    configure(driver, initial_rebalance_delay_ms=0)
    assert driver.join(version=3).error is ErrorCode.NONE
    assert driver.join("other", version=3).parked


def test_a_group_has_its_own_retention():
    driver = ShardDriver(offsets_retention_ms=24 * HOUR_MS, retention_check_interval_ms=600_000)
    configure(driver, offsets_retention_ms=HOUR_MS)
    driver.commit("g", {"orders": {0: 1}})
    driver.commit("h", {"orders": {0: 1}})
    driver.advance(2 * HOUR_MS)
    assert set(driver.list_groups()) == {"h"}


def test_a_member_s_session_is_not_touched_by_a_change(driver):
    member = a_member(driver)
    driver.advance(SESSION_MS - 1)
    configure(driver, commit_monotonic=True)
    driver.advance(1)
    assert driver.state() == "Empty"
    assert [e.member_id for e in driver.events if isinstance(e, MemberEvicted)] == [member]
