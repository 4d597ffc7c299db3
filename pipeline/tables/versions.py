"""The versions of the tables on disk. Each run writes new folders; they are one version. The
functions here read and replace the pointer, which names the valid folders, and remove folders that
are no longer needed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import date
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from groupkeeper.pipeline.log.columns import NOTE_SCHEMA
from groupkeeper.pipeline.tables.files import read_file, replace_file
from groupkeeper.pipeline.tables.lake import (
    DAY,
    Lake,
    finish_replacing,
    hadoop_path,
    read_table,
    remove_all,
    remove_folder,
)
from groupkeeper.pipeline.tables.pointer import (
    BRONZE,
    HELD_BACK,
    HOUR_MS,
    DayNote,
    Pointer,
    Replaced,
    Span,
    as_json,
    folder_of,
    from_json,
    has_version,
)
from groupkeeper.pipeline.tables.retention import without_old
from groupkeeper.pipeline.tables.small import read_days

KEEP_VERSIONS_HOURS: Final = 24.0
"""How long replaced folders stay. It must be longer than the longest query over them."""


def read_pointer(spark: SparkSession, lake: Lake) -> Pointer:
    """Read the pointer, which names the valid folders. Raises UnknownFormat if another version of
    groupkeeper wrote it in another format.

    Tables from before 0.2.0.dev5 have no pointer. Then return a pointer of version 0 with their
    days. If there are no tables, return an empty pointer.
    """
    content = read_file(spark, lake.pointer)
    return _pointer_of_old_layout(spark, lake) if content is None else from_json(content)


def read_valid(
    spark: SparkSession,
    lake: Lake,
    pointer: Pointer,
    table: str,
    schema: StructType,
    days: Collection[date] | None = None,
) -> DataFrame:
    """Read the valid rows of a table, for some days or for all days. The result is empty if the
    table has no rows of these days.
    """
    folders = pointer.folders(table)
    wanted = [folder for day, folder in folders.items() if days is None or day in days]
    return read_days(spark, lake, table, wanted, schema)


def begin(
    spark: SparkSession, lake: Lake, version: int, tables: Collection[str], days: Collection[date]
) -> None:
    """Record the folders that a run is about to write. If the run is killed, the next run removes
    these folders.
    """
    folders = [folder_of(table, day, version) for table in tables for day in days]
    content = json.dumps({"version": version, "folders": folders}, indent=1)
    replace_file(spark, lake.writing, content.encode())


def write_pointer(spark: SparkSession, lake: Lake, pointer: Pointer) -> None:
    """Replace the pointer. At any moment, a reader sees the old pointer or the new one."""
    replace_file(spark, lake.pointer, as_json(pointer))


def switch(spark: SparkSession, lake: Lake, pointer: Pointer) -> None:
    """Replace the pointer, so that all new folders become valid at the same moment. Then delete the
    record that ``begin`` wrote.
    """
    write_pointer(spark, lake, pointer)
    remove_folder(spark, lake.writing)


def successor(
    pointer: Pointer,
    days: Mapping[date, DayNote],
    accepted: frozenset[Span],
    version: int,
    now_ms: int,
) -> Pointer:
    """Return the pointer that a run of this ``version`` writes after ``pointer``. Folders that are
    no longer needed are listed in its ``replaced``.

    ``days`` are the days of the new pointer. Tables that are older than the first day of their
    layer (``Pointer.since``) are left out.
    """
    kept = without_old(days, pointer.since)
    still = set(_folders_of(kept))
    gone = sorted({*_folders_of(pointer.days), *_folders_of(days)} - still)
    replaced = [*pointer.replaced, *([Replaced(now_ms, gone)] if gone else [])]
    return replace(pointer, version=version, days=kept, accepted=accepted, replaced=replaced)


def _folders_of(days: Mapping[date, DayNote]) -> Iterator[str]:
    return (folder for note in days.values() for folder in note.tables.values())


def sweep(
    spark: SparkSession, lake: Lake, pointer: Pointer, keep_hours: float, now_ms: int
) -> Pointer:
    """Delete the folders of a killed run, and folders that were replaced at least ``keep_hours``
    ago.

    Return the pointer without these folders. The caller writes it. If the process is killed before
    that, the next run deletes the same folders again.
    """
    _remove_litter(spark, lake, pointer)
    expired = [each for each in pointer.replaced if now_ms - each.at_ms >= keep_hours * HOUR_MS]
    for folder in (folder for each in expired for folder in each.folders):
        _remove(spark, lake, folder)
    return replace(pointer, replaced=[each for each in pointer.replaced if each not in expired])


def _remove_litter(spark: SparkSession, lake: Lake, pointer: Pointer) -> None:
    content = read_file(spark, lake.writing)
    if content is None:
        return
    written = json.loads(content)
    if written["version"] > pointer.version:  # otherwise the run ended after its switch
        for folder in written["folders"]:
            _remove(spark, lake, folder)
        for table in {folder.partition(f"/{DAY}=")[0] for folder in written["folders"]}:
            remove_all(spark, lake.path(f"{table}/.spark-staging-*"))
    remove_folder(spark, lake.writing)


def _remove(spark: SparkSession, lake: Lake, folder: str) -> None:
    if has_version(folder) or folder.startswith(f"{BRONZE}/"):
        remove_folder(spark, lake.path(folder))
        return
    remove_all(spark, lake.path(f"{folder}/*.parquet"))


# --- tables from before 0.2.0.dev5 ----------------------------------------------------------------


def _pointer_of_old_layout(spark: SparkSession, lake: Lake) -> Pointer:
    """Return a pointer for tables from before 0.2.0.dev5. Such tables have one folder for each day,
    and the states of the days are in a table, ``publications``.

    Folders that no published day needs are in ``replaced``, so a later run deletes them.
    """
    notes = read_table(spark, lake.publications, NOTE_SCHEMA).collect()
    if not notes:
        return Pointer()
    folders = _folders_of_old_layout(spark, lake)
    days = {}
    accepted: set[Span] = set()
    for row in notes:
        tables = folders.pop(row[DAY].isoformat(), {}) if row["state"] != HELD_BACK else {}
        accepted.update(tuple(each) for each in row["accepted"] or ())
        days[row[DAY]] = DayNote(
            *(row["state"], row["fingerprint"], row["events"], row["missing"]),
            *(row["version"] or 0, tables),
        )
    rest = sorted(folder for tables in folders.values() for folder in tables.values())
    replaced = [Replaced(0, rest)] if rest else []
    return Pointer(0, dict(sorted(days.items())), frozenset(accepted), replaced)


def _folders_of_old_layout(spark: SparkSession, lake: Lake) -> dict[str, dict[str, str]]:
    """Map each day (as text) to the folder of each table."""
    found: dict[str, dict[str, str]] = {}
    pattern, file_system = hadoop_path(
        spark, lake.path("{silver,gold,_carried}/*/" + DAY + "=*/*.parquet")
    )
    for each in file_system.globStatus(pattern) or ():
        *_, layer, name, day, _ = str(each.getPath().toString()).split("/")
        table = f"{layer}/{name}"
        found.setdefault(day.removeprefix(f"{DAY}="), {})[table] = f"{table}/{day}"
    return found


def take_over(spark: SparkSession, lake: Lake) -> None:
    """Complete a killed run of a version before 0.2.0.dev5. Such a run wrote a new table of
    published days. If the run did not move this table to its place, move it.
    """
    finish_replacing(spark, lake.publications, lake.new_publications)


def remove_old_layout(spark: SparkSession, lake: Lake) -> None:
    """Remove files that versions before 0.2.0.dev5 kept about their runs. The pointer replaces
    them, and they would soon be out of date.
    """
    for folder in (lake.publications, lake.new_publications):
        remove_folder(spark, folder)
    for folder in ("_tickets", "_checkpoint"):
        remove_folder(spark, lake.path(folder))
