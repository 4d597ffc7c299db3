"""The Spark job that imports a dump of ``__consumer_offsets`` into the table of all events
(bronze). Spark tasks decode the files of the dump in parallel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from groupkeeper.pipeline.kafka_history.dump import Dump, DumpError, open_dump
from groupkeeper.pipeline.kafka_history.history import decode_file
from groupkeeper.pipeline.log.columns import EVENT_SCHEMA
from groupkeeper.pipeline.spark.failure import why
from groupkeeper.pipeline.tables.bronze import read_bronze, write_batch
from groupkeeper.pipeline.tables.lake import Lake

EVENTS_A_BATCH: Final = 5000
TASKS_A_CORE: Final = 2


class Imported(NamedTuple):
    """The result of an import: its batch in bronze, the number of events written, and the number of
    records read.
    """

    batch_id: str
    events: int
    records: int


def import_dump(
    spark: SparkSession, directory: Path, lake: Lake, *, skip_unreadable: bool = False
) -> Imported:
    """Import a dump into bronze as one batch. If the import is repeated, the new batch replaces the
    old one.

    Every Spark task must be able to read the directory at this path. Raises DumpError if the dump
    or one of its records cannot be read.
    """
    dump = open_dump(directory)
    try:
        # a task has another working directory
        write_batch(_events(spark, directory.absolute(), dump, skip_unreadable), lake, dump.id)
    except PythonException as error:
        raise DumpError(_told(error)) from None
    written = read_bronze(spark, lake).where(F.col("batch_id") == dump.id).count()
    return Imported(dump.id, written, dump.records)


def _told(error: PythonException) -> str:
    """Return the message of the Python error in a Spark task, without Spark's stack trace."""
    said = re.findall(r"^(?:[\w.]+\.)?(\w*Error): (.*)$", str(error), re.MULTILINE)
    if not said or said[0][0] == ModuleNotFoundError.__name__:
        return why(error)
    name, text = said[0]
    return text if name == DumpError.__name__ else f"{name}: {text}"


def _events(spark: SparkSession, directory: Path, dump: Dump, skip_unreadable: bool) -> DataFrame:
    files = [(each.partition, each.file) for each in dump.partitions if each.records]
    tasks = min(len(files), TASKS_A_CORE * spark.sparkContext.defaultParallelism)
    rows = spark.createDataFrame(files, "partition int, file string").repartition(max(tasks, 1))
    decode = partial(_decode_batches, str(directory), dump, skip_unreadable)
    events = rows.mapInArrow(decode, "segment string, event string")
    parsed = events.select(
        F.from_json("event", EVENT_SCHEMA, {"mode": "FAILFAST"}).alias("event"), "segment"
    )
    return parsed.select("event.*", "segment")


def _decode_batches(
    directory: str, dump: Dump, skip_unreadable: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            events = decode_file(
                Path(directory),
                dump,
                row["partition"],
                row["file"],
                skip_unreadable=skip_unreadable,
            )
            yield from _record_batches(row["file"], events)


def _record_batches(file: str, events: Iterable[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    encoder = msgspec.json.Encoder()
    lines: list[str] = []
    for event in events:
        lines.append(encoder.encode(event).decode())
        if len(lines) == EVENTS_A_BATCH:
            yield pa.RecordBatch.from_pydict({"segment": [file] * len(lines), "event": lines})
            lines = []
    if lines:
        yield pa.RecordBatch.from_pydict({"segment": [file] * len(lines), "event": lines})
