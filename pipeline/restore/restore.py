"""What offsets a group had at a moment, out of the event log, for a plan to go back to them."""

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
"""Tells what offsets a group had when the log before was let go."""

NAMED: Final = 5
"""Gaps that a message names."""


class RestoreError(Exception):
    """There is nothing to restore; the message is one line."""


class IncompleteHistory(RestoreError):
    """Events are missing that may have changed what is asked for."""

    def __init__(self, missing: Iterable[object], place: object) -> None:
        """Say what is missing, one text each, and of which place."""
        texts = [str(each) for each in missing]
        if len(texts) > NAMED:
            texts = [*texts[:NAMED], f"and {len(texts) - NAMED} gaps more"]
        self.what = f"the history in {place} is not whole: {'; '.join(texts)}"
        """The first sentence of the message."""
        super().__init__(
            f"{self.what}. What they "
            "changed is not known, so a plan might bring back offsets that were not those of the "
            "moment, and delete others. Look for the missing segments (`groupkeeper log verify` "
            "names them; --log-dir and --tables may be the wrong ones, --store reads what is not "
            "sealed yet), or plan without them, with --accept-gaps"
        )


class Standing(NamedTuple):
    """The committed offsets of a group at a moment."""

    offsets: dict[Partition, Committed]
    store: str
    """The log that they were found in."""
    last_ts_ms: int
    """The newest event of that log that was read: a moment after it is not known about."""
    unknown: frozenset[Partition] = frozenset()
    """What of the group had an offset at that moment, or none: nobody knows."""


NONE_LACKING: Final[Mapping[str, str]] = {}


def coverage_of_log(log_dir: Path, lacking: Mapping[str, str] = NONE_LACKING) -> Coverage:
    """Tell by the names of sealed segments what a folder of this machine holds.

    ``lacking`` are segments that ought to be there: what is wrong with each, by its path.
    """
    expected = (Lacking(*each, parse_name(each[0])).as_expected() for each in lacking.items())
    found = map(_held, _right(log_dir, lacking))
    held = [each for each in found if each is not None]
    return Coverage([*_with_previous(held, log_dir), *(each for each in expected if each)])


def _right(log_dir: Path, lacking: Collection[str]) -> list[Path]:
    """The segments of a folder that nothing is wrong with. Raises RestoreError where it has none
    at all.
    """
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
    """Add the log before it to the first segment of each log, where that says it."""
    parts = sorted(held, key=lambda part: (part.log_id, part.first_seq))
    told, logs = [], set()
    for part in parts:
        if part.log_id not in logs:
            logs.add(part.log_id)
            previous, began_ms = _begin(log_dir / f"{DAY}={part.dt}" / part.segment)
            part = part._replace(previous_log_id=previous, began_ms=began_ms)
        told.append(part)
    return told


def _begin(path: Path) -> tuple[str, int]:
    """The log before the one that a segment begins, and when that was."""
    with suppress(OSError, EOFError, zlib.error, ValueError), gzip.open(path) as lines:
        event = json.loads(lines.readline())
        if event.get("kind") == LOG_STARTED:
            return event["previous_log_id"] or "", event["ts_ms"]
    return "", 0


def events_of_log(
    spark: SparkSession, log_dir: Path, lacking: Mapping[str, str] = NONE_LACKING
) -> DataFrame:
    """Read the events of sealed segments as they lie in a folder of this machine, each once; those
    that something is wrong with are left out.
    """
    coverage = coverage_of_log(log_dir, lacking)
    paths = map(str, _right(log_dir, lacking))
    events = without_abandoned(distinct_events(read_segments(spark, *paths)), coverage)
    return with_store(events, coverage.stores())


def coverage_of_lake(spark: SparkSession, root: str) -> Coverage:
    """Tell what bronze holds."""
    return read_coverage(spark, Lake(root))


def events_of_lake(spark: SparkSession, root: str) -> DataFrame:
    """Read the events of bronze, each once; what was imported is among them."""
    return read_events(spark, Lake(root))


def require_whole(events: DataFrame, coverage: Coverage, as_of_ms: int, place: object) -> None:
    """Raise IncompleteHistory where events of any log up to a moment are missing.

    Of any: what is not there cannot tell which group it was about.
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
    """Return the offsets that a group had at a moment, of all topics or of those named.

    Where several logs know the group (it was imported from Kafka and lives here since, say), the
    one that it was changed in last before the moment counts. Raises RestoreError where none does.
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
    """Whether a change is the first that is known of its partition, and may not be the first that
    there was: in an import of what Kafka has compacted. A tombstone may be the first that is left:
    what went is not known.
    """
    is_first_commit = (F.col("kind") == "commit") & F.col("previous_offset").isNull()
    return is_first_commit | F.col("offset").isNull()


def _why_nothing(events: DataFrame, group: str, as_of_ms: int) -> str:
    """Say why a group has no offsets at a moment, as far as the log tells."""
    changes = offset_changes(events)
    first = changes.agg(F.min("ts_ms").alias("at")).collect()[0]["at"]
    if first is None:
        return (
            f"the log knows nothing of group {group!r}: is its name right, and the log the one of "
            "its coordinator?"
        )
    horizon = events.where(F.col("kind") == SNAPSHOT_KIND).agg(F.min("ts_ms").alias("at"))
    if horizon.collect()[0]["at"] == first:
        return (
            f"what group {group!r} had at {_utc(as_of_ms)} is not known: what the log told of it "
            f"before {_utc(first)} is beyond log.retention_minutes, and gone. That is the first "
            "moment that it can be restored to"
        )
    if not changes.where(_is_cut_off()).isEmpty():
        return (
            f"what group {group!r} had at {_utc(as_of_ms)} is not known: Kafka's compaction took "
            f"what was before {_utc(first)}. That is the first moment that it can be restored to"
        )
    return (
        f"group {group!r} had no committed offset at {_utc(as_of_ms)}: its first change in the log "
        f"is at {_utc(first)}"
    )


def _utc(ts_ms: int) -> str:
    at = datetime.fromtimestamp(ts_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
