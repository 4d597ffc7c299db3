"""The committed offsets of a group at a moment, computed from the tables of an earlier day.

These tables have the offsets at the end of that day. So only the later events are read, not the
whole history. ``base_day`` allows this only if the result is the same as from the whole history.

Bronze is the table of all events, and gold has summaries of them. ``seq`` numbers the events of a
chain, which is the logs of one node, one after the other. A snapshot has the offsets after deleted
events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, date, datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from groupkeeper.pipeline.log.columns import STANDING_SCHEMA
from groupkeeper.pipeline.log.coverage import Coverage
from groupkeeper.pipeline.log.held_segment import HeldSegment
from groupkeeper.pipeline.restore.plan import Committed, Partition
from groupkeeper.pipeline.restore.standing import Standing
from groupkeeper.pipeline.tables.bronze import read_coverage, read_events
from groupkeeper.pipeline.tables.columns import GOLD_SCHEMAS
from groupkeeper.pipeline.tables.compute import COMPUTATION
from groupkeeper.pipeline.tables.lake import Lake
from groupkeeper.pipeline.tables.offsets import OFFSET_KEY, last_changes, offset_changes
from groupkeeper.pipeline.tables.pointer import GOLD, DayNote, Pointer
from groupkeeper.pipeline.tables.versions import read_pointer, read_valid
from groupkeeper.storage.event_log.snapshot_logs import SNAPSHOT_KIND, base_log


def group_from_day(
    spark: SparkSession, root: str, group: str, as_of_ms: int, topics: Collection[str] = ()
) -> Standing | None:
    """Return the offsets of a group at a moment, from the tables of an earlier day and the later
    events. Return None if the offsets must be computed from the whole history instead.
    """
    lake = Lake(root)
    coverage, pointer = read_coverage(spark, lake), read_pointer(spark, lake)
    day = datetime.fromtimestamp(as_of_ms / 1000, UTC).date()
    base = base_day(coverage, pointer, day)
    if base is None:
        return None
    is_of_group = F.col("group") == group
    schema = GOLD_SCHEMAS["group_daily"]
    daily = read_valid(spark, lake, pointer, "gold/group_daily", schema).where(is_of_group)
    carried = read_valid(spark, lake, pointer, "_carried/offsets", STANDING_SCHEMA, [base])
    events = read_events(spark, lake, [each for each in coverage.days() if base < each <= day])
    changes = offset_changes(events.where(is_of_group & (F.col("kind") != SNAPSHOT_KIND)))
    since = last_changes(changes.where(F.col("ts_ms") <= as_of_ms), *OFFSET_KEY).collect()
    stood = carried.where(is_of_group & F.col("is_set")).collect()
    stores = {row["store"] for row in [*stood, *since]}
    stores |= {row["store"] for row in daily.select("store").distinct().collect()}
    if len(stores) != 1 or not (stood or since):
        return None
    (store,) = stores
    names = coverage.stores()
    last = max(part.dt for part in coverage.segments if names[part.log_id] == store)
    newest = read_events(spark, lake, [last]).where(F.col("store") == store)
    ((last_ts_ms,),) = newest.agg(F.max("ts_ms")).collect()
    if last_ts_ms is None:
        return None
    return Standing(_offsets([*stood, *since], topics), store, last_ts_ms)


def _offsets(rows: Iterable[Any], topics: Collection[str]) -> dict[Partition, Committed]:
    """Return the offsets after these changes, of all topics or of the given ones. A later row
    replaces an earlier row of the same partition.
    """
    offsets: dict[Partition, Committed] = {}
    for row in rows:
        key = Partition(row["topic"], row["partition"])
        if not row["is_set"]:
            offsets.pop(key, None)
        elif not topics or key.topic in topics:
            offsets[key] = Committed(row["offset"], row["leader_epoch"], row["metadata"])
    return offsets


def base_day(coverage: Coverage, pointer: Pointer, day: date) -> date | None:
    """Return the last day before ``day`` whose offsets can be used instead of the history (pure).
    The tables of this day and of all earlier days must be up to date.

    Return None in these cases:

    - there is no such day
    - events are missing, or something was imported
    - old tables of gold were removed
    - the clock was set back over the end of the day
    - a later snapshot has new information
    - several nodes used a store, because the clocks of two nodes do not order their events
    """
    has_import = any(part.events and part.number < 0 for part in coverage.segments)
    if has_import or GOLD in pointer.since or coverage.gaps() or coverage.several_nodes():
        return None
    base = None
    for each in sorted({*pointer.days, *coverage.days()}):
        note = pointer.days.get(each)
        is_removed = each < pointer.bronze_since
        if each >= day or note is None or not (is_removed or _is_current(coverage, each, note)):
            break
        base = each
    return base if base is not None and _is_in_order(coverage, base) else None


def _is_current(coverage: Coverage, day: date, note: DayNote) -> bool:
    is_computed = note.is_whole and note.computation == COMPUTATION
    return is_computed and note.fingerprint == coverage.fingerprint(day)


def _is_in_order(coverage: Coverage, base: date) -> bool:
    """Return True if, in every chain, all events after the day ``base`` have larger seqs than all
    events up to this day. Return False also if a snapshot of a later day has new information.
    """
    chains = coverage.chains()
    last_seqs: dict[str, int] = {}
    first_seqs: dict[str, int] = {}
    for part in coverage.segments:
        chain = chains[part.log_id]
        if _is_snapshot(part):
            if part.dt > base and not coverage.tells_nothing_new(part):
                return False
        elif part.dt <= base:
            last_seqs[chain] = max(part.last_seq, last_seqs.get(chain, 0))
        else:
            first_seqs[chain] = min(part.first_seq, first_seqs.get(chain, part.first_seq))
    return all(last_seqs.get(chain, 0) < first for chain, first in first_seqs.items())


def _is_snapshot(part: HeldSegment) -> bool:
    return base_log(part.log_id) != part.log_id
