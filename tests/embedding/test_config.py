"""What a host can set, and what it does; in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from typing import Any

import pytest

from groupkeeper.coordinator.core.bounds import bounds_of
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from tests.helpers.runtime.coordinator import a_coordinator
from tests.helpers.runtime.embedded import join, sync
from tests.helpers.runtime.virtual_loop import run_virtual, virtual_time


@pytest.mark.parametrize(
    ("least_ms", "most_ms", "session_ms"),
    [(6_000, 1_800_000, 45_000), (60_000, 1_800_000, 60_000), (6_000, 20_000, 20_000)],
)
def test_the_default_session_timeout_is_one_that_is_allowed(
    least_ms: int, most_ms: int, session_ms: int
) -> None:
    async def scenario() -> None:
        limits = {"min_session_timeout_ms": least_ms, "max_session_timeout_ms": most_ms}
        async with a_coordinator(without_topics=True, **limits) as world:
            assert (await join(world.coordinator)).error_code is ErrorCode.NONE
            group = await world.coordinator.get_group("g")
            assert group is not None
            assert (group.session_timeout_ms, group.rebalance_timeout_ms) == (session_ms, 60_000)

    run_virtual(scenario())


@virtual_time
async def test_the_first_member_waits_as_long_as_the_config_says() -> None:
    async with a_coordinator(without_topics=True, initial_rebalance_delay_ms=3_000) as world:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await join(world.coordinator)
        assert 3.0 <= loop.time() - begin < 3.1


@virtual_time
async def test_silent_members_go_together_with_the_next_pass_and_joins_wait_for_none() -> None:
    async with a_coordinator(without_topics=True, heartbeat_check_interval_ms=5_000) as world:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(5.1 - loop.time() % 5)
        begin = loop.time()
        for group_id in ("g", "h"):
            joined = await join(world.coordinator, group_id=group_id, session_timeout_ms=10_000)
            await sync(world.coordinator, joined, group_id)
            await asyncio.sleep(0.1)
        assert loop.time() - begin < 0.3

        async def states() -> list[GroupState]:
            groups = [await world.coordinator.get_group(group_id) for group_id in ("g", "h")]
            return [group.state for group in groups if group is not None]

        await asyncio.sleep(14.5)
        assert await states() == ["Stable", "Stable"]
        await asyncio.sleep(0.5)
        assert await states() == ["Empty", "Empty"]


@pytest.mark.parametrize(
    "name",
    [
        "default_session_timeout_ms",
        "default_rebalance_timeout_ms",
        "min_session_timeout_ms",
        "max_session_timeout_ms",
        "heartbeat_check_interval_ms",
        "offsets_retention_ms",
        "shards",
    ],
)
@pytest.mark.parametrize("below", [1, 1_000])
def test_a_value_that_cannot_work_is_refused_by_its_name(name: str, below: int) -> None:
    least = bounds_of(CoordinatorConfig)[name].least
    value = least - below
    with pytest.raises(ValueError, match=f"^{name} must be at least {least}, not {value}$"):
        CoordinatorConfig(**{name: value})


def test_the_session_limits_may_be_equal_and_not_crossed() -> None:
    CoordinatorConfig(min_session_timeout_ms=9_000, max_session_timeout_ms=9_000)
    with pytest.raises(ValueError, match=r"min_session_timeout_ms \(9001\) is above max_"):
        CoordinatorConfig(min_session_timeout_ms=9_001, max_session_timeout_ms=9_000)


@pytest.mark.parametrize("named_ms", [5_999, 20_001])
def test_a_default_session_timeout_that_is_named_must_be_one_that_is_allowed(named_ms: int) -> None:
    bounds = r"min_session_timeout_ms \(6000\) and max_session_timeout_ms \(20000\)"
    with pytest.raises(ValueError, match=rf"default_session_timeout_ms \({named_ms}\) .* {bounds}"):
        CoordinatorConfig(max_session_timeout_ms=20_000, default_session_timeout_ms=named_ms)
    for fine_ms in (6_000, 20_000):
        CoordinatorConfig(max_session_timeout_ms=20_000, default_session_timeout_ms=fine_ms)


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        (
            {"heartbeat_check_interval_ms": 1.5},
            "heartbeat_check_interval_ms must be a whole number",
        ),
        ({"shards": "4"}, "shards must be a whole number, not '4'"),
        ({"drain_timeout_ms": None}, "drain_timeout_ms must be a whole number, not None"),
        ({"retry_min_ms": True}, "retry_min_ms must be a whole number, not True"),
        ({"load_slice_ms": "5"}, "load_slice_ms must be a number, not '5'"),
        ({"load_slice_ms": True}, "load_slice_ms must be a number, not True"),
        ({"cluster_id": None}, "cluster_id must be a string, not None"),
        ({"owner": 7}, "owner must be a string, not 7"),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_name(
    setting: dict[str, Any], problem: str
) -> None:
    with pytest.raises(TypeError, match=f"^{problem}"):
        CoordinatorConfig(**setting)


def test_a_part_of_a_millisecond_is_a_slice_of_a_load() -> None:
    assert CoordinatorConfig(load_slice_ms=0.5).load_slice_ms == 0.5


def test_a_whole_number_of_another_library_becomes_an_int() -> None:
    class Numpys:
        def __index__(self) -> int:
            return 4

    shards = CoordinatorConfig(shards=Numpys()).shards  # type: ignore[arg-type]
    assert (type(shards), shards) == (int, 4)


def test_every_number_has_a_least_value() -> None:
    numbers = {each.name for each in fields(CoordinatorConfig) if each.type in ("int", "float")}
    assert numbers == bounds_of(CoordinatorConfig).keys()
