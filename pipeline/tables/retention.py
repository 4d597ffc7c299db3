"""Decides which days of each layer are removed because of their age (pure). The layers are bronze
(events), silver (facts about groups) and gold (summaries).

The user sets for how many days before today a layer keeps its tables. A missing file of events may
still come. So if a day is not published, or has missing events that are not accepted, this day and
all later days stay. When the events of a day are removed, the day is never computed again. The last
removed day keeps the rows that it carries to the next day, because that day needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date, timedelta

from groupkeeper.pipeline.tables.pointer import BRONZE, CARRIED, LAYERS, DayNote, Pointer


def parse_retention(given: Iterable[str]) -> dict[str, int]:
    """Parse options such as ``gold=730``. Raises ValueError, with a message for the user, if an
    option is wrong.
    """
    found = {}
    for each in given:
        layer, _, days = each.partition("=")
        if layer not in LAYERS or not days.isdecimal() or int(days) < 1:
            raise ValueError(
                f"{each}: use LAYER=DAYS with at least one day, such as gold=730. The layers are "
                f"{', '.join(LAYERS)}"
            )
        found[layer] = int(days)
    return found


def aged(pointer: Pointer, retention_days: Mapping[str, int], today: date) -> Pointer:
    """Return the pointer (which names the valid folders) with the new first day of each layer."""
    since = dict(pointer.since)
    for layer, days in retention_days.items():
        first = _first_kept(pointer, today - timedelta(days))
        since[layer] = max(first, since.get(layer, date.min))
    return replace(pointer, since=since)


def _first_kept(pointer: Pointer, wanted: date) -> date:
    """Return the first day to keep. This is ``wanted``, or an earlier day if the tables of that day
    are not complete.
    """
    return min(
        (day for day, note in pointer.days.items() if day < wanted and not note.is_whole),
        default=wanted,
    )


def without_old(days: Mapping[date, DayNote], since: Mapping[str, date]) -> dict[date, DayNote]:
    """Return the notes of the days without the tables that are too old. The last removed day keeps
    its carried rows. Earlier days without a table get no note.
    """
    bronze_since = since.get(BRONZE, date.min)
    last_removed = max((day for day in days if day < bronze_since), default=date.min)
    kept = {}
    for day, note in days.items():
        tables = {
            table: folder
            for table, folder in note.tables.items()
            if day >= _first_day(table.partition("/")[0], since, last_removed)
        }
        if tables or day >= last_removed:
            kept[day] = replace(note, tables=tables)
    return kept


def _first_day(layer: str, since: Mapping[str, date], last_removed: date) -> date:
    return last_removed if layer == CARRIED else since.get(layer, date.min)
