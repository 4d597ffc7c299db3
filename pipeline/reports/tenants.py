"""The report on tenants: how much load each principal and client id causes for the coordinator.

A tenant is a pair of a principal and a client id.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from groupkeeper.pipeline.reports import page
from groupkeeper.pipeline.reports.report import PageContent, Report, Scope, top_rows, with_text_day
from groupkeeper.pipeline.reports.row_files import Rows
from groupkeeper.pipeline.tables.lake import DAY

TITLE: Final = "Tenants"

FIXED_BYTES: Final = 32
"""The bytes that are counted for each committed offset, in addition to the group, the topic and the
metadata. They stand for the partition, the offset, the leader epoch and the times.
"""

_TENANT: Final = ("principal", "client_id")
_COUNTS: Final = (
    "commits",
    "partitions",
    "bytes",
    "refused",
    "joins",
    "rebalances",
    "rebalance_ms",
)


def build(scope: Scope) -> Report:
    """Return the report on tenants. Its files have one row for each tenant and day in ``scope``."""
    found = with_text_day(_by_day(scope)).cache()
    sums = found.groupBy(*_TENANT).agg(*(F.sum(name).alias(name) for name in _COUNTS))
    rows, total = top_rows(sums, F.desc("commits"), F.desc("rebalance_ms"), *_TENANT)
    return Report(
        "tenants",
        TITLE,
        _content(sums, rows, total) if total else None,
        found.orderBy(DAY, *_TENANT),
        to_arrow_schema(found.schema),
        "No client committed, joined or caused a rebalance.",
    )


def _by_day(scope: Scope) -> DataFrame:
    """Return one row for each tenant and day."""
    key = (DAY, *_TENANT)
    names = F.octet_length("topic") + F.octet_length("metadata") + F.octet_length("group")
    size = F.coalesce(names, F.lit(0)) + FIXED_BYTES
    commits = (
        scope.silver("commit_deltas")
        .groupBy(*key)
        .agg(
            F.count_if(F.col("position") == 0).alias("commits"),
            F.count("*").alias("partitions"),
            F.sum(size).alias("bytes"),
        )
    )
    refused = scope.gold("audit").where("action = 'rejected'")
    refused = refused.groupBy(*key).agg(F.sum("count").alias("refused"))
    sessions = scope.silver("member_sessions")
    has_joined = F.to_date(F.timestamp_millis("joined_ms")) == F.col(DAY)
    joins = sessions.where(has_joined).groupBy(*key).agg(F.count("*").alias("joins"))
    united = commits
    for part in (refused, joins, _rebalances(scope, sessions)):
        united = united.unionByName(part, allowMissingColumns=True)
    sums = (F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _COUNTS)
    return united.groupBy(*key).agg(*sums)


def _rebalances(scope: Scope, sessions: DataFrame) -> DataFrame:
    """Return the number and the duration (ms) of the rebalances that each tenant caused, by day."""
    of_member = ("store", "group", "member_id")
    principals = sessions.groupBy(*of_member).agg(F.max("principal").alias("principal"))
    begun = F.to_date(F.timestamp_millis("started_ms")) == F.col(DAY)
    rows = scope.gold("rebalances").where(begun).join(principals, [*of_member], "left")
    unknown = F.coalesce("principal", F.lit("")).alias("principal")
    return rows.groupBy(DAY, unknown, F.coalesce("client_id", F.lit("")).alias("client_id")).agg(
        F.count("*").alias("rebalances"), F.sum("duration_ms").alias("rebalance_ms")
    )


def _content(sums: DataFrame, rows: Rows, total: int) -> PageContent:
    ((commits, size, rebalance_ms),) = sums.agg(
        F.sum("commits"), F.sum("bytes"), F.sum("rebalance_ms")
    ).collect()
    figures = {
        "tenants": total,
        "commits": commits,
        "megabytes committed": size / 1e6,
        "seconds in rebalances": rebalance_ms / 1000,
    }
    parts = [
        page.section(
            "What each tenant costs",
            "A tenant is a principal and a client id. Bytes are those of the committed offsets: "
            "group, topic, metadata, and 32 for the rest. A rebalance, and the seconds that its "
            "group took for it, count for the client that caused it.",
            page.table([_shown(row) for row in rows], "", total=total, whole="tenants.csv"),
        ),
    ]
    return PageContent(figures, parts)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "principal": row["principal"] or "unknown",
        "client id": row["client_id"] or "none",
        "commits": row["commits"],
        "partitions": row["partitions"],
        "bytes": row["bytes"],
        "commits refused": row["refused"],
        "joins": row["joins"],
        "rebalances caused": row["rebalances"],
        "seconds in them": row["rebalance_ms"] / 1000,
    }
