"""The bounds of a host's settings. The least value is 0 if that turns something off."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.bounds import bounds_of
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig

MAY_BE_NOTHING = (
    "initial_rebalance_delay_ms",
    "heartbeat_check_interval_ms",
    "max_metadata_bytes",
    "offset_metadata_max_bytes",
    "max_partitions",
    "max_configured_groups",
    "max_remembered_groups",
    "drain_timeout_ms",
    "events_delay_ms",
    "merge_window_ms",
    "max_merged_members",
    "max_riding_events",
    "load_slice_ms",
    "fold_idle_ms",
    "end_offset_interval_ms",
    "consumer_assignment_interval_ms",
    "consumer_min_assignment_interval_ms",
)
MUST_BE_SOMETHING = (
    "min_session_timeout_ms",
    "max_session_timeout_ms",
    "group_max_size",
    "max_groups",
    "offsets_retention_ms",
    "retention_check_interval_ms",
    "max_group_bytes",
    "max_step_bytes",
    "default_session_timeout_ms",
    "default_rebalance_timeout_ms",
    "shards",
    "append_timeout_ms",
    "consumer_assignment_timeout_ms",
    "max_group_patterns",
    "max_patterns",
    "max_waiting_work",
    "max_gathered_requests",
    "max_gathered_bytes",
    "retry_min_ms",
    "retry_max_ms",
    "renew_interval_ms",
    "consumer_session_timeout_ms",
    "consumer_min_session_timeout_ms",
    "consumer_max_session_timeout_ms",
    "consumer_heartbeat_interval_ms",
    "consumer_min_heartbeat_interval_ms",
    "consumer_max_heartbeat_interval_ms",
    "consumer_max_size",
)
BELOW_OTHERS = ("consumer_max_assignment_interval_ms", "consumer_regex_refresh_interval_ms")
"""Another setting or a larger bound keeps them above 0."""


def test_every_number_is_in_one_of_the_lists() -> None:
    of_both = MAY_BE_NOTHING + MUST_BE_SOMETHING + BELOW_OTHERS
    assert sorted(bounds_of(CoordinatorConfig)) == sorted(of_both)


@pytest.mark.parametrize("name", MAY_BE_NOTHING)
def test_a_host_may_turn_off_what_0_turns_off_and_go_no_lower(name: str) -> None:
    assert getattr(CoordinatorConfig(**{name: 0}), name) == 0
    with pytest.raises(ValueError, match=f"^{name} must be at least 0, not -1$"):
        CoordinatorConfig(**{name: -1})


@pytest.mark.parametrize("name", MUST_BE_SOMETHING)
def test_a_host_may_not_set_to_0_what_nothing_works_without(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be at least 1, not 0$"):
        CoordinatorConfig(**{name: 0})


@pytest.mark.parametrize("name", ["shards", "max_gathered_requests", "max_gathered_bytes"])
def test_1_is_enough(name: str) -> None:
    assert getattr(CoordinatorConfig(**{name: 1}), name) == 1


def test_what_a_host_defaults_otherwise_keeps_the_bounds_of_the_core() -> None:
    ours, cores = bounds_of(CoordinatorConfig), bounds_of(CoreLimits)
    assert {name: ours[name] for name in cores} == cores


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"consumer_session_timeout_ms": 44_999},
            r"^consumer_session_timeout_ms \(44999\) is not within",
        ),
        (
            {"consumer_session_timeout_ms": 60_001},
            r"and consumer_max_session_timeout_ms \(60000\)$",
        ),
        ({"consumer_heartbeat_interval_ms": 15_001}, "^consumer_heartbeat_interval_ms"),
        ({"consumer_assignment_interval_ms": 15_001}, "^consumer_assignment_interval_ms"),
        ({"consumer_max_assignment_interval_ms": 0}, "^consumer_assignment_interval_ms"),
        (
            {
                "consumer_heartbeat_interval_ms": 45_000,
                "consumer_max_heartbeat_interval_ms": 45_000,
            },
            r"must be below consumer_session_timeout_ms \(45000\)",
        ),
        (
            {"consumer_min_session_timeout_ms": 5_000},
            r"^append_timeout_ms \(5000\) must be below consumer_min_session_timeout_ms",
        ),
        ({"consumer_assignors": ()}, "^consumer_assignors"),
        ({"consumer_assignors": ("range", "range")}, "^consumer_assignors"),
        ({"consumer_migration_policy": "none"}, "^consumer_migration_policy must be one of"),
        ({"rebalance_protocols": ("consumer",)}, "^rebalance_protocols must list classic"),
        ({"rebalance_protocols": ("classic", "share")}, "^rebalance_protocols"),
    ],
)
def test_settings_of_consumer_groups_that_do_not_fit_together_are_refused(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        CoordinatorConfig(**changes)
