"""The kinds of events that the pipeline looks for by name (pure)."""

from __future__ import annotations

from typing import Final

from groupkeeper.storage.event_log.snapshot_logs import SNAPSHOT_KIND

DATA_STORE: Final = "data"
"""The ``store`` of events with sampled end offsets of partitions. No coordinator wrote these
events, so they are valid for the groups of every store.
"""

LOG_STARTED: Final = "log_started"
"""The kind of the first event of a log. This event names the log that the new log continues. The
first log of a store has no such event.
"""

SETS_OFFSETS: Final = ("commit", SNAPSHOT_KIND)
"""Kinds of events that set offsets. A snapshot repeats the offsets that deleted events had set."""

REMOVES_OFFSETS: Final = ("offset_expired", "offset_deleted")
"""Kinds of events that remove offsets."""
