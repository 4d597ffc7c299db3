"""The report on lag and commit rate: which groups are behind, and how fast each group moves."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from groupkeeper.pipeline.reports import charts, page
from groupkeeper.pipeline.reports.lines import by_bucket, day_end_ms, edges, standing
from groupkeeper.pipeline.reports.report import (
    CHART_POINTS,
    PageContent,
    Report,
    Scope,
    buckets,
    collect,
    lag_note,
    top_rows,
)
from groupkeeper.pipeline.reports.row_files import Rows

TITLE = "Lag and commit rate"

MAX_FILE_ROWS: Final = 250_000
"""About the most rows in the files for programs. With more groups, each row covers a longer time.
The table ``lag_1m`` has every minute."""

MIN_FILE_POINTS: Final = 24
"""Even with many groups, the files have about this number of rows for each group."""


def build(scope: Scope) -> Report:
    """Return the report on lag and commit rate of the groups and days in ``scope``."""
    lag, rate = scope.gold("lag_1m"), scope.gold("commit_rate_1m")
    found_edges = edges(lag, rate)
    names = lag.select("name").union(rate.select("name")).distinct()
    groups = names.count()
    points = max(MIN_FILE_POINTS, min(CHART_POINTS, MAX_FILE_ROWS // max(groups, 1)))
    span, bucket_ms = buckets(found_edges or [0], points)
    rows = by_bucket(lag, rate, span, bucket_ms, day_end_ms(scope)).orderBy("name", "time_ms")
    return Report(
        "lag",
        TITLE,
        None if found_edges is None else _content(scope, groups, found_edges),
        rows,
        to_arrow_schema(rows.schema),
        "No group had a committed offset.",
    )


def _content(scope: Scope, groups: int, found_edges: tuple[int, int]) -> PageContent:
    span, bucket_ms = buckets(found_edges)
    shown, lag_lines, rate_lines = _lines(scope, span, bucket_ms)
    rate_chart = charts.line_chart(rate_lines, span, "messages a minute", bucket_ms, bucket_ms)
    last, stands = standing(scope)
    rows, topics = top_rows(stands, F.desc_nulls_last("lag"), "name", "topic")
    ((partitions, behind),) = stands.agg(F.sum("partitions"), F.sum("lag")).collect()
    days, all_days = _days(scope)
    others = f" The other {groups - len(shown):,} groups are in the report on groups."
    figures = {
        "groups": groups,
        "partitions with an offset": partitions or 0,
        "messages behind, at the end": "unknown" if behind is None else behind,
        "commits": _commits(scope),
    }
    parts = [
        _lag_section(lag_lines, span, bucket_ms, others if groups > len(shown) else ""),
        page.section(
            "Messages a minute",
            "By how many messages the members of each group moved its offsets forward. The groups "
            "are those above. The pale end is not complete yet.",
            rate_chart,
        ),
        page.section(
            "Where each group stands",
            f"As of {last}, the end of the tables, with the largest lag first. A lag is empty if "
            "the end of the partition is unknown.",
            page.table(
                [_stands(row) for row in rows],
                "No committed offset is left.",
                total=topics,
                whole="the table lag_1m",
                links=_LINKS,
            ),
        ),
        page.section(
            "Day by day",
            "Commits are requests, including resets, restores and refused ones. A rewind, a reset "
            "or a restore counts once for each partition that it took back; in the audit one "
            "request is one row. Messages are those that members moved forward over. A day without "
            "events has no row, since nothing changed.",
            page.table(
                [_shown(day) for day in days],
                "No complete day.",
                total=all_days,
                whole="the table group_daily",
                links=_LINKS,
            ),
        ),
    ]
    return PageContent(figures, parts, lag_note(scope.sampled_ms))


_LINKS: Final = {"group": "groups.html"}

Lines = dict[str, list[tuple[int, float]]]


def _lines(scope: Scope, span: charts.Span, bucket_ms: int) -> tuple[list[str], Lines, Lines]:
    """Return the groups with the largest lag, and the points of their lines in two charts: of lag
    and of rate. Both charts show the same groups in the same colours.
    """
    lag, rate = scope.gold("lag_1m"), scope.gold("commit_rate_1m")
    most = lag.groupBy("name").agg(F.max("lag").alias("lag"))
    both = most.unionByName(rate.select("name").distinct(), allowMissingColumns=True)
    ordered = both.groupBy("name").agg(F.max("lag").alias("lag"))
    ordered = ordered.orderBy(F.desc_nulls_last("lag"), "name").limit(charts.MAX_SERIES)
    shown = [row["name"] for row in collect(ordered)]
    of_shown = F.col("name").isin(shown)
    found = by_bucket(lag.where(of_shown), rate.where(of_shown), span, bucket_ms, day_end_ms(scope))
    lag_lines: Lines = {name: [] for name in shown}
    rate_lines: Lines = {name: [] for name in shown}
    for row in collect(found.orderBy("time_ms")):
        if row["largest_lag"] is not None:
            lag_lines[row["name"]].append((row["time_ms"], row["largest_lag"]))
        rate_lines[row["name"]].append((row["time_ms"], row["messages_per_minute"]))
    return shown, lag_lines, rate_lines


def _lag_section(lines: Lines, span: charts.Span, bucket_ms: int, others: str) -> str:
    says = (
        "The lag of the worst partition of each group, in messages. These groups have the largest "
        f"lags.{others}"
    )
    if not any(lines.values()):
        note = "The ends of the partitions are unknown: the log has no sample of them yet."
        return page.section("Lag", says, f'<p class="faint">{note}</p>')
    chart = charts.line_chart(lines, span, "messages behind", bucket_ms, bucket_ms)
    return page.section("Lag", says, chart)


def _stands(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "group": row["name"],
        "topic": row["topic"],
        "partitions": row["partitions"],
        "behind": row["lag"],
        "worst partition": row["worst"],
        "its lag": row["worst_lag"],
    }


def _days(scope: Scope) -> tuple[Rows, int]:
    """Return the rows that a page lists, one for each group and day, and the number of all rows.

    The last day is first. Within a day, the groups with the most commits are first.
    """
    return top_rows(scope.gold("group_daily"), F.desc("dt"), F.desc("commits"), "name")


def _commits(scope: Scope) -> int:
    """Return the number of commit requests. It is read from ``group_daily``, because
    ``commit_rate_1m`` counts a request once for each topic.
    """
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
