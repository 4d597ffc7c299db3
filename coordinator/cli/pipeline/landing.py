"""``--store`` of ``groupkeeper pipeline run``: writes the events of a store into files first, and
deletes old files at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from groupkeeper.coordinator.cli.failing import FAILED, USAGE, fail
from groupkeeper.coordinator.cli.store_place import StorePlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from groupkeeper.pipeline.tables.lake import Lake
    from groupkeeper.storage.event_log.segments import Segment
    from groupkeeper.storage.tools.landed_retention import LandedRetention
    from groupkeeper.storage.tools.landing import Landed

KEEP_DAYS: Final = 30
"""The default of ``--retention-days log=N``: as long as ``log.retention_minutes`` keeps events."""


class CannotLand(Exception):
    """The events cannot be read or written. The message is one line."""


@dataclass
class Landing:
    """Writes the events of a store into files in a folder. ``say`` prints progress."""

    store: StorePlace
    directory: Path
    say: Callable[[str], object]
    keep_days: int = KEEP_DAYS
    """How many days before today files are kept after the tables have their events. FOR_EVER: all
    files are kept."""
    has_failed: bool = field(default=False, init=False)
    """True if old files could not be deleted."""
    _landed: Landed | None = field(default=None, init=False, repr=False)
    """The result of the last step that wrote events into files. None if it failed."""

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

    def has_old_files(self) -> bool:
        """Return True if some files are old enough to be deleted."""
        retention = self._retention()
        return retention is not None and bool(retention.old())

    def delete_old_files(self, spark: SparkSession, lake: Lake) -> Iterator[str]:
        """Delete the old files whose events the tables have. Yield lines to print.

        A failure is a line too, and sets ``has_failed``: the tables are up to date all the same.
        """
        from groupkeeper.storage.base import StorageError
        from groupkeeper.storage.event_log.segments import SegmentError

        self.has_failed = False
        retention = self._retention()
        if retention is None:
            return
        try:
            if count := _delete(retention, spark, lake):
                yield (
                    f"deleted {count:,} files older than {self.keep_days} days from "
                    f"{self.directory}: the tables have their events"
                )
        except (StorageError, SegmentError, OSError) as error:
            self.has_failed = True
            yield f"old files in {self.directory} are not deleted: {error}"

    def _retention(self) -> LandedRetention | None:
        from groupkeeper.storage.tools.landed_retention import LandedRetention

        if self._landed is None:
            return None
        return LandedRetention(self.directory, self._landed.logs, self.keep_days)

    def _land(self) -> None:
        from groupkeeper.storage.base import StorageError
        from groupkeeper.storage.event_log.segments import SegmentError
        from groupkeeper.storage.tools.by_url import land_events_of

        self._landed = None
        try:
            landed = land_events_of(
                self.store.where, self.directory, self._say_progress, self.store.password()
            )
        except (StorageError, SegmentError) as error:
            raise CannotLand(f"the events of {self.store} cannot be read: {error}") from error
        except OSError as error:
            raise CannotLand(
                f"{self.directory}: the events of {self.store} cannot be written there "
                f"({error.strerror}){_advice(error)}"
            ) from error
        self._landed = landed
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
    keep_days: int = KEEP_DAYS,
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
    return Landing(store, directory, say, keep_days)


def _delete(retention: LandedRetention, spark: SparkSession, lake: Lake) -> int:
    from groupkeeper.pipeline.tables.taken import taken

    old = {_content(segment) for segment in retention.old()}
    if not old:
        return 0
    found = taken(spark, lake, old)
    return retention.delete(found.chains, lambda segment: _content(segment) not in found.files)


def _advice(error: OSError) -> str:
    from groupkeeper.storage.file_lock import FORBIDDEN, FULL

    if error.errno in FULL:
        return "; make room"
    return "; let this user write there" if error.errno in FORBIDDEN else ""


def _content(segment: Segment) -> tuple[str, str]:
    return segment.file.rpartition("/")[2], segment.sha256
