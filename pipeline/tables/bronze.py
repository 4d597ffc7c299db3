"""Bronze: the events as they are, read from sealed segments, written once each.

A segment is immutable, and so is what a batch of them makes: ``dt=DAY/batch_id=N`` is overwritten
as a whole. What a job wrote of a batch that it did not finish is removed by the next, which takes
the same files again: nothing is lost and nothing is doubled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import date
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from groupkeeper.pipeline.log.coverage import Coverage, HeldSegment
from groupkeeper.pipeline.log.schema import (
    BRONZE_SCHEMA,
    EVENT_SCHEMA,
    LACKING_SCHEMA,
    LINE_SCHEMA,
    PARTITION_SCHEMA,
    ROW_FIELDS,
    SEGMENT_SCHEMA,
    VERDICT_SCHEMA,
)
from groupkeeper.pipeline.log.segment_files import (
    Judged,
    Lacking,
    Verdict,
    judged,
    newest_verdicts,
    parse_name,
)
from groupkeeper.pipeline.tables.lake import DAY, Lake, read_table, write_days, write_small

SEGMENT_GLOB: Final = "events-*.jsonl.gz"
"""The names of sealed segments; what is still being written has another one."""

LOG_STARTED: Final = "log_started"
"""The first event of a log that is not the first of its store."""

_READ_OPTIONS: Final = {
    "pathGlobFilter": SEGMENT_GLOB,
    "recursiveFileLookup": "true",
    # a line that is no event is damage, and must not become a row of nulls
    "mode": "FAILFAST",
}


def read_segments(spark: SparkSession, *paths: str) -> DataFrame:
    """Read sealed segments: those named, and every one below the folders named, now."""
    reader = spark.read.schema(LINE_SCHEMA).options(**_READ_OPTIONS)
    return _from_lines(reader.json(list(paths)))


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
    write_held(events.sparkSession, lake, write_events(events, lake, batch_id))


def write_events(events: DataFrame, lake: Lake, batch_id: str | int) -> list[HeldSegment]:
    """Write the events of a batch, and return what there is of each segment, for ``write_held``.

    They do not count before that was written too.
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
    """Say what a batch brought."""
    rows = [tuple(getattr(each, name) for name in SEGMENT_SCHEMA.names) for each in held]
    if rows:
        write_small(spark.createDataFrame(rows, SEGMENT_SCHEMA), lake.segments, "batch_id")


def read_bronze(spark: SparkSession, lake: Lake) -> DataFrame:
    """Read every row that was ever written: events as they are, repeated ones included."""
    return read_table(spark, lake.events, BRONZE_SCHEMA)


def read_judged(spark: SparkSession, lake: Lake) -> Judged:
    """Read which segments bronze holds; small, whatever the size of the events."""
    rows = read_table(spark, lake.segments, SEGMENT_SCHEMA).collect()
    held = [
        HeldSegment(**{name: value for name, value in row.asDict().items() if value is not None})
        for row in rows
    ]
    return judged(held, read_verdicts(spark, lake))


def read_verdicts(spark: SparkSession, lake: Lake) -> dict[str, Verdict]:
    """Read what was found out last of each file."""
    rows = read_table(spark, lake.verdicts, VERDICT_SCHEMA).collect()
    return newest_verdicts(Verdict(**row.asDict()) for row in rows)


def read_lacking(spark: SparkSession, lake: Lake) -> list[Lacking]:
    """Read what the log's folder ought to have and has not, as it was last seen."""
    rows = read_table(spark, lake.lacking, LACKING_SCHEMA).collect()
    return sorted(Lacking(row["file"], row["problem"], parse_name(row["file"])) for row in rows)


def read_coverage(spark: SparkSession, lake: Lake) -> Coverage:
    """Read which segments bronze holds, and which it lacks."""
    return _coverage(read_judged(spark, lake), read_lacking(spark, lake))


def _coverage(found: Judged, lacking: Iterable[Lacking]) -> Coverage:
    expected = (each.as_expected() for each in lacking)
    return Coverage([*found.held, *(each for each in expected if each is not None)])


def read_events(spark: SparkSession, lake: Lake, days: Collection[date] | None = None) -> DataFrame:
    """Read events, each once, of the days given or of all, with the ``store`` that they belong to;
    not what a store wrote before an older copy was put in its place, which stays in bronze alone.

    This is what every other table is computed from.
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
    """Leave out what an older copy of a store, put in its place, does not know of."""
    if not (limits := coverage.limits()):
        return events
    last = F.create_map(*(F.lit(each) for pair in limits.items() for each in pair))
    return events.where(F.coalesce(F.col("seq") <= last[F.col("log_id")], F.lit(True)))


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
