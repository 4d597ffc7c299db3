"""What offsets a group had at a moment, out of the event log, for a plan to go back to them."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import date
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.bronze import distinct_events, read_events, read_segments, with_store
from pipeline.coverage import Coverage, HeldSegment
from pipeline.lake import DAY, Lake
from pipeline.offsets import offset_changes, standing
from pipeline.plan import Committed, Partition

SEGMENT_NAME: Final = re.compile(r"events-(?P<log_id>.+)-(?P<first>\d+)-(?P<last>\d+)\.jsonl\.gz")


class RestoreError(Exception):
    """There is nothing to restore; the message is one line."""


class Standing(NamedTuple):
    """The committed offsets of a group at a moment."""

    offsets: dict[Partition, Committed]
    store: str
    """The log that they were found in."""
    last_ts_ms: int
    """The newest event of that log that was read: a moment after it is not known about."""


def events_of_log(spark: SparkSession, log_dir: Path) -> DataFrame:
    """Read the events of sealed segments as they lie in a folder of this machine, each once."""
    segments = [
        HeldSegment(
            found["log_id"],
            path.name,
            date.fromisoformat(path.parent.name.removeprefix(f"{DAY}=")),
            int(found["first"]),
            int(found["last"]),
            events=int(found["last"]) - int(found["first"]) + 1,
            seq_sum=0,
        )
        for path in log_dir.glob(f"{DAY}=*/events-*")
        if (found := SEGMENT_NAME.fullmatch(path.name))
    ]
    if not segments:
        raise RestoreError(f"{log_dir} holds no sealed segment: is it the daemon's log.dir?")
    stores = Coverage(segments).stores()
    return with_store(distinct_events(read_segments(spark, str(log_dir))), stores)


def events_of_lake(spark: SparkSession, root: str) -> DataFrame:
    """Read the events of bronze, each once; what was imported is among them."""
    return read_events(spark, Lake(root))


def group_as_of(
    events: DataFrame, group: str, as_of_ms: int, topics: Collection[str] = ()
) -> Standing:
    """Return the offsets that a group had at a moment, of all topics or of those named.

    Where several logs know the group (it was imported from Kafka and lives here since, say), the
    one that it was changed in last before the moment counts. Raises RestoreError where none does.
    """
    changes = offset_changes(events.where(F.col("group") == group))
    before = changes.where(F.col("ts_ms") <= as_of_ms)
    newest = before.groupBy("store").agg(F.max("ts_ms").alias("at")).collect()
    if not newest:
        first = changes.agg(F.min("ts_ms").alias("at")).collect()[0]["at"]
        raise RestoreError(
            f"the log knows nothing of group {group!r}: is its name right, and the log the one of "
            "its coordinator?"
            if first is None
            else f"group {group!r} had no committed offset then: its first change in the log is "
            f"at {first} ms since the epoch"
        )
    store = max(newest, key=lambda row: (row["at"], row["store"]))["store"]
    rows = standing(before.where(F.col("store") == store)).collect()
    last = events.where(F.col("store") == store).agg(F.max("ts_ms").alias("at")).collect()
    offsets = {
        Partition(row["topic"], row["partition"]): Committed(
            row["offset"], row["leader_epoch"], row["metadata"]
        )
        for row in rows
        if not topics or row["topic"] in topics
    }
    return Standing(offsets, store, last[0]["at"])
