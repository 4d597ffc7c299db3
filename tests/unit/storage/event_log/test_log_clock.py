"""The stamps of a log under a clock that does what it wants."""

from __future__ import annotations

import uuid
from itertools import count

from groupkeeper.coordinator.core.events import LogStarted
from groupkeeper.storage.codec.events import Stamp
from groupkeeper.storage.event_log.log_clock import STEP_BACK_MS, LogClock, LogReason, mint_log_id
from groupkeeper.storage.event_log.segment_digest import must_carry_digest


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


def test_the_log_of_a_start_is_resumed_where_it_stood() -> None:
    wall = Wall()
    clock = clock_at(wall)
    clock.begin(after="older", ts_ms=100_500)
    assert clock.stamp() == Stamp("log-2", 100_500, 100_000)
    clock.resume("log-2", 100_500)
    assert clock.started(7) is None
    wall.now_ms += 1_000
    assert clock.stamp() == Stamp("log-2", 101_000, 101_000)
    wall.now_ms -= 20_000
    assert clock.stamp().log_id == "log-3"
    clock.resume("log-2", 101_000)  # that append failed
    assert clock.started(7) is None


def test_a_log_that_was_never_written_begins_again_with_its_first_event() -> None:
    wall = Wall()
    clock = clock_at(wall)
    clock.begin(after="older", ts_ms=100_500)
    clock.stamp()
    clock.resume("older", 100_500)  # the first append failed
    assert clock.stamp() == Stamp("log-2", 100_500, 100_000)
    wanted = LogStarted(previous_log_id="older", previous_seq=7, reason="start", store="log-1")
    assert clock.started(7) == wanted
    clock.written()
    assert clock.started(8) is None


def test_a_start_begins_a_log_even_after_one_of_the_same_object() -> None:
    clock = clock_at(Wall())
    clock.stamp()
    clock.written()
    clock.begin(after="log-1", ts_ms=100_000)
    assert clock.stamp().log_id == "log-2"
    clock.resume("log-1", 100_000)
    assert clock.stamp().log_id == "log-2"


def test_a_log_far_ahead_of_the_clock_is_left_for_one_that_says_why() -> None:
    clock = clock_at(Wall())
    clock.begin(after="far ahead", ts_ms=200_000)
    assert clock.stamp().ts_ms == 100_000
    started = clock.started(3)
    assert started is not None
    assert started.reason == "clock_set_back"


def test_the_first_log_of_a_store_has_none_before_it() -> None:
    clock = clock_at(Wall())
    clock.stamp()
    assert clock.started(0) is None


def test_the_first_log_names_the_store_and_later_ones_keep_the_name() -> None:
    wall = Wall()
    clock = clock_at(wall)
    clock.begin(after=None, store="")
    assert (clock.stamp().log_id, clock.store) == ("log-2", "log-2")
    wall.now_ms -= 2 * STEP_BACK_MS
    assert (clock.stamp().log_id, clock.store) == ("log-3", "log-2")
    clock.begin(after="log-3", reason=LogReason.OLDER_STORE)
    clock.begin(after="log-4", store="log-2")
    started = clock.started(9)
    assert started is not None
    assert (clock.stamp().log_id, started.store) == ("log-5", "log-2")


def test_names_of_logs_say_that_their_segments_carry_digests() -> None:
    log_id = mint_log_id()
    assert uuid.UUID(log_id).version == 8
    assert must_carry_digest(log_id)
    assert must_carry_digest(f"{log_id}.7"), "a snapshot of it"
    assert not must_carry_digest(uuid.uuid4().hex)
