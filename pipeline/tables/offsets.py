"""Committed offsets out of their history: every change, and what stood at a moment.

The rule is Kafka's: the last commit wins until the offset expires or is deleted. One group is
ordered by ``(lease_epoch, seq)``, and within one request a partition that is named twice has the
later value.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

OFFSET_KEY: Final = ("store", "group", "topic", "partition")
"""What one committed offset belongs to."""

SETS_OFFSETS: Final = ("commit", "offset_snapshot")
"""Kinds whose offsets stand from then on; a snapshot repeats what stood when older segments went.
"""

REMOVES_OFFSETS: Final = ("offset_expired", "offset_deleted")
"""Kinds whose offsets are gone from then on."""

STANDING: Final = (
    "topic_id",
    "offset",
    "leader_epoch",
    "metadata",
    "commit_time_ms",
    "expire_time_ms",
    "client_id",
    "seq",
    "ts_ms",
)
"""What is told of an offset that stands, beside its key."""

_WHO: Final = (
    "generation",
    "member_id",
    "instance_id",
    "client_id",
    "client_host",
    "principal",
    "api",
    "reason",
)


def event_order() -> Column:
    """Sort the events of one group by ``(lease_epoch, seq)``, as one number.

    A number and not a pair: Spark aggregates numbers in place, and would sort for pairs. There is
    room for 8 million leases and a million million events; beyond that it fails loudly.
    """
    return F.col("lease_epoch") * F.lit(1 << 40) + F.col("seq")


def offset_changes(events: DataFrame) -> DataFrame:
    """One row for each partition of each event that sets or removes a committed offset.

    ``is_set`` tells which; ``position`` orders the rows of one event. What the event says of who
    did it is kept.
    """
    kinds = (*SETS_OFFSETS, *REMOVES_OFFSETS)
    of_event = ("store", "log_id", "seq", "ts_ms", "lease_epoch", "kind", "group", *_WHO)
    topics = events.where(F.col("kind").isin(*kinds)).select(
        *of_event,
        "expire_time_ms",
        F.col("commit_time_ms").alias("event_time_ms"),
        F.posexplode("topics").alias("topic_position", "in_topic"),
    )
    rows = topics.select(
        *of_event,
        "expire_time_ms",
        "event_time_ms",
        "topic_position",
        F.col("in_topic.topic").alias("topic"),
        F.col("in_topic.topic_id").alias("topic_id"),
        F.posexplode("in_topic.partitions").alias("partition_position", "in_partition"),
    )
    position = F.col("topic_position").cast("long") * F.lit(1 << 31) + F.col("partition_position")
    return rows.select(
        *of_event,
        position.alias("position"),
        "topic",
        "topic_id",
        F.col("in_partition.partition").alias("partition"),
        F.col("in_partition.offset").alias("offset"),
        F.col("in_partition.previous_offset").alias("previous_offset"),
        F.col("in_partition.leader_epoch").alias("leader_epoch"),
        F.col("in_partition.metadata").alias("metadata"),
        F.coalesce("in_partition.commit_time_ms", "event_time_ms").alias("commit_time_ms"),
        # a snapshot tells it of each partition, a commit of all
        F.coalesce("in_partition.expire_time_ms", "expire_time_ms").alias("expire_time_ms"),
        F.col("kind").isin(*SETS_OFFSETS).alias("is_set"),
    )


def offsets_as_of(
    events: DataFrame, as_of_ms: int | None = None, *, as_of_seq: int | None = None
) -> DataFrame:
    """Return the committed offsets that stood at a moment, as the coordinator would have told them.

    ``events`` are of ``bronze.read_events``: the whole history, or everything since a snapshot.
    Events up to and including ``as_of_ms`` (or ``as_of_seq``) count; without either, all of them.
    One row for each ``OFFSET_KEY``, with ``STANDING``: expire_time_ms is -1 where there is none,
    seq and ts_ms are the commit's.
    """
    if as_of_ms is not None:
        events = events.where(F.col("ts_ms") <= as_of_ms)
    if as_of_seq is not None:
        events = events.where(F.col("seq") <= as_of_seq)
    changing = events.where(F.col("kind").isin(*SETS_OFFSETS, *REMOVES_OFFSETS))
    # Nothing here is null. Said once, each join need not say it of its own side, and Spark sees
    # that both are with the same rows and computes them once.
    is_known = F.expr(" and ".join(f"`{name}` is not null" for name in OFFSET_KEY))
    newest = newest_events(offset_changes(changing).where(is_known), *OFFSET_KEY)
    newest = newest.where("`order` is not null")
    # What changed no offset last is left out while a commit is one row, however many its partitions
    identity = ["store", "group", "order"]
    last = newest.select(*identity).distinct()
    few = changing.withColumn("order", event_order()).join(last, identity, "left_semi")
    return _standing(last_changes(offset_changes(few), *OFFSET_KEY, newest=newest))


def standing(changes: DataFrame) -> DataFrame:
    """Return what stands after all these changes (of ``offset_changes``)."""
    return _standing(last_changes(changes, *OFFSET_KEY))


def _standing(last: DataFrame) -> DataFrame:
    return last.where("is_set").select(*OFFSET_KEY, *STANDING)


def newest_events(changes: DataFrame, *key: str) -> DataFrame:
    """Return the ``order`` (``event_order``) of the last event that changed each key."""
    return changes.groupBy(*key).agg(F.max(event_order()).alias("order"))


def last_changes(changes: DataFrame, *key: str, newest: DataFrame | None = None) -> DataFrame:
    """Return the last change for each key, removals included.

    ``newest`` is ``newest_events`` of the same, where that is known: where it was written and read
    back, Spark knows how small it is, and does not sort every change to join them.
    """
    ordered = changes.withColumn("order", event_order())
    if newest is None:
        # Numbers first: what is left of millions of commits is a row a key, and only that is sorted
        newest = newest_events(changes, *key)
    rows = ordered.join(newest, [*key, "order"], "left_semi")
    value = F.struct("is_set", "lease_epoch", *[n for n in STANDING if n not in key])
    last = rows.groupBy(*key).agg(F.max_by(value, "position").alias("last"))
    return last.select(*key, "last.*")
