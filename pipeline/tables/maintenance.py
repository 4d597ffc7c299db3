"""The job that merges small files and removes old days. It is the last step of each run. A separate
command runs it alone.

The tables have three layers: bronze (events), silver (facts about groups) and gold (summaries). The
job replaces the pointer at its end (``pipeline.tables.pointer``), so readers see all changes at one
moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Final

from pyspark.sql import SparkSession

from groupkeeper.pipeline.log.segment_files import Judged
from groupkeeper.pipeline.tables.bronze import folder_of_part, read_judged, read_verdicts
from groupkeeper.pipeline.tables.compaction import (
    PAST_DAY_PARTS,
    forget_merged,
    is_due,
    merge_batches,
    merge_files,
    small_batches,
    small_files,
)
from groupkeeper.pipeline.tables.lake import Lake, bronze_folders
from groupkeeper.pipeline.tables.pointer import Pointer, Replaced
from groupkeeper.pipeline.tables.retention import aged
from groupkeeper.pipeline.tables.versions import (
    KEEP_VERSIONS_HOURS,
    begin,
    read_pointer,
    successor,
    sweep,
    switch,
)
from groupkeeper.pipeline.tables.views import write_view_files

RUN_LOOKS_BACK_DAYS: Final = 8
"""The number of newest days in which a run looks for small files. New events seldom belong to older
days, and a look at every day would cost more than a small run.
"""

NO_RETENTION: Final[Mapping[str, int]] = {}
"""The setting with which bronze, silver and gold keep all days."""


@dataclass(frozen=True)
class Maintained:
    """The changes that one call of ``maintain`` made."""

    merged: list[date] = field(default_factory=list)
    """Days whose small files were merged."""
    since: Mapping[str, date] = field(default_factory=dict)
    """Maps each layer (bronze, silver, gold) from which days were removed to its new first day."""


def maintain(  # noqa: PLR0913  the options of a command
    spark: SparkSession,
    lake: Lake,
    *,
    retention_days: Mapping[str, int] = NO_RETENTION,
    keep_versions_hours: float = KEEP_VERSIONS_HOURS,
    look_back_days: int = 0,
    past_day_parts: int = PAST_DAY_PARTS,
    clock: Callable[[], float] = time.time,
) -> Maintained:
    """Merge small files and remove old days. Replaced folders stay for ``keep_versions_hours``.

    ``look_back_days`` limits the search for small files of silver to the newest days; 0 means all.
    ``past_day_parts`` is the number of small batches or files of a past day that are merged.
    """
    now = clock()
    now_ms, today = int(now * 1000), datetime.fromtimestamp(now, UTC).date()
    found = read_pointer(spark, lake)
    if not found.version:  # nothing is published, or the tables are of an earlier version
        return Maintained()
    verdicts = read_verdicts(spark, lake)
    judged = read_judged(spark, lake, verdicts)
    forget_merged(spark, lake, judged, verdicts)
    valid = aged(sweep(spark, lake, found, keep_versions_hours, now_ms), retention_days, today)
    days, due = dict(valid.days), is_due(today, past_day_parts)
    if small := small_batches(spark, lake, judged, valid, due):
        batch = merge_batches(spark, lake, judged, verdicts, small)
        days |= {day: replace(days[day], batch=batch) for day in small}
        judged = read_judged(spark, lake)
    files = small_files(spark, lake, valid, sorted(days)[-look_back_days:], due)
    version = valid.version + 1
    if files:
        begin(spark, lake, version, files, {day for of_table in files.values() for day in of_table})
    for day, tables in merge_files(spark, lake, files, version).items():
        days[day] = replace(days[day], tables={**days[day].tables, **tables})
    after = successor(valid, days, valid.accepted, version, now_ms)
    if gone := _unused_bronze(spark, lake, valid, judged):
        after = replace(after, replaced=[*after.replaced, Replaced(now_ms, gone)])
    if replace(after, version=found.version) != found:
        switch(spark, lake, after)
        write_view_files(spark, lake, after)
    merged = sorted(day for day in days if days[day] != valid.days[day])
    since = {layer: day for layer, day in after.since.items() if found.since.get(layer) != day}
    return Maintained(merged, since)


def _unused_bronze(spark: SparkSession, lake: Lake, valid: Pointer, judged: Judged) -> list[str]:
    """Return the folders of bronze that are no longer used: their rows were merged or replaced, or
    their day is too old.

    Folders that the pointer already lists as replaced are left out.
    """
    parts = (part for part in judged.held if part.dt >= valid.bronze_since)
    counting = set(map(folder_of_part, parts))
    known = {folder for each in valid.replaced for folder in each.folders}
    folders = set(bronze_folders(spark, lake))
    return sorted(folders - counting - known)
