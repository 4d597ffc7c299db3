"""The report on lag and commit rate: which groups are behind, and how fast each group moves."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from groupkeeper.pipeline.reports import charts, page
from groupkeeper.pipeline.reports.report import (
    MAX_ROWS,
    Report,
    Rows,
    Scope,
    buckets,
    collect,
    largest,
)
from groupkeeper.pipeline.tables.gold import MINUTE_MS
from groupkeeper.pipeline.tables.lake import DAY

TITLE = "Lag and commit rate"

_DAY_MS: Final = 24 * 60 * MINUTE_MS


def build(scope: Scope) -> Report:
    """Compute the report on lag and commit rate of the groups and days in ``scope``."""
    lag, rate = scope.gold("lag_1m"), scope.gold("commit_rate_1m")
    edges = lag.select("minute_ms").union(rate.select("minute_ms"))
    ((first, last),) = edges.agg(F.min("minute_ms"), F.max("minute_ms")).collect()
    is_empty = first is None
    span, bucket_ms = buckets([0] if is_empty else [first, last])
    found = _by_bucket(lag, rate, span, bucket_ms, _day_end_ms(scope))
    rows = collect(found.orderBy("name", "time_ms"))
    return Report(
        "lag",
        TITLE,
        [] if is_empty else _parts(scope, rows, span, bucket_ms),
        rows,
        to_arrow_schema(found.schema),
        "No group had a committed offset.",
    )


def _parts(scope: Scope, rows: Rows, span: charts.Span, bucket_ms: int) -> list[str]:
    lag_lines: dict[str, list[tuple[int, float]]] = {}
    rate_lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if row["largest_lag"] is not None:
            lag_lines.setdefault(row["name"], []).append((row["time_ms"], row["largest_lag"]))
        rate_lines.setdefault(row["name"], []).append((row["time_ms"], row["messages_per_minute"]))
    # both charts show the same groups in the same colours: those with the largest lag
    shown = largest({name: lag_lines.get(name, []) for name in rate_lines}, charts.MAX_SERIES)
    rate_chart = charts.line_chart(
        {name: rate_lines[name] for name in shown}, span, "messages a minute", bucket_ms
    )
    last, standing = _standing(scope)
    behind = [row["lag"] for row in standing if row["lag"] is not None]
    return [
        page.tiles(
            {
                "groups": len(rate_lines),
                "partitions with an offset": sum(row["partitions"] for row in standing),
                "messages behind, at the end": sum(behind) if behind else "unknown",
                "commits": _commits(scope),
            }
        ),
        _lag_section({name: lag_lines.get(name, []) for name in shown}, span, bucket_ms),
        page.section(
            "Messages a minute",
            "How many messages the members of a group moved its offsets forward.",
            rate_chart,
        ),
        page.section(
            "Where each group stands",
            f"As of {last}, the end of the tables, with the largest lag first. A lag is empty if "
            "the end of the partition is unknown.",
            page.table(
                [_stands(row) for row in standing[:MAX_ROWS]],
                "No committed offset is left.",
                total=len(standing),
                whole="the table lag_1m",
            ),
        ),
        page.section(
            "Day by day",
            "Commits are requests, including resets, restores and refused ones. Each partition "
            "taken back counts, by a rewind, a reset or a restore; in the audit one request is one "
            "row. Messages are those that members moved forward over. A day without events has no "
            "row, since nothing changed.",
            page.table(
                [_shown(day) for day in _days(scope)],
                "No complete day.",
                total=scope.gold("group_daily").count(),
                whole="the table group_daily",
            ),
        ),
    ]


def _day_end_ms(scope: Scope) -> Column:
    """Return the end of the time for which a day's values are valid.

    The next day has values of its own, or is held back. A day without events has no values, so the
    earlier ones stay valid.
    """
    end_ms = (F.unix_date(F.col(DAY)).cast("long") + 1) * _DAY_MS
    if not scope.quiet:
        return end_ms
    then = F.create_map(*(F.lit(each) for pair in scope.quiet.items() for each in pair))
    return F.coalesce(F.unix_date(then[F.col(DAY)]).cast("long") * _DAY_MS, end_ms)


def _by_bucket(
    lag: DataFrame, rate: DataFrame, span: charts.Span, bucket_ms: int, day_end_ms: Column
) -> DataFrame:
    """Return each group's values for each moment of the charts at which it had an offset or
    committed."""

    def bucket(at_ms: Column) -> Column:
        return at_ms - at_ms % bucket_ms

    minute = F.col("minute_ms")
    # a row is valid until the next row of its partition
    of_partition = Window.partitionBy("name", "topic", "partition").orderBy("minute_ms")
    until = F.least(F.lead("minute_ms").over(of_partition), day_end_ms, F.lit(span.until_ms))
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


def _lag_section(
    lines: dict[str, list[tuple[int, float]]], span: charts.Span, bucket_ms: int
) -> str:
    says = "The lag of the worst partition of each group, in messages, for the largest lags."
    if not any(lines.values()):
        note = "The ends of the partitions are unknown: the log has no sample of them yet."
        return page.section("Lag", says, f'<p class="faint">{note}</p>')
    chart = charts.line_chart(lines, span, "messages behind", bucket_ms)
    return page.section("Lag", says, chart)


def _standing(scope: Scope) -> tuple[str, Rows]:
    """Return the time of the last values, and the lag of each group and topic at that time, the
    largest first. Partitions without an offset do not count.

    The last day has a row for every offset, including unchanged ones.
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
    moment = str(scope.days[-1]) if minute_ms is None else charts.moment(minute_ms)[:16]
    return moment, collect(by_topic.orderBy(F.desc_nulls_last("lag"), "name", "topic"))


def _stands(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "group": row["name"],
        "topic": row["topic"],
        "partitions": row["partitions"],
        "behind": row["lag"],
        "worst partition": row["worst"],
        "its lag": row["worst_lag"],
    }


def _days(scope: Scope) -> Rows:
    """Return the last days, each with its busiest groups first, since idle ones may be many."""
    ordered = scope.gold("group_daily").orderBy(F.desc("dt"), F.desc("commits"), "name")
    return collect(ordered.limit(MAX_ROWS))


def _commits(scope: Scope) -> int:
    """Return the number of requests; rows of ``commit_rate_1m`` count a request once per topic."""
    ((commits,),) = scope.gold("group_daily").agg(F.sum("commits")).collect()
    return int(commits or 0)


def _shown(day: dict[str, Any]) -> dict[str, Any]:
    return {
        "day": str(day["dt"]),
        "group": day["name"],
        "commits": day["commits"],
        "messages": day["messages"],
        "partitions taken back": day["rewinds"],
        "resets and restores": day["resets"],
        "commits refused": day["rejected"],
        "members joined": day["joined"],
        "members gone": day["left"] + day["evicted"] + (day["forgotten"] or 0),
        "members at the day's end": day["members"],
        "rebalances": day["rebalances"],
        "largest lag of a partition": day["max_partition_lag"],
    }
