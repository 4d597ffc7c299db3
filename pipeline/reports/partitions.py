"""The report on partitions: each committed offset, how far it is behind, since when, and the owner
of the partition.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from groupkeeper.pipeline.log.kinds import DATA_STORE
from groupkeeper.pipeline.reports import page
from groupkeeper.pipeline.reports.report import PageContent, Report, Scope, lag_note, top_rows
from groupkeeper.pipeline.tables.lake import DAY
from groupkeeper.pipeline.tables.offsets import OFFSET_KEY, event_order
from groupkeeper.pipeline.tables.rebalances import MOVED, given

TITLE: Final = "Partitions"

_OWNED: Final = ("store", "group", "owner")
_LINKS: Final = {"group": "groups.html"}


def build(scope: Scope) -> Report:
    """Return the report on partitions, with one row for each committed offset at the end of the
    last day in ``scope``.
    """
    found = _found(scope).cache()
    return Report(
        "partitions",
        TITLE,
        None if found.isEmpty() else _content(scope, found),
        found,
        to_arrow_schema(found.schema),
        "No group had a committed offset.",
    )


def _found(scope: Scope) -> DataFrame:
    stands = _stands(scope)
    rows = stands.join(_behind_since(scope, stands), list(OFFSET_KEY), "left")
    rows = rows.join(_owners(scope), list(OFFSET_KEY), "left")
    ((last_ms,),) = stands.agg(F.max("minute_ms")).collect()
    as_of_ms = max(last_ms or 0, scope.sampled_ms or 0)
    since_ms = F.col("behind_since_ms")
    # `greatest` ignores nulls, so without a sample it would return 0
    behind_ms = F.when(since_ms.isNotNull(), F.greatest(F.lit(as_of_ms) - since_ms, F.lit(0)))
    is_at_end = F.lit(scope.sampled_ms is not None) & (F.col("lag") == 0)
    return rows.select(
        *("name", "topic", "partition", "owner", "offset", "end_offset", "lag"),
        F.when(is_at_end, F.lit(0).cast("long")).otherwise(behind_ms).alias("behind_ms"),
    ).orderBy(F.desc_nulls_last("lag"), "name", "topic", "partition")


def _stands(scope: Scope) -> DataFrame:
    """Return the last row of each offset that exists at the end of the last day. This day has a row
    for each of them.
    """
    lag = scope.gold("lag_1m").where(F.col(DAY).isin(*scope.days[-1:]))
    values = ("minute_ms", "offset", "end_offset", "lag")
    last = lag.groupBy(*OFFSET_KEY, "name").agg(
        F.max_by(F.struct(*values), "minute_ms").alias("last")
    )
    return last.select(*OFFSET_KEY, "name", "last.*").where(F.col("offset").isNotNull())


def _behind_since(scope: Scope, stands: DataFrame) -> DataFrame:
    """Return for each offset the time since which it is behind, as the samples of ends show it.

    This is the time of the first sample with an end above the offset, after the last sample with an
    end that is not above it. The true moment lies between these two samples.
    """
    samples = scope.silver("end_offsets").where(F.col("store") == DATA_STORE)
    samples = samples.select("topic", "partition", "ts_ms", F.col("offset").alias("end"))
    both = stands.select(*OFFSET_KEY, "offset").join(samples, ["topic", "partition"])
    of_offset = Window.partitionBy(*OFFSET_KEY)
    last_at_end = F.max(F.when(F.col("end") <= F.col("offset"), F.col("ts_ms"))).over(of_offset)
    both = both.withColumn("last_at_end_ms", last_at_end)
    is_later = F.col("ts_ms") > F.coalesce("last_at_end_ms", F.lit(-1))
    above = both.where((F.col("end") > F.col("offset")) & is_later)
    return above.groupBy(*OFFSET_KEY).agg(F.min("ts_ms").alias("behind_since_ms"))


def _owners(scope: Scope) -> DataFrame:
    """Return the member that owns each partition at the end of the last day, as text."""
    gives = scope.carried_events().where(F.col("kind").isin("assignment", MOVED))
    gives = gives.withColumn("order", event_order())
    of_group = Window.partitionBy("store", "group")
    # an assignment of a classic group has all of its partitions
    newest = F.max(F.when(F.col("kind") == "assignment", F.col("order"))).over(of_group)
    gives = gives.withColumn("newest", newest).where("newest is null or `order` >= newest")
    own_name = F.when(F.col("kind") == MOVED, F.col("instance_id")).alias("own_name")
    event = ("store", "group", "order", "own_name")
    members = gives.select(*event[:3], own_name, F.explode(given()).alias("member_id", "of_member"))
    topics = members.select(*event, "member_id", F.explode("of_member").alias("topic", "numbers"))
    owner = F.coalesce("own_name", "member_id").alias("owner")
    partition = F.explode("numbers").alias("partition")
    held = topics.select("store", "group", "topic", "order", owner, partition)
    last = held.groupBy(*OFFSET_KEY).agg(F.max_by("owner", "order").alias("owner"))
    names = last.join(_members(scope), list(_OWNED)).drop("owner")
    return names.withColumnRenamed("name", "owner")


def _members(scope: Scope) -> DataFrame:
    """Return the members at the end of the last day. ``owner`` is the instance id of a static
    member, or the member id; ``name`` is the client.
    """
    sessions = scope.silver("member_sessions").where(F.col(DAY).isin(*scope.days[-1:]))
    name = F.concat("client_id", F.lit(" ("), "client_host", F.lit(")"))
    there = sessions.where("ended_ms is null").select(
        "store", "group", F.coalesce("instance_id", "member_id").alias("owner"), name.alias("name")
    )
    return there.groupBy(*_OWNED).agg(F.max("name").alias("name"))


def _content(scope: Scope, found: DataFrame) -> PageContent:
    rows, total = top_rows(found, F.desc_nulls_last("lag"), "name", "topic", "partition")
    behind, unowned, longest_ms = found.agg(
        F.count_if(F.col("lag") > 0),
        F.count_if(F.col("owner").isNull()),
        F.max("behind_ms"),
    ).collect()[0]
    figures = {
        "partitions with an offset": total,
        "behind": behind,
        "without an owner": unowned,
        "longest, in seconds": "unknown" if longest_ms is None else longest_ms // 1000,
    }
    parts = [
        page.section(
            "Each partition",
            "At the end of the tables, the largest lag first. Seconds behind is the time since "
            "the committed offset was the end of the partition, as the samples of the brokers "
            "show it. It may be longer by the time between two samples. It is empty without "
            "samples.",
            page.table(
                [_shown(row) for row in rows],
                "No committed offset is left.",
                total=total,
                whole="partitions.csv",
                links=_LINKS,
            ),
        ),
    ]
    return PageContent(figures, parts, lag_note(scope.sampled_ms))


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    behind_ms = row["behind_ms"]
    return {
        "group": row["name"],
        "topic": row["topic"],
        "partition": row["partition"],
        "owner": row["owner"],
        "offset": row["offset"],
        "end": row["end_offset"],
        "messages behind": row["lag"],
        "seconds behind": None if behind_ms is None else behind_ms / 1000,
    }
