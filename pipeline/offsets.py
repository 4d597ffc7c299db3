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

_VALUE: Final = (
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


def offset_changes(events: DataFrame) -> DataFrame:
    """One row for each partition of each event that sets or removes a committed offset.

    ``is_set`` tells which; ``position`` orders the rows of one event. Every column of the event
    that says who did it is kept.
    """
    kinds = (*SETS_OFFSETS, *REMOVES_OFFSETS)
    event_commit_time_ms = F.col("commit_time_ms").alias("event_commit_time_ms")
    topics = events.where(F.col("kind").isin(*kinds)).select(
        "store",
        "log_id",
        "seq",
        "ts_ms",
        "lease_epoch",
        "kind",
        "group",
        "generation",
        "member_id",
        "instance_id",
        "client_id",
        "client_host",
        "principal",
        "reason",
        "expire_time_ms",
        event_commit_time_ms,
        F.posexplode("topics").alias("topic_position", "in_topic"),
    )
    rows = topics.select(
        *[name for name in topics.columns if name != "in_topic"],
        F.col("in_topic.topic").alias("topic"),
        F.col("in_topic.topic_id").alias("topic_id"),
        F.posexplode("in_topic.partitions").alias("partition_position", "in_partition"),
    )
    return rows.select(
        *[name for name in rows.columns if name not in ("in_partition", "event_commit_time_ms")],
        F.col("in_partition.partition").alias("partition"),
        F.col("in_partition.offset").alias("offset"),
        F.col("in_partition.previous_offset").alias("previous_offset"),
        F.col("in_partition.leader_epoch").alias("leader_epoch"),
        F.col("in_partition.metadata").alias("metadata"),
        F.coalesce("in_partition.commit_time_ms", "event_commit_time_ms").alias("commit_time_ms"),
        F.col("kind").isin(*SETS_OFFSETS).alias("is_set"),
    )


def change_order() -> Column:
    """Sort the changes of one offset."""
    return F.struct("lease_epoch", "seq", "topic_position", "partition_position")


def offsets_as_of(
    events: DataFrame, as_of_ms: int | None = None, *, as_of_seq: int | None = None
) -> DataFrame:
    """Return the committed offsets that stood at a moment, as the coordinator would have told them.

    ``events`` are of ``bronze.read_events``: the whole history, or everything since a snapshot.
    Events up to and including ``as_of_ms`` (or ``as_of_seq``) count; without either, all of them.
    One row for each ``OFFSET_KEY``: topic_id, offset, leader_epoch, metadata, commit_time_ms,
    expire_time_ms (-1: none), client_id, and seq and ts_ms of the commit.
    """
    if as_of_ms is not None:
        events = events.where(F.col("ts_ms") <= as_of_ms)
    if as_of_seq is not None:
        events = events.where(F.col("seq") <= as_of_seq)
    return standing(offset_changes(events))


def standing(changes: DataFrame) -> DataFrame:
    """Return what stands after all these changes (of ``offset_changes``)."""
    last = F.max_by(F.struct("is_set", *_VALUE), change_order()).alias("last")
    latest = changes.groupBy(*OFFSET_KEY).agg(last).where("last.is_set")
    return latest.select(*OFFSET_KEY, *(F.col(f"last.{name}").alias(name) for name in _VALUE))
