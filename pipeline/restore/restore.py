"""Computes the committed offsets of a group at an earlier moment with Spark, for a restore plan.

The events come from the daemon's files (segments), or from bronze, the pipeline's table of events.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from groupkeeper.pipeline.log.coverage import Coverage
from groupkeeper.pipeline.restore.plan import Committed, Partition
from groupkeeper.pipeline.restore.sealed import NONE_LACKING, coverage_of_log, right_segments
from groupkeeper.pipeline.restore.standing import (
    IncompleteHistory,
    KnownChanges,
    RestoreError,
    Standing,
    log_snapshot,
    unknown_between_logs,
    why_nothing,
)
from groupkeeper.pipeline.tables.bronze import (
    distinct_events,
    read_coverage,
    read_events,
    read_segments,
    with_store,
    without_abandoned,
)
from groupkeeper.pipeline.tables.lake import Lake
from groupkeeper.pipeline.tables.offsets import offset_changes, standing
from groupkeeper.storage.event_log.snapshot_logs import SNAPSHOT_KIND

NO_CHAINS: Final[Mapping[str, str]] = {}


def events_of_log(
    spark: SparkSession, log_dir: Path, lacking: Mapping[str, str] = NONE_LACKING
) -> DataFrame:
    """Read the events of the sealed segments in a local folder, each once.

    ``lacking`` has the problem of each missing or damaged segment, by path. These segments are left
    out. If an older copy replaced the store, the events that the copy does not have are left out
    too.
    """
    coverage = coverage_of_log(log_dir, lacking)
    paths = map(str, right_segments(log_dir, lacking))
    events = without_abandoned(distinct_events(read_segments(spark, *paths)), coverage)
    return with_store(events, coverage.stores())


def coverage_of_lake(spark: SparkSession, root: str) -> Coverage:
    """Return which events bronze has, and which are missing, for the tables below ``root``."""
    return read_coverage(spark, Lake(root))


def events_of_lake(spark: SparkSession, root: str) -> DataFrame:
    """Read the events of bronze, including imported ones, each once."""
    return read_events(spark, Lake(root))


def require_whole(events: DataFrame, coverage: Coverage, as_of_ms: int, place: object) -> None:
    """Raise IncompleteHistory if events from before a moment are missing in any log.

    All logs must be complete, because the group of a missing event is unknown. ``place`` names the
    history in the message.
    """
    if not coverage.gaps():
        return
    before = events.where(F.col("ts_ms") <= as_of_ms).groupBy("log_id").agg(F.max("seq"))
    missing = coverage.gaps_as_of(dict(before.collect()))
    if missing:
        raise IncompleteHistory(missing, place)


def group_as_of(
    events: DataFrame,
    group: str,
    as_of_ms: int,
    topics: Collection[str] = (),
    *,
    lacks_events: bool = False,
    chains: Mapping[str, str] = NO_CHAINS,
) -> Standing:
    """Return the offsets that a group had at a moment, of all topics or of the given ones.

    The group may be in several stores, for example because it was imported from Kafka. Then only
    the store with the last change of the group before the moment counts. ``lacks_events`` must be
    True if missing events may have changed the group. ``chains`` is needed if several nodes used a
    store: it maps each log to the first log of its node (``Coverage.chains``). Raises RestoreError
    if no store has a change of the group before the moment.
    """
    changes = offset_changes(events.where(F.col("group") == group))
    is_before = F.col("ts_ms") <= as_of_ms
    which = F.struct("topic", "partition")
    found = changes.groupBy("store").agg(
        F.max(F.when(is_before, F.col("ts_ms"))).alias("at"),
        F.collect_set(F.when(~is_before & _is_cut_off(), which)).alias("unknown"),
    )
    newest = found.where("at is not null").collect()
    if not newest:
        known = _all_changes(events.where(F.col("group") == group))
        raise RestoreError(why_nothing(known, group, as_of_ms))
    at = max(newest, key=lambda row: (row["at"], row["store"]))
    store, before = at["store"], changes.where(is_before)
    rows = standing(before.where(F.col("store") == store)).collect()
    last = events.where(F.col("store") == store).agg(F.max("ts_ms").alias("at")).collect()
    offsets = {
        Partition(row["topic"], row["partition"]): Committed(
            row["offset"], row["leader_epoch"], row["metadata"]
        )
        for row in rows
        if not topics or row["topic"] in topics
    }
    of_group = events.where((F.col("group") == group) & (F.col("store") == store))
    of_store = before.where(F.col("store") == store)
    between = _between_chains(of_group, of_store, chains, as_of_ms)
    offsets = {each: offsets[each] for each in offsets if each not in between}
    unknown = between.union(Partition(*each) for each in at["unknown"])
    named = None
    if lacks_events or len(newest) > 1:
        changed = before.where(F.col("store") == store).select("topic", "partition").distinct()
        named = frozenset(Partition(*each) for each in changed.collect())
    return Standing(offsets, store, last[0]["at"], unknown, named, len(newest) - 1)


def _between_chains(
    events: DataFrame, before: DataFrame, chains: Mapping[str, str], as_of_ms: int
) -> frozenset[Partition]:
    """Return the partitions of a group whose last change is unknown because several nodes changed
    them (``unknown_between_logs``).

    ``events`` has the events of the group in one store, and ``before`` the changes of the group
    before the moment.
    """
    if len(set(chains.values())) < 2:
        return frozenset()
    snapshots = events.where(F.col("kind") == SNAPSHOT_KIND)
    rows = snapshots.select("log_id", "ts_ms", "lease_epoch", "topics", "lost").collect()
    if not rows:
        return frozenset()
    which = ("topic", "partition", "log_id")
    changed = before.where(F.col("kind") != SNAPSHOT_KIND).groupBy(*which)
    epochs: dict[Partition, dict[str, int]] = {}
    for row in changed.agg(F.max("lease_epoch").alias("epoch")).collect():
        of_partition = epochs.setdefault(Partition(row["topic"], row["partition"]), {})
        chain = chains.get(row["log_id"], row["log_id"])
        of_partition[chain] = max(row["epoch"], of_partition.get(chain, -1))
    told = [log_snapshot(chains.get(row["log_id"], row["log_id"]), row) for row in rows]
    return frozenset(unknown_between_logs(told, epochs, as_of_ms))


def _is_cut_off() -> Column:
    """Return a column that is true for a change before which changes of the same partition may be
    missing.

    This is so for the first known change in an import, which may be a tombstone: Kafka's compaction
    may have removed earlier changes.
    """
    is_first_commit = (F.col("kind") == "commit") & F.col("previous_offset").isNull()
    return is_first_commit | F.col("offset").isNull()


def _all_changes(events: DataFrame) -> KnownChanges:
    """Return facts about all known changes of a group, for the message of an error."""
    changes = offset_changes(events)
    first = changes.agg(F.min("ts_ms").alias("at")).collect()[0]["at"]
    horizon = events.where(F.col("kind") == SNAPSHOT_KIND).agg(F.min("ts_ms").alias("at"))
    are_cut_off = not changes.where(_is_cut_off()).isEmpty()
    return KnownChanges(first, horizon.collect()[0]["at"], are_cut_off)
