"""ListGroups for one shard (docs/spec/administration.md#list-groups)."""

from __future__ import annotations

import pytest

from tests.helpers.core.shard_driver import (
    a_member,
    a_stable_group,
    completing,
)


@pytest.fixture
def four(driver):
    """A driver with a group in each state, named after it, and a simple one."""
    a_stable_group(driver, "stable")
    a_stable_group(driver, "preparing")[0].join()
    completing(driver, a_member(driver, "completing", rebalance_timeout_ms=600_000))
    driver.join("preparing", version=3, rebalance_timeout_ms=600_000)
    driver.join("pending")
    driver.commit("simple")
    for group_id in ("stable", "completing"):
        assert driver.state(group_id).lower().startswith(group_id)
    return driver


def test_every_group_is_listed_with_type_and_state(four):
    groups = four.list_groups()
    assert {g: (str(i.group_state), i.protocol_type, i.group_type) for g, i in groups.items()} == {
        "stable": ("Stable", "consumer", "classic"),
        "preparing": ("PreparingRebalance", "consumer", "classic"),
        "completing": ("CompletingRebalance", "consumer", "classic"),
        "pending": ("Empty", "", "classic"),
        "simple": ("Empty", "", "classic"),
    }


@pytest.mark.parametrize(
    ("states", "listed"),
    [
        ({"stable"}, {"stable"}),
        ({"empty"}, {"pending", "simple"}),
        ({"preparingrebalance", "completingrebalance"}, {"preparing", "completing"}),
        ({"stable", "no-such-state"}, {"stable"}),
        ({"no-such-state"}, set()),
        ({"dead"}, set()),
    ],
)
def test_states_filter(four, states, listed):
    """docs/spec/administration.md#list-groups and docs/spec/edge-cases.md#edge-107: an unknown
    value matches nothing and is no error.
    """
    assert set(four.list_groups(states)) == listed


@pytest.mark.parametrize(
    ("types", "count"), [({"classic"}, 5), ({"consumer"}, 0), ({"no-such-type"}, 0)]
)
def test_types_filter(four, types, count):
    """docs/spec/administration.md#list-groups and docs/spec/edge-cases.md#edge-107."""
    assert len(four.list_groups((), types)) == count


def test_both_filters_are_an_and(four):
    assert set(four.list_groups({"stable"}, {"classic"})) == {"stable"}
    assert set(four.list_groups({"stable"}, {"share"})) == set()


def test_empty_group_keeps_its_protocol_type(driver):
    (member,) = a_stable_group(driver, members=1)
    member.leave()
    assert driver.list_groups()["g"].protocol_type == "consumer"


def test_groups_of_other_types_of_client_are_listed_with_their_type(driver):
    a_stable_group(driver, members=1)
    driver.join("connectors", version=3, protocol_type="connect")
    assert driver.list_groups()["connectors"].protocol_type == "connect"
