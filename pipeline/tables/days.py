"""Columns about UTC days: the day of a moment, and values that are null after the end of a day."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from groupkeeper.pipeline.tables.lake import DAY

_DAY_MS: Final = 24 * 60 * 60 * 1000


def day_of(at_ms: Column | str) -> Column:
    """Return the UTC day of a moment in milliseconds, as a column."""
    return F.to_date(F.timestamp_millis(at_ms))


def until_its_day(at_ms: str, column: str) -> Column:
    """Return the column ``column``, but with null in each row whose day (``dt``) ended before the
    time ``at_ms``.
    """
    end_ms = (F.unix_date(F.col(DAY)).cast("long") + 1) * _DAY_MS
    return F.when(F.col(at_ms) < end_ms, F.col(column))
