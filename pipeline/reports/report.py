"""The common parts of the reports: the tables, groups and days that a report covers, and the files
that it writes.

A report is one HTML file for people, and its rows as Parquet, CSV and JSON for programs. It reads
the tables of silver (facts about groups) and gold (summaries). A day is published if these tables
have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from groupkeeper.pipeline.log.columns import CARRIED_EVENTS_SCHEMA
from groupkeeper.pipeline.log.kinds import DATA_STORE
from groupkeeper.pipeline.reports import page
from groupkeeper.pipeline.reports.bounds import IncidentBounds
from groupkeeper.pipeline.reports.charts import Span, moment, time_step_ms
from groupkeeper.pipeline.reports.row_files import Rows, write_rows
from groupkeeper.pipeline.tables.bronze import read_coverage
from groupkeeper.pipeline.tables.columns import GOLD_SCHEMAS, SILVER_SCHEMAS
from groupkeeper.pipeline.tables.gold import MINUTE_MS
from groupkeeper.pipeline.tables.lake import DAY, Lake
from groupkeeper.pipeline.tables.pointer import HELD_BACK, STALE, DayNote, Pointer
from groupkeeper.pipeline.tables.versions import read_pointer, read_valid

CHART_POINTS: Final = 240
"""The largest number of moments in a chart. In a chart of a longer time, the moments are farther
apart."""

MAX_ROWS: Final = 500
"""The largest number of rows that a page lists. The files next to the page have all rows."""

MAX_WARNINGS: Final = 5
"""The largest number of days with missing events that a page names."""

UNDER_WAY: Final = (
    "`groupkeeper pipeline run` began to compute this and has not finished; if none is at work, it "
    "was interrupted, and is to be run again"
)
"""The ``missing`` text of a day that a run has not finished, in tables from before 0.2.0.dev5."""

_NO_PAGES: Final[Mapping[str, str]] = MappingProxyType({})


class NoTables(Exception):
    """There are no tables to report on. The message says how to make them."""


@dataclass(frozen=True)
class Scope:
    """The days and groups that a report covers, and the tables from which it reads them."""

    spark: SparkSession
    lake: Lake
    since: date | None = None
    """The first day of the report; None: the first published day."""
    until: date | None = None
    """The last day of the report; None: the last published day."""
    group: str | None = None
    """The only group of the report; None: all groups."""
    bounds: IncidentBounds = field(default_factory=IncidentBounds)
    """The bounds of the rules for incidents."""

    def gold(self, table: str) -> DataFrame:
        """Return the rows of a table of gold for the days and the group of the report. The column
        ``name`` has the group's display name.

        A table that was never written is empty.
        """
        rows = self._published(table).where(F.col(DAY).isin(*self.days))
        if self.group is not None:
            rows = rows.where(F.col("group") == self.group)
        return self.named(rows)

    def named(self, rows: DataFrame) -> DataFrame:
        """Add the column ``name``: the group's display name. If there are several stores, it also
        names the store.
        """
        if not self._has_several_stores:
            return rows.withColumn("name", F.col("group"))
        return rows.withColumn("name", F.concat("group", F.lit(" @ "), F.substring("store", 1, 8)))

    def silver(self, table: str) -> DataFrame:
        """Return a table of silver, for the days and the group of the report."""
        schema = SILVER_SCHEMAS[table]
        rows = read_valid(
            self.spark, self.lake, self._pointer, f"silver/{table}", schema, self.days
        )
        # end_offsets has no group
        if self.group is None or "group" not in schema.names:
            return rows
        return rows.where(F.col("group") == self.group)

    def carried_events(self) -> DataFrame:
        """Return the events that the computation carries from the last day of the report to the
        next day. They have the current members and assignments.
        """
        last = self.days[-1:]
        return read_valid(
            self.spark, self.lake, self._pointer, "_carried/events", CARRIED_EVENTS_SCHEMA, last
        )

    @cached_property
    def sampled_ms(self) -> int | None:
        """When the true ends of partitions were last sampled in these days (ms). None if they were
        not."""
        samples = self.silver("end_offsets").where(F.col("store") == DATA_STORE)
        ((last,),) = samples.agg(F.max("ts_ms")).collect()
        return None if last is None else int(last)

    @cached_property
    def _has_several_stores(self) -> bool:
        return self._published("group_daily").select("store").distinct().count() > 1

    def _published(self, table: str) -> DataFrame:
        schema = GOLD_SCHEMAS[table]
        return read_valid(self.spark, self.lake, self._pointer, f"gold/{table}", schema)

    @cached_property
    def _pointer(self) -> Pointer:
        """Read the pointer, which names the valid folders of the tables, at the first use. So a
        whole report uses one version of the tables.
        """
        return read_pointer(self.spark, self.lake)

    @property
    def _notes(self) -> Mapping[date, DayNote]:
        """Return for each day, in order, its state and the folders of its tables."""
        return self._pointer.days

    @cached_property
    def _put_backs(self) -> list[str]:
        """Return a line for each of the last MAX_WARNINGS restores of an older copy of a store."""
        put_backs = read_coverage(self.spark, self.lake).put_backs()
        return [f"{text[:1].upper()}{text[1:]}." for text in map(str, put_backs[-MAX_WARNINGS:])]

    @cached_property
    def days(self) -> list[date]:
        """The requested days that are published, in order."""
        since, until = self.since or date.min, self.until or date.max
        return [day for day in self._published_days if since <= day <= until]

    def of_last_days(self, days: int) -> Scope:
        """Return this scope with another first day. It then covers ``days`` calendar days, of which
        the last published day is the last.
        """
        last = self._published_days[-1:] or [date.max]
        return replace(self, since=last[0] - timedelta(days=days - 1))

    @property
    def _published_days(self) -> list[date]:
        return self._pointer.published_days

    @property
    def quiet(self) -> dict[date, date]:
        """Maps each day that is followed by days without events to the next day with events.

        No events are missing between these two days, so no offset changed between them.
        """
        return {day: then for day, then in pairwise(self._notes) if then - day > timedelta(days=1)}

    def require_tables(self) -> None:
        """Raise NoTables if the pipeline never wrote to this folder."""
        if not self._notes:
            raise NoTables(
                f"there are no tables in {self.lake.root}: is that the --out of `groupkeeper "
                "pipeline run`?"
            )

    def warnings(self) -> list[str]:
        """Return the warnings for the head of the report.

        They name the days that are left out, the days with missing events, and the stores that an
        older copy replaced. If there are more than MAX_WARNINGS such days, only the last are named.
        """
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
        """Return a text that names the groups and the days of the report."""
        groups = "all groups" if self.group is None else f"group {self.group}"
        return f"{groups}, {_from_to(self.days)}" if self.days else groups

    def why_nothing(self, otherwise: str) -> str:
        """Return the reason why a report is empty: no day is published, none of the requested days
        is, or the group does not exist. If there is no such reason, return ``otherwise``.
        """
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
                "`groupkeeper group list` shows it?"
            )
        return otherwise


_ALTHOUGH: Final = "is published although"
_ABOUT: Final = {
    HELD_BACK: "is not in this report:",
    STALE: "is shown as it was published earlier, and is not up to date:",
}
"""The text of a warning between the day and the missing events, by the state of the day."""


def _is_waiting(note: DayNote) -> bool:
    """Return True if a run from before 0.2.0.dev5 began the day and did not finish it."""
    return note.state == HELD_BACK and note.missing in ("", UNDER_WAY)


def _from_to(days: Sequence[date]) -> str:
    return str(days[0]) if days[0] == days[-1] else f"{days[0]} to {days[-1]}"


class PageContent(NamedTuple):
    """The content of a page below its warnings. The page shows it in the order note, figures,
    parts.
    """

    figures: Mapping[str, object]
    """A few numbers by name. The index shows them too."""
    parts: Sequence[str]
    """The sections, as HTML."""
    note: str = ""
    """A line of HTML that says how to read the figures."""

    def html(self) -> list[str]:
        """Return the whole content."""
        return [self.note, page.tiles(self.figures), *self.parts]


@dataclass(frozen=True)
class Report:
    """A report, for its page and for its files."""

    name: str
    title: str
    content: PageContent | None
    """The content of the page; None if there is nothing to report."""
    rows: DataFrame | Rows
    """The rows of the files for programs. Rows of a Spark frame are read in parts."""
    schema: pa.Schema
    """The columns of the files for programs, which they also have without rows."""
    says_nothing: str
    """The text of a report without content."""


Build = Callable[[Scope], Report]


def write_report(
    report: Report, scope: Scope, folder: Path, pages: Mapping[str, str] = _NO_PAGES
) -> int:
    """Write the files of a report. Return the number of its rows. The page has links to ``pages``.

    If the report has no content, its page gives the reason and replaces an older page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    nothing = page.section("Nothing to report", scope.why_nothing(report.says_nothing), "")
    content = [nothing] if report.content is None else report.content.html()
    parts = [*map(page.warning, scope.warnings()), *content]
    html = page.page(report.title, head_line(scope), parts, pages)
    (folder / f"{report.name}.html").write_text(html)
    return write_rows(report.rows, report.schema, folder / report.name)


def head_line(scope: Scope) -> str:
    """Return the line below the title of a page."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    return f"groupkeeper, {scope.about()}. Times are UTC. Written {now}."


def lag_note(sampled_ms: int | None) -> str:
    """Return the first line of a page with lag. It says from which end the lag is measured.

    ``sampled_ms`` is the time when the true ends were last sampled; None if they never were.
    """
    if sampled_ms is None:
        return page.note(
            "Lag is the distance to the group that is furthest, not to the end of the partition. A "
            "group that is alone on its topic is never behind. `groupkeeper pipeline run --data "
            "HOST:PORT` asks the brokers for the true ends."
        )
    return page.note(
        "Lag is the distance to the end of the partition. The brokers were last asked for the ends "
        f"at {moment(sampled_ms)}."
    )


def with_text_day(rows: DataFrame) -> DataFrame:
    """Convert the column of the day to text, so that the day is the same text in all files."""
    return rows.withColumn(DAY, F.col(DAY).cast("string"))


def collect(rows: DataFrame) -> Rows:
    """Return rows as plain dicts."""
    return [row.asDict(recursive=True) for row in rows.collect()]


def top_rows(rows: DataFrame, *order: Column | str) -> tuple[Rows, int]:
    """Return the first MAX_ROWS rows in the given order, and the number of all rows."""
    counted = rows.count()
    return collect(rows.orderBy(*order).limit(MAX_ROWS)), counted


def time_bucket(at_ms: Column, bucket_ms: int) -> Column:
    """Return the beginning of the time interval that contains a moment."""
    return at_ms - at_ms % bucket_ms


def buckets(
    times_ms: Sequence[int], points: int = CHART_POINTS, least_ms: int = MINUTE_MS
) -> tuple[Span, int]:
    """Return the span of a chart, and the distance between two of its points in milliseconds.

    The distance is at least ``least_ms``, and large enough for at most about ``points`` points. The
    span begins and ends at a multiple of the distance, and contains all of ``times_ms``, which must
    not be empty.
    """
    first, last = min(times_ms), max(times_ms)
    bucket_ms = time_step_ms(max(least_ms, (last - first) // points))
    since = first - first % bucket_ms
    return Span(since, last - last % bucket_ms + bucket_ms), bucket_ms
