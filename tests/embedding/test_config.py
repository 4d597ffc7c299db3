"""What a host can set, and what it does; in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import fields

import pytest

from coordinator.core.errors import ErrorCode
from coordinator.core.requests import GroupState
from coordinator.runtime.settings import LEAST, CoordinatorConfig
from tests.helpers.coordinator import a_coordinator
from tests.helpers.embedded import join, sync
from tests.helpers.virtual_loop import run_virtual, virtual_time


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
    value = LEAST[name] - below
    with pytest.raises(ValueError, match=f"^{name} must be at least {LEAST[name]}, not {value}$"):
        CoordinatorConfig(**{name: value})


def test_the_session_limits_may_be_equal_and_not_crossed() -> None:
    CoordinatorConfig(min_session_timeout_ms=9_000, max_session_timeout_ms=9_000)
    with pytest.raises(ValueError, match=r"min_session_timeout_ms \(9001\) is above max_"):
        CoordinatorConfig(min_session_timeout_ms=9_001, max_session_timeout_ms=9_000)


def test_every_number_has_a_least_value() -> None:
    numbers = {each.name for each in fields(CoordinatorConfig) if each.type in ("int", "float")}
    assert numbers == LEAST.keys()
