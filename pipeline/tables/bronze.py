"""Bronze: the unchanged events of sealed segments (the daemon's files of events), each written
once.

Segments never change. A run reads the new segments in batches. A batch writes folders of its own,
``dt=DAY/batch_id=N``, which later batches do not change. If a run is killed in the middle of a
batch, the next run removes these folders and reads the files again. So nothing is lost or written
twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from groupkeeper.pipeline.log.columns import (
    BRONZE_SCHEMA,
    EVENT_SCHEMA,
    LACKING_SCHEMA,
    LINE_SCHEMA,
    PARTITION_SCHEMA,
    ROW_FIELDS,
    SEGMENT_SCHEMA,
    STANDING_SCHEMA,
    VERDICT_SCHEMA,
)
from groupkeeper.pipeline.log.coverage import Coverage
from groupkeeper.pipeline.log.held_segment import HeldSegment
from groupkeeper.pipeline.log.kinds import LOG_STARTED
from groupkeeper.pipeline.log.known_lines import KNOWN_LINE
from groupkeeper.pipeline.log.segment_files import (
    SEGMENT_GLOB,
    Judged,
    Lacking,
    Verdict,
    expected,
    judged,
    newest_verdicts,
    parse_name,
)
from groupkeeper.pipeline.spark.session import is_small
from groupkeeper.pipeline.tables.lake import (
    DAY,
    Lake,
    batch_folders,
    empty,
    read_table,
    remove_folder,
    write_days,
)
from groupkeeper.pipeline.tables.pointer import BRONZE, Pointer
from groupkeeper.pipeline.tables.small import (
    by_day,
    frame,
    read_days,
    read_small,
    write_rows,
    write_small,
)
from groupkeeper.pipeline.tables.versions import read_pointer, read_valid
from groupkeeper.storage.event_log.snapshot_logs import SNAPSHOT_KIND

NO_BATCHES: Final[Mapping[date, int]] = {}

_FILES: Final = {"pathGlobFilter": SEGMENT_GLOB, "recursiveFileLookup": "true"}
# a line that is not an event is damage, and must not become a row of nulls
_LINES: Final = {"mode": "FAILFAST"}


def read_segments(spark: SparkSession, *paths: str) -> DataFrame:
    """Read the events of sealed segments, as rows with the columns of ``EVENT_SCHEMA``, ``rest``
    and ``segment``. A path is a segment, or a folder: then all segments in and below it are read.
    """
    lines = spark.read.options(**_FILES).text(list(paths))
    rest = F.when(~F.col("value").rlike(KNOWN_LINE), F.col("value"))
    return (
        lines.where("value != ''")
        .select(
            F.from_json("value", LINE_SCHEMA, _LINES).alias("line"),
            rest.alias("rest"),
            F.col("_metadata.file_name").alias("segment"),
        )
        .select(*_columns_of_line(), "rest", "segment")
    )


def _columns_of_line() -> list[Column]:
    """Return the columns of an event from the column ``line``, which has its parsed line. The
    partitions of its topics get named fields, also if the line has them as ``rows``.
    """
    topics = F.transform("line.topics", _named).alias("topics")
    return [topics if name == "topics" else F.col(f"line.{name}") for name in EVENT_SCHEMA.names]


def with_rest(events: DataFrame) -> DataFrame:
    """Parse the lines in ``rest`` again, and drop this column. Such a line has fields that were
    unknown when it was first read, and that this version may know.
    """
    others = [name for name in events.columns if name not in (*EVENT_SCHEMA.names, "rest")]
    lines = events.withColumn("line", F.from_json("rest", LINE_SCHEMA, _LINES))
    known = [
        F.coalesce(again, F.col(name)).alias(name)
        for name, again in zip(EVENT_SCHEMA.names, _columns_of_line(), strict=True)
    ]
    return lines.select(*known, *others)


def _named(topic: Column) -> Column:
    """Return a topic whose partitions have named fields, also if its line has ``rows``."""
    partitions = F.coalesce(topic["partitions"], F.transform(topic["rows"], _named_partition))
    return F.struct(topic["topic"], topic["topic_id"], partitions.alias("partitions"))


def _named_partition(row: Column) -> Column:
    places = {name: row[place] for place, name in enumerate(ROW_FIELDS)}
    return F.struct(
        *(
            places.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
            for field in PARTITION_SCHEMA
        )
    )


def with_day(events: DataFrame) -> DataFrame:
    """Add the UTC day of each event, as the column ``dt``."""
    return events.withColumn(DAY, F.to_date(F.timestamp_millis("ts_ms")))


def write_batch(events: DataFrame, lake: Lake, batch_id: str | int) -> None:
    """Write one batch of events to bronze: rows of ``EVENT_SCHEMA`` with their ``segment``.

    A batch with the same id is replaced, so a repeated call changes nothing. Batches of segments
    have numbers as ids. The id of an import is not a number.
    """
    write_held(events.sparkSession, lake, write_events(events, lake, batch_id))


def write_events(events: DataFrame, lake: Lake, batch_id: str | int) -> list[HeldSegment]:
    """Write the events of a batch. Return one ``HeldSegment`` for each segment and day in it.

    The events are valid only after the caller has passed the result to ``write_held``.
    """
    batch = with_day(events).withColumn("batch_id", F.lit(str(batch_id)))
    if "rest" not in batch.columns:  # an import, which makes its events itself
        batch = batch.withColumn("rest", F.lit(None).cast("string"))
    rows = clustered(batch.select(BRONZE_SCHEMA.names))
    if is_small(rows.sparkSession):
        written = _write_held_batch(rows, lake, str(batch_id))
    else:
        write_days(rows, lake.events, "batch_id")
        written = _read_batch(rows.sparkSession, lake, str(batch_id))
    is_start = F.col("kind") == LOG_STARTED
    found = written.groupBy("log_id", "segment", DAY, "batch_id").agg(
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.count("*").alias("events"),
        F.sum("seq").alias("seq_sum"),
        F.coalesce(F.max(F.when(is_start, F.col("previous_log_id"))), F.lit("")).alias(
            "previous_log_id"
        ),
        F.coalesce(F.max(F.when(is_start, F.col("store"))), F.lit("")).alias("store"),
        F.coalesce(F.max(F.when(is_start, F.col("ts_ms"))), F.lit(0)).alias("began_ms"),
        F.count("rest").alias("with_rest"),
    )
    return [HeldSegment(**row.asDict()) for row in found.collect()]


def _write_held_batch(rows: DataFrame, lake: Lake, batch_id: str) -> DataFrame:
    """Write the rows of a small batch without Spark. Return the columns that ``write_events`` needs
    to make each ``HeldSegment``.
    """
    held = rows.toArrow()
    for day, of_day in by_day(held):
        folder = f"{lake.events}/{DAY}={day}/batch_id={batch_id}"
        remove_folder(rows.sparkSession, folder)
        write_rows(rows.sparkSession, folder, of_day.drop_columns(["batch_id"]))
    names = [name for name in BRONZE_SCHEMA.names if name in _OF_PART]
    return frame(
        rows.sparkSession, held.select(names), StructType([BRONZE_SCHEMA[name] for name in names])
    )


_OF_PART: Final = frozenset(
    (
        *("log_id", "segment", DAY, "batch_id", "seq", "kind", "previous_log_id", "store"),
        *("ts_ms", "rest"),
    )
)
"""The columns of events from which ``write_events`` computes a ``HeldSegment``."""


def clustered(events: DataFrame) -> DataFrame:
    """Sort the rows of each file by group, so that a search for one group skips most of a file."""
    return events.sortWithinPartitions("group", "seq")


def _read_batch(spark: SparkSession, lake: Lake, batch_id: str) -> DataFrame:
    """Read the rows of one batch, without listing the folders of other batches."""
    folders = batch_folders(spark, lake.events, batch_id)
    reader = spark.read.schema(BRONZE_SCHEMA).option("basePath", lake.events)
    return reader.parquet(*folders) if folders else empty(spark, BRONZE_SCHEMA)


def write_held(spark: SparkSession, lake: Lake, held: Sequence[HeldSegment]) -> None:
    """Record which segments a batch has written, in the table of segments."""
    rows = [tuple(getattr(each, name) for name in SEGMENT_SCHEMA.names) for each in held]
    if rows:
        write_small(spark, rows, SEGMENT_SCHEMA, lake.segments, held[0].batch_id)


def read_bronze(spark: SparkSession, lake: Lake) -> DataFrame:
    """Read every row of bronze, including duplicates and rows that are no longer valid."""
    return read_table(spark, lake.events, BRONZE_SCHEMA)


def read_judged(
    spark: SparkSession, lake: Lake, verdicts: Mapping[str, Verdict] | None = None
) -> Judged:
    """Read which segments bronze has: one entry for each segment, day and batch. Entries that are
    no longer valid are separate (``Judged.superseded``).

    ``verdicts`` is the result of ``read_verdicts``, if the caller already has it.
    """
    held = [
        HeldSegment(**{name: value for name, value in row.items() if value is not None})
        for row in read_small(spark, lake.segments, SEGMENT_SCHEMA)
    ]
    return judged(held, read_verdicts(spark, lake) if verdicts is None else verdicts)


def read_verdicts(spark: SparkSession, lake: Lake) -> dict[str, Verdict]:
    """Map the path of each file of the log to the result of its last check (its verdict)."""
    rows = read_small(spark, lake.verdicts, VERDICT_SCHEMA)
    return newest_verdicts(Verdict(**row) for row in rows)


def read_lacking(spark: SparkSession, lake: Lake) -> list[Lacking]:
    """Read which segments were missing from the log's folder, or wrong, at the last check."""
    rows = read_small(spark, lake.lacking, LACKING_SCHEMA)
    return sorted(Lacking(row["file"], row["problem"], parse_name(row["file"])) for row in rows)


class Contents(NamedTuple):
    """Which segments bronze has (``judged``), and which events are missing (``coverage``). Both are
    from the same moment.
    """

    judged: Judged
    coverage: Coverage


def read_contents(spark: SparkSession, lake: Lake) -> Contents:
    """Read which segments bronze has, and which events are missing."""
    found = read_judged(spark, lake)
    return Contents(found, Coverage([*found.held, *expected(read_lacking(spark, lake))]))


def read_coverage(spark: SparkSession, lake: Lake) -> Coverage:
    """Read which events bronze has, and which are missing."""
    return read_contents(spark, lake).coverage


def read_events(
    spark: SparkSession,
    lake: Lake,
    days: Collection[date] | None = None,
    *,
    after: Mapping[date, int] = NO_BATCHES,
    contents: Contents | None = None,
) -> DataFrame:
    """Read every event of the given days once, and set its ``store``. If ``days`` is None, read all
    days.

    ``after`` maps a day to a batch number: of this day, only later batches are read. ``contents``
    is the result of ``read_contents``, if the caller already has it.

    All other tables are computed from these events. If a store was replaced by an older copy of
    itself, the events that the copy does not have are left out; only bronze keeps them.

    The first days may have been removed because of their age. Then the result for all days begins
    with a snapshot: the committed offsets at the end of the last removed day.
    """
    found, coverage = contents or read_contents(spark, lake)
    pointer = read_pointer(spark, lake)
    there = (day for day in coverage.days() if day >= pointer.bronze_since)
    wanted = frozenset(there if days is None else days)
    parts = [
        part
        for part in found.held
        if part.dt in wanted and (part.dt not in after or part.number > after[part.dt])
    ]
    events = read_parts(spark, lake, parts, found.superseded)
    has_rest = any(part.with_rest for part in parts)
    events = with_rest(events) if has_rest else events.drop("rest")
    if coverage.has_overlaps(wanted):
        events = distinct_events(events)
    events = with_store(without_abandoned(events, coverage), coverage.stores())
    if days is None and BRONZE in pointer.since:
        snapshot = _snapshot(spark, lake, pointer)
        return events.unionByName(snapshot, allowMissingColumns=True)
    return events


def _snapshot(spark: SparkSession, lake: Lake, pointer: Pointer) -> DataFrame:
    """Return the offsets at the end of the last removed day as events, one for each offset."""
    last = max((day for day in pointer.days if day < pointer.bronze_since), default=None)
    days = [last] if last else []
    standing = read_valid(spark, lake, pointer, "_carried/offsets", STANDING_SCHEMA, days)
    end = F.unix_millis(F.lit(pointer.bronze_since).cast("timestamp")) - 1
    values = {field.name: F.lit(None).cast(field.dataType) for field in PARTITION_SCHEMA}
    values |= {name: F.col(name) for name in values if name in STANDING_SCHEMA.names}
    partition = F.struct(*(value.alias(name) for name, value in values.items()))
    topic = F.struct("topic", "topic_id", F.array(partition).alias("partitions"))
    return standing.select(
        *("store", "lease_epoch", "seq", "group", "client_id", "commit_time_ms", "expire_time_ms"),
        F.col("store").alias("log_id"),
        end.alias("ts_ms"),
        F.lit(SNAPSHOT_KIND).alias("kind"),
        F.array(topic).alias("topics"),
    )


def read_parts(
    spark: SparkSession,
    lake: Lake,
    parts: Sequence[HeldSegment],
    superseded: Sequence[tuple[str, str]],
) -> DataFrame:
    """Read the rows of some segments, except the ``superseded`` ones (``Judged.superseded``). Only
    the folders of these segments are read, and not the unfinished folders of a killed job.
    """
    folders = set(map(folder_of_part, parts))
    events = read_days(spark, lake, "bronze/events", sorted(folders), BRONZE_SCHEMA)
    return without_superseded(events, superseded)


def folder_of_part(part: HeldSegment) -> str:
    """Return the folder with the events of ``part``, relative to the root of the tables."""
    return f"bronze/events/{DAY}={part.dt}/batch_id={part.batch_id}"


def without_superseded(events: DataFrame, superseded: Sequence[tuple[str, str]]) -> DataFrame:
    """Drop the rows that are no longer valid. ``superseded`` has the segment and the batch of such
    rows.
    """
    if not superseded:
        return events
    gone = [F.struct(F.lit(segment), F.lit(batch)) for segment, batch in superseded]
    return events.where(~F.struct("segment", "batch_id").isin(*gone))


def without_abandoned(events: DataFrame, coverage: Coverage) -> DataFrame:
    """Drop the events that are no longer valid, because an older copy replaced their store."""
    if not (limits := coverage.limits()):
        return events
    last = F.create_map(*(F.lit(each) for pair in limits.items() for each in pair))
    return events.where(F.coalesce(F.col("seq") <= last[F.col("log_id")], F.lit(True)))


def distinct_events(events: DataFrame) -> DataFrame:
    """Keep one row of each event, because overlapping segments contain the same events."""
    return events.dropDuplicates(["log_id", "seq"])


def with_store(events: DataFrame, stores: dict[str, str] | None = None) -> DataFrame:
    """Add the column ``store`` to the events. ``stores`` maps a log id to its store. The store of a
    log without an entry is named like the log.
    """
    if not stores or all(log_id == store for log_id, store in stores.items()):
        return events.withColumn("store", F.col("log_id"))
    table = F.create_map(*map(F.lit, _flat(stores.items())))
    return events.withColumn("store", F.coalesce(table[F.col("log_id")], F.col("log_id")))


def _flat(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [text for pair in pairs for text in pair]
