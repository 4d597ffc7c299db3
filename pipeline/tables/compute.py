"""Computes the tables of consecutive days: silver (facts about groups), gold (summaries), and
``_carried``. The latter has the rows that each day carries to the next day, such as the committed
offsets at its end.

The computation reads bronze (the table of events), and the carried rows of the day before the first
one. It writes new folders and changes no existing one. ``publish`` makes the new folders valid.

A day is called grown if it only got new events since it was computed. Then most tables need only
the new events. Their rows of silver are written into new files, beside the existing files. Their
sums are added to the existing sums, from which gold is computed. Any other day is computed in the
same steps, as if all of its events were new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from groupkeeper.pipeline.log.columns import (
    CARRIED_EVENTS_SCHEMA,
    ENDS_SCHEMA,
    EVENT_SCHEMA,
    STANDING_SCHEMA,
)
from groupkeeper.pipeline.spark.session import is_small
from groupkeeper.pipeline.tables import gold, silver
from groupkeeper.pipeline.tables.bronze import Contents, read_events
from groupkeeper.pipeline.tables.columns import GOLD_SCHEMAS, MINUTES_SCHEMA, SILVER_SCHEMAS
from groupkeeper.pipeline.tables.files import link_files
from groupkeeper.pipeline.tables.lag import lag_1m
from groupkeeper.pipeline.tables.lake import DAY, Lake, add_days, empty
from groupkeeper.pipeline.tables.pointer import Pointer, folder_of
from groupkeeper.pipeline.tables.rebalances import rebalances
from groupkeeper.pipeline.tables.small import by_day, frame, read_days, write_rows

if TYPE_CHECKING:
    import pyarrow as pa

COMPUTATION: Final = 4
"""The version of the computation. Increase it if silver, gold or carried events change for the same
events. Days that an earlier version computed are then computed again."""

TABLES: Final = (
    *(f"silver/{table}" for table in SILVER_SCHEMAS),
    *(f"gold/{table}" for table in GOLD_SCHEMAS),
    *(f"_carried/{table}" for table in ("events", "forgotten", "newest", "offsets", "ends")),
    "_carried/minutes",
)
"""All tables that have versions."""

APPENDED: Final = ("silver/commit_deltas", "silver/other_changes", "silver/end_offsets")
"""Tables with a row for each event. New events add files and change no existing file."""

Progress = Callable[[str], object]
"""Called with a line of text: after each written table, its name and the seconds it took."""


@dataclass(frozen=True)
class Computation:
    """One computation of consecutive days. ``run`` writes their tables."""

    spark: SparkSession
    lake: Lake
    valid: Pointer
    """The pointer before the computation. It names the valid folders."""
    contents: Contents
    """The segments that bronze has, and the missing events."""
    days: Sequence[date]
    before: date | None
    """The last earlier day with events, whose carried rows are read. None if there is none."""
    version: int
    """The version of the new folders: the number of this run."""
    progress: Progress
    grown: Mapping[date, int] = field(default_factory=dict)
    """The days with new events and no other change. The value is the last batch from which the day
    was computed."""
    tables: dict[date, dict[str, str]] = field(default_factory=dict)
    """The folders written so far, by day and table."""

    def __post_init__(self) -> None:
        self.tables.update({day: {} for day in self.days})

    @cached_property
    def is_small(self) -> bool:
        """True if the tables are small, so that this process holds their rows and writes them."""
        return is_small(self.spark)

    def run(self) -> None:
        """Write all tables of the days."""
        new = read_events(
            self.spark, self.lake, self.days, after=self.grown, contents=self.contents
        )
        known, has_others = self.known()
        deltas = self._kept("silver/commit_deltas", silver.commit_deltas(new))
        others = self._kept("silver/other_changes", silver.other_changes(new))
        samples = self._kept("silver/end_offsets", silver.end_offsets(new))
        sessions, episodes = self._lives(known) if has_others else self._no_lives()

        minutes = gold.minutes(deltas, others)
        if self.grown:
            known_minutes = self._valid("_carried/minutes", MINUTES_SCHEMA)
            minutes = gold.added_minutes(minutes.unionByName(known_minutes))
        minutes = self._kept("_carried/minutes", minutes)
        newest = self._kept("_carried/newest", gold.newest_by_day(minutes))
        standing = self.carried("offsets", STANDING_SCHEMA)
        known_offsets = self._valid("_carried/offsets", STANDING_SCHEMA)
        changes = gold.all_changes(deltas, others)
        offsets = gold.offsets_by_day(changes, newest, known_offsets, standing, self.days)
        self._write("_carried/offsets", offsets)
        ends = self.carried("ends", ENDS_SCHEMA)
        known_ends = self._valid("_carried/ends", ENDS_SCHEMA)
        self._write("_carried/ends", gold.ends_by_day(samples, known_ends, ends, self.days))

        if self.grown:
            samples = samples.unionByName(self._valid("silver/end_offsets", samples.schema))
        lag = lag_1m(minutes, newest, standing, samples, ends, self.days)
        lag = self._published("lag_1m", lag)
        self._published("commit_rate_1m", gold.commit_rate_1m(minutes))
        self._published("audit", self._audit(deltas, others, new, known))
        self._published("group_daily", gold.group_daily(minutes, sessions, episodes, lag, known))
        for table in APPENDED:
            self._append(table)

    def _lives(self, known: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Write the tables about members and rebalances. Return the rows of silver's
        ``member_sessions`` and ``rebalances``.
        """
        forgotten = silver.forgotten_members(known, self.days)
        forgotten = self._kept("_carried/forgotten", forgotten)
        sessions = silver.member_sessions(known, forgotten, self.days)
        sessions = self._kept("silver/member_sessions", sessions)
        episodes = self._kept("silver/rebalances", rebalances(known, self.days))
        self._write("_carried/events", silver.carried_events(known, forgotten, self.days))
        self._published("rebalances", gold.rebalances(episodes, sessions))
        return sessions, episodes

    def _no_lives(self) -> tuple[DataFrame, DataFrame]:
        """Return empty tables in place of those of ``_lives``, for days without events of members
        and rebalances.
        """
        names = ("member_sessions", "rebalances")
        sessions, episodes = (empty(self.spark, SILVER_SCHEMAS[name]) for name in names)
        return sessions, episodes

    def known(self) -> tuple[DataFrame, bool]:
        """Read all events except commits: those of the days, and those carried into the first day.
        The second result is False only if there are certainly no such events.

        The columns with offsets are null, because they are the largest columns, and silver has the
        offsets too.
        """
        names = EVENT_SCHEMA.names
        events = read_events(self.spark, self.lake, self.days, contents=self.contents)
        events = events.select(names)
        carried = self.carried("events", CARRIED_EVENTS_SCHEMA).select(names)
        nothing = {name: F.lit(None).cast(EVENT_SCHEMA[name].dataType) for name in _OFFSETS}
        both = events.withColumns(nothing).unionByName(carried)
        rows = both.where(F.col("kind") != "commit")
        if not self.is_small:
            return rows, True
        held = rows.toArrow()  # eight queries read them
        return frame(self.spark, held, rows.schema), held.num_rows > 0

    def _audit(
        self, deltas: DataFrame, others: DataFrame, new: DataFrame, known: DataFrame
    ) -> DataFrame:
        if not self.grown:
            return gold.audit(deltas, others, new, known, self.days)
        before = self._valid("silver/other_changes", SILVER_SCHEMAS["other_changes"])
        others = others.unionByName(gold.of_deleted_topics(before))
        rows = gold.audit(deltas, others, new, known, self.days)
        return gold.added_audit(self._valid("gold/audit", GOLD_SCHEMAS["audit"]), rows)

    def _published(self, table: str, rows: DataFrame) -> DataFrame:
        # one file per day, since these tables are small
        return self._kept(f"gold/{table}", rows if self.is_small else rows.repartition(DAY))

    def _kept(self, table: str, rows: DataFrame) -> DataFrame:
        """Write a table. Return its written rows, so that Spark does not compute them twice."""
        if self.is_small:
            return frame(self.spark, self._write_held(table, rows), rows.schema)
        self._write(table, rows)
        folders = [of_day[table] for of_day in self.tables.values() if table in of_day]
        return read_days(self.spark, self.lake, table, folders, rows.schema)

    def carried(self, table: str, schema: StructType) -> DataFrame:
        """Read the rows that the day before the first one carries."""
        return self._valid(f"_carried/{table}", schema, [self.before] if self.before else [])

    def _valid(
        self, table: str, schema: StructType, days: Collection[date] | None = None
    ) -> DataFrame:
        """Read the valid rows of a table for some days; by default, for the days that have
        grown.
        """
        wanted = self.grown if days is None else days
        folders = [path for day, path in self.valid.folders(table).items() if day in wanted]
        return read_days(self.spark, self.lake, table, folders, schema)

    def _write(self, table: str, rows: DataFrame) -> None:
        """Write a table into new folders, one for each day that has rows."""
        if self.is_small:
            self._write_held(table, rows)
            return
        began = time.monotonic()
        seen = Observation()
        rows_seen = rows.observe(seen, F.collect_set(DAY).alias("days"))
        add_days(rows_seen, self.lake.path(table), self.version)
        for day in seen.get.get("days") or ():
            self.tables[day][table] = folder_of(table, day, self.version)
        self.progress(f"{table} ({time.monotonic() - began:.1f} s)")

    def _write_held(self, table: str, rows: DataFrame) -> pa.Table:
        """Write a small table like ``_write``, but without Spark's writer, and return its rows."""
        began = time.monotonic()
        held = rows.toArrow()
        for day, of_day in by_day(held):
            folder = self.tables[day][table] = folder_of(table, day, self.version)
            write_rows(self.spark, self.lake.path(folder), of_day)
        self.progress(f"{table} ({time.monotonic() - began:.1f} s)")
        return held

    def _append(self, table: str) -> None:
        """For each day that has grown, add the existing files of a table to the folder of its new
        files.
        """
        for day, folder in self.valid.folders(table).items():
            if day not in self.grown:
                continue
            written = self.tables[day].setdefault(table, folder)
            if written != folder:
                link_files(self.spark, self.lake.path(folder), self.lake.path(written))


_OFFSETS: Final = ("topics", "lost")
"""The columns of an event with the offsets of partitions."""
