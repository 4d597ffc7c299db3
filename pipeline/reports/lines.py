"""Computes the lag and the commit rate of each group over time, and its lag at the end."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from groupkeeper.pipeline.reports.charts import Span, moment
from groupkeeper.pipeline.reports.report import Scope, time_bucket
from groupkeeper.pipeline.tables.gold import MINUTE_MS
from groupkeeper.pipeline.tables.lake import DAY

_DAY_MS: Final = 24 * 60 * MINUTE_MS


def edges(lag: DataFrame, rate: DataFrame) -> tuple[int, int] | None:
    """Return the first and the last minute with a row of lag or rate; None if there is no row."""
    minutes = lag.select("minute_ms").union(rate.select("minute_ms"))
    ((first, last),) = minutes.agg(F.min("minute_ms"), F.max("minute_ms")).collect()
    return None if first is None else (first, last)


def day_end_ms(scope: Scope) -> Column:
    """Return a column with the moment (ms) until which a row of a day is valid: the end of its day.

    If days without events follow, they have no rows. Then the row is valid until the next day with
    events.
    """
    end_ms = (F.unix_date(F.col(DAY)).cast("long") + 1) * _DAY_MS
    if not scope.quiet:
        return end_ms
    then = F.create_map(*(F.lit(each) for pair in scope.quiet.items() for each in pair))
    return F.coalesce(F.unix_date(then[F.col(DAY)]).cast("long") * _DAY_MS, end_ms)


def by_bucket(
    lag: DataFrame, rate: DataFrame, span: Span, bucket_ms: int, end_ms: Column
) -> DataFrame:
    """Return the lag and the rate of each group for each moment of a chart. Moments at which a
    group had no offset and no commit are left out."""

    def bucket(at_ms: Column) -> Column:
        return time_bucket(at_ms, bucket_ms)

    minute = F.col("minute_ms")
    # a row is valid until the next row of its partition
    of_partition = Window.partitionBy("name", "topic", "partition").orderBy("minute_ms")
    until = F.least(F.lead("minute_ms").over(of_partition), end_ms, F.lit(span.until_ms))
    held = lag.select("name", "offset", "lag", minute, until.alias("until_ms")).where(
        F.col("offset").isNotNull()
    )
    of_row = F.sequence(
        bucket(minute), bucket(F.greatest(F.col("until_ms") - 1, minute)), F.lit(bucket_ms)
    )
    lags = held.select("name", "lag", F.explode(of_row).alias("time_ms"))
    lags = lags.groupBy("name", "time_ms").agg(F.max("lag").alias("largest_lag"))
    rates = rate.groupBy("name", bucket(minute).alias("time_ms")).agg(
        F.sum("commits").alias("commits"),
        F.sum("rewinds").alias("partitions_taken_back"),
        F.sum("messages").alias("messages"),
    )
    rows = lags.join(rates, ["name", "time_ms"], "full")
    per_minute = F.coalesce("messages", F.lit(0)) / (bucket_ms / MINUTE_MS)
    return rows.select(
        "name",
        "time_ms",
        "largest_lag",
        F.coalesce("commits", F.lit(0)).alias("commits"),
        F.coalesce("partitions_taken_back", F.lit(0)).alias("partitions_taken_back"),
        per_minute.alias("messages_per_minute"),
    )


def standing(scope: Scope) -> tuple[str, DataFrame]:
    """Return the time of the newest row in a scope as text, and the lag of each group and topic at
    that time. Partitions without an offset do not count.

    Only the last day is read, because it has a row for every offset, also for unchanged offsets.
    """
    lag = scope.gold("lag_1m").where(F.col(DAY) == scope.days[-1])
    last = lag.groupBy("name", "topic", "partition").agg(
        F.max_by(F.struct("offset", "lag"), "minute_ms").alias("last"),
    )
    stands = last.where(F.col("last.offset").isNotNull()).select("*", "last.lag")
    by_topic = stands.groupBy("name", "topic").agg(
        F.count("*").alias("partitions"),
        F.sum("lag").alias("lag"),
        F.max_by("partition", "lag").alias("worst"),
        F.max("lag").alias("worst_lag"),
    )
    ((minute_ms,),) = lag.agg(F.max("minute_ms")).collect()
    return str(scope.days[-1]) if minute_ms is None else moment(minute_ms)[:16], by_topic
