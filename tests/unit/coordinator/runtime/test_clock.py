from __future__ import annotations

import asyncio

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.runtime.clock import LoopClock
from tests.helpers.runtime.coordinator import World, a_config
from tests.helpers.runtime.virtual_loop import VirtualClock, VirtualLoop, turns, virtual_time
from tests.helpers.storage.faulty_storage import FaultyStorage


class Time:
    """The system's clocks, set by a test."""

    def __init__(self) -> None:
        self.monotonic_ns = 5_000_000_000
        self.readings = 0

    def read_monotonic_ns(self) -> int:
        self.readings += 1
        return self.monotonic_ns

    def read_wall_ns(self) -> int:
        return 1_700_000_000_000_000_000 + self.monotonic_ns

    def advance(self, ms: int) -> None:
        self.monotonic_ns += ms * 1_000_000


def a_clock(time: Time) -> LoopClock:
    return LoopClock(time.read_monotonic_ns, time.read_wall_ns)


@virtual_time
async def test_one_turn_of_the_loop_is_one_instant() -> None:
    time = Time()
    clock = a_clock(time)
    clock.start()
    await turns(2)
    first = clock.now()
    readings = time.readings
    time.advance(200)
    assert clock.now() is first
    assert time.readings == readings
    await turns(1)
    assert clock.now().monotonic_ms == first.monotonic_ms + 200
    clock.stop()


@virtual_time
async def test_the_monotonic_part_advances_at_most_a_second_between_turns() -> None:
    time = Time()
    clock = a_clock(time)
    clock.start()
    await turns(2)
    before = clock.now()
    await turns(1)
    time.advance(3_600_000)
    after = clock.now()
    assert after.monotonic_ms - before.monotonic_ms == 1_000
    assert after.wall_ms - before.wall_ms == 3_600_000
    await turns(1)
    time.advance(300)
    assert clock.now().monotonic_ms - after.monotonic_ms == 300
    clock.stop()


@virtual_time
async def test_idle_time_counts_in_full() -> None:
    loop = asyncio.get_running_loop()
    clock = LoopClock(lambda: int(loop.time() * 1e9), lambda: 0)
    clock.start()
    before = clock.now()
    await asyncio.sleep(60)
    passed = clock.now().monotonic_ms - before.monotonic_ms
    assert 59_900 <= passed <= 60_000
    clock.stop()


@virtual_time
async def test_a_process_that_was_stopped_hears_its_members_before_it_evicts() -> None:
    """After SIGSTOP for an hour, heartbeats that waited in the sockets are read first
    (docs/design.md#clocks).
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    clock = LoopClock(lambda: int(loop.time() * 1e9), lambda: 0)
    coordinator = GroupCoordinator(FaultyStorage(), a_config(), clock=clock)
    world = World(coordinator, FaultyStorage(), VirtualClock())
    clock.start()
    await coordinator.start()
    alive, silent = await world.a_stable_group("g", 2)
    loop.advance(3_600)
    await turns(3)  # timers that came due ring before anything is read
    for _ in range(30):
        beat = world.heartbeat("g", alive, 1)
        assert beat.error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        await asyncio.sleep(0.5)
    assert world.heartbeat("g", silent, 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.stats.members_evicted == {"session_timeout": 1}
    await coordinator.stop()
    clock.stop()
