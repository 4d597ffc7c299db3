"""The stamps of a log under a clock that does what it wants."""

from __future__ import annotations

from itertools import count

from storage.event_codec import Stamp
from storage.log_clock import STEP_BACK_MS, LogClock


class Wall:
    now_ms = 100_000

    def __call__(self) -> int:
        return self.now_ms


def clock_at(wall: Wall) -> LogClock:
    numbers = count(1)
    return LogClock(wall, lambda: f"log-{next(numbers)}")


def test_a_clock_that_goes_on_is_told_as_it_is() -> None:
    wall = Wall()
    clock = clock_at(wall)
    wall.now_ms += 5
    assert clock.stamp() == Stamp("log-1", 100_005, 100_005)


def test_small_steps_back_are_clamped_until_they_add_up() -> None:
    wall = Wall()
    clock = clock_at(wall)
    wall.now_ms -= STEP_BACK_MS // 2
    assert clock.stamp() == Stamp("log-1", 100_000, 95_000)
    wall.now_ms -= STEP_BACK_MS // 2
    assert clock.stamp() == Stamp("log-1", 100_000, 90_000)
    wall.now_ms -= 1
    assert clock.stamp() == Stamp("log-2", 89_999, 89_999)


def test_a_log_is_resumed_where_it_stood() -> None:
    wall = Wall()
    clock = clock_at(wall)
    clock.resume("older", 100_500)
    assert clock.stamp() == Stamp("older", 100_500, 100_000)
    clock.resume("far ahead", 200_000)
    assert clock.stamp() == Stamp("log-2", 100_000, 100_000)
