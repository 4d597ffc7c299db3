"""The report on rebalances: how often, why, how long, which members were absent, which partitions
moved.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from groupkeeper.pipeline.reports import charts, page
from groupkeeper.pipeline.reports.report import (
    PageContent,
    Report,
    Scope,
    buckets,
    collect,
    time_bucket,
    top_rows,
    with_text_day,
)
from groupkeeper.pipeline.reports.row_files import Rows
from groupkeeper.pipeline.tables.lake import DAY

TITLE = "Rebalances"

OTHER: Final = "other"
"""The key for causes and ends that this version does not know."""

CAUSES: Final = {
    "join": "a member joined",
    "leave": "a member left",
    "timeout": "a member fell silent",
    "change": "a member joined again",
    "topics": "its topics changed",
    "downgrade": "it became a classic group",
    "full": "the group was full",
    OTHER: "other",
}
"""The page's words for the values of ``cause`` in the table ``gold.rebalances``."""

ENDS: Final = {
    "leave": "left",
    "replaced": "replaced",
    "session_timeout": "session timeout",
    "join_timeout": "join timeout",
    "sync_timeout": "sync timeout",
    "rebalance_timeout": "rebalance timeout",
    "new_member_timeout": "new member timeout",
    "group_max_size": "group full",
    "forgotten": "forgotten",
    OTHER: "other",
}
"""The page's words for the ends of sessions: ``ended_by`` in the table ``silver.member_sessions``.
"""


MAX_BARS: Final = 60
"""The largest number of bars in a chart. More bars would be too thin to point at."""


def build(scope: Scope) -> Report:
    """Return the report on rebalances of the groups and days in ``scope``."""
    found = with_text_day(_each_once(scope.gold("rebalances").drop("moves"))).cache()
    churn = _churn(scope)
    ((count, first, last, in_all_ms, longest_ms, moved),) = found.agg(
        F.count("*"),
        F.min("begun_ms"),
        F.max("begun_ms"),
        F.sum("duration_ms"),
        F.max("duration_ms"),
        F.sum("moved"),
    ).collect()
    figures = {
        "rebalances": count,
        "seconds spent in them": (in_all_ms or 0) / 1000,
        "the longest, seconds": (longest_ms or 0) / 1000,
        "partitions moved": moved or 0,
    }
    longest = top_rows(found, F.desc_nulls_last("duration_ms"), "begun_ms")
    chart = _chart(found, [first, last]) if count else _NONE
    rows = found.orderBy(F.desc_nulls_last("duration_ms"), "begun_ms").drop("begun_ms")
    return Report(
        "rebalances",
        TITLE,
        PageContent(figures, _parts(chart, churn, longest)) if count or churn[0] else None,
        rows,
        to_arrow_schema(rows.schema),
        "No group rebalanced, and no member joined or left.",
    )


def _parts(chart: str, churn: tuple[Rows, int], longest: tuple[Rows, int]) -> list[str]:
    churned, groups = churn
    has_forgotten = any(ENDS["forgotten"] in row for row in churned)
    rows, count = longest
    return [
        page.section(
            "When, and why",
            "Rebalances by cause. A member joins again, and all others with it, when it changes "
            "its subscription, in the second step of a cooperative rebalance, and as the leader "
            "that sees other partitions.",
            chart,
        ),
        page.section(
            "Churn",
            f"Members that joined and left, by group.{_FORGOTTEN if has_forgotten else ''}",
            page.table(
                churned,
                "No member joined or left.",
                total=groups,
                whole="the table member_sessions",
                links=_LINKS,
            ),
        ),
        page.section(
            "Each rebalance",
            "The longest first. Awaited are the members that did not rejoin in time; moved are "
            "partitions that another member had before.",
            page.table(
                [_shown(row) for row in rows],
                "There was none.",
                total=count,
                whole="rebalances.csv",
                links=_LINKS,
            ),
        ),
    ]


_FORGOTTEN: Final = (
    " Forgotten are members that had just joined when the coordinator was killed or lost its store."
)
_LINKS: Final = {"group": "groups.html"}
_NONE: Final = '<p class="faint">There was none.</p>'


def _chart(found: DataFrame, edges: list[int]) -> str:
    span, bucket_ms = buckets(edges, MAX_BARS, least_ms=1000)
    cause = F.when(F.col("cause").isin(*CAUSES), F.col("cause")).otherwise(OTHER).alias("cause")
    at_ms = time_bucket(F.col("begun_ms"), bucket_ms).alias("at_ms")
    counted = collect(found.groupBy(cause, at_ms).count().orderBy("at_ms"))
    series = {
        says: [(row["at_ms"], row["count"]) for row in counted if row["cause"] == name]
        for name, says in CAUSES.items()
    }
    drawn = {name: points for name, points in series.items() if points}
    return charts.bar_chart(drawn, span, bucket_ms, "rebalances")


def _each_once(rows: DataFrame) -> DataFrame:
    """Return every rebalance once, with its first known moment ``begun_ms``.

    A rebalance over midnight has a row on both days. The row of the last day is returned, with the
    sums of ``assigned`` and ``moved`` of both days.
    """
    begun_ms = F.coalesce("started_ms", "completed_ms", "assigned_ms")
    rows = rows.withColumn("begun_ms", begun_ms)
    # a rebalance whose beginning is unknown has no seq
    which = F.coalesce(F.col("seq"), -F.col("begun_ms"))
    one = Window.partitionBy("store", "group", which)
    order = one.orderBy(F.desc(DAY))
    rows = rows.withColumns({name: F.sum(name).over(one) for name in ("assigned", "moved")})
    return rows.withColumn("number", F.row_number().over(order)).where("number = 1").drop("number")


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    duration = row["duration_ms"]
    return {
        "time (UTC)": charts.moment(row["started_ms"]),
        "group": row["name"],
        "reason": str(row["reason"] or "").replace("_", " "),
        "caused by": row["caused_by"] or row["member_id"],
        "seconds": None if duration is None else duration / 1000,
        "members": row["members"],
        "awaited": ", ".join(row["awaited_names"] or []),
        "moved": row["moved"],
        "of partitions": row["assigned"],
    }


def _churn(scope: Scope) -> tuple[Rows, int]:
    """Return the rows of the table about churn, and the number of all groups. A row has the joins
    and ends of a group's sessions, and the median length of a session.
    """
    sessions = scope.silver("member_sessions")
    names = scope.gold("group_daily").select("dt", "store", "group", "name")
    rows = sessions.join(names, ["dt", "store", "group"])
    joined = F.to_date(F.timestamp_millis("joined_ms")) == F.col("dt")
    ended = F.to_date(F.timestamp_millis("ended_ms")) == F.col("dt")
    known = F.col("ended_by").isin(*ENDS)
    end = F.when(
        F.col("ended_by").isNotNull() & ended, F.when(known, F.col("ended_by")).otherwise(OTHER)
    )
    counted = rows.groupBy("name").agg(
        F.count_if(joined).alias("joined"),
        *(F.count_if(end == reason).alias(reason) for reason in ENDS),
        F.percentile_approx("duration_ms", 0.5).alias("median_ms"),
    )
    found, groups = top_rows(counted, F.desc("joined"), "name")
    ends = ["leave", *(name for name in ENDS if name != "leave" and any(r[name] for r in found))]
    rows_of_groups = [
        {
            "group": row["name"],
            "joined": row["joined"],
            **{ENDS[name]: row[name] for name in ends},
            "median stay, seconds": None if row["median_ms"] is None else row["median_ms"] / 1000,
        }
        for row in found
    ]
    return rows_of_groups, groups
