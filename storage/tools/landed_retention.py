"""Deletes old files that ``storage.tools.landing`` wrote for the pipeline, after the pipeline has
read them.

Each file (a segment) has events of one log. A *chain* is the logs of one node, or of one shard in
topics of Kafka, one after the other. Retention works on each chain as it does for the segments of a
coordinator: it first keeps the offsets of the deleted events as a snapshot
(``event_log.sealing.retention``). The caller knows the chains, and which segments the tables have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.event_log.log_clock import wall_clock_ms
from groupkeeper.storage.event_log.manifest import listed_and_found
from groupkeeper.storage.event_log.sealing.retention import DAY_MS, LogRetention
from groupkeeper.storage.event_log.sealing.sealer import FOR_EVER, Pacer, SealSettings
from groupkeeper.storage.event_log.segments import Hook, Segment, no_hook
from groupkeeper.storage.event_log.snapshot_logs import base_log
from groupkeeper.storage.file_lock import LockedFile, LockHeld
from groupkeeper.storage.tools.landing import LOCK, LandedLog


@dataclass(frozen=True)
class LandedRetention:
    """The retention of the files that one call of ``land_events`` has written or found."""

    directory: Path
    """The directory that ``land_events`` has locked."""
    logs: Sequence[LandedLog]
    keep_days: int
    """How many days before today are kept. FOR_EVER: nothing is deleted."""
    clock: Callable[[], int] = wall_clock_ms
    hook: Hook = field(default=no_hook, compare=False)

    def old(self) -> list[Segment]:
        """Return the segments that are old enough to be deleted. Writes nothing."""
        if self.keep_days == FOR_EVER:
            return []
        before_ms = (self.clock() - self.keep_days * DAY_MS) // DAY_MS * DAY_MS
        return [
            segment
            for log in self.logs
            for segment in listed_and_found(log.directory).segments.values()
            if segment.last_ts_ms < before_ms and base_log(segment.log_id) == segment.log_id
        ]

    def delete(
        self, chains: Iterable[Collection[str]], is_needed: Callable[[Segment], bool]
    ) -> int:
        """Delete the old segments of each chain, but keep the first one for which ``is_needed``
        returns True, and all segments after it. Return how many were deleted. Blocks.

        ``chains`` are the logs of each chain, without logs whose events an older copy of the store
        has replaced. After a crash, call this again. Raises StoreRefused if another process writes
        files there, SegmentError for a file of a newer version, and OSError if a file cannot be
        read or written.
        """
        if self.keep_days == FOR_EVER:
            return 0
        try:
            lock = LockedFile(self.directory / LOCK)
        except LockHeld:
            raise StoreRefused(
                f"{self.directory}: another process writes events of a store there"
            ) from None
        try:
            each_chain = [frozenset(chain) for chain in chains]
            return sum(self._delete(log, each_chain, is_needed) for log in self.logs)
        finally:
            lock.release()

    def _delete(
        self,
        log: LandedLog,
        chains: Sequence[frozenset[str]],
        is_needed: Callable[[Segment], bool],
    ) -> int:
        settings = SealSettings(directory=log.directory, retention_ms=self.keep_days * DAY_MS)
        before = _files(log.directory)
        for chain, store in self._here(log, chains):
            pacer = Pacer(sleep=lambda length_s: None)  # no other thread waits
            retention = LogRetention(settings, self.clock, self.hook, pacer, is_needed=is_needed)
            retention.store = store
            is_read = not chain.isdisjoint(log.log_ids)
            retention.run(chain, log.sealed_seq if is_read else inf)
        return len(before - _files(log.directory))

    @staticmethod
    def _here(
        log: LandedLog, chains: Iterable[frozenset[str]]
    ) -> Iterator[tuple[frozenset[str], str]]:
        """Yield each chain that has segments in a directory, with the name of its store."""
        found = listed_and_found(log.directory).segments.values()
        stores = {base_log(each.log_id): each.store for each in found}
        for chain in chains:
            if here := sorted(chain & stores.keys()):
                yield chain, max(stores[log_id] for log_id in here)


def _files(directory: Path) -> set[str]:
    segments = listed_and_found(directory).segments.values()
    return {each.file for each in segments if base_log(each.log_id) == each.log_id}
