"""The events that bronze has of one segment (pure). A segment is a file of events. Bronze is the
pipeline's table of unchanged events.
"""

from __future__ import annotations

from datetime import date
from typing import NamedTuple


class HeldSegment(NamedTuple):
    """The events that bronze has of one segment and one day: a row of ``SEGMENT_SCHEMA``."""

    log_id: str
    segment: str
    dt: date
    first_seq: int
    last_seq: int
    events: int
    """The number of events. 0 if the segment is expected and bronze has none of its events."""
    seq_sum: int
    batch_id: str = ""
    file: str = ""
    """The path below the log's folder; "" if it did not come from a file (an import)."""
    sha256: str = ""
    """The checksum of the file when it was read; "" if the events did not come from a file."""
    problem: str = ""
    """Why bronze has no events of this segment: the file, and what is wrong with it. "" if bronze
    has them.
    """
    previous_log_id: str = ""
    """The log that ``log_id`` continues, if this segment has the event ``log_started`` that names
    it; else "".
    """
    began_ms: int = 0
    """When ``log_id`` began (ms since the epoch), if this segment has ``log_started``; else 0."""
    with_rest: int = 0
    """Number of events with fields that were unknown when the segment was read."""
    store: str = ""
    """The name of the store that wrote the log, with the node (``event_log.store_names``); "" if
    neither the manifest nor ``log_started`` has a name. Logs with different names are of different
    stores, unless one log names the other as its predecessor."""

    @property
    def number(self) -> int:
        """Return ``batch_id`` as a number. Return -1 for an import, whose ``batch_id`` is a name,
        and if no batch has read the segment.
        """
        return int(self.batch_id) if self.batch_id.isdecimal() else -1

    @property
    def is_whole(self) -> bool:
        """Return True if the segment has every event number (``seq``) from the first to the last
        exactly once.
        """
        span = self.last_seq - self.first_seq + 1
        return self.events == span and 2 * self.seq_sum == span * (self.first_seq + self.last_seq)
