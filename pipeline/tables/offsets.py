"""Committed offsets, computed from events: every change, and the offsets at a moment.

The rule is Kafka's: the last commit is valid until the offset expires or is deleted. The events of
a group are ordered by ``(lease_epoch, seq)``; ``seq`` is the number of the event in its log. If one
request names a partition twice, the later value is valid.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from groupkeeper.pipeline.log.kinds import REMOVES_OFFSETS, SETS_OFFSETS

OFFSET_KEY: Final = ("store", "group", "topic", "partition")
"""The columns that identify a committed offset. Each combination has at most one row."""

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
"""The columns of a committed offset that are not in ``OFFSET_KEY``."""

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
    """Return ``(lease_epoch, seq)`` as one number, which sorts the events of a group.

    Spark can find the largest number without sorting, but not the largest pair. With an epoch below
    4 million, the seq may be up to 10^12. Larger epochs come only from topics of Kafka, where an
    epoch is the offset of a message (docs/decisions/0039-kafka-topic.md). There the epoch and the
    seq may each be up to 2 billion, and a larger number raises an error in Spark.
    """
    lease_epoch, seq = F.col("lease_epoch"), F.col("seq")
    is_too_large = (lease_epoch >= 1 << (62 - _SHARD_BITS)) | (seq >= 1 << _SHARD_BITS)
    error = F.raise_error(F.lit("the lease epoch or the seq of an event is too large"))
    return (
        F.when(lease_epoch < _SMALL_EPOCHS, lease_epoch * F.lit(1 << _SEQ_BITS) + seq)
        .when(is_too_large, error.cast("long"))
        .otherwise(lease_epoch * F.lit(1 << _SHARD_BITS) + seq + F.lit(_LARGE))
    )


def order_columns() -> tuple[Column, Column]:
    """Return the columns ``lease_epoch`` and ``seq``, computed from the column ``order``
    (``event_order``).
    """
    order = F.col("order")
    large = order - F.lit(_LARGE)
    lease_epoch = F.when(large < 0, F.shiftright(order, _SEQ_BITS)).otherwise(
        F.shiftright(large, _SHARD_BITS)
    )
    seq = F.when(large < 0, order % F.lit(1 << _SEQ_BITS)).otherwise(
        large % F.lit(1 << _SHARD_BITS)
    )
    return lease_epoch.alias("lease_epoch"), seq.alias("seq")


_SEQ_BITS: Final = 40
"""The number of bits for the seq if the epoch is small."""
_SHARD_BITS: Final = 31
"""The number of bits for the seq if the epoch is large. Only shards in topics of Kafka have such
epochs."""
_SMALL_EPOCHS: Final = 1 << 22
_LARGE: Final = _SMALL_EPOCHS << _SEQ_BITS
"""``event_order`` adds this number if the epoch is large. So every event with a large epoch sorts
after every event with a small one.
"""


def offset_changes(events: DataFrame) -> DataFrame:
    """Return one row for each partition of each event that sets or removes a committed offset.

    ``is_set`` is True if the event sets the offset. ``position`` orders the rows of one event. The
    columns about the client of the event are kept.
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
        # a snapshot has it for each partition, a commit once for all
        F.coalesce("in_partition.expire_time_ms", "expire_time_ms").alias("expire_time_ms"),
        F.col("kind").isin(*SETS_OFFSETS).alias("is_set"),
    )


def offsets_as_of(
    events: DataFrame, as_of_ms: int | None = None, *, as_of_seq: int | None = None
) -> DataFrame:
    """Return the committed offsets at a moment, as the coordinator would have returned them.

    ``events`` is the result of ``bronze.read_events``. These are all events, or those since a
    snapshot (the offsets of earlier events, repeated). Only events up to and including ``as_of_ms``
    or ``as_of_seq`` count. Without either, all events count.

    There is one row for each ``OFFSET_KEY``, with the columns ``STANDING``. ``expire_time_ms`` is
    -1 if the offset has no expiry time. ``seq`` and ``ts_ms`` are from the event of the commit.
    """
    if as_of_ms is not None:
        events = events.where(F.col("ts_ms") <= as_of_ms)
    if as_of_seq is not None:
        events = events.where(F.col("seq") <= as_of_seq)
    changing = events.where(F.col("kind").isin(*SETS_OFFSETS, *REMOVES_OFFSETS))
    # None of these columns is ever null. Without this filter, Spark would add one of its own before
    # each join, and compute the rows twice.
    is_known = F.expr(" and ".join(f"`{name}` is not null" for name in OFFSET_KEY))
    newest = newest_events(offset_changes(changing).where(is_known), *OFFSET_KEY)
    newest = newest.where("`order` is not null")
    # Drop events that set no current offset before their partitions become rows.
    identity = ["store", "group", "order"]
    last = newest.select(*identity).distinct()
    few = changing.withColumn("order", event_order()).join(last, identity, "left_semi")
    return _standing(last_changes(offset_changes(few), *OFFSET_KEY, newest=newest))


def standing(changes: DataFrame) -> DataFrame:
    """Return the committed offsets after ``changes``, which are rows of ``offset_changes``."""
    return _standing(last_changes(changes, *OFFSET_KEY))


def _standing(last: DataFrame) -> DataFrame:
    return last.where("is_set").select(*OFFSET_KEY, *STANDING)


def newest_events(changes: DataFrame, *key: str) -> DataFrame:
    """Return the ``order`` (``event_order``) of the last event that changed each key."""
    return changes.groupBy(*key).agg(F.max(event_order()).alias("order"))


def last_changes(changes: DataFrame, *key: str, newest: DataFrame | None = None) -> DataFrame:
    """Return the last change for each key, including removals.

    ``newest`` is the result of ``newest_events`` for the same changes, if the caller already has
    it. If the caller has written it and read it back, Spark knows that it is small, and does not
    sort every change for the join.
    """
    ordered = changes.withColumn("order", event_order())
    if newest is None:
        # The last event of each key is found by its number, without sorting. Then only the rows of
        # these events are sorted.
        newest = newest_events(changes, *key)
    rows = ordered.join(newest, [*key, "order"], "left_semi")
    value = F.struct("is_set", "lease_epoch", *[n for n in STANDING if n not in key])
    last = rows.groupBy(*key).agg(F.max_by(value, "position").alias("last"))
    return last.select(*key, "last.*")
