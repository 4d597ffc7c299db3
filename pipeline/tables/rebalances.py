"""The table of rebalances in silver (facts about groups): why, how long, and which partitions
moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from groupkeeper.pipeline.spark.session import is_small
from groupkeeper.pipeline.tables.days import day_of, until_its_day
from groupkeeper.pipeline.tables.lake import DAY
from groupkeeper.pipeline.tables.offsets import event_order

MOVED: Final = "partitions_moved"
"""The kind of event about the partitions that a member of a consumer group got and lost."""

MAX_LISTED_MOVES: Final = 100
"""The largest number of moved partitions that a row lists. The row counts all of them."""


def rebalances(events: DataFrame, days: Sequence[date], told: DataFrame | None = None) -> DataFrame:
    """Return one row for each rebalance and each day on which a step of the rebalance happened.

    A rebalance has three steps:
    - its join phase begins: ``started_ms``, ``reason``, the member that caused it
    - its generation is complete: ``completed_ms``, ``duration_ms``, ``awaited`` (absent members)
    - its leader has assigned partitions: ``assigned_ms``

    In a consumer group each new group epoch is a rebalance. Such a rebalance is complete when every
    member has the partitions of its target assignment. There is no third step, because members get
    their partitions one by one. The row of a day counts the partitions that members got on this
    day.

    If the next rebalance or a crash interrupted a rebalance, ``completed_ms`` is null. ``assigned``
    counts all partitions that members got. ``moved`` counts those of them that another member had
    before. Both are null if the assignment cannot be read.

    ``told`` has the events that show which member had a partition before. By default they are among
    ``events``.
    """
    group = Window.partitionBy("store", "group").orderBy("lease_epoch", "seq")
    kinds = ("rebalance_start", "rebalance_end", "assignment")
    steps = events.where(F.col("kind").isin(*kinds) | _is_followed())
    moves = _moves(events if told is None else told)
    if is_small(events.sparkSession):  # otherwise Spark would copy all steps for the join
        moves = F.broadcast(moves)
    steps = steps.join(moves, [*_EVENT], "left")
    place = F.array_position(F.lit(list(kinds)), F.col("kind"))
    steps = steps.withColumn("step", F.when(place > 0, place))
    # the first known event of a rebalance may be its end
    so_far = group.rowsBetween(Window.unboundedPreceding, -1)
    last = F.last("step", ignorenulls=True).over(so_far)
    begins_anew = ((F.col("step") == 1) | (F.col("step") <= last)).cast("int")
    steps = (
        steps.withColumn("begins_anew", begins_anew)
        .withColumn("episode", F.coalesce(F.sum("begins_anew").over(group), F.lit(0)))
        .withColumn("is_readable", F.col("partitions").isNotNull())
    )
    followed = F.struct(day_of("ts_ms").alias(DAY), "assigned", "moved", "moves")
    episodes = steps.groupBy("store", "group", "episode").agg(
        _first_of("rebalance_start", "lease_epoch", "seq", "ts_ms", "reason", "members", *_CAUSE),
        _first_of("rebalance_end", "ts_ms", *_COMPLETED),
        _first_of("assignment", "ts_ms", "is_readable", "assigned", "moved", "moves"),
        F.collect_list(F.when(_is_followed(), followed)).alias("followed"),
    )
    rows = episodes.select(
        "store",
        "group",
        "followed",
        F.col("rebalance_start.seq").alias("seq"),
        F.col("rebalance_start.ts_ms").alias("started_ms"),
        F.col("rebalance_start.reason").alias("reason"),
        *(F.col(f"rebalance_start.{name}").alias(name) for name in _CAUSE),
        F.col("rebalance_start.members").alias("members_before"),
        F.col("rebalance_end.ts_ms").alias("completed_ms"),
        *(F.col(f"rebalance_end.{name}").alias(name) for name in _COMPLETED),
        F.col("assignment.ts_ms").alias("assigned_ms"),
        *(
            F.when(
                F.col("assignment.is_readable"), F.coalesce(f"assignment.{name}", F.lit(0))
            ).alias(name)
            for name in ("assigned", "moved")
        ),
        F.col("assignment.moves").alias("moves"),
    )
    steps_days = F.array(*(day_of(f"{step}_ms") for step in ("started", "completed", "assigned")))
    steps_days = F.concat(F.array_compact(steps_days), F.col(f"followed.{DAY}"))
    each = rows.withColumn(DAY, F.explode(F.array_distinct(steps_days)))
    by_day = each.where(F.col(DAY).isin(*days))
    is_today = F.filter("followed", lambda event: event[DAY] == F.col(DAY))
    by_day = by_day.withColumn("followed", is_today)
    return by_day.select(
        *[name for name in by_day.columns if name not in (*_LATER, "followed")],
        *(until_its_day("completed_ms", name).alias(name) for name in _LATER[:-4]),
        *(
            F.coalesce(until_its_day("assigned_ms", name), _followed(name)).alias(name)
            for name in _LATER[-4:-1]
        ),
        until_its_day("assigned_ms", "assigned_ms").alias("assigned_ms"),
    )


def _is_followed() -> Column:
    """Return a column that is true for events that bring a member of a consumer group nearer to its
    target assignment. In such an event, the member gets or loses partitions.
    """
    return (F.col("kind") == MOVED) & (F.col("reason") == "target_assignment")


def _followed(name: str) -> Column:
    """Return a column with the number or the list of partitions that members of a consumer group
    got on a day. It is null if there was no such event.
    """
    of_events = F.array_compact(F.transform("followed", lambda event: event[name]))
    if name == "moves":
        got = F.slice(F.array_sort(F.flatten(of_events)), 1, MAX_LISTED_MOVES)
    else:
        got = F.aggregate(of_events, F.lit(0), lambda total, number: total + number)
    return F.when(F.size("followed") > 0, got)


_CAUSE: Final = ("member_id", "instance_id", "client_id", "client_host")
_COMPLETED: Final = (
    "duration_ms",
    "awaited",
    "members",
    "generation",
    "protocol_name",
    "leader_id",
)
_LATER: Final = (*_COMPLETED, "completed_ms", "assigned", "moved", "moves", "assigned_ms")


def _first_of(kind: str, *fields: str) -> Column:
    """Return a column with some fields of the first event of a kind. It is an aggregate."""
    of_kind = F.col("kind") == kind
    return F.min_by(F.struct(*fields), F.when(of_kind, event_order())).alias(kind)


def _moves(events: DataFrame) -> DataFrame:
    """Return a row for each event that gives partitions to members. ``assigned`` is the number of
    these partitions. ``moves`` is a list of the partitions among them that another member had
    before, and ``moved`` is the number of these.
    """
    gives = events.where(F.col("kind").isin("assignment", MOVED) & given().isNotNull())
    own_name = F.when(F.col("kind") == MOVED, F.col("instance_id")).alias("own_name")
    topics = gives.select(*_EVENT, own_name, F.explode(given()).alias("member_id", "of_member"))
    in_topic = F.explode("of_member").alias("topic", "numbers")
    parts = topics.select(*_EVENT, "own_name", "member_id", in_topic)
    number = F.explode("numbers").alias("partition")
    held = parts.select(*_EVENT, "own_name", "member_id", "topic", number)
    held = held.join(static_names(events), ["store", "group", "member_id"], "left")
    owner = F.coalesce("own_name", "instance_id", "member_id")
    before = Window.partitionBy("store", "group", "topic", "partition").orderBy(
        "lease_epoch", "seq"
    )
    held = held.withColumn("owner", owner).withColumn("had", F.lag("owner").over(before))
    has_moved = F.col("had").isNotNull() & (F.col("had") != F.col("owner"))
    move = F.struct("topic", "partition", F.col("had").alias("from"), F.col("owner").alias("to"))
    return held.groupBy(*_EVENT).agg(
        F.count("*").cast("int").alias("assigned"),
        F.count_if(has_moved).cast("int").alias("moved"),
        F.slice(F.array_sort(F.collect_list(F.when(has_moved, move))), 1, MAX_LISTED_MOVES).alias(
            "moves"
        ),
    )


_EVENT: Final = ("store", "group", "lease_epoch", "seq")
"""The columns that identify an event of a group."""


def given() -> Column:
    """Return a column that maps each member to the partitions that an event gives to it. An
    assignment gives partitions to all members. An event of a consumer group gives partitions to one
    member.
    """
    gained = F.create_map("member_id", "gained_partitions")
    return F.when(F.col("kind") == MOVED, gained).otherwise(F.col("partitions"))


def static_names(events: DataFrame) -> DataFrame:
    """Return the instance id of each member id of a static member. A static member that comes back
    has a new member id and the same instance id.
    """
    joins = events.where((F.col("kind") == "member_join") & F.col("instance_id").isNotNull())
    return joins.select("store", "group", "member_id", "instance_id").distinct()
