from __future__ import annotations

import asyncio

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.runtime.alarm import BUDGET_S, NEVER, Alarm
from tests.helpers.runtime.coordinator import a_coordinator
from tests.helpers.runtime.virtual_loop import (
    VirtualClock,
    VirtualLoop,
    virtual_time,
    virtual_timer,
)


class Watched:
    """Deadlines in a list; each ``expire`` removes one that is due and sets the alarm again."""

    def __init__(self, *at_ms: int, takes_s: float = 0.0) -> None:
        self.at_ms = sorted(at_ms)
        self.takes_s = takes_s
        self.expired: list[tuple[int, int]] = []
        self.rung = 0
        self.alarm: Alarm
        self.alarm_ms = NEVER

    def next_deadline(self) -> int | None:
        return self.at_ms[0] if self.at_ms else None

    def set_alarm(self) -> None:
        self.alarm.set(self, self.next_deadline())

    def expire(self, now: Now) -> None:
        self.rung += 1
        if self.at_ms[0] <= now.monotonic_ms:
            self.expired.append((self.at_ms.pop(0), now.monotonic_ms))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.advance(self.takes_s)
        self.set_alarm()


def an_alarm(*watched: Watched, clock: VirtualClock | None = None) -> Alarm:
    alarm = Alarm(clock or VirtualClock(), virtual_timer)
    alarm.watch(watched)
    for one in watched:
        one.alarm = alarm
        one.set_alarm()
    return alarm


@virtual_time
async def test_rings_for_each_deadline_in_time() -> None:
    start = VirtualClock().now().monotonic_ms
    watched = Watched(start + 30, start + 10, start + 500)
    an_alarm(watched)
    await asyncio.sleep(1)
    assert [due - start for due, _ in watched.expired] == [10, 30, 500]
    assert all(rung - due <= 1 for due, rung in watched.expired)


@virtual_time
async def test_an_earlier_deadline_moves_the_alarm_and_a_later_one_does_not() -> None:
    start = VirtualClock().now().monotonic_ms
    watched = Watched(start + 500)
    alarm = an_alarm(watched)
    watched.at_ms.insert(0, start + 20)
    alarm.set(watched, start + 20)
    alarm.set(watched, start + 300)
    await asyncio.sleep(0.1)
    assert len(watched.expired) == 1


@virtual_time
async def test_a_ring_calls_only_those_that_are_due() -> None:
    start = VirtualClock().now().monotonic_ms
    frequent, later = Watched(*range(start + 10, start + 100, 10)), Watched(start + 1_000)
    an_alarm(frequent, later)
    await asyncio.sleep(0.5)
    assert (frequent.rung, later.rung) == (9, 0)
    await asyncio.sleep(1)
    assert later.rung == 1


@virtual_time
async def test_a_deadline_that_was_moved_later_is_met_at_its_new_time() -> None:
    start = VirtualClock().now().monotonic_ms
    watched = Watched(start + 10)
    an_alarm(watched)
    watched.at_ms[0] = start + 500
    await asyncio.sleep(1)
    assert watched.expired == [(start + 500, start + 500)]
    assert watched.rung == 2


class Raises(Watched):
    def expire(self, now: Now) -> None:
        super().expire(now)
        raise ZeroDivisionError


@virtual_time
async def test_an_exception_of_one_does_not_keep_the_alarm_from_the_others() -> None:
    start = VirtualClock().now().monotonic_ms
    raises, behind = Raises(start + 10), Watched(start + 10)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    an_alarm(raises, behind)
    await asyncio.sleep(1)
    assert len(behind.expired) == 1


@virtual_time
async def test_much_that_is_due_is_spread_over_turns_of_the_loop_and_nobody_starves() -> None:
    start = VirtualClock().now().monotonic_ms
    greedy = Watched(*[start] * 20, takes_s=2 * BUDGET_S)
    modest = Watched(start)
    an_alarm(greedy, modest)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(greedy.expired) < 20
    assert len(modest.expired) == 1
    await asyncio.sleep(1)
    assert greedy.at_ms == []


@virtual_time
async def test_a_stopped_alarm_does_not_ring() -> None:
    start = VirtualClock().now().monotonic_ms
    watched = Watched(start + 10)
    alarm = an_alarm(watched)
    alarm.stop()
    alarm.set(watched, start + 5)
    await asyncio.sleep(1)
    assert watched.expired == []


@virtual_time
async def test_how_long_a_join_phase_took_is_counted_when_it_ends() -> None:
    async with a_coordinator(initial_rebalance_delay_ms=2_000) as world:
        await world.until(world.join("g"))
        seconds = world.coordinator.stats.rebalance_seconds
        assert sum(seconds.counts) == 1
        assert seconds.total == 2.0


@virtual_time
async def test_a_silent_member_is_evicted_when_its_session_ends_and_not_before() -> None:
    async with a_coordinator() as world:
        alive, silent = await world.a_stable_group("g", 2)
        for _ in range(9):
            await asyncio.sleep(1)
            world.heartbeat("g", alive, 1)
        assert world.coordinator.stats.members_evicted == {}
        await asyncio.sleep(1.5)
        assert world.coordinator.stats.members_evicted == {"session_timeout": 1}
        assert world.heartbeat("g", alive, 1).error is ErrorCode.REBALANCE_IN_PROGRESS
        gone = world.heartbeat("g", silent, 1)
        await world.until(gone)
        assert gone.error is ErrorCode.UNKNOWN_MEMBER_ID


@virtual_time
async def test_the_heartbeat_of_a_parked_new_member_sets_the_alarm_for_its_session() -> None:
    """Its first heartbeat shortens five minutes to the session (Kafka 4.3.1:
    rescheduleClassicGroupMemberHeartbeat). No other deadline may be near.
    """
    hours = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 1_800_000}
    async with a_coordinator() as world:
        leader = world.join("g", **hours)
        await world.until(leader)
        member_id = leader.result.member_id
        await world.until(world.sync("g", member_id, 1, ((member_id, b"all"),)))
        newcomer = world.join("g", session_timeout_ms=10_000)
        await asyncio.sleep(1)
        heard = world.heartbeat("g", newcomer.request.new_member_id, 1)  # type: ignore[union-attr]
        assert heard.error is ErrorCode.REBALANCE_IN_PROGRESS
        await asyncio.sleep(9.9)
        assert newcomer.is_waiting
        await asyncio.sleep(0.2)
        assert newcomer.error is ErrorCode.UNKNOWN_MEMBER_ID


@virtual_time
async def test_a_clock_that_was_moved_is_looked_at_once_and_rings_what_is_due() -> None:
    clock = VirtualClock()
    start = clock.now().monotonic_ms
    watched = Watched(start + 10_000, start + 20_000)
    alarm = an_alarm(watched, clock=clock)
    assert alarm.earliest() == start + 10_000
    clock.monotonic_offset_ms = 10_000
    alarm.look()
    assert watched.expired == [(start + 10_000, start + 10_000)]
    assert alarm.earliest() == start + 20_000
    await asyncio.sleep(10.1)
    assert len(watched.expired) == 2
    assert alarm.earliest() is None


@virtual_time
async def test_an_alarm_with_nothing_to_wait_for_holds_no_timer() -> None:
    start = VirtualClock().now().monotonic_ms
    an_alarm(Watched(start + 10), Watched())
    await asyncio.sleep(1)
    loop = asyncio.get_running_loop()
    assert [handle for handle in loop._scheduled if not handle.cancelled()] == []  # type: ignore[attr-defined]


@virtual_time
async def test_a_stopped_alarm_does_not_ring_for_a_clock_that_was_moved() -> None:
    watched = Watched(0)
    alarm = an_alarm(watched)
    alarm.stop()
    alarm.look()
    assert watched.expired == []
