"""The job that computes silver and gold for the days whose events have changed.

It does not rely on a memory of the last run. It compares bronze's content of a day with the content
that the day was last computed from, so a run may be interrupted anywhere. Days are replaced as a
whole, and their note (``publications``) is written last. Repeating the job changes nothing.

A late segment changes its own day and, through carried events, the days after it: all of them are
computed again. No watermark drops late events. For the same reason a gap holds back its own day and
all later ones, since offsets, members and ends are carried through it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from groupkeeper.pipeline.log.branches import PutBack
from groupkeeper.pipeline.log.columns import (
    CARRIED_EVENTS_SCHEMA,
    ENDS_SCHEMA,
    EVENT_SCHEMA,
    NOTE_SCHEMA,
    STANDING_SCHEMA,
)
from groupkeeper.pipeline.log.coverage import Coverage, Gap
from groupkeeper.pipeline.tables import gold, silver
from groupkeeper.pipeline.tables.bronze import read_coverage, read_events
from groupkeeper.pipeline.tables.lake import (
    DAY,
    Lake,
    finish_replacing,
    read_table,
    remove_days,
    replace_table,
    write_days,
)

GOLD_TABLES: Final = ("lag_1m", "commit_rate_1m", "rebalances", "group_daily", "audit")
"""The published tables. ``docs/reference/tables.md`` describes them."""

COMPUTATION: Final = 2
"""The version of the computation. Raise it when silver, gold or carried events change for the same
events: days of another version are computed again.
"""

PUBLISHED: Final = "published"
HELD_BACK: Final = "held back"
ACCEPTED: Final = "published with a gap"

UNDER_WAY: Final = (
    "`groupkeeper pipeline run` began to compute this and has not finished; if none is at work, it "
    "was interrupted, and is to be run again"
)
"""The ``missing`` text of a day that is held back only until the run has finished."""

Progress = Callable[[str], object]
"""Called with each step, to show progress."""


@dataclass(frozen=True)
class Publication:
    """The result of a run."""

    published: list[date] = field(default_factory=list)
    """Days that were computed and published."""
    held_back: dict[date, list[Gap]] = field(default_factory=dict)
    """Days that are not published, and the gaps in them or in earlier days."""
    accepted: list[Gap] = field(default_factory=list)
    """Accepted gaps: those of published days, and those of earlier days that these days depend on.
    """
    events: int = 0
    """The number of events of the published days."""
    put_backs: list[PutBack] = field(default_factory=list)
    """The moments at which an older copy replaced a store, in any run."""


_Span = tuple[str, int, int]
"""A store, and the first and last seq of a gap."""


class _Note(NamedTuple):
    """The note of a day."""

    state: str
    fingerprint: str
    """A hash of the content that it was computed from; "" during the computation."""
    missing: str
    """The missing events, as text for people."""
    accepted: frozenset[_Span]
    """The gaps that it was published with."""
    version: int
    """The version of the computation; 0 before versions existed."""

    @property
    def ground(self) -> tuple[str, str, int]:
        """Return the values whose change makes the day be computed again."""
        return self.state, self.fingerprint, self.version


def publish(
    spark: SparkSession,
    lake: Lake,
    *,
    accept_gaps: Collection[date] = (),
    progress: Progress = lambda _: None,
) -> Publication:
    """Bring silver and gold up to date with bronze.

    A day with a gap in a log's ``seq`` is not published, nor is any later day. Days that were
    published before the gap was known are withdrawn. A gap on one of the days ``accept_gaps`` is
    accepted for good: if a part of its events arrives later, the rest stays accepted.
    """
    coverage = read_coverage(spark, lake)
    noted = _notes(spark, lake)
    stores = coverage.stores()
    accepted, unknown = _judged(coverage.gaps(), stores, noted, accept_gaps)
    known = {gap: (stores[gap.log_id], gap.first_seq, gap.last_seq) for gap in accepted}
    wanted = {
        day: _wanted(day, coverage.fingerprint(day), known, unknown) for day in coverage.days()
    }
    held = {
        day: [gap for gap in unknown if gap.from_day <= day]
        for day in wanted
        if wanted[day].state == HELD_BACK
    }
    touched = [day for day in wanted if day not in noted or wanted[day].ground != noted[day].ground]
    if not touched:
        if wanted != noted:
            _note(spark, lake, coverage, wanted)
        return Publication([], held, accepted, put_backs=coverage.put_backs())
    if outdated := [n for n in map(noted.get, touched) if n and n.version != COMPUTATION]:
        days_were = "1 day was" if len(outdated) == 1 else f"{len(outdated)} days were"
        progress(f"{days_were} computed by another version of groupkeeper: computing anew")
    days = [day for day in wanted if day >= touched[0]]
    ready = [day for day in days if day not in held]
    before = max((day for day in wanted if day < touched[0]), default=None)
    under_way = {day: wanted[day]._replace(state=HELD_BACK, fingerprint="") for day in days}
    under_way |= {day: under_way[day]._replace(missing=UNDER_WAY) for day in ready}
    _note(spark, lake, coverage, {**wanted, **under_way})
    _Run(spark, lake, days, before, progress).compute(ready)
    for table in GOLD_TABLES:
        remove_days(spark, lake.gold(table), [day for day in days if day in held])
    _note(spark, lake, coverage, wanted)
    events = sum(coverage.events(day) for day in ready)
    return Publication(ready, held, accepted, events, coverage.put_backs())


def _judged(
    gaps: Sequence[Gap],
    stores: Mapping[str, str],
    noted: Mapping[date, _Note],
    accept_gaps: Collection[date],
) -> tuple[list[Gap], list[Gap]]:
    """Return the accepted gaps, and the others."""
    before = {each for note in noted.values() for each in note.accepted}
    accepted: list[Gap] = []
    unknown: list[Gap] = []
    for gap in gaps:
        was_accepted = any(
            (store == stores[gap.log_id] and first <= gap.first_seq and gap.last_seq <= last)
            for store, first, last in before
        )
        is_accepted = was_accepted or any(map(gap.touches, accept_gaps))
        (accepted if is_accepted else unknown).append(gap)
    return accepted, unknown


def _wanted(
    day: date, fingerprint: str, accepted: Mapping[Gap, _Span], unknown: Sequence[Gap]
) -> _Note:
    """Return the note for a day, with the gaps in it or in the days that it depends on."""
    lacks = [gap for gap in unknown if gap.from_day <= day]
    lives_without = [gap for gap in accepted if gap.from_day <= day]
    state = HELD_BACK if lacks else ACCEPTED if lives_without else PUBLISHED
    missing = "; ".join(_missing_of(gap, day) for gap in lacks or lives_without)
    without = frozenset(map(accepted.__getitem__, lives_without))
    return _Note(state, fingerprint, missing, without, COMPUTATION)


def _missing_of(gap: Gap, day: date) -> str:
    """Return the missing events of a day, as text. A day after a gap lacks the carried state."""
    if gap.touches(day):
        return str(gap)
    return f"what stood when it began is not known for certain: of {gap.days_text} {gap}"


def _notes(spark: SparkSession, lake: Lake) -> dict[date, _Note]:
    """Read the note of each day."""
    finish_replacing(spark, lake.publications, lake.new_publications)
    return {
        row["dt"]: _Note(
            row["state"],
            row["fingerprint"],
            row["missing"],
            frozenset(tuple(each) for each in row["accepted"] or ()),
            row["version"] or 0,
        )
        for row in read_table(spark, lake.publications, NOTE_SCHEMA).collect()
    }


def _note(spark: SparkSession, lake: Lake, coverage: Coverage, notes: Mapping[date, _Note]) -> None:
    """Write the content that every day was computed from, and its accepted gaps."""
    rows = [
        (
            *(day, note.state, note.fingerprint, coverage.events(day), note.missing),
            *(sorted(note.accepted), note.version),
        )
        for day, note in notes.items()
    ]
    table = spark.createDataFrame(rows, NOTE_SCHEMA)
    replace_table(table, lake.publications, lake.new_publications)


@dataclass(frozen=True)
class _Run:
    """One computation of consecutive days."""

    spark: SparkSession
    lake: Lake
    days: Sequence[date]
    before: date | None
    """The last day with events that is not computed again."""
    progress: Progress

    def compute(self, ready: Sequence[date]) -> None:
        """Write silver for all days, and gold for the complete ones."""
        events = read_events(self.spark, self.lake, self.days)
        columns = [*EVENT_SCHEMA.names, "store"]
        carried = self._carried("events", CARRIED_EVENTS_SCHEMA)
        known = events.select(columns).unionByName(carried.select(columns))
        known = known.where(F.col("kind") != "commit")
        deltas = self._silver("commit_deltas", silver.commit_deltas(events))
        others = self._silver("other_changes", silver.other_changes(events))
        forgotten = silver.forgotten_members(known, self.days)
        forgotten = self._kept(self.lake.carried("forgotten"), forgotten)
        sessions = silver.member_sessions(known, forgotten, self.days)
        sessions = self._silver("member_sessions", sessions)
        episodes = self._silver("rebalances", silver.rebalances(known, self.days))
        to_carry = silver.carried_events(known, forgotten, self.days)
        self._write(to_carry, self.lake.carried("events"))
        changes = gold.all_changes(deltas, others)
        standing = self._carried("offsets", STANDING_SCHEMA)
        newest = self._kept(self.lake.carried("newest"), gold.newest_by_day(changes))
        by_day = gold.offsets_by_day(changes, newest, standing, self.days)
        self._write(by_day, self.lake.carried("offsets"))
        samples = self._silver("end_offsets", silver.end_offsets(events))
        ends = self._carried("ends", ENDS_SCHEMA)
        self._write(gold.ends_by_day(samples, ends, self.days), self.lake.carried("ends"))
        if not ready:
            return
        of_ready = F.col(DAY).isin(*ready)

        def publish(table: str, rows: DataFrame) -> DataFrame:
            # one file per day, since these tables are small
            path = self.lake.gold(table)
            self._write(rows.where(of_ready).repartition(DAY), path)
            return read_table(self.spark, path, rows.schema).where(of_ready)

        lag = publish("lag_1m", gold.lag_1m(changes, newest, standing, samples, ends, self.days))
        publish("commit_rate_1m", gold.commit_rate_1m(deltas))
        publish("rebalances", gold.rebalances(episodes, sessions))
        publish("audit", gold.audit(deltas, others, events, known, self.days))
        publish("group_daily", gold.group_daily(deltas, sessions, episodes, lag, events))

    def _silver(self, table: str, rows: DataFrame) -> DataFrame:
        """Write a table of silver, and read it back."""
        return self._kept(self.lake.silver(table), rows)

    def _kept(self, path: str, rows: DataFrame) -> DataFrame:
        """Write a table, and read the same days back, so that nothing is computed twice."""
        self._write(rows, path)
        return read_table(self.spark, path, rows.schema).where(F.col(DAY).isin(*self.days))

    def _carried(self, table: str, schema: StructType) -> DataFrame:
        """Read the carried rows of the day before these."""
        rows = read_table(self.spark, self.lake.carried(table), schema)
        return rows.where(F.col(DAY) == F.lit(self.before))

    def _write(self, rows: DataFrame, path: str) -> None:
        """Replace these days of a table, and empty those without rows."""
        began = time.monotonic()
        seen = Observation()
        write_days(rows.observe(seen, F.collect_set(DAY).alias("days")), path)
        written = seen.get.get("days") or []
        remove_days(self.spark, path, [day for day in self.days if day not in written])
        name = path.removeprefix(self.lake.root + "/")
        self.progress(f"{name} ({time.monotonic() - began:.1f} s)")
