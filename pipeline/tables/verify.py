"""Checks the tables against each other: bronze (events), then silver (facts about groups), then
gold (summaries).

Bronze must have the rows that were recorded when its batches were written. Each table of silver and
gold is computed again from the layer before it. The stored table must have the same number of rows,
and the same checksum of their values. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from groupkeeper.pipeline.log.columns import ENDS_SCHEMA, STANDING_SCHEMA
from groupkeeper.pipeline.log.gaps import Gap
from groupkeeper.pipeline.log.segment_files import Judged
from groupkeeper.pipeline.tables import gold, silver
from groupkeeper.pipeline.tables.bronze import (
    Contents,
    folder_of_part,
    read_contents,
    read_events,
    read_parts,
)
from groupkeeper.pipeline.tables.columns import (
    GOLD_SCHEMAS,
    MINUTES_SCHEMA,
    PEAKS_SCHEMA,
    SAMPLES_SCHEMA,
    SILVER_SCHEMAS,
)
from groupkeeper.pipeline.tables.compute import COMPUTATION, Computation
from groupkeeper.pipeline.tables.hours import (
    HOURS_TABLE,
    PEAKS_TABLE,
    SAMPLES_HOURS_TABLE,
    SAMPLES_TABLE,
)
from groupkeeper.pipeline.tables.lag import lag_1m
from groupkeeper.pipeline.tables.lake import DAY, Lake, bronze_folders, empty, exists
from groupkeeper.pipeline.tables.pointer import DayNote, Pointer
from groupkeeper.pipeline.tables.rebalances import rebalances
from groupkeeper.pipeline.tables.versions import read_pointer, read_valid

EVENTS: Final = "bronze/events"
OTHER_CHANGES: Final = "silver/other_changes"

_SCHEMAS: Final[Mapping[str, StructType]] = {
    **{f"silver/{name}": schema for name, schema in SILVER_SCHEMAS.items()},
    "_carried/minutes": MINUTES_SCHEMA,
    HOURS_TABLE: MINUTES_SCHEMA,
    "_carried/offsets": STANDING_SCHEMA,
    **{f"gold/{name}": schema for name, schema in GOLD_SCHEMAS.items()},
    PEAKS_TABLE: PEAKS_SCHEMA,
    SAMPLES_TABLE: SAMPLES_SCHEMA,
    SAMPLES_HOURS_TABLE: SAMPLES_SCHEMA,
}
"""The tables that are computed again."""

_OPTIONAL: Final = (HOURS_TABLE, PEAKS_TABLE, SAMPLES_TABLE, SAMPLES_HOURS_TABLE)
"""Small days do not have the tables of hours. Days that an earlier version computed have none."""


class Digest(NamedTuple):
    """The number of rows of a table and day, and a checksum that does not depend on their order."""

    rows: int = 0
    checksum: int = 0


@dataclass(frozen=True)
class Check:
    """The result of the comparison for one table and day."""

    day: date
    table: str
    rows: int
    expected_rows: int
    doubles: int = 0
    """The number of surplus rows of events that bronze has more than once. Other tables count such
    an event once."""
    problem: str = ""
    """A sentence about the problem; "" if the table is right."""


def verify(spark: SparkSession, lake: Lake, days: range | None = None) -> list[Check]:
    """Check the tables of all days, or of the days whose ordinals (``date.toordinal``) are in
    ``days``.

    A day is left out if its tables were removed from any layer because of their age.
    """
    return _Verification(spark, lake, days).checks()


def bronze_checks(
    spark: SparkSession, lake: Lake, judged: Judged, days: Sequence[date]
) -> list[Check]:
    """Check for each of the days that bronze has the rows that were recorded when its batches were
    written.
    """
    if not days:
        return []
    found = _rows_of_bronze(spark, lake, judged, days)
    checks = []
    for day in days:
        parts = [part for part in judged.held if part.dt == day]
        expected = Digest(sum(part.events for part in parts), sum(part.seq_sum for part in parts))
        rows, doubles = found.get(day, (Digest(), 0))
        problem = _difference(rows, expected)
        checks.append(Check(day, EVENTS, rows.rows, expected.rows, doubles, problem))
    return checks


def _rows_of_bronze(
    spark: SparkSession, lake: Lake, judged: Judged, days: Sequence[date]
) -> dict[date, tuple[Digest, int]]:
    """Map each day to two values. The first has the number of its rows in bronze, and the sum of
    their event numbers (``seq``). The second is the number of surplus rows (``Check.doubles``).
    """
    wanted = [part for part in judged.held if part.dt in days]
    there = set(bronze_folders(spark, lake))
    parts = [part for part in wanted if folder_of_part(part) in there]
    events = read_parts(spark, lake, parts, judged.superseded)
    rows = events.groupBy(DAY).agg(
        F.count("*").alias("rows"),
        F.sum("seq").alias("seqs"),
        (F.count("*") - F.count_distinct("log_id", "seq")).alias("doubles"),
    )
    return {row[DAY]: (Digest(row["rows"], row["seqs"]), row["doubles"]) for row in rows.collect()}


class _Verification:
    def __init__(self, spark: SparkSession, lake: Lake, days: range | None) -> None:
        self._spark = spark
        self._lake = lake
        self._pointer: Pointer = read_pointer(spark, lake)
        self._contents: Contents = read_contents(spark, lake)
        self._judged, self._coverage = self._contents
        known = sorted({*self._coverage.days(), *self._pointer.days})
        since = max(self._pointer.since.values(), default=date.min)
        self._days = [
            day for day in known if day >= since and (days is None or day.toordinal() in days)
        ]

    def checks(self) -> list[Check]:
        """Return the results in the order of the days; for each day, from bronze to gold."""
        found = self._of_bronze()
        wrong = {check.day for check in found if check.problem}
        states = [check for day in self._days if (check := self._state(day)) is not None]
        wrong.update(check.day for check in states)
        for run in self._runs([day for day in self._days if day not in wrong]):
            found += self._of_tables(run)
        return sorted(
            [*found, *states, *self._gaps()], key=lambda check: (check.day, _place(check))
        )

    def _runs(self, days: Sequence[date]) -> list[list[date]]:
        """Divide days into runs of consecutive days. Days without events do not interrupt a run."""
        runs: list[list[date]] = []
        for day in days:
            if runs and self._before(day) == runs[-1][-1]:
                runs[-1].append(day)
            else:
                runs.append([day])
        return runs

    def _before(self, day: date) -> date | None:
        return max((each for each in self._pointer.days if each < day), default=None)

    # --- bronze -----------------------------------------------------------------------------------

    def _of_bronze(self) -> list[Check]:
        return bronze_checks(self._spark, self._lake, self._judged, self._days)

    def _gaps(self) -> Iterator[Check]:
        chains = self._coverage.chains()
        for gap in self._coverage.gaps():
            chain = chains[gap.log_id]
            is_accepted = any(
                chain == each and first <= gap.first_seq and gap.last_seq <= last
                for each, first, last in self._pointer.accepted
            )
            for day in self._days:
                if gap.touches(day):
                    yield _check_of(gap, day, is_accepted=is_accepted)

    # --- silver and gold --------------------------------------------------------------------------

    def _state(self, day: date) -> Check | None:
        """Return a failed check if the tables of a day were not computed from what bronze has now.
        Return None if they were.

        A failed check need not mean damage: the day may not be computed yet, or not be published
        because events are missing.
        """
        problem = self._why_not(day, self._pointer.days.get(day))
        return Check(day, "published.json", 0, 0, problem=problem) if problem else None

    def _why_not(self, day: date, note: DayNote | None) -> str:
        if note is None:
            return "is not published: run `groupkeeper pipeline run`"
        if not note.is_whole:
            return f"is {note.state}: {note.missing}"
        if note.computation != COMPUTATION or note.fingerprint != self._coverage.fingerprint(day):
            return "is older than bronze: run `groupkeeper pipeline run`"
        absent = [
            folder
            for folder in note.tables.values()
            if not exists(self._spark, self._lake.path(folder))
        ]
        return f"names folders that do not exist: {', '.join(absent)}" if absent else ""

    def _of_tables(self, days: list[date]) -> Iterator[Check]:
        stored = {
            table: read_valid(self._spark, self._lake, self._pointer, table, schema, days)
            for table, schema in _SCHEMAS.items()
        }
        for table, rows in self._computed(days, stored).items():
            found_rows = stored[table]
            if table == OTHER_CHANGES:
                rows, found_rows = self._without_repeated(rows), self._without_repeated(found_rows)
            digests = _digests(rows, found_rows, _SCHEMAS[table].names)
            for day in days:
                if table in _OPTIONAL and table not in self._tables_of(day):
                    continue
                expected, found = digests.get((day, True)), digests.get((day, False))
                expected, found = expected or Digest(), found or Digest()
                problem = _difference(found, expected)
                yield Check(day, table, found.rows, expected.rows, problem=problem)

    def _without_repeated(self, changes: DataFrame) -> DataFrame:
        """Leave out the offsets in snapshots that have no new information. If such a snapshot
        comes, its day is not computed again. So the stored table has these offsets only if the day
        was computed later for another reason.
        """
        coverage = self._coverage
        repeated = {part.log_id for part in coverage.segments if coverage.tells_nothing_new(part)}
        return changes.where(~F.col("log_id").isin(*repeated)) if repeated else changes

    def _tables_of(self, day: date) -> Mapping[str, str]:
        return self._pointer.days[day].tables

    def _computed(self, days: list[date], stored: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        """Compute each table again: silver from bronze, and gold from the stored silver."""
        before = self._before(days[0])
        context = Computation(
            *(self._spark, self._lake, self._pointer, self._contents),
            *(days, before, 0, lambda _: 0),
        )
        events = read_events(self._spark, self._lake, days, contents=self._contents)
        known = context.with_carried(silver.lives(events))
        forgotten = silver.forgotten_members(known, days)
        deltas, others = stored["silver/commit_deltas"], stored[OTHER_CHANGES]
        sessions, episodes = stored["silver/member_sessions"], stored["silver/rebalances"]
        minutes, samples = stored["_carried/minutes"], stored["silver/end_offsets"]
        sampled = gold.sampled_minutes(samples)
        newest = gold.newest_by_day(minutes)
        standing = context.carried("offsets", STANDING_SCHEMA)
        ends = context.carried("ends", ENDS_SCHEMA)
        nothing = empty(self._spark, STANDING_SCHEMA)
        changes = gold.all_changes(deltas, others)
        lag, audit = stored["gold/lag_1m"], stored["gold/audit"]
        return {
            "silver/commit_deltas": silver.commit_deltas(events),
            OTHER_CHANGES: silver.other_changes(events),
            "silver/end_offsets": silver.end_offsets(events),
            "silver/member_sessions": silver.member_sessions(known, forgotten, days),
            "silver/rebalances": rebalances(known, days),
            "_carried/minutes": gold.minutes(deltas, others),
            HOURS_TABLE: gold.hours(minutes),
            "_carried/offsets": gold.offsets_by_day(changes, newest, nothing, standing, days),
            "gold/lag_1m": lag_1m(minutes, newest, standing, sampled, ends, days),
            PEAKS_TABLE: gold.peaks(lag),
            SAMPLES_TABLE: sampled,
            SAMPLES_HOURS_TABLE: gold.sampled_hours(stored[SAMPLES_TABLE]),
            "gold/commit_rate_1m": gold.commit_rate_1m(minutes),
            "gold/rebalances": gold.rebalances(episodes, sessions),
            "gold/audit": gold.audit(deltas, others, events, known, days),
            "gold/group_daily": gold.group_daily(minutes, sessions, episodes, lag, audit),
        }


def _check_of(gap: Gap, day: date, *, is_accepted: bool) -> Check:
    missing = gap.last_seq - gap.first_seq + 1
    problem = "" if is_accepted else str(gap)
    return Check(day, "gap", 0, missing, problem=problem)


def _difference(found: Digest, expected: Digest) -> str:
    if found.rows != expected.rows:
        less_or_more = "less" if found.rows < expected.rows else "more"
        return f"has {abs(found.rows - expected.rows):,} rows {less_or_more} than expected"
    return "" if found == expected else "has other values than expected"


def _digests(
    expected: DataFrame, found: DataFrame, names: list[str]
) -> dict[tuple[date, bool], Digest]:
    """Return two digests of each day. The second part of the key is True for the expected rows, and
    False for the rows found.
    """
    both = expected.select(*names, F.lit(True).alias("is_expected")).unionByName(
        found.select(*names, F.lit(False).alias("is_expected"))
    )
    # 32 bits of each hash, because the sum of whole ones would not fit
    checksum = F.sum(F.shiftrightunsigned(F.xxhash64(*names), 32))
    rows = both.groupBy(DAY, "is_expected").agg(F.count("*").alias("rows"), checksum.alias("sum"))
    return {
        (row[DAY], row["is_expected"]): Digest(row["rows"], row["sum"]) for row in rows.collect()
    }


def _place(check: Check) -> int:
    order = (EVENTS, "gap", "published.json", *_SCHEMAS)
    return order.index(check.table)
