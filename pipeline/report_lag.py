"""The report on lag and commit rate: who falls behind, and how fast each group moves."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline import charts, page
from pipeline.report import MAX_ROWS, Report, Rows, Scope, buckets, collect, largest

TITLE = "Lag and commit rate"


def build(scope: Scope) -> Report:
    """Compute the report."""
    lag, rate = scope.gold("lag_1m"), scope.gold("commit_rate_1m")
    edges = lag.select("minute_ms").union(rate.select("minute_ms"))
    first = edges.agg(F.min("minute_ms").alias("first"), F.max("minute_ms").alias("last")).collect()
    span, bucket_ms = buckets([at for row in first for at in row if at is not None])

    bucket = _bucket(bucket_ms)
    lags = lag.groupBy("name", bucket).agg(F.max("lag").alias("largest_lag"))
    rates = rate.groupBy("name", bucket).agg(
        F.sum("commits").alias("commits"),
        F.sum("messages").alias("messages"),
        F.sum("rewinds").alias("rewinds"),
    )
    rows = collect(lags.join(rates, ["name", "time_ms"], "full").orderBy("name", "time_ms"))
    minutes = bucket_ms / 60_000
    lag_lines: dict[str, list[tuple[int, float]]] = {}
    rate_lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        row["messages_per_minute"] = (row.pop("messages") or 0) / minutes
        if row["largest_lag"] is not None:
            lag_lines.setdefault(row["name"], []).append((row["time_ms"], row["largest_lag"]))
        rate_lines.setdefault(row["name"], []).append((row["time_ms"], row["messages_per_minute"]))
    # the same groups in the same colours in both charts: those that are furthest behind
    shown = largest({name: lag_lines.get(name, []) for name in rate_lines}, charts.MAX_SERIES)
    now = _standing(scope)
    return Report(
        "lag",
        TITLE,
        [
            page.tiles(
                {
                    "groups": len(rate_lines),
                    "partitions with an offset": sum(row["partitions"] for row in now),
                    "messages behind, now": sum(row["lag"] or 0 for row in now),
                    "commits": sum(row["commits"] or 0 for row in rows),
                }
            ),
            _lag_section({name: lag_lines.get(name, []) for name in shown}, span),
            page.section(
                "Messages a minute",
                "How far the members of a group moved its offsets forward.",
                charts.line_chart(
                    {name: rate_lines.get(name, []) for name in shown}, span, "messages a minute"
                ),
            ),
            page.section(
                "Now",
                "Where each group stands, the one furthest behind first.",
                page.table(
                    [
                        {
                            "group": row["name"],
                            "topic": row["topic"],
                            "partitions": row["partitions"],
                            "behind": row["lag"],
                            "worst partition": row["worst"],
                            "its lag": row["worst_lag"],
                        }
                        for row in now[:MAX_ROWS]
                    ],
                    "No group has committed an offset.",
                ),
            ),
            page.section(
                "Day by day", "What each group did.", page.table(_days(scope), "No complete day.")
            ),
        ],
        rows,
    )


def _bucket(bucket_ms: int) -> Column:
    return (F.col("minute_ms") - F.col("minute_ms") % bucket_ms).alias("time_ms")


def _lag_section(lines: dict[str, list[tuple[int, float]]], span: charts.Span) -> str:
    says = "The lag of the worst partition of each group, in messages; the groups furthest behind."
    if not any(lines.values()):
        note = "The ends of the partitions are not known yet: the log holds no sample of them."
        return page.section("Lag", says, f'<p class="faint">{note}</p>')
    chart = charts.line_chart(lines, span, "messages behind")
    return page.section("Lag", says, chart)


def _standing(scope: Scope) -> Rows:
    """The last lag that is known of each partition, summed up by group and topic."""
    last = (
        scope.gold("lag_1m")
        .groupBy("name", "topic", "partition")
        .agg(F.max_by("lag", "minute_ms").alias("lag"))
    )
    by_topic = last.groupBy("name", "topic").agg(
        F.count("*").alias("partitions"),
        F.sum("lag").alias("lag"),
        F.max_by("partition", "lag").alias("worst"),
        F.max("lag").alias("worst_lag"),
    )
    return collect(by_topic.orderBy(F.desc_nulls_last("lag"), "name", "topic"))


def _days(scope: Scope) -> Rows:
    days = collect(scope.gold("group_daily").orderBy(F.desc("dt"), "name").limit(MAX_ROWS))
    return [
        {
            "day": str(row["dt"]),
            "group": row["name"],
            "commits": row["commits"],
            "messages": row["messages"],
            "rewinds": row["rewinds"],
            "resets": row["resets"],
            "refused": row["rejected"],
            "members": row["members"],
            "rebalances": row["rebalances"],
            "largest lag": row["max_partition_lag"],
        }
        for row in days
    ]
