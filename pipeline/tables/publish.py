"""The job that computes silver (facts about groups) and gold (summaries) for the days whose events
have changed.

To find these days, the job compares two sets of segments (files of events) for each day: the
segments that bronze, the table of events, has now, and those from which the day was last computed.
The job writes new folders, and at its end it replaces one file (``pipeline.tables.pointer``). So a
run may be interrupted anywhere, and until its end readers see the tables that were valid before.

A late segment changes its own day and, through carried rows, all later days. So all of them are
computed again. No watermark drops late events.

If events of a day are missing (a gap), neither this day nor a later day is published. Offsets,
members and ends are carried from day to day, so they would be wrong on all these days. If such a
day was published before the gap was known, its tables stay as they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from pyspark.sql import SparkSession

from groupkeeper.pipeline.log.branches import PutBack
from groupkeeper.pipeline.log.coverage import Coverage
from groupkeeper.pipeline.log.gaps import Gap
from groupkeeper.pipeline.tables.bronze import read_contents
from groupkeeper.pipeline.tables.compute import COMPUTATION, TABLES, Computation, Progress
from groupkeeper.pipeline.tables.growth import Growth
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
    read_pointer,
    remove_old_layout,
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
    """The days of ``held_back`` that an earlier run published. Their tables stay as they were."""
    accepted: list[Gap] = field(default_factory=list)
    """The accepted gaps in the published days, and in the earlier days that they depend on."""
    events: int = 0
    """The number of events of the published days."""
    put_backs: list[PutBack] = field(default_factory=list)
    """Each restore of an older copy of a store, after which some events are no longer valid."""
    late: list[date] = field(default_factory=list)
    """Days of which a segment came after retention had removed the day. The tables do not have the
    events of this segment."""


def publish(  # noqa: PLR0913  the options of a run
    spark: SparkSession,
    lake: Lake,
    *,
    accept_gaps: Collection[date] = (),
    again: tuple[date, date] | None = None,
    keep_versions_hours: float = KEEP_VERSIONS_HOURS,
    progress: Progress = lambda _: None,
    clock: Callable[[], float] = time.time,
) -> Publication:
    """Bring silver and gold up to date with bronze.

    If a day has a gap (missing numbers of events), neither this day nor a later day is published.
    If such a day was published before the gap was known, its tables stay as they were.

    Gaps on the days ``accept_gaps`` are accepted, in this run and in later ones. If some of the
    missing events arrive later, the gap of the other events stays accepted. ``again`` is a first
    and a last day: all days from the first to the last are computed again, even if nothing changed.
    ``progress`` is called with a line for each step.
    """
    take_over(spark, lake)
    contents = read_contents(spark, lake)
    coverage = contents.coverage
    found = read_pointer(spark, lake)
    if found.version:
        remove_old_layout(spark, lake)  # the run that should do this may have been killed
    write_view_files(spark, lake, found)  # the old files may name removed folders
    valid = sweep(spark, lake, found, keep_versions_hours, _ms(clock))
    noted = valid.days
    chains = coverage.chains()
    accepted, unknown = _judged(coverage.gaps(), chains, valid.accepted, accept_gaps)
    known = frozenset((chains[gap.log_id], gap.first_seq, gap.last_seq) for gap in accepted)
    there = [day for day in coverage.days() if day >= valid.bronze_since]
    removed = {day: note for day, note in noted.items() if day < valid.bronze_since}
    wanted = removed | {
        day: _wanted(coverage, day, accepted, unknown, noted.get(day)) for day in there
    }
    held = {
        day: [gap for gap in unknown if gap.from_day <= day]
        for day in there
        if wanted[day].state in (HELD_BACK, STALE)
    }
    asked = [day for day in there if again is not None and again[0] <= day <= again[1]]
    touched = [
        day
        for day in there
        if day in asked or day not in noted or wanted[day].ground != noted[day].ground
    ]
    _say_outdated(touched, noted, progress)
    days = [day for day in there if touched and day >= touched[0] and day not in held]
    version = valid.version + 1
    if days:
        before = max((day for day in wanted if day < days[0]), default=None)
        if known != valid.accepted:  # so the acceptance stays if the run is killed
            write_pointer(spark, lake, replace(valid, accepted=known))
        begin(spark, lake, version, TABLES, days)
        growth = Growth(coverage)
        grown = {
            day: noted[day].batch
            for day in days
            if day not in asked and growth.has_only_grown(day, noted.get(day), COMPUTATION)
        }
        run = Computation(spark, lake, valid, contents, days, before, version, progress, grown)
        run.run()
        wanted |= {
            day: replace(wanted[day], tables=run.tables[day], batch=growth.last_batch)
            for day in days
        }
    if (wanted, known) != (noted, found.accepted) or valid != found or not found.version:
        now = successor(valid, wanted, known, version, _ms(clock))
        switch(spark, lake, now)
        write_view_files(spark, lake, now)
        remove_old_layout(spark, lake)
    events = sum(coverage.events(day) for day in days)
    stale = frozenset(day for day in held if wanted[day].state == STALE)
    late = [day for day, note in removed.items() if coverage.events(day) != note.events]
    return Publication(days, held, stale, accepted, events, coverage.put_backs(), late)


def _ms(clock: Callable[[], float]) -> int:
    return int(clock() * 1000)


def _say_outdated(
    touched: Sequence[date], noted: Mapping[date, DayNote], progress: Progress
) -> None:
    """Report how many days are computed again because another version computed them."""
    outdated = [n for n in map(noted.get, touched) if n and n.computation != COMPUTATION]
    if outdated:
        days_were = "1 day was" if len(outdated) == 1 else f"{len(outdated)} days were"
        progress(f"{days_were} computed by another version of groupkeeper: computing again")


def _judged(
    gaps: Sequence[Gap],
    chains: Mapping[str, str],
    before: Collection[Span],
    accept_gaps: Collection[date],
) -> tuple[list[Gap], list[Gap]]:
    """Divide the gaps into accepted ones and others. A gap is accepted if it is within a gap of
    ``before``, which earlier runs accepted, or if it touches one of the days ``accept_gaps``.
    """
    accepted: list[Gap] = []
    unknown: list[Gap] = []
    for gap in gaps:
        was_accepted = any(
            (chain == chains[gap.log_id] and first <= gap.first_seq and gap.last_seq <= last)
            for chain, first, last in before
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
    """Return the note that a day will have after this run, with the gaps of this day and of earlier
    days.

    The note names the present tables of the day. If the day is computed, the caller replaces them.
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
        noted.batch if noted is not None else -1,
    )


def _missing_of(gap: Gap, day: date) -> str:
    """Return a text about a gap, for one day. If the gap is only on earlier days, the text says
    that the state at the beginning of the day is uncertain.
    """
    if gap.touches(day):
        return str(gap)
    return f"the state at its beginning is uncertain: of {gap.days_text} {gap}"
