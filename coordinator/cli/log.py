"""``groupkeeper log schema``, ``log verify`` and ``log tail``. They do not change the event log.

A segment is a file of events. The number of an event in its log is its seq. A position has, for
each log, the seq of the last event that was read.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from groupkeeper.coordinator.cli.failing import FAILED, NOTHING_MATCHED, fail
from groupkeeper.coordinator.cli.group import Output, OutputOption, print_table
from groupkeeper.coordinator.cli.plain_text import plain
from groupkeeper.coordinator.cli.store_place import PasswordFileOption
from groupkeeper.coordinator.cli.stored_events import (
    ConfigOption,
    StoredEvents,
    StoreOption,
    settings_of,
    stored_events,
)

if TYPE_CHECKING:
    from groupkeeper.storage.event_log.check import DirectoryReport, LogReport
    from groupkeeper.storage.event_log.several_logs import Position

app = typer.Typer(
    help="Check the event log, or follow it.", no_args_is_help=True, rich_markup_mode=None
)

FOLLOW_S: Final = 0.5
"""The time between two checks for new events."""
LOOK_BACK_MS: Final = (3_600_000, 86_400_000, 7 * 86_400_000)
"""The periods before the present in which ``log tail`` searches the last events. It tries each
period in turn. If the longest one has too few events, it reads the whole log.
"""

DirOption = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="The directory of the segments, instead of log.dir."),
]


@app.command("schema")
def schema_command() -> None:
    """Print the JSON Schema (draft 2020-12) of an event.

    Each line of a file of the event log is one event. A later version of groupkeeper may add fields
    and kinds of events.
    """
    from groupkeeper.storage.event_log.json_schema import json_schema

    print(json.dumps(json_schema(), indent=1))


@app.command("verify")
def verify_command(
    directory: DirOption = None,
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

    Needs no running daemon and changes nothing. Exits 1 if something is wrong, 4 if there is no
    segment.
    """
    from groupkeeper.storage.event_log.check import verify

    place = directory or Path(settings_of(config).log.dir)
    report_progress = _print_progress if sys.stderr.isatty() else None
    try:
        report = verify(place, reads_events=events, progress=report_progress)
    except OSError as error:
        fail(f"{place} cannot be read: {error.strerror}", FAILED)
    if report_progress is not None:
        typer.echo("\r\x1b[K", err=True, nl=False)
    if output is Output.JSON:
        print(json.dumps(_as_json(report), indent=2))
    else:
        _print_report(report)
    if not report.is_sound:
        fail(f"the log in {place} is not sound", FAILED)
    if not report.logs:
        fail(f"there is no segment in {place}", NOTHING_MATCHED)


@app.command("tail")
def tail_command(  # noqa: PLR0913  the options of a command
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="GROUP", help="Only this group's events.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new events as they happen.")
    ] = False,
    lines: Annotated[
        int,
        typer.Option(
            "--lines", "-n", min=0, max=10**9, metavar="N", help="Start with the last N events."
        ),
    ] = 20,
    store: StoreOption = None,
    password_file: PasswordFileOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the last events, one line each, with or without a running daemon.

    Times are UTC. For a commit, each partition has its new offset, and in brackets the difference
    from the previous offset. The line of a commit that moves an offset back is red. Exits 4 if
    there is no event.
    """
    source = stored_events(store, config, group, password_file)
    try:
        with source.reading(), source.kept_open():
            end = source.end()
            count = _print_events(_last_events(source, lines, end), group, output)
            while follow:
                time.sleep(FOLLOW_S)
                until = source.end()
                if until != end:
                    _print_events(source.read(after=end, until=until), group, output)
                    source.report_lost(end)
                    end = until
    except KeyboardInterrupt:
        raise typer.Exit from None
    if not count:
        fail("no event matches", NOTHING_MATCHED)


def _last_events(source: StoredEvents, count: int, end: Position) -> list[dict[str, Any]]:
    """Return the last ``count`` events up to the position ``end``, oldest first. The search begins
    with the newest hour (LOOK_BACK_MS).
    """
    if not count:
        return []
    now_ms = time.time_ns() // 1_000_000
    for since_ms in (*(now_ms - back for back in LOOK_BACK_MS), 0):
        found = deque(source.read(since_ms=since_ms, until=end), maxlen=count)
        if len(found) == count:
            break
    is_one_log = len(end) == 1  # with several logs, it is unknown which one has the first event
    shown_from = found[0]["seq"] if len(found) == count and is_one_log else 0
    source.report_lost(dict.fromkeys(end, shown_from))
    return list(found)


def _print_events(events: Iterable[dict[str, Any]], group: str | None, output: Output) -> int:
    from groupkeeper.coordinator.cli.event_view import QUIET, colour_of, line_of

    count = 0
    for event in events:
        count += 1
        if output is Output.JSON:
            line = json.dumps(event)
        else:
            when, kind, text = line_of(event, with_group=group is None)
            line = f"{_style(when, QUIET)}  {_style(kind, colour_of(event))}  {text}"
        sys.stdout.write(line + "\n")
    sys.stdout.flush()
    return count


def _style(text: str, colour: str) -> str:
    """Return the text with codes for the colour. Return the plain text if the output is no terminal
    with colours, or if NO_COLOR is set (https://no-color.org).
    """
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return typer.style(text, fg=colour)


# --- verify ---------------------------------------------------------------------------------------


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
            print(_style(plain(problem), "red"))
    for problem in report.problems:
        print(_style(plain(problem), "red"))
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


def _as_json(report: DirectoryReport) -> dict[str, Any]:
    import msgspec

    return {"is_sound": report.is_sound, **msgspec.to_builtins(report)}
