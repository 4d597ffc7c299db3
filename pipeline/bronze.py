"""Bronze: the events as they are, read from sealed segments, written once each.

A segment is immutable, and so is what a batch of them makes: ``dt=DAY/batch_id=N`` is overwritten
as a whole. A job that dies after its write is given the same batch again by the checkpoint, and
writes the same folders again: nothing is lost and nothing is doubled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import date
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.coverage import Coverage, HeldSegment
from pipeline.lake import DAY, Lake, read_table, write_days
from pipeline.schema import (
    BRONZE_SCHEMA,
    EVENT_SCHEMA,
    LINE_SCHEMA,
    PARTITION_SCHEMA,
    ROW_FIELDS,
    SEGMENT_SCHEMA,
)

SEGMENT_GLOB: Final = "events-*.jsonl.gz"
"""The names of sealed segments; what is still being written has another one."""

MAX_BATCH_BYTES: Final = 256 * 1024 * 1024
"""Compressed segments that one batch takes at most: bounds what a crash makes again."""

_READ_OPTIONS: Final = {
    "pathGlobFilter": SEGMENT_GLOB,
    "recursiveFileLookup": "true",
    # a line that is no event is damage, and must not become a row of nulls
    "mode": "FAILFAST",
}


def read_segments(spark: SparkSession, log_dir: str) -> DataFrame:
    """Read every sealed segment below a folder, now."""
    reader = spark.read.schema(LINE_SCHEMA).options(**_READ_OPTIONS)
    return _from_lines(reader.json(log_dir))


def stream_segments(spark: SparkSession, log_dir: str) -> DataFrame:
    """Read sealed segments as they come, each once."""
    reader = spark.readStream.schema(LINE_SCHEMA).options(**_READ_OPTIONS)
    reader = reader.option("maxBytesPerTrigger", str(MAX_BATCH_BYTES))
    # Spark would pass over a file that is a week older than the newest: a late segment is read too
    reader = reader.option("maxFileAge", "36500d")
    return _from_lines(reader.json(log_dir))


def _from_lines(lines: DataFrame) -> DataFrame:
    """Name the partitions of commits, and add the file that each event was read from."""
    topics = F.transform("topics", _named).alias("topics")
    columns = [topics if name == "topics" else F.col(name) for name in EVENT_SCHEMA.names]
    return lines.select(*columns, F.col("_metadata.file_name").alias("segment"))


def _named(topic: Column) -> Column:
    """Return a topic with named partitions, whichever form the line had."""
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

    A batch of the same id is replaced, so the same call again changes nothing. What does not come
    from the stream of segments (an import) chooses ids that are no numbers.
    """
    batch = with_day(events).withColumn("batch_id", F.lit(str(batch_id)))
    write_days(batch.select(BRONZE_SCHEMA.names), lake.events, "batch_id")
    written = read_bronze(events.sparkSession, lake).where(F.col("batch_id") == str(batch_id))
    one_file = held_segments(written).coalesce(1)
    writer = one_file.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy("batch_id").parquet(lake.segments)


def held_segments(bronze: DataFrame) -> DataFrame:
    """Sum up which seqs of which segment there are: rows of ``SEGMENT_SCHEMA``."""
    return bronze.groupBy("log_id", "segment", DAY, "batch_id").agg(
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.count("*").alias("events"),
        F.sum("seq").alias("seq_sum"),
    )


def read_bronze(spark: SparkSession, lake: Lake) -> DataFrame:
    """Read every row that was ever written: events as they are, repeated ones included."""
    return read_table(spark, lake.events, BRONZE_SCHEMA)


def read_coverage(spark: SparkSession, lake: Lake) -> Coverage:
    """Read which segments bronze holds; small, whatever the size of the events."""
    rows = read_table(spark, lake.segments, SEGMENT_SCHEMA).collect()
    return Coverage(HeldSegment(**row.asDict()) for row in rows)


def read_events(spark: SparkSession, lake: Lake, days: Collection[date] | None = None) -> DataFrame:
    """Read events, each once, of the days given or of all, with the ``store`` that they belong to.

    This is what every other table is computed from.
    """
    coverage = read_coverage(spark, lake)
    wanted = coverage.days() if days is None else sorted(days)
    events = read_bronze(spark, lake).where(F.col(DAY).isin(wanted))
    if coverage.has_overlaps(wanted):
        events = distinct_events(events)
    return with_store(events, coverage.stores())


def distinct_events(events: DataFrame) -> DataFrame:
    """Keep one row of each event: two segments that overlap hold the same ones twice."""
    return events.dropDuplicates(["log_id", "seq"])


def with_store(events: DataFrame, stores: dict[str, str] | None = None) -> DataFrame:
    """Add the store that each log belongs to; without a map every log is a store of its own."""
    if not stores or all(log_id == store for log_id, store in stores.items()):
        return events.withColumn("store", F.col("log_id"))
    table = F.create_map(*map(F.lit, _flat(stores.items())))
    return events.withColumn("store", F.coalesce(table[F.col("log_id")], F.col("log_id")))


def _flat(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [text for pair in pairs for text in pair]
