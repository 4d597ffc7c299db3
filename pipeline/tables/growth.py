"""Finds the days that only have new events since they were computed (pure).

For such a day, only the new events are read (``pipeline.tables.compute``). A day is computed from
all of its events in these cases:

- a file was replaced
- bronze has events twice
- an older copy replaced a store
- an earlier log was read, so that a store has another name
- several nodes used a store: new events may be earlier than known events

Events are read in numbered batches into bronze, the table of events.
"""

from __future__ import annotations

from datetime import date

from groupkeeper.pipeline.log.coverage import Coverage
from groupkeeper.pipeline.tables.pointer import DayNote


class Growth:
    """Compares bronze as it is now with bronze as it was when a day was computed."""

    def __init__(self, coverage: Coverage) -> None:
        self._now = coverage
        self._earlier: dict[int, Coverage | None] = {}
        self.last_batch = max((part.number for part in coverage.segments), default=-1)
        """The number of the last batch; -1 if there is none."""

    def has_only_grown(self, day: date, note: DayNote | None, computation: int) -> bool:
        """Return True if the day was computed by this version of the computation, and only new
        events have come since.
        """
        if note is None or not note.is_whole or self._now.several_nodes():
            return False
        if note.computation != computation or self._now.has_overlaps([day]):
            return False
        earlier = self._up_to(note.batch)
        return earlier is not None and earlier.fingerprint(day) == note.fingerprint

    def _up_to(self, batch: int) -> Coverage | None:
        """Return the coverage of bronze (which events it has) as it was after a batch.

        Return None if later batches changed the store of a log. Return None as well if they changed
        which of these events are valid: an older copy of a store was restored.
        """
        if batch not in self._earlier:
            earlier = Coverage(part for part in self._now.segments if part.number <= batch)
            names = self._now.stores()
            is_alike = earlier.limits() == self._now.limits() and all(
                names[log_id] == store for log_id, store in earlier.stores().items()
            )
            self._earlier[batch] = earlier if is_alike else None
        return self._earlier[batch]
