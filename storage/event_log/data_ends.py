"""A log of the true ends of partitions, as the brokers that hold the records report them.

The coordinator has no records. It knows only the largest committed offset of each partition, so its
own samples of ends are too low. This log has the true ends. The pipeline reads it like the
coordinator's log.

Each UTC day is a log in its own folder, and begins with all ends. So the folder of an old day can
be removed as a whole.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from groupkeeper.coordinator.core.events import EndOffset, EndPartition, EndTopic
from groupkeeper.storage.codec.events import Stamp, event_dict
from groupkeeper.storage.event_log.event_kinds import DATA_LOG_PREFIX
from groupkeeper.storage.event_log.sealing.segment_writer import write_segments
from groupkeeper.storage.event_log.segments import (
    SegmentError,
    day_of,
    read_segment,
    segment_names,
)
from groupkeeper.storage.segment_lines import EventDict

SAMPLE_PARTITIONS: Final = 1_000
"""The largest number of partitions that one event contains, as in the coordinator's samples."""

KEEP_DAYS: Final = 8
"""The number of days whose folders are kept: a week, and today. The pipeline has copied older
samples into its tables."""

NO_SHARD: Final = -1
_HOUR_MS: Final = 3_600_000

Ends = Mapping[tuple[str, int], int]
"""(topic, partition) -> the offset after the last record."""


class DataEndsLog:
    """Writes samples of the true ends, in a folder with one folder for each day. Only one process
    may write it.
    """

    def __init__(self, folder: Path, keep_days: int = KEEP_DAYS) -> None:
        self._folder = folder
        self._keep_days = keep_days
        self._day = ""
        self._log_id = ""
        self._lease_epoch = 0
        self._next_seq = 1
        self._known: dict[tuple[str, int], int] = {}

    def add(self, ends: Ends, now_ms: int) -> int:
        """Write the ends that differ from the last sample of the day, and return their number. If
        none differs, write no file.
        """
        day = day_of(now_ms)
        if day != self._day:
            self._open(day, now_ms)
            self._remove_old(date.fromisoformat(day))
        changed = {key: end for key, end in sorted(ends.items()) if self._known.get(key) != end}
        if changed:
            write_segments(self._folder / day, self._events(changed, now_ms))
            self._next_seq += -(-len(changed) // SAMPLE_PARTITIONS)
            self._known |= changed
        return len(changed)

    def _events(self, ends: Ends, now_ms: int) -> Iterator[EventDict]:
        items = list(ends.items())
        stamp = Stamp(self._log_id, now_ms, now_ms)
        for number, first in enumerate(range(0, len(items), SAMPLE_PARTITIONS)):
            topics: dict[str, list[EndPartition]] = {}
            for (topic, partition), end in items[first : first + SAMPLE_PARTITIONS]:
                topics.setdefault(topic, []).append(EndPartition(partition, end))
            event = EndOffset(topics=[EndTopic(name, "", rows) for name, rows in topics.items()])
            yield event_dict(stamp, self._next_seq + number, NO_SHARD, self._lease_epoch, event)

    def _open(self, day: str, now_ms: int) -> None:
        """Continue the newest log of a day, or begin one if there is none that can be read."""
        self._day, self._known, self._next_seq = day, {}, 1
        self._log_id = f"{DATA_LOG_PREFIX}{uuid.uuid4().hex}"
        # readers sort events by this epoch first, so a later log must not have a lower one
        self._lease_epoch = now_ms // _HOUR_MS
        with suppress(SegmentError):
            self._continue(self._folder / day)

    def _continue(self, folder: Path) -> None:
        names = segment_names(folder)
        events = [event for name in names for event in read_segment(folder / str(name))]
        if not events:
            return
        newest = max(events, key=lambda event: (event["lease_epoch"], event["ts_ms"]))
        of_log = [event for event in events if event["log_id"] == newest["log_id"]]
        self._log_id = newest["log_id"]
        self._lease_epoch = newest["lease_epoch"]
        for event in sorted(of_log, key=lambda event: event["seq"]):
            for topic in event["topics"]:
                for row in topic["partitions"]:
                    self._known[topic["topic"], row["partition"]] = row["offset"]
            self._next_seq = event["seq"] + 1

    def _remove_old(self, today: date) -> None:
        first = today - timedelta(days=self._keep_days - 1)
        for folder in self._folder.glob("????-??-??"):
            with suppress(ValueError):
                if date.fromisoformat(folder.name) < first:
                    shutil.rmtree(folder)
