"""The table ``lag_1m``: how far each committed offset is behind the end of its partition."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from groupkeeper.pipeline.log.kinds import DATA_STORE
from groupkeeper.pipeline.tables.gold import PARTITION_KEY, without_overtaken
from groupkeeper.pipeline.tables.hours import begin_ms
from groupkeeper.pipeline.tables.lake import DAY
from groupkeeper.pipeline.tables.offsets import OFFSET_KEY, event_order


def lag_1m(  # noqa: PLR0913  the tables from which it is computed
    minutes: DataFrame,
    newest: DataFrame,
    standing: DataFrame,
    samples: DataFrame,
    known_ends: DataFrame,
    days: Sequence[date],
    since_ms: int | None = None,
) -> DataFrame:
    """Return the lag of each committed offset: one row for each minute in which it may have
    changed.

    These are the minutes in which the offset was committed or removed, or the end of its partition
    was sampled, and the first minute of each day. If an offset was deleted or expired, its last row
    has a null ``offset``.

    ``lag`` is the last known end minus the offset at the end of the minute, at least 0. It is null
    if no end is known, and for a negative offset.

    ``end_offset`` is the last end that was sampled from the brokers with the records. If a group of
    the same store has since committed a larger offset, or no brokers were sampled, it is the
    largest committed offset.

    ``minutes``, ``newest`` (``newest_by_day``) and ``samples`` (``sampled_minutes``) are the tables
    of ``days``. ``standing`` and ``known_ends`` are the offsets and ends at the end of the
    day before the first one.

    ``since_ms`` is the beginning of a minute of the first day: only rows from this minute on are
    returned. They are computed from the last change of each offset before it, and the last end. So
    rows of ``minutes`` and ``samples`` before it may be combined (``gold.hours``,
    ``gold.sampled_hours``).
    """
    ends = samples.select(*PARTITION_KEY, "minute_ms", F.col("offset").alias("end"))
    long_ago = F.lit(0).cast("long").alias("minute_ms")
    ends = ends.unionByName(
        known_ends.select(*PARTITION_KEY, long_ago, F.col("offset").alias("end"))
    )
    # -1 is Kafka's value for no offset
    value = F.when(F.col("is_set"), F.col("offset")).otherwise(_NO_OFFSET).alias("offset")
    moves = minutes.select(*OFFSET_KEY, "minute_ms", value, "order")
    stood = standing.select(*OFFSET_KEY, long_ago, "offset", event_order().alias("order"))
    moves = moves.unionByName(stood)
    if since_ms is not None:
        ends = _from(since_ms, ends, PARTITION_KEY, "minute_ms")
        moves = _from(since_ms, moves, OFFSET_KEY, "order")
    moves = without_overtaken(moves, OFFSET_KEY, "minute_ms")
    keys = newest.select(*OFFSET_KEY).union(standing.select(*OFFSET_KEY)).distinct()
    rows = moves.unionByName(_ends_of(keys, ends), allowMissingColumns=True)
    # so each day is complete, and no reader needs the last row of the day before
    midnights = F.array(*(F.lit(begin_ms(day)).cast("long") for day in days))
    first = keys.select(*OFFSET_KEY, F.explode(midnights).alias("minute_ms"))
    rows = rows.unionByName(first, allowMissingColumns=True)
    # A minute may have several rows. Each is computed from all of them; only the last is kept.
    so_far = Window.partitionBy(*OFFSET_KEY).orderBy("minute_ms")
    moved_ms = F.when(F.col("offset").isNotNull(), F.col("minute_ms"))
    looks = rows.select(
        *OFFSET_KEY,
        "minute_ms",
        F.last("offset", ignorenulls=True).over(so_far).alias("offset"),
        _last_end(so_far).alias("end_offset"),
        F.last(moved_ms, ignorenulls=True).over(so_far).alias("moved_ms"),
        F.lead("minute_ms").over(so_far).eqNullSafe(F.col("minute_ms")).alias("is_followed"),
    )
    known = looks.where(~F.col("is_followed")).drop("is_followed")
    known = known.withColumn(DAY, F.to_date(F.timestamp_millis("minute_ms")))
    is_there = F.col("offset") != _NO_OFFSET
    has_gone = F.col("moved_ms") == F.col("minute_ms")
    is_wanted = F.col(DAY).isin(*days) & (is_there | has_gone)
    if since_ms is not None:
        is_wanted &= F.col("minute_ms") >= since_ms
    in_days = known.where(is_wanted).drop("moved_ms")
    # greatest ignores nulls
    lag = F.greatest(F.col("end_offset") - F.col("offset"), F.lit(0))
    is_known = F.col("end_offset").isNotNull() & (F.col("offset") >= 0)
    return in_days.withColumns(
        {"offset": F.when(is_there, F.col("offset")), "lag": F.when(is_known, lag)}
    )


def _from(since_ms: int, rows: DataFrame, key: Sequence[str], last_by: str) -> DataFrame:
    """Return the rows from a minute on. Of the rows before it, return one for each key: the row
    with the largest ``last_by``.
    """
    values = [name for name in rows.columns if name not in key]
    last = (F.max_by(name, last_by).alias(name) for name in values)
    before = rows.where(F.col("minute_ms") < since_ms).groupBy(*key).agg(*last)
    return rows.where(F.col("minute_ms") >= since_ms).unionByName(before)


def _ends_of(keys: DataFrame, ends: DataFrame) -> DataFrame:
    """Return the known ends of each offset's partition. ``true_end`` is from samples of the
    brokers. ``least_end`` is from a coordinator: the largest offset that a group of the same store
    has committed.
    """
    is_true = F.col("e.store") == DATA_STORE
    same = [F.col(f"k.{name}") == F.col(f"e.{name}") for name in ("topic", "partition")]
    counts = is_true | (F.col("e.store") == F.col("k.store"))
    end = F.struct("e.minute_ms", "e.end")
    return (
        keys.alias("k")
        .join(ends.alias("e"), [*same, counts])
        .select(
            *(f"k.{name}" for name in OFFSET_KEY),
            "e.minute_ms",
            F.when(is_true, end).alias("true_end"),
            F.when(~is_true, end).alias("least_end"),
        )
    )


def _last_end(so_far: WindowSpec) -> Column:
    """Return a column with the last known end: the larger one of the last ``true_end`` and the last
    ``least_end``. A ``least_end`` that is older than the ``true_end`` does not count.
    """
    true, least = (
        F.last(name, ignorenulls=True).over(so_far) for name in ("true_end", "least_end")
    )
    is_older = least["minute_ms"] < true["minute_ms"]
    # greatest ignores nulls
    return F.greatest(true["end"], F.when(~F.coalesce(is_older, F.lit(False)), least["end"]))


_NO_OFFSET: Final = -1
