"""How callbacks are timed: by the CPU time of the loop's thread, and cheaply."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.daemon.watched_loop import WatchedLoop
from groupkeeper.coordinator.runtime.clock import LoopClock
from groupkeeper.coordinator.server.watch import SAMPLE_S, SLOW_S, CallbackWatch
from tests.helpers.runtime.virtual_loop import turns


class Thread:
    """A thread whose two clocks are turned by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.cpu_s = 7.0
        self.readings = 0
        self.told: list[tuple[str, float, float]] = []
        self.watch = CallbackWatch(
            lambda *what: self.told.append(what), lambda: self.now_s, self._read_cpu_s
        )

    def _read_cpu_s(self) -> float:
        self.readings += 1
        return self.cpu_s

    def pass_time(self, took_s: float, cpu_s: float) -> None:
        self.now_s += took_s
        self.cpu_s += cpu_s

    def work(self, took_s: float, cpu_s: float | None = None) -> None:
        begun_s = self.watch.begin()
        self.pass_time(took_s, took_s if cpu_s is None else cpu_s)
        self.watch.end(begun_s, self.work)


@pytest.fixture
def thread():
    return Thread()


def counted(thread: Thread) -> dict[float, int]:
    """The buckets that hold something, by their upper bounds."""
    found = thread.watch.cpu_seconds
    return {bound: n for bound, n in zip(found.bounds, found.counts, strict=False) if n}


def test_callbacks_above_a_millisecond_are_counted_for_good(thread):
    for took_s in (0.0005, 0.02, 0.003, 0.0009):
        thread.work(took_s)
    assert counted(thread) == {0.005: 1, 0.025: 1}
    assert thread.watch.cpu_seconds.total == pytest.approx(0.023)


def test_a_slow_callback_is_counted_and_told_by_name(thread):
    thread.work(0.099)
    assert thread.watch.slow == 0
    thread.work(0.25, 0.12)
    thread.work(0.11)
    assert thread.watch.slow == 2
    assert [name for name, _, _ in thread.told] == ["Thread.work"] * 2
    assert thread.told[0][1:] == (pytest.approx(0.12), pytest.approx(0.25))


def test_time_without_cpu_is_not_the_callbacks_fault(thread):
    thread.work(15, 0.002)
    assert thread.watch.slow == 0
    assert thread.watch.cpu_seconds.total == pytest.approx(0.002)


def test_what_ran_before_a_callback_counts_for_it_only_within_the_age_of_a_reading(thread):
    thread.work(0.0009)
    thread.pass_time(SAMPLE_S * 2, SAMPLE_S * 2)
    thread.work(0.004)
    assert thread.watch.cpu_seconds.total == pytest.approx(0.004)


def test_the_cpu_time_is_read_rarely(thread):
    thread.work(0.0009)
    before = thread.readings
    for _ in range(1000):
        thread.work(0.0008)
    assert thread.readings - before < 1000 * 0.0008 / SAMPLE_S + 2


def test_all_callbacks_of_the_loop_and_steps_of_tasks_are_watched(thread):
    loop = WatchedLoop(thread.watch)
    ran = []

    def burn(how: str) -> None:
        ran.append(how)
        thread.pass_time(2 * SLOW_S, 2 * SLOW_S)

    async def main() -> None:
        burn("step")
        loop.call_soon(burn, "soon")
        loop.call_later(0.001, burn, "later")
        loop.call_at(loop.time(), burn, "at")
        loop.call_soon_threadsafe(burn, "threadsafe")
        while len(ran) < 5:
            await loop.run_in_executor(None, lambda: None)

    try:
        loop.run_until_complete(main())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
    assert sorted(ran) == ["at", "later", "soon", "step", "threadsafe"]
    assert thread.watch.slow == 5
    assert sum(name.endswith(".main") for name, _, _ in thread.told) == 1


def test_a_callback_that_raises_is_watched_too(thread):
    loop = WatchedLoop(thread.watch)
    problems = []
    loop.set_exception_handler(lambda _, context: problems.append(context["exception"]))

    def fail() -> None:
        thread.pass_time(2 * SLOW_S, 2 * SLOW_S)
        raise ValueError("broken")

    loop.call_soon(fail)
    loop.call_soon(loop.stop)
    try:
        loop.run_forever()
    finally:
        loop.close()
    assert len(problems) == 1
    assert thread.watch.slow == 1


def test_the_end_of_a_turn_of_the_clock_is_not_measured(thread):
    """It runs in every turn and does almost nothing, so measuring it would cost more."""
    loop = WatchedLoop(thread.watch)
    clock = LoopClock()
    begun = []
    thread.watch.begin = lambda: begun.append(1) or 0.0

    async def main() -> None:
        clock.start()
        await turns(2)
        begun.clear()
        first = clock.now()
        assert clock.now() is first
        await turns(1)
        assert clock.now() is not first
        clock.stop()

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    assert len(begun) <= 2  # the step of this task, and the loop's own end
