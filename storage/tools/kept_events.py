"""Writes the events of a store that nobody uses any more into files, for ``groupkeeper storage
move``.

A move copies groups, not events. Their files stay where they are, but the newest events, or all of
a store that seals none, are only in the store.
"""

from __future__ import annotations

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
    """The directory of its files."""
    last_seq: int
    """The last event that is in a file; 0 if the store has none."""
    written: int
    """The number of events that were written there now."""


def keep_events(open_rows: OpenRows, log_dir: Path) -> KeptEvents:
    """Write every event that is in no file yet. Blocks. The store does not change.

    The directory is the one that the store has recorded, or ``log_dir`` if that does not exist.
    After a failure call it again: what is in a file is not written again. Raises StorageError or
    OSError.
    """
    rows = open_rows()
    try:
        recorded = Path(rows.note().log_dir or log_dir)
    finally:
        rows.close()
    directory = recorded if recorded.is_dir() else log_dir  # it may be that of another machine
    directory.mkdir(parents=True, exist_ok=True)
    pacer = Pacer(sleep=lambda length_s: None)  # no other thread waits
    work = SealingWork(open_rows, SealSettings(directory=directory), wall_clock_ms, pacer, no_hook)
    try:
        work.settle()
        before = work.progress.sealed_seq
        work.finish(inf)
    finally:
        work.close()
    last_seq = work.progress.sealed_seq
    return KeptEvents(directory, last_seq, last_seq - before)
