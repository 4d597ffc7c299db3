"""The report on rebalances: how often, why, how long, which members were absent, which partitions
moved.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from groupkeeper.pipeline.reports import charts, page
from groupkeeper.pipeline.reports.report import (
    Report,
    Rows,
    Scope,
    buckets,
    collect,
    listed,
    with_text_day,
)

TITLE = "Rebalances"

OTHER: Final = "other"
"""The cause that is shown for a cause which this version does not know."""

CAUSES: Final = {
    "join": "a member joined",
    "leave": "a member left",
    "timeout": "a member fell silent",
    "change": "a member joined again",
    "full": "the group was full",
    OTHER: "other",
}
"""The pages' words for the causes of ``gold.rebalances``."""

ENDS: Final = {
    "leave": "left",
    "replaced": "replaced",
    "session_timeout": "session timeout",
    "join_timeout": "join timeout",
    "sync_timeout": "sync timeout",
    "new_member_timeout": "new member timeout",
    "group_max_size": "group full",
    "forgotten": "forgotten",
    OTHER: "other",
}
"""The pages' words for the ends of sessions: ``ended_by`` of ``silver.member_sessions``."""


MAX_BARS: Final = 60
"""Bars in a chart; more would be too thin to point at."""


def build(scope: Scope) -> Report:
    """Compute the report on rebalances of the groups and days in ``scope``."""
    found = with_text_day(scope.gold("rebalances").drop("moves"))
    rows = _each_once(collect(found.orderBy("dt")))
    churn = _churn(scope)
    return Report(
        "rebalances",
        TITLE,
        _parts(rows, churn) if rows or churn else [],
        rows,
        to_arrow_schema(found.schema),
        "No group rebalanced, and no member joined or left.",
    )


def _parts(rows: Rows, churn: Rows) -> list[str]:
    has_forgotten = any(ENDS["forgotten"] in row for row in churn)
    seconds = [(row["duration_ms"] or 0) / 1000 for row in rows]
    return [
        page.tiles(
            {
                "rebalances": len(rows),
                "seconds spent in them": sum(seconds),
                "the longest, seconds": max(seconds, default=0.0),
                "partitions moved": sum(row["moved"] or 0 for row in rows),
            }
        ),
        page.section(
            "When, and why",
            "Rebalances by cause. A member joins again, and all others with it, when it changes "
            "its subscription, in the second step of a cooperative rebalance, and as the leader "
            "that sees other partitions.",
            _chart(rows) if rows else _NONE,
        ),
        page.section(
            "Churn",
            f"Members that joined and left, by group.{_FORGOTTEN if has_forgotten else ''}",
            page.table(churn, "No member joined or left."),
        ),
        page.section(
            "Each rebalance",
            "The longest first. Awaited are the members that did not rejoin in time; moved are "
            "partitions that another member had before.",
            listed("rebalances", rows, _shown, "There was none."),
        ),
    ]


_FORGOTTEN: Final = (
    " Forgotten are members that had just joined when the coordinator was killed or lost its store."
)
_NONE: Final = '<p class="faint">There was none.</p>'


def _chart(rows: Rows) -> str:
    moments = [(_begun_ms(row), row["cause"]) for row in rows]
    span, bucket_ms = buckets([at_ms for at_ms, _ in moments], MAX_BARS, least_ms=1000)
    bars: dict[str, Counter[int]] = {name: Counter() for name in CAUSES}
    for at_ms, cause in moments:
        bars[cause if cause in CAUSES else OTHER][at_ms - at_ms % bucket_ms] += 1
    series = {CAUSES[name]: sorted(counted.items()) for name, counted in bars.items() if counted}
    return charts.bar_chart(series, span, bucket_ms, "rebalances")


def _begun_ms(row: dict[str, Any]) -> int:
    """Return when a rebalance began, or its first known moment."""
    return int(row["started_ms"] or row["completed_ms"] or row["assigned_ms"])


def _each_once(rows: Rows) -> Rows:
    """Return every rebalance once, from its last day, the longest first. A rebalance over midnight
    is in both days."""
    found = {}
    for row in rows:
        # one with an unknown beginning has no seq
        which = ("seq", row["seq"]) if row["seq"] is not None else ("ms", _begun_ms(row))
        found[row["store"], row["group"], which] = row
    return sorted(found.values(), key=lambda row: -(row["duration_ms"] or 0))


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


def _churn(scope: Scope) -> Rows:
    """Count joins and ends by group, and compute the median stay. A session has a row on every day
    that it extends into."""
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
    found = collect(counted.orderBy(F.desc("joined"), "name"))
    ends = ["leave", *(name for name in ENDS if name != "leave" and any(r[name] for r in found))]
    return [
        {
            "group": row["name"],
            "joined": row["joined"],
            **{ENDS[name]: row[name] for name in ends},
            "median stay, seconds": None if row["median_ms"] is None else row["median_ms"] / 1000,
        }
        for row in found
    ]
