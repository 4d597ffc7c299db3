"""Reads events from a store and its files for a command, and reports the lost ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupkeeper.coordinator.cli.failing import FAILED, USAGE, fail
from groupkeeper.coordinator.cli.plain_text import plain
from groupkeeper.coordinator.cli.store_place import StorePlace, store_place
from groupkeeper.coordinator.daemon.config import Settings
from groupkeeper.coordinator.daemon.config_load import ConfigError, load_settings

if TYPE_CHECKING:
    from groupkeeper.storage.event_log.segments import Segment
    from groupkeeper.storage.event_log.several_logs import Logs, Position

StoreOption = Annotated[
    StorePlace | None,
    typer.Option(
        "--store",
        metavar="FILE|URL",
        parser=store_place,
        help="The SQLite file, or the URL of another store, instead of storage.url.",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="The daemon's settings: storage.url, log.dir."),
]


@dataclass(frozen=True, slots=True)
class StoredEvents:
    """The events to read, and the problems found."""

    store: StorePlace
    logs: Logs
    group_id: str | None
    gaps: set[tuple[int, int]] = field(default_factory=set)
    """First and last seq of each gap found."""
    damaged: dict[str, tuple[int, str]] = field(default_factory=dict)
    """For each damaged file: its last seq, and the problem."""
    reported: set[object] = field(default_factory=set)
    """The gaps and files that were reported to the user."""

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Keep the connection to a store in topics, which its logs share, from read to read."""
        from groupkeeper.storage.event_log.several_logs import ONLY_LOG

        with ExitStack() as stack:
            if ONLY_LOG not in self.logs:
                open_rows = next(iter(self.logs.values()))
                stack.enter_context(closing(open_rows()))
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Inside the block: exit with one line if the events cannot be read."""
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
        """Return the position behind all events."""
        from groupkeeper.storage.event_log.several_logs import end_of

        return end_of(self.logs)

    def read(
        self, since_ms: int = 0, after: Position | None = None, until: Position | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield the events between two positions and from a time on, from the files and then from
        the rows of the store. Gaps and damaged files are recorded, and do not raise.
        """
        from groupkeeper.storage.event_log.several_logs import BEGIN, read_logs

        return read_logs(
            self.logs,
            BEGIN if after is None else after,
            until,
            group_id=self.group_id,
            since_ms=since_ms,
            on_gap=self._keep_gap,
            passes_absent=True,
            on_damage=self._keep_damage,
        )

    def _keep_gap(self, first_seq: int, last_seq: int) -> None:
        from groupkeeper.storage.event_log.several_logs import ONLY_LOG

        # A store in topics has no files. That retention deleted its first events is no problem.
        if first_seq > 1 or ONLY_LOG in self.logs:
            self.gaps.add((first_seq, last_seq))

    def _keep_damage(self, segment: Segment, why: str) -> None:
        self.damaged[segment.file] = segment.last_seq, why

    def report_lost(self, above_seq: int = 0) -> None:
        """Report each gap and damaged file above ``above_seq`` once."""
        for first, last in sorted(self.gaps - self.reported):
            if last > above_seq:
                self.reported.add((first, last))
                typer.echo(
                    f"events {first} to {last} are neither in {self.store} nor in its files; "
                    "groupkeeper log verify reports the problem",
                    err=True,
                )
        for file, (last, why) in sorted(self.damaged.items()):
            if last > above_seq and file not in self.reported:
                self.reported.add(file)
                typer.echo(
                    f"{plain(why)}. Its readable events are shown. Replace the file with a good "
                    "copy; groupkeeper log verify names all damaged files",
                    err=True,
                )


def stored_events(store: StorePlace | None, config: Path | None, group: str | None) -> StoredEvents:
    """Open the events of ``store``, or of the store in the settings; with ``group``, only its
    events.
    """
    if store is not None:
        return StoredEvents(store, _logs_of(store, "", group), group)
    storage = settings_of(config).storage
    place = StorePlace(storage.url)
    return StoredEvents(place, _logs_of(place, storage.password_file, group), group)


def settings_of(config: Path | None) -> Settings:
    """Load the settings. If they are wrong, print the problem and exit."""
    try:
        return load_settings(config).settings
    except ConfigError as error:
        fail(str(error), USAGE)


def _logs_of(store: StorePlace, password_file: str, group: str | None) -> Logs:
    from groupkeeper.storage.base import StorageError, StoreRefused
    from groupkeeper.storage.open import logs_of
    from groupkeeper.storage.password_file import read_password

    try:
        return logs_of(store.where, read_password(password_file), group)
    except StoreRefused as error:
        fail(f"{error}; name a --store FILE or URL", USAGE)
    except StorageError as error:
        fail(f"{store} cannot be read: {error}", FAILED)
