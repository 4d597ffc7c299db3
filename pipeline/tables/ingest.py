"""The job that reads sealed segments (files of events) into bronze, the table of all events. Each
segment is checked, and read once.

The job lists the files that are new, or changed since they were read, and divides them into
batches. For each batch, it checks the files (``pipeline.log.segment_files``), and Spark reads the
correct ones. Then the job writes the result for each file (its verdict). The verdicts are the last
write of a batch, so they show which batches are complete. If a good copy replaces a bad file, the
file has changed, and the next run reads it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from pyspark.sql import SparkSession

from groupkeeper.pipeline.log.columns import LACKING_SCHEMA, VERDICT_SCHEMA
from groupkeeper.pipeline.log.held_segment import HeldSegment
from groupkeeper.pipeline.log.segment_files import (
    ChangeTicket,
    Lacking,
    is_new,
    lacking,
    parse_name,
    problem_of_events,
    problem_of_file,
)
from groupkeeper.pipeline.spark.failure import damaged_file
from groupkeeper.pipeline.spark.session import SPARK_ERRORS
from groupkeeper.pipeline.tables.bronze import (
    read_judged,
    read_lacking,
    read_verdicts,
    write_events,
    write_held,
)
from groupkeeper.pipeline.tables.lake import (
    Lake,
    numbers,
    remove_batch,
)
from groupkeeper.pipeline.tables.log_folder import FolderContent, LogFile, LogFolder
from groupkeeper.pipeline.tables.small import write_small

CONTINUOUS_INTERVAL_S: Final = 60.0
"""The time between two checks with ``--continuous``. By default, the daemon closes a segment when
its first event is five minutes old, so shorter pauses would find little more."""

MAX_BATCH_BYTES: Final = 256 * 1024 * 1024
"""A batch with this many bytes of compressed segments gets no further file. So little work is
repeated after a crash.
"""

MAX_BATCH_FILES: Final = 1_000

UNREADABLE: Final = "cannot be read: it is cut off or damaged"


def ingest(spark: SparkSession, log_dir: str, lake: Lake) -> list[Lacking]:
    """Read every correct segment that is new, in batches. Return the segments that are missing or
    wrong.
    """
    folder = LogFolder(spark, log_dir)
    first_batch = _begin(spark, lake)
    for number, tickets in enumerate(_new_batches(spark, folder, lake), first_batch):
        _Batch(spark, folder, lake, str(number)).take(tickets)
    return _note_lacking(spark, folder, lake)


def ingest_for_ever(
    spark: SparkSession,
    log_dir: str,
    lake: Lake,
    after_each: Callable[[list[Lacking]], object],
    before_each: Callable[[], object] | None = None,
) -> None:
    """Ingest every minute, until a callback raises an error.

    ``after_each`` is called after each ingest. ``before_each`` is called before each ingest except
    the first.
    """
    while True:
        began = time.monotonic()
        after_each(ingest(spark, log_dir, lake))
        time.sleep(max(0.0, CONTINUOUS_INTERVAL_S - (time.monotonic() - began)))
        if before_each is not None:
            before_each()


def _begin(spark: SparkSession, lake: Lake) -> int:
    """Remove the unfinished batch of the last run, if there is one. Return the number of the next
    batch, which is one more than the last complete batch.
    """
    first_batch = 1 + max(numbers(spark, lake.verdicts), default=-1)
    for table in (lake.events, lake.segments):
        for number in numbers(spark, table):
            if number >= first_batch:
                remove_batch(spark, table, str(number))
    return first_batch


# --- before a batch: what is to be read -----------------------------------------------------------


def _new_batches(spark: SparkSession, folder: LogFolder, lake: Lake) -> list[list[ChangeTicket]]:
    """Return the files to check, divided into batches."""
    files = folder.files()
    manifest = folder.manifest(each.file for each in files)
    known = read_verdicts(spark, lake)
    new = [
        each
        for each in files
        if each.file not in manifest.removed
        and is_new(*each, manifest.of(each.file), known.get(each.file))
    ]
    return [
        sorted(ChangeTicket(each.file, manifest.of(each.file)) for each in batch)
        for batch in _batches(new)
    ]


def _batches(files: Iterable[LogFile]) -> list[list[LogFile]]:
    """Divide files into batches of a limited size.

    Two files with the same name are never in one batch, because a row of bronze has the name of its
    file, but not the folder.
    """
    batches: list[list[LogFile]] = []
    waiting = list(files)
    while waiting:
        batch: list[LogFile] = []
        names: set[str] = set()
        left = []
        size = 0
        for each in waiting:
            name = each.file.rpartition("/")[2]
            is_full = size >= MAX_BATCH_BYTES or len(batch) >= MAX_BATCH_FILES
            if is_full or name in names:
                left.append(each)
                continue
            batch.append(each)
            names.add(name)
            size += each.file_bytes
        batches.append(batch)
        waiting = left
    return batches


# --- a batch --------------------------------------------------------------------------------------


class _Batch:
    def __init__(self, spark: SparkSession, folder: LogFolder, lake: Lake, batch_id: str) -> None:
        self._spark = spark
        self._folder = folder
        self._lake = lake
        self._batch_id = batch_id
        self._problems: dict[str, str] = {}
        self._stores: dict[str, str] = {}
        """Maps each file to the name of its store in the manifest (the daemon's list of segments);
        "" if it is unknown.
        """

    def take(self, tickets: Sequence[ChangeTicket]) -> None:
        """Read the correct files into bronze, and write a verdict on each file."""
        held = {(part.segment, part.sha256) for part in read_judged(self._spark, self._lake).held}
        contents = self._folder.contents([ticket.file for ticket in tickets])
        there = [ticket for ticket in tickets if ticket.file in contents]
        for ticket in there:
            content = contents[ticket.file]
            if problem := problem_of_file(ticket, content.file_bytes, content.sha256):
                self._problems[ticket.file] = problem
        self._stores = {ticket.file: ticket.listed.store for ticket in there}
        right = [ticket.file for ticket in there if ticket.file not in self._problems]
        # bronze has the content of the others: only their time has changed, or they are copies
        new = [
            file for file in right if (file.rpartition("/")[2], contents[file].sha256) not in held
        ]
        parts = self._bring_in(new, contents)
        write_held(self._spark, self._lake, parts)
        self._note(there, contents)

    def _bring_in(self, files: list[str], contents: dict[str, FolderContent]) -> list[HeldSegment]:
        """Write the events of the files that Spark can read and whose events are correct.

        Return the segments written. The problems of the other files go to ``_problems``.
        """
        while files:
            try:
                parts = write_events(self._folder.events(files), self._lake, self._batch_id)
            except SPARK_ERRORS as error:
                wrong = dict.fromkeys(self._damaged(files, error), UNREADABLE)
                if not wrong:
                    raise
            else:
                by_file = _by_file(files, parts)
                checked = {file: problem_of_events(file, by_file[file]) for file in files}
                wrong = {file: problem for file, problem in checked.items() if problem}
                if not wrong:
                    return [
                        part._replace(
                            file=file,
                            sha256=contents[file].sha256,
                            store=part.store or self._stores[file],
                        )
                        for file in files
                        for part in by_file[file]
                    ]
            self._problems |= wrong
            files = [file for file in files if file not in wrong]
            remove_batch(self._spark, self._lake.events, self._batch_id)
        return []

    def _damaged(self, files: Sequence[str], error: BaseException) -> list[str]:
        """Return the files that Spark cannot read. If Spark's error names a file, return this file.
        Otherwise read each file alone to find the damaged ones.
        """
        named = damaged_file(error)
        found = [file for file in files if named is not None and named.endswith(f"/{file}")]
        return found or [file for file in files if not self._is_readable(file)]

    def _is_readable(self, file: str) -> bool:
        with suppress(*SPARK_ERRORS):
            self._folder.events([file]).write.format("noop").mode("overwrite").save()
            return True
        return False

    def _note(self, tickets: Iterable[ChangeTicket], contents: dict[str, FolderContent]) -> None:
        rows = [
            (
                ticket.file,
                *contents[ticket.file],
                ticket.listed.sha256,
                self._problems.get(ticket.file, ""),
                self._batch_id,
            )
            for ticket in tickets
        ]
        if rows:
            write_small(self._spark, rows, VERDICT_SCHEMA, self._lake.verdicts, self._batch_id)


def _by_file(files: Iterable[str], parts: Iterable[HeldSegment]) -> dict[str, list[HeldSegment]]:
    by_name: dict[str, list[HeldSegment]] = {}
    for part in parts:
        by_name.setdefault(part.segment, []).append(part)
    return {file: by_name.get(file.rpartition("/")[2], []) for file in files}


# --- after a batch: missing segments --------------------------------------------------------------


def _note_lacking(spark: SparkSession, folder: LogFolder, lake: Lake) -> list[Lacking]:
    """Write and return the segments that are missing or wrong."""
    files = [each.file for each in folder.files()]
    manifest = folder.manifest(files)
    verdicts = read_verdicts(spark, lake)
    held = read_judged(spark, lake, verdicts).held
    found = lacking(files, manifest, held, verdicts)
    # a segment that was sealed after the files were listed does exist
    found = [each for each in found if each.file in files or not folder.is_there(each.file)]
    before = read_lacking(spark, lake)
    logs = {name.log_id for file in [*files, *manifest.listed] if (name := parse_name(file))}
    # tables may be made from several folders; logs of other folders keep the result of their last
    # check
    found += [each for each in before if each.name is not None and each.name.log_id not in logs]
    if sorted(found) != before:
        rows = [(each.file, each.problem) for each in found]
        write_small(spark, rows, LACKING_SCHEMA, lake.lacking)
    return sorted(found)
