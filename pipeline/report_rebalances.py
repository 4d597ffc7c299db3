"""The report on rebalances: how often, for what cause, how long, who was waited for, what moved."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

from pyspark.sql import functions as F

from pipeline import charts, page
from pipeline.lake import read_table
from pipeline.report import MAX_ROWS, Report, Rows, Scope, buckets, collect

TITLE = "Rebalances"

CAUSES: Final = {
    "join": "a member joined",
    "leave": "a member left",
    "timeout": "a member fell silent",
    "change": "a subscription changed",
    "other": "other",
}
"""What the pages call the causes of ``gold.rebalances``."""


MAX_BARS: Final = 60
"""Bars that a chart has; more would be too thin to be pointed at."""


def build(scope: Scope) -> Report:
    """Compute the report."""
    rows = _rows(scope)
    started = [row for row in rows if row["started_ms"] is not None]
    span, bucket_ms = buckets([row["started_ms"] for row in started], MAX_BARS, least_ms=1000)
    bars: dict[str, Counter[int]] = {name: Counter() for name in CAUSES}
    for row in started:
        bars[row["cause"]][row["started_ms"] - row["started_ms"] % bucket_ms] += 1
    series = {CAUSES[name]: sorted(counted.items()) for name, counted in bars.items() if counted}
    longest = max((row["duration_ms"] or 0 for row in rows), default=0)
    return Report(
        "rebalances",
        TITLE,
        [
            page.tiles(
                {
                    "rebalances": len(rows),
                    "seconds spent in them": sum(row["duration_ms"] or 0 for row in rows) / 1000,
                    "the longest, seconds": longest / 1000,
                    "partitions moved": sum(row["moved"] or 0 for row in rows),
                }
            ),
            page.section(
                "When, and why",
                "Rebalances by what caused them.",
                charts.bar_chart(series, span, bucket_ms, "rebalances"),
            ),
            page.section(
                "Churn",
                "Who came and who went, by group.",
                page.table(_churn(scope), "Nobody came or went."),
            ),
            page.section(
                "Each rebalance",
                "The longest first. Awaited are the members that did not come back in time; moved "
                "are partitions that another member had before.",
                page.table([_told(row) for row in rows[:MAX_ROWS]], "There was none."),
            ),
        ],
        rows,
    )


def _rows(scope: Scope) -> Rows:
    """Every rebalance once: one that went on over midnight stands in both days."""
    found = scope.gold("rebalances").orderBy("dt")
    by_start = {}
    for row in collect(found.drop("moves")):
        start = row["started_ms"] or row["completed_ms"] or row["assigned_ms"]
        by_start[row["store"], row["group"], start] = {**row, "dt": str(row["dt"])}
    return sorted(by_start.values(), key=lambda row: -(row["duration_ms"] or 0))


def _told(row: dict[str, object]) -> dict[str, object]:
    duration = row["duration_ms"]
    awaited = row["awaited_names"] or []
    assert isinstance(awaited, list)
    return {
        "time (UTC)": charts.moment(row["started_ms"]),  # type: ignore[arg-type]
        "group": row["name"],
        "reason": str(row["reason"] or "").replace("_", " "),
        "caused by": row["caused_by"] or row["member_id"],
        "seconds": None if duration is None else duration / 1000,  # type: ignore[operator]
        "members": row["members"],
        "awaited": ", ".join(awaited),
        "moved": row["moved"],
        "of": row["assigned"],
    }


def _churn(scope: Scope) -> Rows:
    """Count joins and ends by group; a session stands in every day that it reaches into."""
    sessions = read_table(scope.spark, scope.lake.silver("member_sessions"))
    names = scope.gold("group_daily").select("dt", "store", "group", "name")
    rows = sessions.join(names, ["dt", "store", "group"])
    joined = F.to_date(F.timestamp_millis("joined_ms")) == F.col("dt")
    ended = F.to_date(F.timestamp_millis("ended_ms")) == F.col("dt")
    counted = rows.groupBy("name").agg(
        F.count_if(joined).alias("joined"),
        F.count_if(ended & (F.col("ended_by") == "leave")).alias("left"),
        F.count_if(ended & (F.col("ended_by") == "replaced")).alias("replaced"),
        *(
            F.count_if(ended & (F.col("ended_by") == reason)).alias(reason)
            for reason in ("session_timeout", "join_timeout", "sync_timeout", "new_member_timeout")
        ),
        F.percentile_approx("duration_ms", 0.5).alias("median_ms"),
    )
    found: dict[str, dict[str, object]] = defaultdict(dict)
    for row in collect(counted):
        median, name = row.pop("median_ms"), row.pop("name")
        found[name] = {
            "group": name,
            **{word.replace("_", " "): number for word, number in row.items()},
            "median stay, seconds": None if median is None else median / 1000,
        }
    return [found[name] for name in sorted(found, key=lambda n: -int(str(found[n]["joined"])))]
