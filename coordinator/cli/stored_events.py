"""Reads events from a store and its files for a command. Reports events that cannot be read.

The number of an event in its log is its seq. A position has, for each log, the seq of the last
event that was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from groupkeeper.coordinator.cli.failing import FAILED, USAGE, fail
from groupkeeper.coordinator.cli.plain_text import plain
from groupkeeper.coordinator.cli.store_place import StorePlace, store_place
from groupkeeper.coordinator.daemon.config import Settings
from groupkeeper.coordinator.daemon.config_load import ConfigError, load_settings

if TYPE_CHECKING:
    from groupkeeper.storage.event_log.reader import Asked
    from groupkeeper.storage.event_log.segments import Segment
    from groupkeeper.storage.event_log.several_logs import LogStore, Position

StoreOption = Annotated[
    StorePlace | None,
    typer.Option(
        "--store",
        metavar="FILE|URL",
        parser=store_place,
        help="The store to read: a SQLite file, or a URL as in storage.url. Default: storage.url.",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The daemon's settings in TOML. They name its store (storage.url) and the directory "
        "of its event log (log.dir).",
    ),
]


class Lost(NamedTuple):
    """Events of one log that cannot be read."""

    log: str
    first_seq: int
    last_seq: int
    problem: str = ""
    """The damage of the file of these events; "" if they are in no file and no row."""


@dataclass(frozen=True, slots=True)
class StoredEvents:
    """The events of a store, or of one group in it. Problems found while reading are recorded."""

    store: StorePlace
    found: LogStore
    group_id: str | None
    lost: set[Lost] = field(default_factory=set)
    """The events that could not be read so far."""
    reported: set[Lost] = field(default_factory=set)
    """The elements of ``lost`` that were reported to the user."""

    def kept_open(self) -> AbstractContextManager[None]:
        """Inside the block, all reads use the same connection to the store."""
        return self.found.kept_open()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Inside the block, exit with FAILED and one line if the events cannot be read."""
        from groupkeeper.storage.base import StorageError, StoreRefused
        from groupkeeper.storage.event_log.segments import SegmentError

        try:
            yield
        except StoreRefused as error:
            advice = "--store names the daemon's SQLite file, or the URL of its store"
            fail(f"{error}. {advice}", FAILED)
        except (StorageError, SegmentError, OSError) as error:
            fail(f"{self.store} cannot be read: {error}", FAILED)

    def end(self) -> Position:
        """Return the position of the last event in each log."""
        from groupkeeper.storage.event_log.several_logs import end_of

        return end_of(self.found.logs())

    def read(
        self, since_ms: int = 0, after: Position | None = None, until: Position | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield the events after the position ``after``, up to ``until``, and not older than
        ``since_ms``. They come from the files, and then from the rows of the store.

        Gaps and damaged files raise no error: they are added to ``lost``.
        """
        from groupkeeper.storage.event_log.several_logs import BEGIN, read_logs

        return read_logs(
            self.found.logs(),
            BEGIN if after is None else after,
            until,
            self._asked_in,
            group_id=self.group_id,
            since_ms=since_ms,
            passes_absent=True,
        )

    def _asked_in(self, log: str) -> Asked:
        def on_gap(first_seq: int, last_seq: int) -> None:
            # In a store without files, retention deletes the first events.
            if first_seq > 1 or self.found.has_files:
                self.lost.add(Lost(log, first_seq, last_seq))

        def on_damage(segment: Segment, why: str) -> None:
            self.lost.add(Lost(log, segment.first_seq, segment.last_seq, f"{plain(why)}."))

        return {"on_gap": on_gap, "on_damage": on_damage}

    def report_lost(self, above: Position) -> None:
        """Print each element of ``lost`` that has events after ``above``, and that was not reported
        before. ``above`` has a seq for each log; 0 for a log that it does not name.
        """
        several = len({each.log for each in self.lost}) > 1
        for each in sorted(self.lost - self.reported):
            if each.last_seq <= above.get(each.log, 0):
                continue
            self.reported.add(each)
            if each.problem:
                typer.echo(
                    f"{each.problem} Its readable events are shown. Replace the file with a good "
                    "copy; groupkeeper log verify names all damaged files",
                    err=True,
                )
            else:
                of_log = f" of log {each.log}" if several else ""
                typer.echo(
                    f"events {each.first_seq} to {each.last_seq}{of_log} are neither in "
                    f"{self.store} nor in its files; groupkeeper log verify reports the problem",
                    err=True,
                )


def stored_events(
    store: StorePlace | None,
    config: Path | None,
    group: str | None,
    password_file: Path | None = None,
) -> StoredEvents:
    """Return the events of ``store``, or of the store in the settings if it is None. With
    ``group``, only the events of this group. Exit if there is no such store.

    ``password_file`` has the password of the store. Without it, the password file in the settings
    is used, but only for the store in the settings.
    """
    if store is None:
        storage = settings_of(config).storage
        store = StorePlace(storage.url, storage.password_file)
    place = store.with_password_file(password_file)
    return StoredEvents(place, _logs_of(place, group), group)


def settings_of(config: Path | None) -> Settings:
    """Load the settings. If they are wrong, print the problem and exit."""
    try:
        return load_settings(config).settings
    except ConfigError as error:
        fail(str(error), USAGE)


def _logs_of(store: StorePlace, group: str | None) -> LogStore:
    from groupkeeper.storage.base import StorageError, StoreRefused

    try:
        return store.logs(group)
    except StoreRefused as error:
        fail(f"{error}; name a --store FILE or URL", USAGE)
    except StorageError as error:
        fail(f"{store} cannot be read: {error}", FAILED)
