"""The audit report: every rewind, reset, restore and deletion of offsets, and every refused commit,
with its client.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from groupkeeper.pipeline.reports import charts, page
from groupkeeper.pipeline.reports.acts import acts
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
from groupkeeper.pipeline.tables.gold import MINUTE_MS

TITLE = "Audit"

ACTIONS: Final = {
    "rewind": "rewind",
    "reset": "reset",
    "restore": "restore",
    "delete": "offset deletion",
    "group_delete": "group deletion",
    "expire": "expiry",
    "rejected": "refusal",
    "admin": "administration",
}
"""The page's words for the values of ``action`` in the table ``gold.audit``."""

COUNTED: Final = {
    "rewind": ("rewind", "rewinds"),
    "reset": ("reset", "resets"),
    "restore": ("restore", "restores"),
    "delete": ("deletion of offsets", "deletions of offsets"),
    "group_delete": ("group deleted", "groups deleted"),
    "expire": ("expiry of offsets", "expiries of offsets"),
    "rejected": ("commit refused", "commits refused"),
    "admin": ("act of administration", "acts of administration"),
}
"""Maps each action to its singular and its plural on the page."""

HOUR_MS: Final = 60 * MINUTE_MS

MAX_BARS: Final = 120
"""The largest number of bars in a row of the chart. More bars would be too thin to point at."""

MAX_NAMED: Final = 4
"""The largest number of partitions that a line names."""


SEVERITY: Final = (
    "rewind",
    "reset",
    "delete",
    "group_delete",
    "rejected",
    "restore",
    "expire",
    "admin",
)
"""The order of actions on the page, the most severe first."""


def build(scope: Scope) -> Report:
    """Return the audit report of the groups and days in ``scope``. In its files, the latest action
    is first.
    """
    found = acts(scope).cache()
    counted = _counted(found)
    rows = with_text_day(found).orderBy(F.desc("ts_ms"), F.desc("seq"))
    return Report(
        "audit",
        TITLE,
        _content(found, counted) if counted else None,
        rows,
        to_arrow_schema(rows.schema),
        "No offset was rewound, reset, restored or deleted, and no commit was refused.",
    )


def _counted(found: DataFrame) -> Rows:
    """Return a row for each action: its count, and the times of its first and last row. The most
    severe action is first.
    """
    counted = found.groupBy("action").agg(
        F.sum("count").alias("count"), F.min("ts_ms").alias("first"), F.max("ts_ms").alias("last")
    )
    return sorted(collect(counted), key=lambda row: _rank(row["action"]))


def _rank(action: str) -> int:
    return SEVERITY.index(action) if action in SEVERITY else len(SEVERITY)


def _content(found: DataFrame, counted: Rows) -> PageContent:
    edges = [row["first"] for row in counted] + [row["last"] for row in counted]
    span, bucket_ms = buckets(edges, MAX_BARS)
    sums, total = top_rows(
        _by_hour(found),
        _rank_column(),
        F.desc_nulls_last("messages_back"),
        F.desc("count"),
        F.desc("ts_ms"),
    )
    figures = {_name(row): row["count"] for row in counted}
    parts = [
        page.section(
            "When",
            "The higher a bar, the more was done in its time. Each row has a scale of its own; "
            "its last number is the sum.",
            charts.density_chart(_density(found, bucket_ms), span, bucket_ms),
        ),
        page.section(
            "What was done, and by whom",
            "The most severe first. If one client repeated something within an hour, this is one "
            "row: it says how often, and shows the largest change. A reset is a commit from "
            "outside a group. A former member lost its session minutes before. A refused commit "
            "is that of a member that no longer belongs to the group, a zombie. Messages back and "
            "forward are those between the old and the new offsets.",
            page.table(
                [_shown(row) for row in sums],
                "There were none.",
                total=total,
                whole="audit.csv",
                links={"group": "groups.html"},
            ),
        ),
    ]
    return PageContent(figures, parts)


def _name(row: dict[str, Any]) -> str:
    action = str(row["action"])
    one, many = COUNTED.get(action, (action, action))
    return many if row["count"] > 1 else one


def _density(found: DataFrame, bucket_ms: int) -> dict[str, list[tuple[int, float]]]:
    at_ms = time_bucket(F.col("ts_ms"), bucket_ms).alias("at_ms")
    rows = collect(found.groupBy("action", at_ms).agg(F.sum("count").alias("count")))
    rows.sort(key=lambda row: (_rank(row["action"]), row["at_ms"]))
    series: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        name = ACTIONS.get(row["action"], str(row["action"]))
        series.setdefault(name, []).append((row["at_ms"], row["count"]))
    return series


def _rank_column() -> Column:
    rank = F.create_map(*(F.lit(each) for pair in enumerate(SEVERITY) for each in reversed(pair)))
    return F.coalesce(rank[F.col("action")], F.lit(len(SEVERITY)))


_CLIENT: Final = ("client_id", "client_host", "principal", "done_by")


def _by_hour(found: DataFrame) -> DataFrame:
    """Return one row for each action of a client on a group in an hour: the counts and the largest
    change.
    """
    hour_ms = time_bucket(F.col("ts_ms"), HOUR_MS).alias("hour_ms")
    back, forward = _messages()
    weight = F.coalesce(back, F.lit(0)) + F.coalesce(forward, F.lit(0))
    return found.groupBy("action", "name", *_CLIENT, "detail", hour_ms).agg(
        F.sum("count").alias("count"),
        F.sum("partitions").alias("partitions"),
        F.min("ts_ms").alias("ts_ms"),
        F.max("ts_ms").alias("last_ms"),
        F.sum(back).alias("messages_back"),
        F.sum(forward).alias("messages_forward"),
        F.max_by(F.slice("changes", 1, MAX_NAMED), weight).alias("changes"),
        F.max_by("partitions", weight).alias("of_partitions"),
    )


def _messages() -> tuple[Column, Column]:
    """Return two columns: the messages by which an action moved offsets back, and forward. In days
    that an older version computed, they are taken from ``messages``, forward minus back.
    """
    total = F.col("messages")
    back = F.coalesce("messages_back", F.greatest(-total, F.lit(0)))
    forward = F.coalesce("messages_forward", F.greatest(total, F.lit(0)))
    return F.when(total.isNotNull(), back), F.when(total.isNotNull(), forward)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "time (UTC)": charts.moment(row["ts_ms"]),
        "what": ACTIONS.get(row["action"], row["action"]),
        "times": row["count"],
        "until": charts.moment(row["last_ms"])[11:] if row["last_ms"] > row["ts_ms"] else None,
        "group": row["name"],
        "changed": _what(row),
        "messages back": row["messages_back"],
        "messages forward": row["messages_forward"],
        "by": row["done_by"],
        "client": row["client_id"],
        "host": row["client_host"],
        "principal": row["principal"],
    }


def _what(row: dict[str, Any]) -> str:
    """Return a text about an action: its detail, and the offsets of some partitions before and
    after.
    """
    changes = row["changes"] or []
    named = [
        f"{c['topic']}-{c['partition']}: {_offset(c['from'])} to {_offset(c['to'])}"
        for c in changes[:MAX_NAMED]
    ]
    if (row["of_partitions"] or 0) > len(named):
        named.append(f"and {row['of_partitions'] - len(named)} more")
    # an error keeps Kafka's name, since people search for it
    detail = row["detail"] if row["detail"].isupper() else row["detail"].replace("_", " ")
    return ", ".join(filter(None, [detail, *named]))


def _offset(value: int | None) -> str:
    return "none" if value is None else str(value)
