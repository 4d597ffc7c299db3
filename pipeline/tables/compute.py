"""Computes the tables of consecutive days: silver (facts about groups), gold (summaries), and
``_carried``. The tables of ``_carried`` have the rows that each day passes to the next day, such as
the committed offsets at its end.

The computation reads bronze (the table of events), and the carried rows of the day before the first
one. It writes new folders and changes no existing one. ``publish`` makes the new folders valid.

A day is called grown if it only got new events since it was computed. Then most tables need only
the new events. Their rows of silver are written into new files, next to the existing files. Their
sums are added to the existing sums, from which gold is computed. Any other day is computed in the
same steps, as if all of its events were new.

If the first of the days has grown, tables with minutes keep their rows from before the first new
event (``pipeline.tables.hours``). Later days are computed from their beginning, because their
offsets at midnight may have changed.

This file is long because it has a step for each table, and the tables depend on each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cached_property, reduce
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
from groupkeeper.pipeline.spark.session import SMALL_BYTES, is_small, prepare_for_large_data
from groupkeeper.pipeline.tables import gold, silver
from groupkeeper.pipeline.tables.bronze import Contents, read_events
from groupkeeper.pipeline.tables.columns import (
    GOLD_SCHEMAS,
    MINUTES_SCHEMA,
    PEAKS_SCHEMA,
    SAMPLES_SCHEMA,
    SILVER_SCHEMAS,
)
from groupkeeper.pipeline.tables.files import link_files
from groupkeeper.pipeline.tables.gold import MINUTE_MS
from groupkeeper.pipeline.tables.hours import (
    BY_HOUR,
    HOURS_TABLE,
    LARGE_DAY_EVENTS,
    PEAKS_TABLE,
    SAMPLES_HOURS_TABLE,
    SAMPLES_TABLE,
    Since,
    add_hours,
    begin_ms,
    earlier_minutes,
    held_by_hour,
    since_minute,
)
from groupkeeper.pipeline.tables.lag import lag_1m
from groupkeeper.pipeline.tables.lake import DAY, Lake, add_days, empty, file_sizes
from groupkeeper.pipeline.tables.pointer import Pointer, folder_of
from groupkeeper.pipeline.tables.rebalances import rebalances
from groupkeeper.pipeline.tables.small import (
    MAX_HELD_ROWS,
    by_day,
    frame,
    joined,
    read_days,
    read_held,
    write_rows,
)
from groupkeeper.pipeline.tables.tail import Tail, tail

if TYPE_CHECKING:
    import pyarrow as pa

COMPUTATION: Final = 4
"""The version of the computation. Increase it if silver, gold or carried events change for the same
events. Days that an earlier version computed are then computed again."""

LIVES_TABLE: Final = "_carried/lives"
"""The events of each day about members, rebalances and deleted topics (``silver.lives``)."""

TABLES: Final = (
    *(f"silver/{table}" for table in SILVER_SCHEMAS),
    *(f"gold/{table}" for table in GOLD_SCHEMAS),
    *(f"_carried/{table}" for table in ("events", "forgotten", "newest", "offsets", "ends")),
    LIVES_TABLE,
    "_carried/minutes",
    HOURS_TABLE,
    PEAKS_TABLE,
    SAMPLES_TABLE,
    SAMPLES_HOURS_TABLE,
)
"""All tables that have versions."""

APPENDED: Final[Mapping[str, StructType]] = {
    **{
        f"silver/{name}": SILVER_SCHEMAS[name]
        for name in ("commit_deltas", "other_changes", "end_offsets")
    },
    LIVES_TABLE: CARRIED_EVENTS_SCHEMA,
}
"""Tables with a row for each event. New events add files and change no existing file."""

SMALL_EVENTS: Final = 100_000
"""A session for small data is prepared for large data if a run reads more events than this. Their
files have about ``SMALL_BYTES``."""

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

    @property
    def is_small(self) -> bool:
        """True if the tables are small, so that this process holds their rows and writes them."""
        return is_small(self.spark)

    def run(self) -> None:
        """Write all tables of the days."""
        if self.is_small and self._new_events() > SMALL_EVENTS:
            prepare_for_large_data(self.spark)
        new = read_events(
            self.spark, self.lake, self.days, after=self.grown, contents=self.contents
        )
        known, lives = self._known(new)
        deltas = self._kept("silver/commit_deltas", silver.commit_deltas(new))
        others = self._kept("silver/other_changes", silver.other_changes(new))
        samples = self._kept("silver/end_offsets", silver.end_offsets(new))
        tables = self._no_lives() if known is None else self._lives(known, lives)
        sessions, episodes = tables

        since = self._since(deltas, others, samples)
        if self.is_small and self._bytes_again(since) > SMALL_BYTES:
            prepare_for_large_data(self.spark)
        minutes, hours = self._minutes(deltas, others, since)
        # the sums and last changes of all earlier hours
        earlier = empty(self.spark, MINUTES_SCHEMA)
        if not since.is_whole:
            earlier = gold.all_hours(self._earlier(HOURS_TABLE, MINUTES_SCHEMA, since))
            earlier = self._held(earlier)
        sums = hours.unionByName(earlier)
        newest = self._kept("_carried/newest", gold.newest_by_day(sums))
        standing = self.carried("offsets", STANDING_SCHEMA)
        known_offsets = self._valid("_carried/offsets", STANDING_SCHEMA)
        changes = gold.all_changes(deltas, others)
        offsets = gold.offsets_by_day(changes, newest, known_offsets, standing, self.days)
        self._write("_carried/offsets", offsets)
        ends = self.carried("ends", ENDS_SCHEMA)
        known_ends = self._valid("_carried/ends", ENDS_SCHEMA)
        self._write("_carried/ends", gold.ends_by_day(samples, known_ends, ends, self.days))

        since_ms = None if since.is_whole else since.minute_ms
        sampled = self._sampled(samples, since)
        lag = lag_1m(
            minutes.unionByName(earlier), newest, standing, sampled, ends, self.days, since_ms
        )
        lag = self._kept_since("gold/lag_1m", lag, since)
        peaks = self._peaks(lag, since)
        new_minutes = minutes if since_ms is None else minutes.where(F.col("minute_ms") >= since_ms)
        self._kept_since("gold/commit_rate_1m", gold.commit_rate_1m(new_minutes), since)
        audit = self._published("audit", self._audit(deltas, others, new, known))
        self._published("group_daily", gold.group_daily(sums, sessions, episodes, peaks, audit))
        for table in APPENDED.keys() - {LIVES_TABLE}:
            self._append(table)
        for table in BY_HOUR:
            self._keep_earlier(table, since)

    def _new_events(self) -> int:
        """Return the number of events of bronze that the run reads, for most of its tables."""
        parts = (part for part in self.contents.judged.held if part.dt in self.tables)
        return sum(part.events for part in parts if part.number > self.grown.get(part.dt, -2))

    def _bytes_again(self, since: Since) -> int:
        """Return the bytes of the files with minutes that are read and written again."""
        folders = (
            (day, folder)
            for table in BY_HOUR
            for day, folder in self.valid.folders(table).items()
            if day in self.grown
        )
        return sum(
            size
            for day, folder in folders
            for name, size in file_sizes(self.spark, self.lake.path(folder)).items()
            if day != since.day or since.is_again(name)
        )

    def _since(self, *tables: DataFrame) -> Since:
        """Return the moment from which the first day is computed again: the first minute with a row
        of ``tables``, or the beginning of the day if it has not only grown.
        """
        day = self.days[0]
        whole = Since(day, begin_ms(day))
        if day not in self.grown:
            return whole
        folders = self.valid.days[day].tables
        names = [
            name
            for table in BY_HOUR
            if table in folders
            for name in file_sizes(self.spark, self.lake.path(folders[table]))
        ]
        times = (rows.where(F.col(DAY) == day).select("ts_ms") for rows in tables)
        ((first,),) = reduce(DataFrame.unionByName, times).agg(F.min("ts_ms")).collect()
        after = begin_ms(day + timedelta(1))
        since = since_minute(day, after if first is None else first - first % MINUTE_MS, names)
        # without sums of hours, nothing is known about earlier files
        has_hours = since is not None and (not since.hour or HOURS_TABLE in folders)
        return since if since is not None and has_hours else whole

    def _minutes(
        self, deltas: DataFrame, others: DataFrame, since: Since
    ) -> tuple[DataFrame, DataFrame]:
        """Write the sums of the minutes, and those of the hours of large days. Return the sums of
        the minutes, from the first hour whose files are written again. Return the same sums with
        the minutes of an hour combined, if the day is large.
        """
        minutes = gold.minutes(deltas, others)
        if self.grown:
            known = self._again("_carried/minutes", MINUTES_SCHEMA, since)
            minutes = gold.added_minutes(minutes.unionByName(known))
        minutes = self._kept("_carried/minutes", minutes)
        if not self.large_days:
            return minutes, minutes
        is_large = F.col(DAY).isin(*self.large_days)
        hours = self._kept(HOURS_TABLE, gold.hours(minutes.where(is_large)))
        return minutes, hours.unionByName(minutes.where(~is_large))

    def _sampled(self, samples: DataFrame, since: Since) -> DataFrame:
        """Write the last sampled ends of the minutes, and those of the hours of large days. Return
        those of the minutes, and of the hours whose files are not written again.
        """
        earlier = empty(self.spark, SAMPLES_SCHEMA)
        has_table = {day for day in self.grown if SAMPLES_TABLE in self.valid.days[day].tables}
        # there were no samples yet, or an earlier version wrote the day
        lacking = self.grown.keys() - has_table
        known = self._valid("silver/end_offsets", samples.schema, lacking)
        rows = gold.sampled_minutes(samples.unionByName(known))
        if has_table:
            earlier = self._earlier(SAMPLES_HOURS_TABLE, SAMPLES_SCHEMA, since)
            again = self._again(SAMPLES_TABLE, SAMPLES_SCHEMA, since)
            rows = gold.added_samples(rows.unionByName(again))
        rows = self._kept(SAMPLES_TABLE, rows)
        if self.large_days:
            large = rows.where(F.col(DAY).isin(*self.large_days))
            self._write(SAMPLES_HOURS_TABLE, gold.sampled_hours(large))
        return rows.unionByName(earlier)

    def _peaks(self, lag: DataFrame, since: Since) -> DataFrame:
        """Write the largest lag of each group and hour of the large days. Return the largest lags
        of the groups, from ``lag`` and from earlier hours.
        """
        names = (DAY, "store", "group", "lag")
        rows = self._earlier(PEAKS_TABLE, PEAKS_SCHEMA, since).select(*names)
        if self.large_days:
            is_large = F.col(DAY).isin(*self.large_days)
            peaks = self._kept(PEAKS_TABLE, gold.peaks(lag.where(is_large)))
            rows = rows.unionByName(peaks.select(*names))
            lag = lag.where(~is_large)
        if len(self.large_days) < len(self.days):
            rows = rows.unionByName(lag.select(*names))
        return rows

    @cached_property
    def large_days(self) -> list[date]:
        """The days whose tables with minutes have a file for each hour."""
        events = self.contents.coverage.events
        return [day for day in self.days if events(day) >= LARGE_DAY_EVENTS]

    def _lives(self, known: DataFrame, new: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Write the tables about members and rebalances, from all known events about them, of which
        some are ``new``. Return the rows of silver's ``member_sessions`` and ``rebalances``.
        """
        forgotten = silver.forgotten_members(known, self.days)
        forgotten = self._kept("_carried/forgotten", forgotten)
        sessions = silver.member_sessions(known, forgotten, self.days)
        sessions = self._kept("silver/member_sessions", sessions)
        again = self._tail(new)
        if again is None:
            episodes = self._kept("silver/rebalances", rebalances(known, self.days))
            states = known
        else:
            episodes = self._continued(again)
            states = self._valid("_carried/events", CARRIED_EVENTS_SCHEMA).unionByName(new)
            states = self._held(states.drop(DAY))
        carried = self._held(silver.carried_events(states, forgotten, self.days))
        self._write("_carried/events", silver.with_static_names(carried, known))
        self._published("rebalances", gold.rebalances(episodes, sessions))
        return sessions, episodes

    def _tail(self, new: DataFrame) -> Tail | None:
        """Return the end of the day that the ``new`` events about members and rebalances change.
        Return None if the tables about rebalances are computed from the whole day.
        """
        (first, *later) = self.days
        if not self.is_small or later or first not in self.grown:
            return None
        of_day = self.valid.days[first].tables
        before = self.valid.days[self.before].tables if self.before else {}
        if LIVES_TABLE not in of_day:  # no such event yet, or an earlier version wrote the day
            return None
        folders = (of_day[LIVES_TABLE], before.get("_carried/events"))
        known = self._arrow(CARRIED_EVENTS_SCHEMA, *folders)
        rows = self._arrow(SILVER_SCHEMAS["rebalances"], of_day.get("silver/rebalances"))
        if known is None or rows is None:
            return None
        return tail(known, new.toArrow(), rows)

    def _continued(self, again: Tail) -> DataFrame:
        """Write silver's rebalances: the known rows that stay, and those computed again. Return
        all of them.
        """
        steps, told = (
            frame(self.spark, rows, CARRIED_EVENTS_SCHEMA).drop(DAY)
            for rows in (again.steps, again.told)
        )

        def compute() -> pa.Table:
            rows = rebalances(steps, self.days, told).toArrow()
            return joined(again.kept, rows)

        table = "silver/rebalances"
        held = self._write_held(table, compute)
        return self._written(table, held, SILVER_SCHEMAS["rebalances"])

    def _arrow(
        self,
        schema: StructType,
        *folders: str | None,
        is_wanted: Callable[[str], bool] | None = None,
    ) -> pa.Table | None:
        """Read folders that may be None in this process. Return None if Spark must read them."""
        there = [folder for folder in folders if folder is not None]
        return read_held(self.spark, self.lake, there, schema, SMALL_BYTES, is_wanted)

    def _no_lives(self) -> tuple[DataFrame, DataFrame]:
        """Return empty tables in place of those of ``_lives``, for days without events of members
        and rebalances.
        """
        names = ("member_sessions", "rebalances")
        sessions, episodes = (empty(self.spark, SILVER_SCHEMAS[name]) for name in names)
        return sessions, episodes

    def _known(self, new: DataFrame) -> tuple[DataFrame | None, DataFrame]:
        """Write the ``new`` events about members, rebalances and deleted topics. Return all such
        events: those of the days, and those carried into the first day. They are None if there are
        none. Also return the written events.
        """
        has_lives = {day for day in self.grown if LIVES_TABLE in self.valid.days[day].tables}
        if has_lives != self.grown.keys():  # no such event yet, or an earlier version wrote the day
            after = {day: self.grown[day] for day in has_lives}
            new = read_events(self.spark, self.lake, self.days, after=after, contents=self.contents)
        lives = written = self._kept(LIVES_TABLE, silver.lives(new))
        self._append(LIVES_TABLE)
        folders = [of_day[LIVES_TABLE] for of_day in self.tables.values() if LIVES_TABLE in of_day]
        if has_lives:
            lives = read_days(self.spark, self.lake, LIVES_TABLE, folders, lives.schema)
        before = self.valid.days[self.before].tables if self.before else {}
        is_known = folders or "_carried/events" in before
        return self.with_carried(lives) if is_known else None, written

    def with_carried(self, lives: DataFrame) -> DataFrame:
        """Add the events carried into the first day to those of the days (``silver.lives``)."""
        carried = self.carried("events", CARRIED_EVENTS_SCHEMA)
        return lives.unionByName(carried).drop(DAY)

    def _audit(
        self, deltas: DataFrame, others: DataFrame, new: DataFrame, known: DataFrame | None
    ) -> DataFrame:
        if known is None:
            known = empty(self.spark, EVENT_SCHEMA)
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
        held = None
        if self.is_small:
            held = self._write_held(table, rows.toArrow)
        else:
            self._write(table, rows)
        return self._written(table, held, rows.schema)

    def _written(self, table: str, held: pa.Table | None, schema: StructType) -> DataFrame:
        """Return the rows of a written table: from memory if they are few, or from its files."""
        if held is not None and held.num_rows <= MAX_HELD_ROWS:
            return frame(self.spark, held, schema)
        folders = [of_day[table] for of_day in self.tables.values() if table in of_day]
        return read_days(self.spark, self.lake, table, folders, schema)

    def _held(self, rows: DataFrame) -> DataFrame:
        """Compute the rows of a small table once, although several parts of a query need them."""
        return frame(self.spark, rows.toArrow(), rows.schema) if self.is_small else rows

    def carried(self, table: str, schema: StructType) -> DataFrame:
        """Read the rows that the day before the first one carries."""
        return self._valid(f"_carried/{table}", schema, [self.before] if self.before else [])

    def _valid(
        self,
        table: str,
        schema: StructType,
        days: Collection[date] | None = None,
        is_wanted: Callable[[str], bool] | None = None,
    ) -> DataFrame:
        """Read the valid rows of a table for some days; by default, for the days that have
        grown. With ``is_wanted``, read only the files for whose names it returns True.
        """
        wanted = self.grown if days is None else days
        folders = [path for day, path in self.valid.folders(table).items() if day in wanted]
        return read_days(self.spark, self.lake, table, folders, schema, is_wanted)

    def _earlier(self, table: str, schema: StructType, since: Since) -> DataFrame:
        """Read the rows of the first day from the files that are not written again."""
        if since.is_whole:
            return empty(self.spark, schema)
        return self._valid(table, schema, [since.day], since.is_earlier)

    def _again(self, table: str, schema: StructType, since: Since) -> DataFrame:
        """Read the rows of the days that have grown, without those of ``_earlier``."""
        if since.is_whole:  # the first day may not have grown: its rows are then made anew
            return self._valid(table, schema)
        first = self._valid(table, schema, [since.day], since.is_again)
        return first.unionByName(self._valid(table, schema, [*self.grown.keys() - {since.day}]))

    def _kept_since(self, table: str, rows: DataFrame, since: Since) -> DataFrame:
        """Write a table of gold that has minutes, like ``_kept``. ``rows`` are those from the
        minute ``since`` on. The known rows before it are added, of files that are written again.
        """
        schema = GOLD_SCHEMAS[table.removeprefix("gold/")]
        folder = None if since.is_whole else self.valid.days[since.day].tables.get(table)
        if folder is None:
            return self._kept(table, rows)
        known = self._arrow(schema, folder, is_wanted=since.is_again) if self.is_small else None
        if known is None:
            before = self._valid(table, schema, [since.day], since.is_again)
            before = before.where(F.col("minute_ms") < since.minute_ms)
            return self._kept(table, rows.unionByName(before))
        kept = earlier_minutes(known, since.minute_ms)
        held = self._write_held(table, lambda: joined(kept, rows.toArrow()))
        return self._written(table, held, schema)

    def _write(self, table: str, rows: DataFrame) -> None:
        """Write a table into new folders, one for each day that has rows."""
        if self.is_small:
            self._write_held(table, rows.toArrow)
            return
        began = time.monotonic()
        if table in BY_HOUR:
            days = add_hours(rows, self.lake.path(table), self.version, self.large_days)
        else:
            days = self._add_days(table, rows)
        for day in days:
            self.tables[day][table] = folder_of(table, day, self.version)
        self.progress(f"{table} ({time.monotonic() - began:.1f} s)")

    def _add_days(self, table: str, rows: DataFrame) -> Collection[date]:
        seen = Observation()
        rows_seen = rows.observe(seen, F.collect_set(DAY).alias("days"))
        add_days(rows_seen, self.lake.path(table), self.version)
        return seen.get.get("days") or ()

    def _write_held(self, table: str, compute: Callable[[], pa.Table]) -> pa.Table:
        """Compute a small table and write it like ``_write``, but without Spark's writer. Return
        its rows.
        """
        began = time.monotonic()
        held = compute()
        for day, of_day in by_day(held):
            folder = self.tables[day][table] = folder_of(table, day, self.version)
            parts: Iterable[tuple[str, pa.Table]] = [("part", of_day)]
            if table in BY_HOUR:
                parts = held_by_hour(of_day, is_large=day in self.large_days)
            for name, of_part in parts:
                write_rows(self.spark, self.lake.path(folder), of_part, name)
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

    def _keep_earlier(self, table: str, since: Since) -> None:
        """Add the files of earlier hours of the first day to the folder of its new files."""
        folder = None if since.is_whole else self.valid.days[since.day].tables.get(table)
        if folder is None:
            return
        names = file_sizes(self.spark, self.lake.path(folder))
        if not any(map(since.is_earlier, names)):
            return
        of_day = self.tables[since.day]
        if table not in of_day and all(map(since.is_earlier, names)):
            of_day[table] = folder
            return
        written = of_day.setdefault(table, folder_of(table, since.day, self.version))
        link_files(self.spark, self.lake.path(folder), self.lake.path(written), since.is_earlier)
