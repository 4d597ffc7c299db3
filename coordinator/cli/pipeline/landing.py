"""``--store`` of ``groupkeeper pipeline run``: writes the events of a store into files first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from groupkeeper.coordinator.cli.failing import FAILED, USAGE, fail
from groupkeeper.coordinator.cli.store_place import StorePlace


class CannotLand(Exception):
    """The events cannot be read or written. The message is one line."""


class Landing(NamedTuple):
    """Writes the events of a store into files in a folder. ``say`` prints progress."""

    store: StorePlace
    directory: Path
    say: Callable[[str], object]

    def land(self) -> None:
        """Write the events of the store that are in no file yet. Exit with one line on failure."""
        try:
            self._land()
        except CannotLand as error:
            fail(str(error), FAILED)

    def land_again(self) -> None:
        """Write the events of the store that are in no file yet. On failure, print one line and
        return: ``pipeline run --continuous`` calls this again before its next round.
        """
        try:
            self._land()
        except CannotLand as error:
            self.say(f"{error}; it is tried again")

    def _land(self) -> None:
        from groupkeeper.storage.base import StorageError
        from groupkeeper.storage.event_log.segments import SegmentError
        from groupkeeper.storage.tools.by_url import land_events_of

        try:
            landed = land_events_of(
                self.store.where, self.directory, self._say_progress, self.store.password()
            )
        except (StorageError, SegmentError, OSError) as error:
            raise CannotLand(f"the events of {self.store} cannot be read: {error}") from error
        if landed.events:
            self.say(f"wrote {landed.events:,} events of {self.store} into {self.directory}")
        for directory in sorted(landed.elsewhere):
            self.say(
                f"the coordinator moved earlier events into files in {directory}: if these tables "
                f"lack them, call this once with --log-dir {directory} and no --store"
            )

    def _say_progress(self, log: str, seq: int) -> None:
        of_log = f" of log {log}" if log else ""
        self.say(f"reading {self.store}: event {seq:,}{of_log} is in a file")


def landing_of(
    store: StorePlace | None,
    log_dir: str | None,
    out: str,
    say: Callable[[str], object],
    *,
    is_here: bool,
) -> Landing | None:
    """Return the ``Landing`` for ``--store``, or None if the option is not used.

    ``is_here`` is True if Spark is on this machine. Exit if it is not, or if the folder is not on
    this machine.
    """
    if store is None:
        return None
    from groupkeeper.pipeline.tables.lake_lock import local_folder

    directory = local_folder(log_dir or f"{out.rstrip('/')}/log")
    if directory is None or not is_here:
        fail(
            "--store needs Spark on this machine, and a --log-dir on it: elsewhere, run it here "
            "first, and copy the files",
            USAGE,
        )
    return Landing(store, directory, say)
