"""The report on lag and commit rate: who falls behind, and how fast each group moves."""

from __future__ import annotations

from typing import Any

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
        F.sum("rewinds").alias("partitions_taken_back"),
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
                    "commits": _commits(scope),
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
                "Day by day",
                "What each group did. Commits are requests, and so are the resets and restores "
                "among them, and what was refused. What took offsets back, one request in the "
                "audit, counts here with each partition, be it a rewind, a reset or a restore. "
                "Messages are those that members moved forward over.",
                page.table([_told(day) for day in _days(scope)], "No complete day."),
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
    return collect(scope.gold("group_daily").orderBy(F.desc("dt"), "name").limit(MAX_ROWS))


def _commits(scope: Scope) -> int:
    """Count requests; a row of ``commit_rate_1m`` has those of one topic, and one may name many."""
    ((commits,),) = scope.gold("group_daily").agg(F.sum("commits")).collect()
    return int(commits or 0)


def _told(day: dict[str, Any]) -> dict[str, Any]:
    return {
        "day": str(day["dt"]),
        "group": day["name"],
        "commits": day["commits"],
        "messages": day["messages"],
        "partitions taken back": day["rewinds"],
        "resets and restores": day["resets"],
        "commits refused": day["rejected"],
        "members joined": day["joined"],
        "members gone": day["left"] + day["evicted"],
        "members at the day's end": day["members"],
        "rebalances": day["rebalances"],
        "largest lag of a partition": day["max_partition_lag"],
    }
