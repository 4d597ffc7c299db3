"""The time axis of a chart: round moments, each told apart from its neighbours."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from groupkeeper.pipeline.reports.charts import MAX_STEPS, Span, value_ticks

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOVEMBER_22_MS = 1_795_305_600_000
"""2026-11-22 00:00 UTC."""


def labels(since_ms: int, length_ms: int, most: int) -> list[str]:
    return [label for _, label in Span(since_ms, since_ms + length_ms).ticks(most)]


@given(
    since_ms=st.integers(0, 4_000_000_000_000),
    length_ms=st.integers(1_000, 400 * DAY_MS),
    most=st.integers(2, 60),
)
@example(since_ms=NOVEMBER_22_MS, length_ms=4 * 60_000, most=13)
@example(since_ms=NOVEMBER_22_MS, length_ms=5 * DAY_MS, most=13)
@example(since_ms=NOVEMBER_22_MS - 300 * DAY_MS, length_ms=400 * DAY_MS, most=2)
def test_neighbours_on_an_axis_have_different_labels(since_ms, length_ms, most):
    told = labels(since_ms, length_ms, most)
    assert len(told) <= most + 1
    assert all(one != next_one for one, next_one in pairwise(told)), told


@pytest.mark.parametrize(
    ("length_ms", "most", "told"),
    [
        (60_000, 4, ["00:00:00", "00:00:15", "00:00:30", "00:00:45", "00:01:00"]),
        (4 * 60_000, 4, ["00:00", "00:01", "00:02", "00:03", "00:04"]),
        (DAY_MS, 4, ["00:00", "06:00", "12:00", "18:00", "23 Nov"]),
        (2 * DAY_MS, 4, ["22 Nov", "12:00", "23 Nov", "12:00", "24 Nov"]),
        (4 * DAY_MS, 4, ["22 Nov", "23 Nov", "24 Nov", "25 Nov", "26 Nov"]),
    ],
)
def test_a_label_is_as_short_as_the_step_allows(length_ms, most, told):
    assert labels(NOVEMBER_22_MS, length_ms, most) == told


def test_the_midnight_between_two_evenings_names_its_day():
    told = labels(NOVEMBER_22_MS - 2 * HOUR_MS, 6 * HOUR_MS, 6)
    assert told == ["22:00", "23:00", "22 Nov", "01:00", "02:00", "03:00", "04:00"]


def test_steps_of_months_name_the_year():
    told = labels(NOVEMBER_22_MS, 400 * DAY_MS, 4)
    assert told[0] == "Dec 2026"
    assert told[-1] == "Dec 2027"


@given(largest=st.floats(1e-3, 1e12), least_step=st.sampled_from([0, 1]))
@example(largest=5.0, least_step=1)
@example(largest=0.3, least_step=0)
def test_an_axis_of_values_ends_with_the_step_of_the_largest_value(largest, least_step):
    ticks = value_ticks(largest, least_step)
    step = ticks[1]
    assert ticks == [step * number for number in range(len(ticks))]
    assert len(ticks) - 1 <= MAX_STEPS
    assert ticks[-2] < largest <= ticks[-1] * (1 + 1e-6)
    assert step >= least_step
    assert f"{step:.0e}"[0] in "125"


@pytest.mark.parametrize(
    ("largest", "told"),
    [
        (58_000, [0, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000]),
        (101_000, [0, 20_000, 40_000, 60_000, 80_000, 100_000, 120_000]),
        (61, [0, 20, 40, 60, 80]),
        (1, [0, 1]),
        (3, [0, 1, 2, 3]),
        (0, [0, 1]),
    ],
)
def test_an_axis_leaves_little_room_above_the_largest_value(largest, told):
    assert value_ticks(largest, least_step=1) == told
