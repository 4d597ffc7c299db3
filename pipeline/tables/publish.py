"""The job that computes silver and gold for the days whose events have changed.

It does not rely on a memory of the last run. It compares bronze's content of a day with the content
that the day was last computed from. New folders are written beside the valid ones, and at the end
one pointer is replaced (``pipeline.tables.pointer``). So a run may be interrupted anywhere, and
until its end readers see what was valid before.

A late segment changes its own day and, through carried events, the days after it: all of them are
computed again. No watermark drops late events. For the same reason a gap holds back its own day and
all later ones, since offsets, members and ends are carried through it. Of these, days that were
published before stay as they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from pyspark.sql import SparkSession

from groupkeeper.pipeline.log.branches import PutBack
from groupkeeper.pipeline.log.coverage import Coverage, Gap
from groupkeeper.pipeline.tables.bronze import read_coverage
from groupkeeper.pipeline.tables.compute import COMPUTATION, TABLES, Computation, Progress
from groupkeeper.pipeline.tables.lake import Lake
from groupkeeper.pipeline.tables.pointer import (
    ACCEPTED,
    HELD_BACK,
    PUBLISHED,
    STALE,
    DayNote,
    Span,
)
from groupkeeper.pipeline.tables.versions import (
    KEEP_VERSIONS_HOURS,
    begin,
    forget_dev3,
    read_pointer,
    successor,
    sweep,
    switch,
    take_over,
    write_pointer,
)
from groupkeeper.pipeline.tables.views import write_view_files


@dataclass(frozen=True)
class Publication:
    """The result of a run."""

    published: list[date] = field(default_factory=list)
    """Days that were computed and published."""
    held_back: dict[date, list[Gap]] = field(default_factory=dict)
    """Days that cannot be computed, and the gaps in them or in earlier days."""
    stale: frozenset[date] = frozenset()
    """Those of them that stay as an earlier run published them."""
    accepted: list[Gap] = field(default_factory=list)
    """Accepted gaps: those of published days, and those of earlier days that these days depend on.
    """
    events: int = 0
    """The number of events of the published days."""
    put_backs: list[PutBack] = field(default_factory=list)
    """The moments at which an older copy replaced a store, in any run."""


def publish(
    spark: SparkSession,
    lake: Lake,
    *,
    accept_gaps: Collection[date] = (),
    keep_versions_hours: float = KEEP_VERSIONS_HOURS,
    progress: Progress = lambda _: None,
    clock: Callable[[], float] = time.time,
) -> Publication:
    """Bring silver and gold up to date with bronze.

    A day with a gap in a log's ``seq`` is not published, nor is any later day. If it was published
    before the gap was known, it stays as it was. A gap on one of the days ``accept_gaps`` is
    accepted for good: if a part of its events arrives later, the rest stays accepted.
    """
    take_over(spark, lake)
    coverage = read_coverage(spark, lake)
    found = read_pointer(spark, lake)
    if found.version:
        forget_dev3(spark, lake)  # a run may have died before it did
    write_view_files(spark, lake, found)  # they may name what is now removed
    valid = sweep(spark, lake, found, keep_versions_hours, _ms(clock))
    noted = valid.days
    stores = coverage.stores()
    accepted, unknown = _judged(coverage.gaps(), stores, valid.accepted, accept_gaps)
    known = frozenset((stores[gap.log_id], gap.first_seq, gap.last_seq) for gap in accepted)
    wanted = {
        day: _wanted(coverage, day, accepted, unknown, noted.get(day)) for day in coverage.days()
    }
    held = {
        day: [gap for gap in unknown if gap.from_day <= day]
        for day in wanted
        if wanted[day].state in (HELD_BACK, STALE)
    }
    touched = [day for day in wanted if day not in noted or wanted[day].ground != noted[day].ground]
    _say_outdated(touched, noted, progress)
    days = [day for day in wanted if touched and day >= touched[0] and day not in held]
    version = valid.version + 1
    if days:
        before = max((day for day in wanted if day < days[0]), default=None)
        if known != valid.accepted:  # an acceptance outlives a killed run
            write_pointer(spark, lake, replace(valid, accepted=known))
        begin(spark, lake, version, TABLES, days)
        run = Computation(spark, lake, valid, days, before, version, progress)
        run.run()
        wanted |= {day: replace(wanted[day], tables=run.tables[day]) for day in days}
    if (wanted, known) != (noted, found.accepted) or valid != found or not found.version:
        now = successor(valid, wanted, known, version, _ms(clock))
        switch(spark, lake, now)
        write_view_files(spark, lake, now)
        forget_dev3(spark, lake)
    events = sum(coverage.events(day) for day in days)
    stale = frozenset(day for day in held if wanted[day].state == STALE)
    return Publication(days, held, stale, accepted, events, coverage.put_backs())


def _ms(clock: Callable[[], float]) -> int:
    return int(clock() * 1000)


def _say_outdated(
    touched: Sequence[date], noted: Mapping[date, DayNote], progress: Progress
) -> None:
    """Say how many days are computed again because of another version."""
    outdated = [n for n in map(noted.get, touched) if n and n.computation != COMPUTATION]
    if outdated:
        days_were = "1 day was" if len(outdated) == 1 else f"{len(outdated)} days were"
        progress(f"{days_were} computed by another version of groupkeeper: computing anew")


def _judged(
    gaps: Sequence[Gap],
    stores: Mapping[str, str],
    before: Collection[Span],
    accept_gaps: Collection[date],
) -> tuple[list[Gap], list[Gap]]:
    """Return the accepted gaps, and the others. ``before`` are those of earlier runs."""
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
    coverage: Coverage,
    day: date,
    accepted: Sequence[Gap],
    unknown: Sequence[Gap],
    noted: DayNote | None,
) -> DayNote:
    """Return the note for a day, with the gaps in it or in the days that it depends on.

    Its tables are those that it has; they change if it is computed.
    """
    lacks = [gap for gap in unknown if gap.from_day <= day]
    lives_without = [gap for gap in accepted if gap.from_day <= day]
    was_published = noted is not None and noted.is_published
    if lacks:
        state = STALE if was_published else HELD_BACK
    else:
        state = ACCEPTED if lives_without else PUBLISHED
    return DayNote(
        state,
        coverage.fingerprint(day),
        coverage.events(day),
        "; ".join(_missing_of(gap, day) for gap in lacks or lives_without),
        COMPUTATION,
        noted.tables if noted is not None else {},
    )


def _missing_of(gap: Gap, day: date) -> str:
    """Return the missing events of a day, as text. A day after a gap lacks the carried state."""
    if gap.touches(day):
        return str(gap)
    return f"what stood when it began is not known for certain: of {gap.days_text} {gap}"
