"""``groupkeeper pipeline run`` and ``report``: tables and reports from the event log, on Spark.

Nothing of Spark is imported before one of these commands is called.
"""

from __future__ import annotations

import shutil
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from coordinator.cli.failing import FAILED, NOTHING_MATCHED, USAGE, fail
from coordinator.cli.pipeline_options import LOG_DIR, TABLES_OR_OUT, MasterOption, MemoryOption


class ReportName(StrEnum):
    """The reports that there are."""

    LAG = "lag"
    REBALANCES = "rebalances"
    AUDIT = "audit"


_LOG_DIR = "groupkeeper-log"
_OUT = "groupkeeper-tables"


def run_command(
    log_dir: Annotated[str, LOG_DIR] = _LOG_DIR,
    out: Annotated[
        str,
        typer.Option(
            "--out", metavar="DIR", help="Where the tables lie; made when it is not there."
        ),
    ] = _OUT,
    master: MasterOption = None,
    memory: MemoryOption = "2g",
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Go on for ever, a minute at a time.")
    ] = False,
    accept_gap: Annotated[
        list[datetime] | None,
        typer.Option(
            "--accept-gap",
            metavar="DAY",
            formats=["%Y-%m-%d"],
            help="Publish this day, and later ones, although events of it are missing; repeatable.",
        ),
    ] = None,
) -> None:
    """Read what was sealed since the last run, and publish the days that changed.

    Exits 1 when days are held back because events are missing, or a file is not what it should be.
    """
    spark = start_spark("pipeline", master, memory)
    from pipeline.failure import why
    from pipeline.run import run
    from pipeline.session import SPARK_ERRORS

    accepted = [moment.date() for moment in accept_gap or ()]
    try:
        whole = run(spark, log_dir, out, continuous=continuous, accept_gaps=accepted, say=_say)
    except SPARK_ERRORS as error:
        fail(why(error), FAILED)
    if not whole:
        raise typer.Exit(FAILED)


def report_command(  # noqa: PLR0913  the options of a command
    names: Annotated[
        list[ReportName] | None,
        typer.Argument(metavar="[NAME]...", help="lag, rebalances, audit; without one, all."),
    ] = None,
    tables: Annotated[str, TABLES_OR_OUT] = _OUT,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="DIR", help="Where the files go; <tables>/reports if not given."
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="One group alone.")
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
) -> None:
    """Write reports: a page for people, and Parquet, CSV and JSON.

    Exits 4 when there is nothing to report.
    """
    folder = to if to is not None else Path(tables) / "reports"
    if to is None and "://" in tables:
        fail("--to is needed: the reports are written to a folder of this machine", USAGE)
    spark = start_spark("report", master, memory)
    from pipeline.failure import why
    from pipeline.lake import Lake
    from pipeline.report import NoTables, Scope
    from pipeline.report_jobs import REPORTS, write_reports
    from pipeline.session import SPARK_ERRORS

    scope = Scope(
        spark, Lake(tables), since.date() if since else None, until.date() if until else None, group
    )
    try:
        written = write_reports(scope, names or list(REPORTS), folder, _say)
    except NoTables as error:
        fail(str(error), NOTHING_MATCHED)
    except SPARK_ERRORS as error:
        fail(why(error), FAILED)
    for path in written:
        print(path)
    if not written:
        fail(f"there is nothing to report; the pages in {folder} say why", NOTHING_MATCHED)


def start_spark(name: str, master: str | None, memory: str) -> Any:
    """Start Spark, or say what is missing; for every command of this family."""
    if shutil.which("java") is None and master is None:
        fail("this needs Java 17, and there is no java on the PATH", FAILED)
    _say("starting Spark")
    from pipeline.session import spark_session

    return spark_session(name, master=master, driver_memory=memory)


def register(app: typer.Typer) -> None:
    """Add the commands to ``groupkeeper pipeline``."""
    app.command("run")(run_command)
    app.command("report")(report_command)


def _say(what: str) -> None:
    """Tell a person who waits; standard output is for what was asked for."""
    typer.echo(f"  {what}", err=True)
