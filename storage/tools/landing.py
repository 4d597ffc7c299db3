"""Writes the events of a store into files for the pipeline, which reads only files.

The store does not change, and other processes may use it. The files are those that sealing would
write, in a folder for each log. They also show how far each log was read: the next call continues
after the last event that is in a file. A seq is the sequence number of an event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.event_log.log_clock import wall_clock_ms
from groupkeeper.storage.event_log.sealing.sealer import Pacer, SealSettings
from groupkeeper.storage.event_log.sealing.work import SealingWork
from groupkeeper.storage.event_log.segments import SEGMENT_BYTES, Hook, no_hook
from groupkeeper.storage.event_log.several_logs import LogStore
from groupkeeper.storage.event_log.source import EventRows, OpenRows
from groupkeeper.storage.file_lock import LockedFile, LockHeld

LOCK: Final = "_landing.lock"
"""The file that is locked during a call; Spark ignores names that begin with an underscore."""


class LandedLog(NamedTuple):
    """The files of one log of the store."""

    directory: Path
    log_ids: frozenset[str]
    """The logs in these files that the store still has in rows. Files of earlier logs may be there
    too."""
    sealed_seq: int
    """The last seq of the store that is or was in a file."""


class Landed(NamedTuple):
    """The result of ``land_events``."""

    events: int
    """The number of events that are in files now and were not before."""
    elsewhere: frozenset[str]
    """The directories into which the coordinator moved events that are in no row any more."""
    logs: Sequence[LandedLog] = ()


def land_events(
    store: LogStore,
    directory: Path,
    progress: Callable[[str, int], object],
    *,
    segment_bytes: int = SEGMENT_BYTES,
    hook: Hook = no_hook,
) -> Landed:
    """Write the present events of a store that are in no file in ``directory`` yet. Blocks.

    ``progress`` is called with the name of a log and a seq when a full file ends there. After a
    failure, call this again: events in files are not written again. Raises StoreRefused if the
    coordinator or another process writes files there, StorageError if the store cannot be read,
    SegmentError if a file there is damaged, and OSError if a file cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    try:
        lock = LockedFile(directory / LOCK)
    except LockHeld:
        raise StoreRefused(f"{directory}: another process writes events of a store there") from None
    events, elsewhere, logs = 0, set(), []
    try:
        with store.kept_open():
            for name, open_rows in store.logs().items():
                # a folder for each log, because settling looks at every file of a folder
                settings = SealSettings(
                    directory=directory / name,
                    segment_bytes=segment_bytes,
                    store=store.store_name(name),
                )
                landing = _Landing(partial(_held, open_rows), settings, hook)
                if landing.has_events(directory):
                    events += landing.land(partial(progress, name))
                    elsewhere |= landing.elsewhere
                    logs.append(landing.landed())
    finally:
        lock.release()
    return Landed(events, frozenset(elsewhere), logs)


def _held(open_rows: OpenRows) -> EventRows:
    """Open the rows with their present events only. If later events were included, reading the
    log of a busy coordinator might never end.
    """
    rows = open_rows()
    try:
        rows.hold()
    except BaseException:
        rows.close()
        raise
    return rows


class _Landing:
    """Writes the events of one log into files."""

    def __init__(self, open_rows: OpenRows, settings: SealSettings, hook: Hook) -> None:
        self.elsewhere: set[str] = set()
        self._open_rows = open_rows
        self._settings = settings
        self._hook = hook
        self._log_ids: frozenset[str] = frozenset()
        self._sealed_seq = 0
        self._recorded: str | None = None
        """The directory into which the coordinator moves or moved events; None if unknown."""

    def has_events(self, directory: Path) -> bool:
        with closing(self._open_rows()) as rows:
            self._recorded = rows.note().log_dir
            if self._recorded and Path(self._recorded).resolve() == directory.resolve():
                raise StoreRefused(
                    f"{directory}: the coordinator of this store writes its own files there"
                )
            return rows.ends().last_seq > 0

    def land(self, progress: Callable[[int], object]) -> int:
        """Write the events that are in no file. Return their number."""
        self._settings.directory.mkdir(exist_ok=True)
        pacer = Pacer(sleep=lambda length_s: None)  # no other thread waits

        def at_step(step: str) -> None:
            self._hook(step)
            if step == "listed" and work.progress.sealed_seq > before:
                progress(work.progress.sealed_seq)

        work = SealingWork(self._open_rows, self._settings, wall_clock_ms, pacer, at_step)
        try:
            found = work.settle()
            if found.lost is not None and self._recorded is not None:
                self.elsewhere.add(self._recorded)
            before = work.progress.sealed_seq
            # a single step, because each step first searches a topic for the seq at which it begins
            work.step(limit_s=inf)
            work.finish(inf)
            self._log_ids, self._sealed_seq = work.log_ids, work.progress.sealed_seq
            return self._sealed_seq - before
        finally:
            work.close()

    def landed(self) -> LandedLog:
        """Return the files of the log, after ``land``."""
        return LandedLog(self._settings.directory, self._log_ids, self._sealed_seq)
