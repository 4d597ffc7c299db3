"""Old days go from the oldest on, and never one that still waits for a segment."""

from __future__ import annotations

from datetime import date

import pytest

from groupkeeper.pipeline.tables.pointer import HELD_BACK, PUBLISHED, STALE, DayNote, Pointer
from groupkeeper.pipeline.tables.retention import aged, parse_retention, without_old

DAYS = [date(2026, 11, day) for day in range(1, 8)]
TODAY = date(2026, 11, 8)
TABLES = ("_carried/offsets", "gold/audit", "silver/rebalances")


def note(state: str = PUBLISHED) -> DayNote:
    return DayNote(state, "f", 1, "", 3, {table: f"{table}/folder" for table in TABLES})


def kept(retention_days: dict[str, int], **states: str) -> dict[int, list[str]]:
    """The tables that each day keeps."""
    days = {day: note(states.get(f"day_{day.day}", PUBLISHED)) for day in DAYS}
    pointer = aged(Pointer(1, days), retention_days, TODAY)
    found = without_old(pointer.days, pointer.since)
    return {day.day: [table.partition("/")[0] for table in found[day].tables] for day in found}


ALL = ["_carried", "gold", "silver"]


def test_without_an_age_everything_stays():
    assert kept({}) == {day.day: ALL for day in DAYS}


def test_each_layer_has_an_age_of_its_own():
    found = kept({"gold": 4, "silver": 2})
    assert found == {
        **{day: ["_carried"] for day in (1, 2, 3)},
        **{day: ["_carried", "gold"] for day in (4, 5)},
        **dict.fromkeys((6, 7), ALL),
    }


def test_when_events_go_the_last_of_these_days_keeps_what_it_passes_on():
    assert kept({"bronze": 3, "gold": 1, "silver": 1}) == {
        4: ["_carried"],
        5: ["_carried"],
        6: ["_carried"],
        7: ALL,
    }
    assert kept({"bronze": 3})[3] == ["gold", "silver"]


@pytest.mark.parametrize("state", [HELD_BACK, STALE])
def test_a_day_that_waits_for_a_segment_stays_and_so_do_later_days(state):
    found = kept({"bronze": 1, "gold": 1, "silver": 1}, day_3=state)
    assert found == {2: ["_carried"], **dict.fromkeys(range(3, 8), ALL)}


def test_a_day_that_went_does_not_come_back_with_a_longer_age():
    days = {day: note() for day in DAYS}
    short = aged(Pointer(1, days), {"gold": 1}, TODAY)
    assert aged(short, {"gold": 5}, TODAY).since == short.since == {"gold": date(2026, 11, 7)}


def test_options_name_a_layer_and_days():
    assert parse_retention(["gold=730", "bronze=90"]) == {"gold": 730, "bronze": 90}
    for wrong in ("gold", "gold=0", "gold=x", "lead=3", "=3"):
        with pytest.raises(ValueError, match="use LAYER=DAYS"):
            parse_retention([wrong])
