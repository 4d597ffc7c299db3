"""The clock of a server for tests: real time, and what it was moved ahead by."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.runtime.clock import LoopClock
from groupkeeper.coordinator.testkit.faults import MovableClock


class RealTime:
    """Both clocks, as a test says; the monotonic one begins at 0."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ns(self) -> int:
        return self.ms * 1_000_000

    def wall_ns(self) -> int:
        return (1_000_000 + self.ms) * 1_000_000

    def clock(self) -> MovableClock:
        return MovableClock(LoopClock(self.monotonic_ns, self.wall_ns))


def test_it_is_ahead_of_the_real_clocks_by_what_it_was_moved() -> None:
    real = RealTime()
    clock = real.clock()
    clock.move(500)
    real.ms = 30
    assert clock.now() == Now(530, 1_000_530)


def test_while_it_stands_time_passes_by_being_moved_alone_and_goes_on_from_there() -> None:
    real = RealTime()
    clock = real.clock()
    with clock.standing():
        real.ms = 30
        wall_ms = clock.wall_ms()
        clock.move(500)
        assert clock.now() == Now(500, 1_000_500)
        assert clock.wall_ms() - wall_ms == 500
        with clock.standing():
            real.ms = 40
        assert clock.now() == Now(500, 1_000_500)
    assert clock.now() == Now(500, 1_000_500)
    real.ms = 45
    assert clock.now() == Now(505, 1_000_505)


def test_it_goes_on_after_a_failure_too() -> None:
    real = RealTime()
    clock = real.clock()

    def fail() -> None:
        with clock.standing():
            real.ms = 30
            raise ValueError("the storage failed")

    with pytest.raises(ValueError, match="the storage failed"):
        fail()
    real.ms = 35
    assert clock.now() == Now(5, 1_000_005)
