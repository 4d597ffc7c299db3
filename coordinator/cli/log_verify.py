"""``groupkeeper log verify``: what is missing or damaged in the event log.

A segment is a file of events. The number of an event in its log is its seq.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from groupkeeper.coordinator.cli.failing import FAILED, NOTHING_MATCHED, fail
from groupkeeper.coordinator.cli.group import Output, OutputOption, print_table
from groupkeeper.coordinator.cli.plain_text import plain, styled
from groupkeeper.coordinator.cli.store_place import PasswordFileOption, StorePlace
from groupkeeper.coordinator.cli.stored_events import (
    ConfigOption,
    StoreOption,
    settings_of,
    stored_events,
)

if TYPE_CHECKING:
    from groupkeeper.storage.event_log.check import DirectoryReport, LogReport
    from groupkeeper.storage.event_log.check_store import PlaceOf, StoreLogReport
    from groupkeeper.storage.event_log.several_logs import LogStore
    from groupkeeper.storage.event_log.source import LogNote

DirOption = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        help="The directory of the segments. Without --store, nothing else is read.",
    ),
]

_TOPICS: Final = "kafka:"
"""The begin of the URL of a store that has a log for each shard."""
NO_FILES: Final = "none of its events was moved into a file: nothing to compare"


@dataclass(kw_only=True)
class _StoreCheck:
    """The result of the comparison of a store with its files."""

    store: str
    logs: Sequence[StoreLogReport] = ()
    problems: list[str] = field(default_factory=list)
    """Problems that concern no single log."""
    notes: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not self.problems and not any(log.problems for log in self.logs)

    def directories(self) -> list[Path]:
        """Return the directories of the files that are on this machine, each once."""
        places = dict.fromkeys(log.directory for log in self.logs if log.directory is not None)
        return [path for path in map(Path, places) if path.is_dir()]


def verify_command(
    directory: DirOption = None,
    store: StoreOption = None,
    password_file: PasswordFileOption = None,
    config: ConfigOption = None,
    events: Annotated[
        bool,
        typer.Option(
            "--events",
            help="Also read every event. Without this, only the checksums of the files are "
            "checked.",
        ),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check the files of the event log (segments) for gaps, overlaps and damage.

    Compares them with the store too, which knows the last event that was moved into a file. So it
    also finds that the newest files are missing. With --dir and without --store, it checks only the
    files. Then neither a store nor settings are needed.

    Works with or without a running daemon, and changes nothing. Exits 1 if something is wrong, 4 if
    there is no segment.
    """
    check = None
    if store is not None:
        check = _compared(store, password_file, directory)
        places = check.directories() if directory is None else [directory]
    elif directory is not None:
        places = [directory]
    else:
        check, place = _of_settings(config, password_file)
        places = [place, *(each for each in check.directories() if each != place.absolute())]
    report = _verified(places, reads_events=events)
    if output is Output.JSON:
        print(json.dumps(_as_json(report, check), indent=2))
    else:
        _print_report(report)
        _print_check(check)
    if not report.is_sound or (check is not None and not check.is_sound):
        where = report.directory or str(store)
        fail(f"the log in {where} is not sound", FAILED)
    if not report.logs:
        fail(f"there is no segment in {report.directory or store}", NOTHING_MATCHED)


# --- the store ------------------------------------------------------------------------------------


def _compared(store: StorePlace, password_file: Path | None, directory: Path | None) -> _StoreCheck:
    """Compare a store with its files: in ``directory``, or in the directories that the store has
    recorded. Exit if the store cannot be read.
    """

    def place_of(name: str, note: LogNote) -> Path | None:
        return directory or (Path(note.log_dir) if note.log_dir else None)

    source = stored_events(store, None, None, password_file)
    with source.reading():
        return _checked(source.store, source.found, place_of)


def _of_settings(config: Path | None, password_file: Path | None) -> tuple[_StoreCheck, Path]:
    """Compare the store in the settings with its files. Return the result, and ``log.dir``, which
    has the files of this node. They can be checked even if the store cannot be read.
    """
    from groupkeeper.storage.base import StorageError, StoreRefused
    from groupkeeper.storage.event_log.several_logs import ONLY_LOG
    from groupkeeper.storage.open import KAFKA, scheme_of

    settings = settings_of(config)
    own = Path(settings.log.dir)
    storage = settings.storage
    store = StorePlace(storage.url, storage.password_file).with_password_file(password_file)

    def place_of(name: str, note: LogNote) -> Path | None:
        # in topics of Kafka the logs have the numbers of shards, not of nodes
        is_of_node = name == str(settings.node_id) and scheme_of(storage.url) != KAFKA
        if name == ONLY_LOG or is_of_node:
            return own.absolute()
        return Path(note.log_dir) if note.log_dir else None

    try:
        return _checked(store, store.logs(), place_of), own
    except StoreRefused as error:
        return _StoreCheck(store=str(store), notes=[f"not compared: {error}"]), own
    except (StorageError, OSError) as error:
        return _StoreCheck(store=str(store), problems=[f"cannot be read: {error}"]), own


def _checked(store: StorePlace, logs: LogStore, place_of: PlaceOf) -> _StoreCheck:
    from groupkeeper.storage.event_log.check_store import compare

    if not logs.has_files:
        return _StoreCheck(store=str(store), notes=[NO_FILES])
    return _StoreCheck(store=str(store), logs=compare(logs, place_of))


# --- the files ------------------------------------------------------------------------------------


def _verified(places: Iterable[Path], *, reads_events: bool) -> DirectoryReport:
    """Check each directory, and return one report about all."""
    from groupkeeper.storage.event_log.check import DirectoryReport, verify

    report_progress = _print_progress if sys.stderr.isatty() else None
    reports = []
    for place in places:
        try:
            reports.append(verify(place, reads_events=reads_events, progress=report_progress))
        except OSError as error:
            fail(f"{place} cannot be read: {error.strerror}", FAILED)
    if report_progress is not None:
        typer.echo("\r\x1b[K", err=True, nl=False)
    return DirectoryReport(
        directory=", ".join(each.directory for each in reports),
        logs=[log for each in reports for log in each.logs],
        problems=[problem for each in reports for problem in each.problems],
        notes=[note for each in reports for note in each.notes],
    )


# --- output ---------------------------------------------------------------------------------------


def _print_progress(done_bytes: int, all_bytes: int) -> None:
    share = 100 * done_bytes // max(1, all_bytes)
    typer.echo(f"\rchecked {share} % of {all_bytes / 1e6:.1f} MB", err=True, nl=False)


def _print_report(report: DirectoryReport) -> None:
    from groupkeeper.coordinator.cli.event_view import moment

    rows = [
        (
            log.log_id,
            "snapshot" if log.is_snapshot else "events",
            log.segments,
            log.events,
            f"{log.first_seq}-{log.last_seq}",
            moment(log.first_ts_ms) if log.segments else None,
            moment(log.last_ts_ms) if log.segments else None,
            log.file_bytes,
            log.problems or None,
        )
        for log in report.logs
    ]
    if rows:
        names = "LOG KIND SEGMENTS EVENTS SEQS FROM TO BYTES PROBLEMS"
        print_table(names.split(), rows)
    for log in report.logs:
        for problem in _problems(log):
            print(styled(plain(problem), "red"))
    for problem in report.problems:
        print(styled(plain(problem), "red"))
    for note in report.notes:
        print(plain(note))


def _problems(log: LogReport) -> Iterator[str]:
    for first, last in log.gaps:
        yield f"{log.log_id}: events {first} to {last} are in no segment"
    for first, last in log.overlaps:
        yield f"{log.log_id}: events {first} to {last} are in more than one segment"
    for file in log.missing:
        yield f"{file}: is in the manifest and does not exist"
    yield from log.damaged


def _print_check(check: _StoreCheck | None) -> None:
    """Print what the store knows, one line for each log, and then what is wrong."""
    if check is None:
        return
    for note in check.notes:
        print(plain(f"{check.store}: {note}"))
    has_shards = check.store.startswith(_TOPICS)
    for log in check.logs:
        if has_shards and not log.last_seq:
            continue  # the shard never had an event
        kind = "shard" if has_shards else "node"
        name = f"{check.store}, {kind} {log.name}" if log.name else check.store
        if log.sealed_seq:
            of_log = f" of log {log.sealed_log_id}" if log.sealed_log_id else ""
            print(plain(f"{name}: event {log.sealed_seq}{of_log} is the last in a file"))
        for note in log.notes:
            print(plain(f"{name}: {note}"))
        for problem in log.problems:
            print(styled(plain(f"{name}: {problem}"), "red"))
    for problem in check.problems:
        print(styled(plain(f"{check.store}: {problem}"), "red"))


def _as_json(report: DirectoryReport, check: _StoreCheck | None) -> dict[str, Any]:
    import msgspec

    is_sound = report.is_sound and (check is None or check.is_sound)
    shown = {"is_sound": is_sound, **msgspec.to_builtins(report)}
    if check is not None:
        shown["store"] = msgspec.to_builtins(check)
    return shown
