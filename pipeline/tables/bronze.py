"""Bronze: the unchanged events of sealed segments, each written once.

A segment is immutable, and so is the output of a batch: ``dt=DAY/batch_id=N`` is replaced as a
whole. The next run removes an unfinished batch and reads its files again, so nothing is lost or
written twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import date
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from groupkeeper.pipeline.log.columns import (
    BRONZE_SCHEMA,
    EVENT_SCHEMA,
    LACKING_SCHEMA,
    LINE_SCHEMA,
    PARTITION_SCHEMA,
    ROW_FIELDS,
    SEGMENT_SCHEMA,
    VERDICT_SCHEMA,
)
from groupkeeper.pipeline.log.coverage import Coverage, HeldSegment
from groupkeeper.pipeline.log.kinds import LOG_STARTED
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
from groupkeeper.pipeline.tables.lake import DAY, Lake, read_table, write_days, write_small

_READ_OPTIONS: Final = {
    "pathGlobFilter": SEGMENT_GLOB,
    "recursiveFileLookup": "true",
    # a line that is not an event is damage, and must not become a row of nulls
    "mode": "FAILFAST",
}


def read_segments(spark: SparkSession, *paths: str) -> DataFrame:
    """Read sealed segments: the named files, and all segments in and below the named folders."""
    reader = spark.read.schema(LINE_SCHEMA).options(**_READ_OPTIONS)
    return _from_lines(reader.json(list(paths)))


def _from_lines(lines: DataFrame) -> DataFrame:
    """Name the partitions of commits, and add the file of each event."""
    topics = F.transform("topics", _named).alias("topics")
    columns = [topics if name == "topics" else F.col(name) for name in EVENT_SCHEMA.names]
    return lines.select(*columns, F.col("_metadata.file_name").alias("segment"))


def _named(topic: Column) -> Column:
    """Return a topic with named partitions, for either form of the line."""
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
    """Add the UTC day of each event."""
    return events.withColumn(DAY, F.to_date(F.timestamp_millis("ts_ms")))


def write_batch(events: DataFrame, lake: Lake, batch_id: str | int) -> None:
    """Write one batch: events of ``EVENT_SCHEMA`` with their ``segment``.

    A batch with the same id is replaced, so repeating the call changes nothing. Numeric ids
    are for segments; an import uses other ids.
    """
    write_held(events.sparkSession, lake, write_events(events, lake, batch_id))


def write_events(events: DataFrame, lake: Lake, batch_id: str | int) -> list[HeldSegment]:
    """Write the events of a batch; return the parts of its segments, for ``write_held``.

    The events do not count before ``write_held`` has written those parts.
    """
    batch = with_day(events).withColumn("batch_id", F.lit(str(batch_id)))
    write_days(batch.select(BRONZE_SCHEMA.names), lake.events, "batch_id")
    written = read_bronze(events.sparkSession, lake).where(F.col("batch_id") == str(batch_id))
    is_start = F.col("kind") == LOG_STARTED
    found = written.groupBy("log_id", "segment", DAY, "batch_id").agg(
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.count("*").alias("events"),
        F.sum("seq").alias("seq_sum"),
        F.coalesce(F.max(F.when(is_start, F.col("previous_log_id"))), F.lit("")).alias(
            "previous_log_id"
        ),
        F.coalesce(F.max(F.when(is_start, F.col("ts_ms"))), F.lit(0)).alias("began_ms"),
    )
    return [HeldSegment(**row.asDict()) for row in found.collect()]


def write_held(spark: SparkSession, lake: Lake, held: Sequence[HeldSegment]) -> None:
    """Record the segments that a batch has written."""
    rows = [tuple(getattr(each, name) for name in SEGMENT_SCHEMA.names) for each in held]
    if rows:
        write_small(spark.createDataFrame(rows, SEGMENT_SCHEMA), lake.segments, "batch_id")


def read_bronze(spark: SparkSession, lake: Lake) -> DataFrame:
    """Read every row: unchanged events, including duplicates."""
    return read_table(spark, lake.events, BRONZE_SCHEMA)


def read_judged(spark: SparkSession, lake: Lake) -> Judged:
    """Read which segments bronze has. The result is small for any number of events."""
    rows = read_table(spark, lake.segments, SEGMENT_SCHEMA).collect()
    held = [
        HeldSegment(**{name: value for name, value in row.asDict().items() if value is not None})
        for row in rows
    ]
    return judged(held, read_verdicts(spark, lake))


def read_verdicts(spark: SparkSession, lake: Lake) -> dict[str, Verdict]:
    """Read the last verdict of each file."""
    rows = read_table(spark, lake.verdicts, VERDICT_SCHEMA).collect()
    return newest_verdicts(Verdict(**row.asDict()) for row in rows)


def read_lacking(spark: SparkSession, lake: Lake) -> list[Lacking]:
    """Read the segments that the log's folder lacked at the last check."""
    rows = read_table(spark, lake.lacking, LACKING_SCHEMA).collect()
    return sorted(Lacking(row["file"], row["problem"], parse_name(row["file"])) for row in rows)


def read_coverage(spark: SparkSession, lake: Lake) -> Coverage:
    """Read which segments bronze has, and which it lacks."""
    return _coverage(read_judged(spark, lake), read_lacking(spark, lake))


def _coverage(found: Judged, lacking: Iterable[Lacking]) -> Coverage:
    return Coverage([*found.held, *expected(lacking)])


def read_events(spark: SparkSession, lake: Lake, days: Collection[date] | None = None) -> DataFrame:
    """Read every event of the given days once, with its ``store``. None means all days.

    Every other table is computed from these events. If a store was replaced by an older copy of
    itself, the events that the copy lacks are left out. Only bronze keeps them.
    """
    found = read_judged(spark, lake)
    coverage = _coverage(found, read_lacking(spark, lake))
    wanted = coverage.days() if days is None else sorted(days)
    events = read_bronze(spark, lake).where(F.col(DAY).isin(wanted))
    if found.superseded:
        of_batch = F.struct("segment", "batch_id")
        gone = [F.struct(F.lit(segment), F.lit(batch)) for segment, batch in found.superseded]
        events = events.where(~of_batch.isin(*gone))
    if coverage.has_overlaps(wanted):
        events = distinct_events(events)
    return with_store(without_abandoned(events, coverage), coverage.stores())


def without_abandoned(events: DataFrame, coverage: Coverage) -> DataFrame:
    """If a store was replaced by an older copy of itself, drop the events that the copy lacks."""
    if not (limits := coverage.limits()):
        return events
    last = F.create_map(*(F.lit(each) for pair in limits.items() for each in pair))
    return events.where(F.coalesce(F.col("seq") <= last[F.col("log_id")], F.lit(True)))


def distinct_events(events: DataFrame) -> DataFrame:
    """Keep one row of each event, because overlapping segments contain the same events."""
    return events.dropDuplicates(["log_id", "seq"])


def with_store(events: DataFrame, stores: dict[str, str] | None = None) -> DataFrame:
    """Add the store of each log. Without a map every log is a store of its own."""
    if not stores or all(log_id == store for log_id, store in stores.items()):
        return events.withColumn("store", F.col("log_id"))
    table = F.create_map(*map(F.lit, _flat(stores.items())))
    return events.withColumn("store", F.coalesce(table[F.col("log_id")], F.col("log_id")))


def _flat(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [text for pair in pairs for text in pair]
