"""The common parts of the reports: their days, the names of groups, the files they write.

A report is one HTML file for people, and its rows as Parquet, CSV and JSON for programs.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from groupkeeper.pipeline.reports import page
from groupkeeper.pipeline.reports.charts import Span, time_step_ms
from groupkeeper.pipeline.tables.bronze import read_coverage
from groupkeeper.pipeline.tables.columns import GOLD_SCHEMAS, SILVER_SCHEMAS
from groupkeeper.pipeline.tables.gold import MINUTE_MS
from groupkeeper.pipeline.tables.lake import DAY, Lake
from groupkeeper.pipeline.tables.pointer import HELD_BACK, STALE, DayNote, Pointer
from groupkeeper.pipeline.tables.versions import read_pointer, read_valid

CHART_POINTS: Final = 240
"""The most moments in a chart. In a longer time, each moment stands for more of it."""

MAX_ROWS: Final = 500
"""Rows that a page lists. The files next to the page have all rows."""

MAX_WARNINGS: Final = 5
"""Days with missing events that a page names."""

UNDER_WAY: Final = (
    "`groupkeeper pipeline run` began to compute this and has not finished; if none is at work, it "
    "was interrupted, and is to be run again"
)
"""The ``missing`` text of 0.2.0.dev3 for a day that a run had not finished."""

Rows = list[dict[str, Any]]


class NoTables(Exception):
    """There are no tables to report on. The message says how to make them."""


@dataclass(frozen=True)
class Scope:
    """The part of gold that a report covers."""

    spark: SparkSession
    lake: Lake
    since: date | None = None
    """The first day; None for the first published one."""
    until: date | None = None
    """The last day."""
    group: str | None = None
    """Only this group."""

    def gold(self, table: str) -> DataFrame:
        """Return a table of gold, with the group's display name as ``name``.

        A table that was never written is empty.
        """
        rows = self._published(table).where(F.col(DAY).isin(*self.days))
        if self.group is not None:
            rows = rows.where(F.col("group") == self.group)
        if not self._has_several_stores:
            return rows.withColumn("name", F.col("group"))
        return rows.withColumn("name", F.concat("group", F.lit(" @ "), F.substring("store", 1, 8)))

    def silver(self, table: str) -> DataFrame:
        """Return a table of silver, for the days of the report."""
        schema = SILVER_SCHEMAS[table]
        return read_valid(
            self.spark, self.lake, self._pointer, f"silver/{table}", schema, self.days
        )

    @cached_property
    def _has_several_stores(self) -> bool:
        return self._published("group_daily").select("store").distinct().count() > 1

    def _published(self, table: str) -> DataFrame:
        schema = GOLD_SCHEMAS[table]
        return read_valid(self.spark, self.lake, self._pointer, f"gold/{table}", schema)

    @cached_property
    def _pointer(self) -> Pointer:
        """Return what was valid when it was first asked for: one report has one version."""
        return read_pointer(self.spark, self.lake)

    @property
    def _notes(self) -> Mapping[date, DayNote]:
        """Return the note of each day, in order."""
        return self._pointer.days

    @cached_property
    def _put_backs(self) -> list[str]:
        """Return the last moments at which an older copy replaced a store, as text."""
        put_backs = read_coverage(self.spark, self.lake).put_backs()
        return [f"{text[:1].upper()}{text[1:]}." for text in map(str, put_backs[-MAX_WARNINGS:])]

    @cached_property
    def days(self) -> list[date]:
        """The requested days that are published, in order."""
        since, until = self.since or date.min, self.until or date.max
        return [day for day in self._published_days if since <= day <= until]

    @property
    def _published_days(self) -> list[date]:
        return self._pointer.published_days

    @property
    def quiet(self) -> dict[date, date]:
        """Days followed by days without events, each with the next day that has events.

        No events are missing between them, so nothing changed in that time.
        """
        return {day: then for day, then in pairwise(self._notes) if then - day > timedelta(days=1)}

    def require_tables(self) -> None:
        """Raise NoTables if the pipeline never ran; the path may be wrong."""
        if not self._notes:
            raise NoTables(
                f"there are no tables in {self.lake.root}: is that the --out of `groupkeeper "
                "pipeline run`?"
            )

    def warnings(self) -> list[str]:
        """Return warnings: the days that are not in the report or lack events, with reasons, and
        the stores that an older copy replaced. Of many days, only the last ones have a line
        each."""
        waiting = [day for day, note in self._notes.items() if _is_waiting(note)]
        lines = [
            f"{day} {_ABOUT.get(note.state, _ALTHOUGH)} {note.missing}."
            for day, note in self._notes.items()
            if note.missing and not _is_waiting(note)
        ]
        more = len(lines) - MAX_WARNINGS
        if more > 0:
            days = "1 day" if more == 1 else f"{more} days"
            lines = [f"Events of {days} before these are missing too.", *lines[more:]]
        if waiting:
            are = "is" if len(waiting) == 1 else "are"
            lines.append(f"{_from_to(waiting)} {are} not in this report: {UNDER_WAY}.")
        return [*lines, *self._put_backs]

    def about(self) -> str:
        """Return the groups and the days of the report, as text."""
        groups = "all groups" if self.group is None else f"group {self.group}"
        return f"{groups}, {_from_to(self.days)}" if self.days else groups

    def why_nothing(self, otherwise: str) -> str:
        """Return why a report is empty; ``otherwise`` if there was nothing to report."""
        published = self._published_days
        if not published:
            return (
                "No day is published yet. `groupkeeper pipeline run` publishes each day that has "
                "all its events."
            )
        if not self.days:
            return (
                "No day between --since and --until is published; the published days are "
                f"{_from_to(published)}. Days without events have no rows, since nothing changed "
                "on them."
            )
        if self.group is not None and self.gold("group_daily").isEmpty():
            return (
                f"There is no group {self.group} on these days. Is its name spelled as "
                "`groupkeeper groups` lists it?"
            )
        return otherwise


_ALTHOUGH: Final = "is published although"
_ABOUT: Final = {
    HELD_BACK: "is not in this report:",
    STALE: "is shown as it was published earlier, and is not up to date:",
}
"""What a warning says of a day with missing events, by its state."""


def _is_waiting(note: DayNote) -> bool:
    """Return True if 0.2.0.dev3 began a day and did not finish it."""
    return note.state == HELD_BACK and note.missing in ("", UNDER_WAY)


def _from_to(days: Sequence[date]) -> str:
    return str(days[0]) if days[0] == days[-1] else f"{days[0]} to {days[-1]}"


@dataclass(frozen=True)
class Report:
    """A computed report."""

    name: str
    title: str
    parts: Sequence[str]
    """HTML; empty if there is nothing to report."""
    rows: Rows
    """The rows of the files for programs."""
    schema: pa.Schema
    """The schema of the rows."""
    says_nothing: str
    """The text of an empty report."""


Build = Callable[[Scope], Report]


def write_report(report: Report, scope: Scope, folder: Path) -> list[Path]:
    """Write a report's files; return their paths, the HTML first.

    A report without content says why, and replaces an older one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    says = f"groupkeeper, {scope.about()}. Times are UTC. Written {now}."
    warnings = [page.warning(text) for text in scope.warnings()]
    nothing = page.section("Nothing to report", scope.why_nothing(report.says_nothing), "")
    html = page.page(report.title, says, [*warnings, *(report.parts or [nothing])])
    paths = {kind: folder / f"{report.name}.{kind}" for kind in ("html", "parquet", "csv", "json")}
    paths["html"].write_text(html)
    paths["json"].write_text(json.dumps(report.rows, indent=1, default=str) + "\n")
    _write_csv(report, paths["csv"])
    pq.write_table(pa.Table.from_pylist(report.rows, schema=report.schema), paths["parquet"])
    return list(paths.values())


def _write_csv(report: Report, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, report.schema.names)
        writer.writeheader()
        for row in report.rows:
            writer.writerow({name: _flat(value) for name, value in row.items()})


def _flat(value: object) -> object:
    return json.dumps(value) if isinstance(value, list | dict) else value


def listed(
    name: str, rows: Rows, shown: Callable[[dict[str, Any]], dict[str, Any]], empty: str
) -> str:
    """Return a table of a report's first rows, rendered by ``shown``; its CSV file has all."""
    first = [shown(row) for row in rows[:MAX_ROWS]]
    return page.table(first, empty, total=len(rows), whole=f"{name}.csv")


def with_text_day(rows: DataFrame) -> DataFrame:
    """Convert the day to text, as in every format."""
    return rows.withColumn(DAY, F.col(DAY).cast("string"))


def collect(rows: DataFrame) -> Rows:
    """Return rows as plain dicts."""
    return [row.asDict(recursive=True) for row in rows.collect()]


def buckets(
    times_ms: Sequence[int], points: int = CHART_POINTS, least_ms: int = MINUTE_MS
) -> tuple[Span, int]:
    """Return the span of a chart, and the milliseconds per point.

    Both edges are multiples of this, so that no value lies outside. ``times_ms`` must not be empty.
    """
    first, last = min(times_ms), max(times_ms)
    bucket_ms = time_step_ms(max(least_ms, (last - first) // points))
    since = first - first % bucket_ms
    return Span(since, last - last % bucket_ms + bucket_ms), bucket_ms


def largest(series: Mapping[str, Sequence[tuple[int, float]]], most: int) -> dict[str, Any]:
    """Return the series with the largest values."""
    names = sorted(series, key=lambda name: -max((v for _, v in series[name]), default=0))
    return {name: series[name] for name in names[:most]}
