"""Brings a copy of gold, the summaries for reports, up to date: copies the days whose tables
changed since the last export.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from groupkeeper.pipeline.tables.pointer import POINTER, Pointer, from_json

MEMORY: Final = "_exported.json"
"""The name of the file with the record of earlier exports, in the export's folder."""

Days = tuple[date, date]
"""The first and the last day to export."""


class NothingToExport(Exception):
    """There are no tables. The message says how to make them."""


class Target(Protocol):
    """A copy of the tables in another format. A repeated call changes nothing."""

    def replace_day(self, table: str, day: date, rows: pa.Table) -> None:
        """Replace all rows of a day. If the table does not exist, create it."""

    def remove_day(self, table: str, day: date) -> None:
        """Remove all rows of a day. The table must exist."""


def read_local_pointer(tables: Path) -> Pointer:
    """Read the pointer, which names the valid folders of the tables.

    Raises NothingToExport if there is no pointer, and UnknownFormat if another version of
    groupkeeper wrote it.
    """
    try:
        return from_json((tables / POINTER).read_bytes())
    except FileNotFoundError as error:
        raise NothingToExport(
            f"{tables / POINTER} does not exist: is that the --out of `groupkeeper pipeline run`?"
        ) from error


def export(
    tables: Path,
    to: Path,
    target: Target,
    days: Days = (date.min, date.max),
    say: Callable[[str], object] = lambda _: None,
) -> int:
    """Copy each changed day of each table of gold, and remove days that no longer have rows. Return
    the number of these days, counted once for each table.

    An interrupted export can be repeated: a day is recorded after it was copied, and a second copy
    of the same day changes nothing.
    """
    pointer = read_local_pointer(tables)
    memory = _Memory(to / MEMORY)
    copied = 0
    for table, day, folder in _changes(pointer, memory, days):
        if folder is None:
            target.remove_day(table, day)
            say(f"{table} {day}: removed")
        else:
            rows = _rows(tables, folder, day)
            target.replace_day(table, day, rows)
            say(f"{table} {day}: {rows.num_rows:,} rows")
        memory.note(table, day, folder)
        copied += 1
    return copied


def _changes(
    pointer: Pointer, memory: _Memory, days: Days
) -> Iterator[tuple[str, date, str | None]]:
    """Yield each table and day to copy, with the folder of its rows. The folder is None if the day
    no longer has rows, so that its copy must be removed.
    """
    names = {name for note in pointer.days.values() for name in note.tables}
    for name in sorted(names | memory.tables()):
        if not name.startswith("gold/"):
            continue
        before, now = memory.of(name), pointer.folders(name)
        wanted: Mapping[date, str | None] = {
            **{date.fromisoformat(day): None for day in before},
            **now,
        }
        for day, folder in sorted(wanted.items()):
            is_known = before.get(day.isoformat()) == folder
            if days[0] <= day <= days[1] and not is_known:
                yield name, day, folder


def _rows(tables: Path, folder: str, day: date) -> pa.Table:
    """Read the rows of a day, and add the column ``dt``."""
    files = sorted((tables / folder).glob("*.parquet"))
    rows = pa.concat_tables(pq.ParquetFile(file).read() for file in files)
    days = pa.array([day] * rows.num_rows, pa.date32())
    return rows.append_column(pa.field("dt", pa.date32()), days)


class _Memory:
    """The record of earlier exports, in a file. For each day of each table, it has the folder from
    which the day was copied.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._days: dict[str, dict[str, str]] = json.loads(path.read_text())
        except FileNotFoundError:
            self._days = {}

    def tables(self) -> set[str]:
        return set(self._days)

    def of(self, table: str) -> Mapping[str, str]:
        return self._days.get(table, {})

    def note(self, table: str, day: date, folder: str | None) -> None:
        of_table = self._days.setdefault(table, {})
        if folder is None:
            of_table.pop(day.isoformat(), None)
        else:
            of_table[day.isoformat()] = folder
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_name(f"{self._path.name}.new")
        beside.write_text(json.dumps(self._days, indent=1, sort_keys=True))
        beside.replace(self._path)
