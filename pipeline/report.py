"""What the reports have in common: which days they cover, how groups are named, what they leave.

A report is one HTML file for people, and its rows as Parquet, CSV and JSON for programs.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline import page
from pipeline.charts import Span, time_step_ms
from pipeline.gold import MINUTE_MS
from pipeline.lake import DAY, Lake, is_absent, read_table
from pipeline.publish import HELD_BACK
from pipeline.schema import PUBLICATION_SCHEMA

CHART_POINTS: Final = 240
"""Moments that a chart shows; a longer time has wider ones."""

MAX_ROWS: Final = 500
"""Rows that a page lists; the files beside it have all."""

Rows = list[dict[str, Any]]


class NothingPublished(Exception):
    """There is no complete day to report on; the message says what to do."""


@dataclass(frozen=True)
class Scope:
    """Which part of gold a report is about."""

    spark: SparkSession
    lake: Lake
    since: date | None = None
    """The first day; None for the first there is."""
    until: date | None = None
    """The last day."""
    group: str | None = None
    """One group alone."""

    def gold(self, table: str) -> DataFrame:
        """Read a table of gold, with ``name``: the group as a person knows it."""
        rows = self._published(table)
        if self.since is not None:
            rows = rows.where(F.col(DAY) >= self.since)
        if self.until is not None:
            rows = rows.where(F.col(DAY) <= self.until)
        if self.group is not None:
            rows = rows.where(F.col("group") == self.group)
        if not self._has_several_stores:
            return rows.withColumn("name", F.col("group"))
        return rows.withColumn("name", F.concat("group", F.lit(" @ "), F.substring("store", 1, 8)))

    @cached_property
    def _has_several_stores(self) -> bool:
        return self._published("group_daily").select("store").distinct().count() > 1

    def _published(self, table: str) -> DataFrame:
        try:
            return read_table(self.spark, self.lake.gold(table))
        except AnalysisException as error:
            if not is_absent(error):
                raise
            raise NothingPublished(f"the table {table} is empty") from None

    def warnings(self) -> list[str]:
        """Say which days are not in the report, and why."""
        notes = read_table(self.spark, self.lake.publications, PUBLICATION_SCHEMA)
        held = notes.where(F.col("missing") != "").orderBy(DAY).collect()
        return [
            f"{row['dt']} is not in this report: {row['missing']}."
            if row["state"] == HELD_BACK
            else f"{row['dt']} is published although {row['missing']}."
            for row in held
        ]


@dataclass(frozen=True)
class Report:
    """A report, computed."""

    name: str
    title: str
    parts: Sequence[str]
    """HTML."""
    rows: Rows
    """What the files for programs hold."""


Build = Callable[[Scope], Report]


def write_report(report: Report, scope: Scope, folder: Path) -> list[Path]:
    """Write a report's files; returns their paths, the HTML first."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    about = "all groups" if scope.group is None else f"group {scope.group}"
    says = f"groupkeeper, {about}. Times are UTC. Written {now}."
    warnings = [page.warning(text) for text in scope.warnings()]
    html = page.page(report.title, says, [*warnings, *report.parts])
    paths = {kind: folder / f"{report.name}.{kind}" for kind in ("html", "parquet", "csv", "json")}
    paths["html"].write_text(html)
    paths["json"].write_text(json.dumps(report.rows, indent=1, default=str) + "\n")
    _write_csv(report.rows, paths["csv"])
    pq.write_table(pa.Table.from_pylist(report.rows), paths["parquet"])
    return list(paths.values())


def _write_csv(rows: Rows, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _flat(value) for name, value in row.items()})


def _flat(value: object) -> object:
    return json.dumps(value) if isinstance(value, list | dict) else value


def collect(rows: DataFrame) -> Rows:
    """Bring rows to the driver as plain dicts."""
    return [row.asDict(recursive=True) for row in rows.collect()]


def buckets(
    times_ms: Sequence[int], points: int = CHART_POINTS, least_ms: int = MINUTE_MS
) -> tuple[Span, int]:
    """Choose the span of a chart, and how many milliseconds a point of it stands for.

    Both edges are whole points, so nothing lies outside.
    """
    if not times_ms:
        raise NothingPublished("there is nothing to report on")
    first, last = min(times_ms), max(times_ms)
    bucket_ms = time_step_ms(max(least_ms, (last - first) // points))
    since = first - first % bucket_ms
    return Span(since, last - last % bucket_ms + bucket_ms), bucket_ms


def largest(series: Mapping[str, Sequence[tuple[int, float]]], most: int) -> dict[str, Any]:
    """Keep the series with the largest values."""
    names = sorted(series, key=lambda name: -max((v for _, v in series[name]), default=0))
    return {name: series[name] for name in names[:most]}
