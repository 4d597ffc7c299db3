"""The logs of snapshots (pure). A snapshot has the offsets of deleted segments (files of events),
and is a separate log. Its log id contains the id of the log from which it was made, and a sequence
number (seq).
"""

from __future__ import annotations

from typing import Final, NamedTuple

SNAPSHOT_KIND: Final = "offset_snapshot"
"""The kind of a snapshot's events."""


class SnapshotLog(NamedTuple):
    """The log of a snapshot, which covers all events of a store up to a seq."""

    log_id: str
    """The log of the last event that the snapshot covers."""
    through_seq: int

    def __str__(self) -> str:
        """Return the log id of the snapshot itself."""
        return f"{self.log_id}.{self.through_seq}"


def parse_snapshot_log(log_id: str) -> SnapshotLog | None:
    """Parse the id of a snapshot's log; None for the id of any other log."""
    base, dot, seq = log_id.rpartition(".")
    return SnapshotLog(base, int(seq)) if dot and base and seq.isdigit() else None


def base_log(log_id: str) -> str:
    """Return the log from which a snapshot was made. Return any other log id unchanged."""
    snapshot = parse_snapshot_log(log_id)
    return log_id if snapshot is None else snapshot.log_id
