"""The kinds of events that the pipeline looks for by name (pure)."""

from __future__ import annotations

from typing import Final

DATA_STORE: Final = "data"
"""The ``store`` of events with sampled end offsets of partitions. No coordinator wrote these
events, so they are valid for the groups of every store.
"""

LOG_STARTED: Final = "log_started"
"""The kind of the first event of each log, except the first log of a store."""

SNAPSHOT_KIND: Final = "offset_snapshot"
"""The kind of events with the offsets of a group at the time when older segments were deleted."""

SETS_OFFSETS: Final = ("commit", SNAPSHOT_KIND)
"""Kinds of events that set offsets. A snapshot repeats the offsets of deleted segments."""

REMOVES_OFFSETS: Final = ("offset_expired", "offset_deleted")
"""Kinds of events that remove offsets."""
