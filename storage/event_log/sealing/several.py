"""Seals a store with several logs into one directory, on one thread. A topic of Kafka has a log for
each shard.

Each log has its own segments, so it has its own work (``sealing.work``). Only logs with new events
are read: to ask the store for each log would cost an idle daemon a hundred requests a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from groupkeeper.storage.event_log.sealing.sealer import (
    Found,
    Pacer,
    Progress,
    SealSettings,
)
from groupkeeper.storage.event_log.sealing.work import STEP_S, SealingWork
from groupkeeper.storage.event_log.segments import Hook, Segment
from groupkeeper.storage.event_log.source import LogNote, SeveralLogs


class SeveralSealing:
    """The work of sealing for all logs of a store (``sealer.Sealing``)."""

    def __init__(
        self,
        source: SeveralLogs,
        settings: SealSettings,
        clock: Callable[[], int],
        hook: Hook,
    ) -> None:
        self._source = source
        self._settings = settings
        self._clock = clock
        self._hook = hook
        self._pacer = Pacer()
        self._works: dict[str, SealingWork] = {}
        self._unread: set[str] = set()
        """The logs that may have events that were not read."""
        self.progress = Progress()

    def settle(self) -> Found:
        lost: tuple[int, int] | None = None
        put_aside: list[str] = []
        for name, open_rows in self._source.open_logs().items():
            work = self._works.get(name)
            if work is None:
                work = self._works[name] = SealingWork(
                    open_rows, self._settings, self._clock, self._pacer, self._hook
                )
            found = work.settle()
            lost = lost or found.lost
            put_aside += found.put_aside
        self._unread = {*self._works}
        self._report()
        return Found(lost=lost, put_aside=put_aside)

    def step(self) -> bool:
        until = time.monotonic() + STEP_S
        try:
            return self._step(until)
        finally:
            self._report()

    def _step(self, until: float) -> bool:
        last_seqs = self._source.last_seqs()
        for name, work in self._works.items():
            if last_seqs.get(name, 0) > work.read_seq:
                self._unread.add(name)
            elif name not in self._unread:
                work.rest()
        for name in [*self._unread]:
            left_s = until - time.monotonic()
            if left_s <= 0:
                return True
            if not self._works[name].step(left_s):
                self._unread.discard(name)
        return bool(self._unread)

    def retain(self) -> Sequence[Segment]:
        damaged = [segment for work in self._works.values() for segment in work.retain()]
        self._report()
        return damaged

    def finish(self, limit_s: float) -> None:
        until = time.monotonic() + limit_s
        last_seqs = self._source.last_seqs()
        for name, work in self._works.items():
            if name in self._unread or last_seqs.get(name, 0) > work.read_seq:
                work.finish(max(until - time.monotonic(), 0))
            else:
                work.seal()
        self._report()

    def close(self) -> None:
        for work in self._works.values():
            work.close()

    def abandon(self) -> None:
        """Do nothing, because a thread cannot be ended from outside."""

    def _report(self) -> None:
        """Add up the progress of the logs, and pass it to the source."""
        each = {name: work.progress for name, work in self._works.items()}
        self._source.sealed(
            {
                name: LogNote(
                    self._works[name].log_ids,
                    str(self._settings.directory.absolute()),
                    sealed_seq=progress.sealed_seq,
                    begin_seq=self._works[name].begin_seq,
                )
                for name, progress in each.items()
            }
        )
        since = [p.open_since_ms for p in each.values() if p.open_since_ms is not None]
        self.progress = Progress(
            sealed_seq=sum(progress.sealed_seq for progress in each.values()),
            sealed_row=sum(progress.sealed_row for progress in each.values()),
            new_log_ids=frozenset().union(*(progress.new_log_ids for progress in each.values())),
            gone_log_ids=frozenset().union(*(progress.gone_log_ids for progress in each.values())),
            segments_sealed=sum(progress.segments_sealed for progress in each.values()),
            segments_damaged=sum(progress.segments_damaged for progress in each.values()),
            open_since_ms=min(since, default=None),
        )
