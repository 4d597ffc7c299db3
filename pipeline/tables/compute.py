"""One computation of consecutive days: silver, gold, and what each day carries to the next.

It reads bronze, and the carried rows of the day before. It writes new folders and changes none that
exists; ``publish`` makes them valid.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from groupkeeper.pipeline.log.columns import (
    CARRIED_EVENTS_SCHEMA,
    ENDS_SCHEMA,
    EVENT_SCHEMA,
    STANDING_SCHEMA,
)
from groupkeeper.pipeline.tables import gold, silver
from groupkeeper.pipeline.tables.bronze import read_events
from groupkeeper.pipeline.tables.columns import GOLD_SCHEMAS, SILVER_SCHEMAS
from groupkeeper.pipeline.tables.lake import DAY, Lake, add_days, read_folders
from groupkeeper.pipeline.tables.pointer import Pointer, folder_of

COMPUTATION: Final = 2
"""The version of the computation. Raise it when silver, gold or carried events change for the same
events: days of another version are computed again.
"""

TABLES: Final = (
    *(f"silver/{table}" for table in SILVER_SCHEMAS),
    *(f"gold/{table}" for table in GOLD_SCHEMAS),
    *(f"_carried/{table}" for table in ("events", "forgotten", "newest", "offsets", "ends")),
)
"""All tables that have versions."""

Progress = Callable[[str], object]
"""Called with each step, to show progress."""


@dataclass(frozen=True)
class Computation:
    """One computation of consecutive days."""

    spark: SparkSession
    lake: Lake
    valid: Pointer
    """What was valid before."""
    days: Sequence[date]
    before: date | None
    """The last day with events that is not computed again."""
    version: int
    """The version of the folders that it writes."""
    progress: Progress
    tables: dict[date, dict[str, str]] = field(default_factory=dict)
    """The folders that it has written, by day and table."""

    def __post_init__(self) -> None:
        self.tables.update({day: {} for day in self.days})

    def run(self) -> None:
        """Write all tables of the days."""
        events = read_events(self.spark, self.lake, self.days)
        columns = [*EVENT_SCHEMA.names, "store"]
        carried = self._carried("events", CARRIED_EVENTS_SCHEMA)
        known = events.select(columns).unionByName(carried.select(columns))
        known = known.where(F.col("kind") != "commit")
        deltas = self._kept("silver/commit_deltas", silver.commit_deltas(events))
        others = self._kept("silver/other_changes", silver.other_changes(events))
        forgotten = silver.forgotten_members(known, self.days)
        forgotten = self._kept("_carried/forgotten", forgotten)
        sessions = silver.member_sessions(known, forgotten, self.days)
        sessions = self._kept("silver/member_sessions", sessions)
        episodes = self._kept("silver/rebalances", silver.rebalances(known, self.days))
        self._write("_carried/events", silver.carried_events(known, forgotten, self.days))
        changes = gold.all_changes(deltas, others)
        standing = self._carried("offsets", STANDING_SCHEMA)
        newest = self._kept("_carried/newest", gold.newest_by_day(changes))
        by_day = gold.offsets_by_day(changes, newest, standing, self.days)
        self._write("_carried/offsets", by_day)
        samples = self._kept("silver/end_offsets", silver.end_offsets(events))
        ends = self._carried("ends", ENDS_SCHEMA)
        self._write("_carried/ends", gold.ends_by_day(samples, ends, self.days))

        def publish(table: str, rows: DataFrame) -> DataFrame:
            # one file per day, since these tables are small
            return self._kept(f"gold/{table}", rows.repartition(DAY))

        lag = publish("lag_1m", gold.lag_1m(changes, newest, standing, samples, ends, self.days))
        publish("commit_rate_1m", gold.commit_rate_1m(deltas))
        publish("rebalances", gold.rebalances(episodes, sessions))
        publish("audit", gold.audit(deltas, others, events, known, self.days))
        publish("group_daily", gold.group_daily(deltas, sessions, episodes, lag, events))

    def _kept(self, table: str, rows: DataFrame) -> DataFrame:
        """Write a table, and read it back, so that nothing is computed twice."""
        folders = self._write(table, rows)
        return read_folders(self.spark, self.lake, table, folders, rows.schema)

    def _carried(self, table: str, schema: StructType) -> DataFrame:
        """Read the carried rows of the day before these."""
        name = f"_carried/{table}"
        folders = [path for day, path in self.valid.folders(name).items() if day == self.before]
        return read_folders(self.spark, self.lake, name, folders, schema)

    def _write(self, table: str, rows: DataFrame) -> list[str]:
        """Write a table, and return its folders: none for a day without rows."""
        began = time.monotonic()
        seen = Observation()
        rows_seen = rows.observe(seen, F.collect_set(DAY).alias("days"))
        add_days(rows_seen, self.lake.path(table), self.version)
        written = sorted(seen.get.get("days") or [])
        for day in written:
            self.tables[day][table] = folder_of(table, day, self.version)
        self.progress(f"{table} ({time.monotonic() - began:.1f} s)")
        return [folder_of(table, day, self.version) for day in written]
