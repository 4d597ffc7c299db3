"""Merges the small files that frequent runs write, so that readers open fewer files.

Bronze (the table of events): the small batches of a day become one batch. The new batch names the
same files of the log as the old batches, so it replaces them as soon as it is recorded.

Silver (the tables of facts about groups): the files of a day become one file.

The old folders stay for the time that replaced folders stay (``keep_versions_hours``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from groupkeeper.pipeline.log.columns import BRONZE_SCHEMA, VERDICT_SCHEMA
from groupkeeper.pipeline.log.coverage import Coverage
from groupkeeper.pipeline.log.held_segment import HeldSegment
from groupkeeper.pipeline.log.segment_files import Judged, Verdict
from groupkeeper.pipeline.tables.bronze import (
    clustered,
    read_coverage,
    read_parts,
    write_held,
)
from groupkeeper.pipeline.tables.compute import APPENDED
from groupkeeper.pipeline.tables.lake import (
    DAY,
    Lake,
    add_days,
    file_sizes,
    numbers,
    read_folders,
    remove_batch,
    write_days,
)
from groupkeeper.pipeline.tables.pointer import Pointer, folder_of
from groupkeeper.pipeline.tables.small import write_small

SMALL_BATCH_EVENTS: Final = 1_000_000
"""A batch with at least this number of events is not merged: its files are large."""

SMALL_FILE_BYTES: Final = 32 * 1024 * 1024
"""The files of a folder of silver are merged if their average size is below this."""

OPEN_DAY_PARTS: Final = 24
"""If today has at least this number of small batches or files, they are merged. With a run every
five minutes, this is every two hours. The number is not lower, because each merge writes the whole
day again."""

PAST_DAY_PARTS: Final = 2
"""If an earlier day has at least this number of small batches or files, they are merged."""

RUN_PAST_DAY_PARTS: Final = 8
"""The same at the end of a run. The number is larger, because a few late events would otherwise
write the whole day again."""

IsDue = Callable[[int, date], bool]
"""Takes the number of small batches or files of a day. Returns True if they should be merged."""


def is_due(today: date, past_day_parts: int) -> IsDue:
    """Return the rule for the number of small batches or files that are merged."""
    return lambda parts, day: parts >= (past_day_parts if day < today else OPEN_DAY_PARTS)


# --- bronze ---------------------------------------------------------------------------------------


def small_batches(
    spark: SparkSession, lake: Lake, judged: Judged, pointer: Pointer, is_due: IsDue
) -> dict[date, list[HeldSegment]]:
    """Return the segments of small batches that should be merged, by day. A day is left out if its
    tables are not yet computed from all of its segments.
    """
    batches: dict[tuple[date, str], list[HeldSegment]] = defaultdict(list)
    for part in judged.held:
        if part.file and part.dt >= pointer.bronze_since:
            batches[part.dt, part.batch_id].append(part)
    small: dict[date, list[list[HeldSegment]]] = defaultdict(list)
    for (day, _), parts in sorted(batches.items()):
        if sum(part.events for part in parts) < SMALL_BATCH_EVENTS:
            small[day].append(parts)
    due = {day: parts for day, parts in small.items() if is_due(len(parts), day)}
    if not due:
        return {}
    coverage = read_coverage(spark, lake)
    return {
        day: [part for parts in of_day for part in parts]
        for day, of_day in due.items()
        if _is_computed(coverage, pointer, day)
    }


def _is_computed(coverage: Coverage, pointer: Pointer, day: date) -> bool:
    note = pointer.days.get(day)
    if note is None or not note.is_whole or note.fingerprint != coverage.fingerprint(day):
        return False
    return all(part.number <= note.batch for part in coverage.segments if part.dt == day)


def merge_batches(
    spark: SparkSession,
    lake: Lake,
    judged: Judged,
    verdicts: Mapping[str, Verdict],
    small: Mapping[date, Sequence[HeldSegment]],
) -> int:
    """Write the segments in ``small`` as one batch, and return the number of the batch.

    The batch is valid as soon as the results of checking its files (``verdicts``) are written again
    with its number. If the job is killed before that, the next run removes the batch.
    """
    batch_id = 1 + max(numbers(spark, lake.verdicts), default=-1)
    parts = [part for of_day in small.values() for part in of_day]
    rows = read_parts(spark, lake, parts, judged.superseded)
    rows = rows.withColumn("batch_id", F.lit(str(batch_id))).select(BRONZE_SCHEMA.names)
    write_days(clustered(rows.repartition(DAY)), lake.events, "batch_id")
    write_held(spark, lake, [part._replace(batch_id=str(batch_id)) for part in parts])
    again = [each._replace(batch_id=str(batch_id)) for each in verdicts.values()]
    write_small(spark, again, VERDICT_SCHEMA, lake.verdicts, str(batch_id))
    return batch_id


def forget_merged(
    spark: SparkSession, lake: Lake, judged: Judged, verdicts: Mapping[str, Verdict]
) -> None:
    """Remove the rows of batches that are no longer valid from the tables of segments and verdicts.

    Readers may still use the batches that a merge replaces. So call this before the merge: the rows
    of these batches then stay until the next run.
    """
    counting = {part.batch_id for part in judged.held}
    for number in numbers(spark, lake.segments):
        if str(number) not in counting:
            remove_batch(spark, lake.segments, str(number))
    needed = {verdict.batch_id for verdict in verdicts.values()}
    for number in numbers(spark, lake.verdicts):
        if str(number) not in needed:
            remove_batch(spark, lake.verdicts, str(number))


# --- silver ---------------------------------------------------------------------------------------


def small_files(
    spark: SparkSession, lake: Lake, pointer: Pointer, days: Collection[date], is_due: IsDue
) -> dict[str, dict[date, str]]:
    """Return the folders of silver with many small files, by table and day."""
    found: dict[str, dict[date, str]] = {}
    for table in APPENDED:
        folders = pointer.folders(table)
        for day in sorted(folders.keys() & days):
            folder = folders[day]
            sizes = file_sizes(spark, lake.path(folder)).values()
            if is_due(len(sizes), day) and sum(sizes) < SMALL_FILE_BYTES * len(sizes):
                found.setdefault(table, {})[day] = folder
    return found


def merge_files(
    spark: SparkSession, lake: Lake, small: Mapping[str, Mapping[date, str]], version: int
) -> dict[date, dict[str, str]]:
    """Write the rows of these folders into new folders of this version, with one file for each day.
    Return the new folders by day and table.
    """
    found: dict[date, dict[str, str]] = defaultdict(dict)
    for table, folders in small.items():
        rows = read_folders(spark, lake, table, list(folders.values()), APPENDED[table])
        add_days(rows.repartition(DAY), lake.path(table), version)
        for day in folders:
            found[day][table] = folder_of(table, day, version)
    return found
