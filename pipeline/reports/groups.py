"""The report on groups: a table of all groups, and a view of each single group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from groupkeeper.pipeline.reports import charts, page
from groupkeeper.pipeline.reports.lines import by_bucket, day_end_ms, edges, standing
from groupkeeper.pipeline.reports.report import (
    PageContent,
    Report,
    Scope,
    buckets,
    collect,
    lag_note,
)
from groupkeeper.pipeline.reports.row_files import Rows
from groupkeeper.pipeline.tables.lake import DAY

TITLE = "Groups"

MAX_GROUPS: Final = 10_000
"""The largest number of groups on the page. The groups with the largest lag are shown. With their
small charts, this number of groups takes 3 MB."""

POINTS: Final = 32
"""About the most moments in the charts of one group."""

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_NOTHING: Final = "."


def build(scope: Scope) -> Report:
    """Return the report on groups, with one row for each group in ``scope``."""
    found = _by_group(scope).cache()
    shown = collect(found.limit(MAX_GROUPS))
    return Report(
        "groups",
        TITLE,
        _content(scope, found, shown) if shown else None,
        found,
        to_arrow_schema(found.schema),
        "No group did anything.",
    )


def _by_group(scope: Scope) -> DataFrame:
    """Return one row for each group: sums over all days, and the lag at the end. The group with the
    largest lag is first.
    """
    daily = (
        scope.gold("group_daily")
        .groupBy("name")
        .agg(
            F.max("max_partition_lag").alias("largest_lag"),
            *(F.sum(name).alias(name) for name in ("commits", "messages", "rewinds", "resets")),
            *(F.sum(name).alias(name) for name in ("rejected", "rebalances", "rebalance_ms")),
            F.max_by("members", DAY).alias("members"),
        )
    )
    if scope.days:
        _, stands = standing(scope)
        behind = stands.groupBy("name").agg(F.sum("lag").alias("lag"))
        daily = daily.join(behind, "name", "left")
    else:
        daily = daily.withColumn("lag", F.lit(None).cast("long"))
    return daily.orderBy(F.desc_nulls_last("lag"), F.desc("commits"), "name")


def _content(scope: Scope, found: DataFrame, shown: Rows) -> PageContent:
    rows = [_shown(row) for row in shown]
    ((total, behind, with_members, commits),) = found.agg(
        F.count("*"),
        F.count_if(F.col("lag") > 0),
        F.count_if(F.col("members") > 0),
        F.sum("commits"),
    ).collect()
    figures = {
        "groups": total,
        "behind": behind,
        "with members": with_members,
        "commits": commits or 0,
    }
    parts = [
        _one_group(scope, [row["name"] for row in shown]),
        page.section(
            "All groups",
            "Those that are furthest behind at the end come first. Choose a group to see its lag "
            "and its messages over time.",
            page.table(rows, "", total=total, whole="groups.csv", links={"group": ""}),
        ),
    ]
    return PageContent(figures, parts, lag_note(scope.sampled_ms))


def _one_group(scope: Scope, names: Sequence[str]) -> str:
    """Return HTML of the element in which the page's script shows one group. It has the data of the
    lines of every group.
    """
    lag, rate = scope.gold("lag_1m"), scope.gold("commit_rate_1m")
    found_edges = edges(lag, rate)
    lines: dict[str, tuple[dict[int, float], dict[int, float]]] = {}
    span, bucket_ms = buckets(found_edges or [0], POINTS)
    if found_edges is not None:
        found = by_bucket(lag, rate, span, bucket_ms, day_end_ms(scope))
        packed = found.groupBy("name").agg(
            F.collect_list(F.struct("time_ms", "largest_lag", "messages_per_minute")).alias("at")
        )
        for row in packed.toLocalIterator():
            lags = {each[0]: each[1] for each in row["at"] if each[1] is not None}
            lines[row["name"]] = lags, {each[0]: each[2] for each in row["at"]}
    moments = range(span.since_ms, span.until_ms, bucket_ms)
    details = {
        "edges": [charts.moment(span.since_ms)[:16], charts.moment(span.until_ms)[:16]],
        "groups": [
            [part for line in lines.get(name, ({}, {})) for part in drawn(line, moments)]
            for name in names
        ],
    }
    embedded = page.embedded(details, "details")
    return f'<section id="one-group" hidden><h2></h2><div></div>{embedded}</section>'


def drawn(line: dict[int, float], moments: Sequence[int]) -> tuple[float, str]:
    """Return the largest value of a line, and the line as text: one character for each moment.

    A digit or letter is the value as a share of the largest value, in 35 steps (``0`` to ``z``). A
    dot means that there is no value.
    """
    most = max(line.values(), default=0)
    signs = (
        _DIGITS[round(line[at_ms] / most * 35) if most else 0] if at_ms in line else _NOTHING
        for at_ms in moments
    )
    return round(most, 1), "".join(signs)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "group": row["name"],
        "behind": row["lag"],
        "largest lag of a partition": row["largest_lag"],
        "commits": row["commits"],
        "messages": row["messages"],
        "partitions taken back": row["rewinds"],
        "resets and restores": row["resets"],
        "commits refused": row["rejected"],
        "members": row["members"],
        "rebalances": row["rebalances"],
        "seconds in rebalances": (row["rebalance_ms"] or 0) / 1000,
    }
