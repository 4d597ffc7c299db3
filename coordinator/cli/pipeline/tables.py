"""``groupkeeper pipeline run`` and ``report``: tables and reports from the event log, with Spark.

Spark is imported only when one of these commands runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from groupkeeper.coordinator.cli.failing import BUSY, FAILED, NOTHING_MATCHED, USAGE, fail
from groupkeeper.coordinator.cli.pipeline.options import (
    LOG_DIR,
    TABLES_OR_OUT,
    ConfOption,
    MasterOption,
    MemoryOption,
    as_settings,
    literal,
)
from groupkeeper.coordinator.cli.pipeline.spark import failures_told, start_spark


class ReportName(StrEnum):
    """The names of the reports."""

    LAG = "lag"
    REBALANCES = "rebalances"
    AUDIT = "audit"


_LOG_DIR = "groupkeeper-log"
_OUT = "groupkeeper-tables"


def run_command(  # noqa: PLR0913  the options of a command
    log_dir: Annotated[str, LOG_DIR] = _LOG_DIR,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            metavar="DIR",
            callback=literal,
            help="The directory of the tables; created if missing.",
        ),
    ] = _OUT,
    master: MasterOption = None,
    memory: MemoryOption = "2g",
    conf: ConfOption = None,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Keep running, once a minute.")
    ] = False,
    accept_gap: Annotated[
        list[datetime] | None,
        typer.Option(
            "--accept-gap",
            metavar="DAY",
            formats=["%Y-%m-%d"],
            help="Publish this day and later ones despite missing events; repeatable.",
        ),
    ] = None,
    keep_versions_hours: Annotated[
        float,
        typer.Option(
            "--keep-versions-hours",
            metavar="HOURS",
            min=0,
            help="How long replaced tables stay. Choose more than the longest query takes.",
        ),
    ] = 24,
) -> None:
    """Read the segments sealed since the last run, and publish the days that changed.

    Exits 1 if days are held back because events are missing, or if a file is damaged. Exits 5 if
    another job writes these tables. Ctrl-C and SIGTERM stop it.
    """
    if is_nowhere(log_dir, master):
        fail(f"{log_dir} does not exist", FAILED)
    accepted = [moment.date() for moment in accept_gap or ()]
    with the_only_writer(out):
        from groupkeeper.pipeline.tables.last_run import bytes_to_read, last_run, says, sight

        last = last_run(out)
        saw = sight(log_dir, accepted) if is_of_this_machine(master) and not continuous else None
        now_ms = int(time.time() * 1000)
        if (nothing_new := says(last, saw, out, keep_versions_hours, now_ms)) is not None:
            _say_again(nothing_new.lines, is_sound=nothing_new.is_sound)
            return
        input_bytes = bytes_to_read(last, saw, out)
        spark = start_spark("pipeline", master, memory, input_bytes, as_settings(conf))
        from groupkeeper.pipeline.run import run

        with failures_told():
            whole = run(
                spark,
                log_dir,
                out,
                continuous=continuous,
                accept_gaps=accepted,
                keep_versions_hours=keep_versions_hours,
                saw=saw,
                say=_say,
            )
    if not whole:
        raise typer.Exit(FAILED)


def report_command(  # noqa: PLR0913  the options of a command
    names: Annotated[
        list[ReportName] | None,
        typer.Argument(metavar="[NAME]...", help="lag, rebalances, audit; default: all."),
    ] = None,
    tables: Annotated[str, TABLES_OR_OUT] = _OUT,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="DIR", help="The directory of the files; default: <tables>/reports."
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="Only this group.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option("--since", metavar="DAY", formats=["%Y-%m-%d"], help="The first day, UTC."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option("--until", metavar="DAY", formats=["%Y-%m-%d"], help="The last day."),
    ] = None,
    master: MasterOption = None,
    memory: MemoryOption = "2g",
    conf: ConfOption = None,
) -> None:
    """Write reports: a page for people, and Parquet, CSV and JSON.

    Exits 4 if there is nothing to report.
    """
    folder = to if to is not None else Path(tables) / "reports"
    if to is None and "://" in tables:
        fail("--to is needed: the reports are written to a folder of this machine", USAGE)
    if is_nowhere(tables, master):
        fail(
            f"{tables} does not exist: is that the --out of `groupkeeper pipeline run`?",
            NOTHING_MATCHED,
        )
    from groupkeeper.pipeline.tables.last_run import bytes_below

    input_bytes = bytes_below(f"{tables}/gold") if is_of_this_machine(master) else None
    spark = start_spark("report", master, memory, input_bytes, as_settings(conf))
    from groupkeeper.pipeline.reports.jobs import REPORTS, write_reports
    from groupkeeper.pipeline.reports.report import NoTables, Scope
    from groupkeeper.pipeline.tables.lake import Lake

    scope = Scope(
        spark, Lake(tables), since.date() if since else None, until.date() if until else None, group
    )
    try:
        with failures_told():
            written = write_reports(scope, names or list(REPORTS), folder, _say)
    except NoTables as error:
        fail(str(error), NOTHING_MATCHED)
    for path in written:
        print(path)
    if not written:
        fail(f"there is nothing to report; the pages in {folder} say why", NOTHING_MATCHED)


@contextmanager
def the_only_writer(tables: str) -> Iterator[None]:
    """Hold the lock of the tables, or exit with the problem."""
    from groupkeeper.pipeline.tables.lake_lock import TablesBusy, only_writer

    with ExitStack() as stack:
        try:
            stack.enter_context(only_writer(tables))
        except TablesBusy as error:
            fail(str(error), BUSY)
        except OSError as error:
            fail(f"{tables}: tables cannot be written there: {error.strerror}", FAILED)
        yield


def is_nowhere(folder: str, master: str | None) -> bool:
    """Return True if a folder is known not to exist. Returns False if only Spark can say, as for an
    object store.
    """
    from groupkeeper.pipeline.tables.lake_lock import local_folder

    path = local_folder(folder) if is_of_this_machine(master) else None
    return path is not None and not path.exists()


def is_of_this_machine(master: str | None) -> bool:
    """Return True if a plain path names a folder of this machine."""
    return (master or "local").startswith("local") and "HADOOP_CONF_DIR" not in os.environ


def _say_again(lines: Sequence[str], *, is_sound: bool) -> None:
    """Say what a run says that finds nothing new."""
    for line in lines:
        _say(line)
    if not is_sound:
        raise typer.Exit(FAILED)


def register(app: typer.Typer) -> None:
    """Add the commands to ``groupkeeper pipeline``."""
    app.command("run")(run_command)
    app.command("report")(report_command)


def _say(what: str) -> None:
    """Print progress to standard error; standard output is for results."""
    typer.echo(f"  {what}", err=True)
