"""Tables with a file for each hour of a day, so that a day that has grown keeps its earlier files.

New events change only rows from the minute of the first new event on. The files of earlier hours
are linked into the folder of the new version, and only later files are written.

A file is named ``hour-00007-...``. It has rows of this hour, and of later hours up to the hour of
the next file. All tables of a day are divided at the same hours. A small day has one file for each
table, which begins at hour 0. Tables from before 0.2.0.dev12 have files with other names; such a
day is computed from its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from groupkeeper.pipeline.tables.lake import DAY, add_days
from groupkeeper.pipeline.tables.pointer import HOUR_MS

if TYPE_CHECKING:
    import pyarrow as pa

HOURS_TABLE: Final = "_carried/hours"
"""The sums and the last changes of each hour, from the files of ``_carried/minutes``. Only large
days have it."""

PEAKS_TABLE: Final = "_carried/peaks"
"""The largest lag of each group and hour. Only large days have it."""

SAMPLES_TABLE: Final = "_carried/samples"
"""The last sampled end of each partition and minute."""

SAMPLES_HOURS_TABLE: Final = "_carried/samples_hours"
"""The last sampled end of each partition and hour. Only large days have it."""

BY_HOUR: Final = (
    "_carried/minutes",
    HOURS_TABLE,
    PEAKS_TABLE,
    SAMPLES_TABLE,
    SAMPLES_HOURS_TABLE,
    "gold/lag_1m",
    "gold/commit_rate_1m",
)
"""The tables whose files are divided by hours. Their rows have a ``minute_ms``."""

LARGE_DAY_EVENTS: Final = 20_000
"""A day with at least this number of events has a file for each hour. For a smaller day, to open
more files would cost more than to compute all minutes again."""

DAY_HOURS: Final = 24

_NAME: Final = re.compile(r"hour-(\d{5})-")
NAME: Final = "hour"
"""The beginning of the name of a file that has the rows of some hours."""


@dataclass(frozen=True)
class Since:
    """The moment of a day from which its rows are computed again."""

    day: date
    minute_ms: int
    """The beginning of the minute with the first new event."""
    hour: int = 0
    """The hour of the first file that is written again. Files of earlier hours stay as they are."""

    def is_earlier(self, name: str) -> bool:
        """Return True if the file of this name stays as it is."""
        hour = file_hour(name)
        return hour is not None and hour < self.hour

    def is_again(self, name: str) -> bool:
        """Return True if the rows of the file of this name are written again."""
        return not self.is_earlier(name)

    @property
    def is_whole(self) -> bool:
        """Return True if the whole day is computed again."""
        return self.minute_ms == begin_ms(self.day)


def begin_ms(day: date) -> int:
    """Return the beginning of a day in milliseconds since the epoch."""
    return (day - date(1970, 1, 1)) // timedelta(milliseconds=1)


def file_hour(name: str) -> int | None:
    """Return the hour in the name of a file. Return None if the file has no hour."""
    found = _NAME.match(name)
    return int(found[1]) if found is not None else None


def since_minute(day: date, minute_ms: int, names: Iterable[str]) -> Since | None:
    """Return from where a day is computed again whose first new event is in this minute.

    ``names`` are the names of the day's files in all tables of ``BY_HOUR``. Return None if a file
    has no hour.
    """
    begins = [file_hour(name) for name in names]
    hour = (minute_ms - begin_ms(day)) // HOUR_MS
    earlier = [begin for begin in begins if begin is not None and begin <= hour]
    return None if None in begins else Since(day, minute_ms, max(earlier, default=0))


def of_hour(minute_ms: Column) -> Column:
    """Return the beginning of the hour of a minute."""
    return minute_ms - minute_ms % HOUR_MS


# --- writing --------------------------------------------------------------------------------------


def add_hours(
    rows: DataFrame, path: str, version: int, large_days: Collection[date]
) -> Collection[date]:
    """Write days of a table into new folders of this version. Return the days that have rows.

    Each of the ``large_days`` gets a file for each hour. Any other day gets one file.
    """
    hour = (F.col("minute_ms") % (DAY_HOURS * HOUR_MS) / HOUR_MS).cast("int")
    part = F.when(F.col(DAY).isin(*large_days), hour).otherwise(0) if large_days else F.lit(0)
    # Spark names each file by the number of the partition that wrote it
    placed = rows.repartition(1)
    if large_days:
        placed = rows.repartition(DAY_HOURS, F.lit(list(_NUMBERS))[part])
    placed = placed.withColumn("_written", F.spark_partition_id())
    seen = Observation()
    placed = placed.observe(
        seen,
        F.collect_set(DAY).alias("days"),
        F.count_if(F.col("_written") != part).alias("elsewhere"),
    )
    add_days(placed.drop("_written"), path, version, NAME)
    assert not seen.get.get("elsewhere"), "Spark has put rows of an hour into another partition"
    return seen.get.get("days") or ()


# fmt: off
_NUMBERS: Final = (
    14, 6, 31, 3, 37, 15, 2, 75, 12, 9, 49, 11, 25, 19, 28, 0, 13, 16, 5, 1, 56, 43, 55, 78,
)
# fmt: on
"""For each of 24 partitions, a number that Spark puts there: its hash (Murmur3), modulo 24, is the
number of the partition."""


def held_by_hour(rows: pa.Table, *, is_large: bool) -> Iterator[tuple[str, pa.Table]]:
    """Divide the rows of a day like ``add_hours``. Yield the beginning of the name of each file,
    and its rows.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_large:
        yield f"{NAME}-{0:05}", rows
        return
    in_day = pc.subtract(
        rows["minute_ms"],
        pc.multiply(pc.divide(rows["minute_ms"], DAY_HOURS * HOUR_MS), DAY_HOURS * HOUR_MS),
    )
    hours = pc.divide(in_day, HOUR_MS)
    for hour in sorted(hours.unique().to_pylist()):
        yield f"{NAME}-{hour:05}", rows.filter(pc.equal(hours, pa.scalar(hour, pa.int64())))


def earlier_minutes(rows: pa.Table, minute_ms: int) -> pa.Table:
    """Return the rows of earlier minutes."""
    import pyarrow.compute as pc

    return rows.filter(pc.less(rows["minute_ms"], minute_ms))
