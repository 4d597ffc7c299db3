"""``groupkeeper log schema``, ``log verify`` and ``log tail``. They do not change the event log.

A segment is a file of events. The number of an event in its log is its seq. A position has, for
each log, the seq of the last event that was read.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from groupkeeper.coordinator.cli.failing import NOTHING_MATCHED, fail
from groupkeeper.coordinator.cli.group import Output, OutputOption
from groupkeeper.coordinator.cli.log_verify import verify_command
from groupkeeper.coordinator.cli.plain_text import styled
from groupkeeper.coordinator.cli.store_place import PasswordFileOption
from groupkeeper.coordinator.cli.stored_events import (
    ConfigOption,
    StoredEvents,
    StoreOption,
    stored_events,
)

if TYPE_CHECKING:
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


@app.command("schema")
def schema_command() -> None:
    """Print the JSON Schema (draft 2020-12) of an event.

    Each line of a file of the event log is one event. A later version of groupkeeper may add fields
    and kinds of events.
    """
    from groupkeeper.storage.event_log.json_schema import json_schema

    print(json.dumps(json_schema(), indent=1))


app.command("verify")(verify_command)


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
            line = f"{styled(when, QUIET)}  {styled(kind, colour_of(event))}  {text}"
        sys.stdout.write(line + "\n")
    sys.stdout.flush()
    return count
