"""Writes the events of a store into files before the store is replaced (``groupkeeper storage
move``).

A move copies groups, not events. Files of events stay where they are. But the newest events are
only in the store. If the store was never sealed, all its events are only there.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import NamedTuple

from groupkeeper.storage.event_log.log_clock import wall_clock_ms
from groupkeeper.storage.event_log.sealing.sealer import Pacer, SealSettings
from groupkeeper.storage.event_log.sealing.work import SealingWork
from groupkeeper.storage.event_log.segments import no_hook
from groupkeeper.storage.event_log.source import OpenRows


class KeptEvents(NamedTuple):
    """Where the events of a store are now."""

    directory: Path
    """The directory that has the event files of the store."""
    last_seq: int
    """The sequence number (seq) of the last event that is or was in a file; 0 if there is none."""
    written: int
    """The number of events that this call has written into files."""
    lost: tuple[int, int] | None = None
    """The first and the last seq of the first range of events that are in no file and not in the
    store; None if no event is lost."""
    put_aside: Sequence[str] = ()
    """Damaged files in ``directory``. They were renamed."""
    absent: Path | None = None
    """The directory that the store has recorded, if it does not exist on this machine."""


def keep_events(open_rows: OpenRows, log_dir: Path) -> KeptEvents:
    """Write every event that is in no file yet. Blocks. The store does not change.

    The directory is the one that the store has recorded, or ``log_dir`` if that does not exist.
    After a failure call this again: events in files are not written again. Raises StorageError if
    the store cannot be read, and OSError if a file cannot be written.
    """
    rows = open_rows()
    try:
        recorded = Path(rows.note().log_dir or log_dir)
    finally:
        rows.close()
    is_here = recorded.is_dir()  # it may be a directory of another machine
    directory = recorded if is_here else log_dir
    directory.mkdir(parents=True, exist_ok=True)
    pacer = Pacer(sleep=lambda length_s: None)  # no other thread waits
    work = SealingWork(open_rows, SealSettings(directory=directory), wall_clock_ms, pacer, no_hook)
    try:
        found = work.settle()
        before = work.progress.sealed_seq
        work.finish(inf)
    finally:
        work.close()
    last_seq = work.progress.sealed_seq
    absent = None if is_here or recorded == log_dir else recorded
    return KeptEvents(
        directory, last_seq, last_seq - before, found.lost, tuple(found.put_aside), absent
    )
