"""The committed offsets of a group at an earlier moment, from the event log, for a restore plan."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from groupkeeper.pipeline.log.coverage import Coverage, HeldSegment
from groupkeeper.pipeline.log.segment_files import Lacking, parse_name
from groupkeeper.pipeline.restore.plan import Committed, Partition
from groupkeeper.pipeline.tables.bronze import (
    LOG_STARTED,
    SEGMENT_GLOB,
    distinct_events,
    read_coverage,
    read_events,
    read_segments,
    with_store,
    without_abandoned,
)
from groupkeeper.pipeline.tables.lake import DAY, Lake
from groupkeeper.pipeline.tables.offsets import offset_changes, standing

SNAPSHOT_KIND: Final = "offset_snapshot"
"""The kind of events with the offsets of a group at the time when older segments were deleted."""

NAMED: Final = 5
"""Gaps that a message names."""


class RestoreError(Exception):
    """No offsets can be restored; the message is one line."""


class IncompleteHistory(RestoreError):
    """Events that may have changed the group are missing."""

    def __init__(self, missing: Iterable[object], place: object) -> None:
        """``missing`` has one text for each gap; ``place`` names the history."""
        texts = [str(each) for each in missing]
        if len(texts) > NAMED:
            texts = [*texts[:NAMED], f"and {len(texts) - NAMED} gaps more"]
        self.what = f"the history in {place} is incomplete: {'; '.join(texts)}"
        """The first sentence of the message."""
        super().__init__(
            f"{self.what}. Their changes are unknown, so a plan might restore or delete the wrong "
            "offsets. Look for the missing segments (`groupkeeper log verify` names them; "
            "--log-dir and --tables may be wrong, --store reads unsealed events), or plan without "
            "them, with --accept-gaps"
        )


class Standing(NamedTuple):
    """The committed offsets of a group at a moment."""

    offsets: dict[Partition, Committed]
    store: str
    """The store that has them, by the id of its first log."""
    last_ts_ms: int
    """The time of the newest event read from that store. Offsets after this time are unknown."""
    unknown: frozenset[Partition] = frozenset()
    """Partitions of the group whose offset at that moment is unknown."""


NONE_LACKING: Final[Mapping[str, str]] = {}


def coverage_of_log(log_dir: Path, lacking: Mapping[str, str] = NONE_LACKING) -> Coverage:
    """Return the coverage of a local folder, from the names of its sealed segments.

    ``lacking`` has the problem of each missing or damaged segment, by path.
    """
    expected = (Lacking(*each, parse_name(each[0])).as_expected() for each in lacking.items())
    found = map(_held, _right(log_dir, lacking))
    held = [each for each in found if each is not None]
    return Coverage([*_with_previous(held, log_dir), *(each for each in expected if each)])


def _right(log_dir: Path, lacking: Collection[str]) -> list[Path]:
    """Return the undamaged segments of a folder. Raises RestoreError if it has no segment."""
    found = [path for path in log_dir.glob(f"{DAY}=*/{SEGMENT_GLOB}") if _held(path)]
    if not found:
        raise RestoreError(f"{log_dir} holds no sealed segment: is it the daemon's log.dir?")
    return [path for path in found if f"{path.parent.name}/{path.name}" not in lacking]


def _held(path: Path) -> HeldSegment | None:
    name = parse_name(f"{path.parent.name}/{path.name}")
    if name is None:
        return None
    log_id, first, last, day = name
    if day is None:
        return None
    return HeldSegment(log_id, path.name, day, first, last, events=last - first + 1, seq_sum=0)


def _with_previous(held: Iterable[HeldSegment], log_dir: Path) -> list[HeldSegment]:
    """Add to the first segment of each log the log before it, if the segment names it."""
    parts = sorted(held, key=lambda part: (part.log_id, part.first_seq))
    completed, logs = [], set()
    for part in parts:
        if part.log_id not in logs:
            logs.add(part.log_id)
            previous, began_ms = _begin(log_dir / f"{DAY}={part.dt}" / part.segment)
            part = part._replace(previous_log_id=previous, began_ms=began_ms)
        completed.append(part)
    return completed


def _begin(path: Path) -> tuple[str, int]:
    """Return the log before the one that begins with this segment, and the time when the new log
    began. Return "" and 0 if the segment begins no log.
    """
    with suppress(OSError, EOFError, zlib.error, ValueError), gzip.open(path) as lines:
        event = json.loads(lines.readline())
        if event.get("kind") == LOG_STARTED:
            return event["previous_log_id"] or "", event["ts_ms"]
    return "", 0


def events_of_log(
    spark: SparkSession, log_dir: Path, lacking: Mapping[str, str] = NONE_LACKING
) -> DataFrame:
    """Read the events of the sealed segments in a local folder, each once.

    Damaged segments are left out. So are events that the store lacks since an older copy replaced
    it.
    """
    coverage = coverage_of_log(log_dir, lacking)
    paths = map(str, _right(log_dir, lacking))
    events = without_abandoned(distinct_events(read_segments(spark, *paths)), coverage)
    return with_store(events, coverage.stores())


def coverage_of_lake(spark: SparkSession, root: str) -> Coverage:
    """Return the coverage of bronze."""
    return read_coverage(spark, Lake(root))


def events_of_lake(spark: SparkSession, root: str) -> DataFrame:
    """Read the events of bronze, including imported ones, each once."""
    return read_events(spark, Lake(root))


def require_whole(events: DataFrame, coverage: Coverage, as_of_ms: int, place: object) -> None:
    """Raise IncompleteHistory if events of any log up to a moment are missing.

    Any log counts, because a missing event does not show its group.
    """
    if not coverage.gaps():
        return
    before = events.where(F.col("ts_ms") <= as_of_ms).groupBy("log_id").agg(F.max("seq"))
    missing = coverage.gaps_as_of(dict(before.collect()))
    if missing:
        raise IncompleteHistory(missing, place)


def group_as_of(
    events: DataFrame, group: str, as_of_ms: int, topics: Collection[str] = ()
) -> Standing:
    """Return the offsets that a group had at a moment, of all topics or of the given ones.

    Several stores may know the group, for example because it was imported from Kafka. Then the
    store with the group's last change before the moment counts. Raises RestoreError if no store
    knows it.
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
        raise RestoreError(_why_nothing(events.where(F.col("group") == group), group, as_of_ms))
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
    unknown = frozenset(Partition(*each) for each in at["unknown"])
    return Standing(offsets, store, last[0]["at"], unknown)


def _is_cut_off() -> Column:
    """Return True for a change before which earlier changes of its partition may be missing.

    This is so for the first known change in an import: Kafka's compaction may have removed earlier
    ones. The first known change may also be a tombstone.
    """
    is_first_commit = (F.col("kind") == "commit") & F.col("previous_offset").isNull()
    return is_first_commit | F.col("offset").isNull()


def _why_nothing(events: DataFrame, group: str, as_of_ms: int) -> str:
    """Return why a group has no offsets at a moment, as far as the log shows."""
    changes = offset_changes(events)
    first = changes.agg(F.min("ts_ms").alias("at")).collect()[0]["at"]
    if first is None:
        return (
            f"the log has no event of group {group!r}: is its name right, and is it the log of "
            "its coordinator?"
        )
    horizon = events.where(F.col("kind") == SNAPSHOT_KIND).agg(F.min("ts_ms").alias("at"))
    if horizon.collect()[0]["at"] == first:
        return (
            f"the offsets of group {group!r} at {_utc(as_of_ms)} are unknown: its events before "
            f"{_utc(first)} are older than log.retention_minutes, and deleted. That is the first "
            "moment that can be restored"
        )
    if not changes.where(_is_cut_off()).isEmpty():
        return (
            f"the offsets of group {group!r} at {_utc(as_of_ms)} are unknown: Kafka's compaction "
            f"removed those before {_utc(first)}. That is the first moment that can be restored"
        )
    return (
        f"group {group!r} had no committed offset at {_utc(as_of_ms)}: its first change in the log "
        f"is at {_utc(first)}"
    )


def _utc(ts_ms: int) -> str:
    at = datetime.fromtimestamp(ts_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
