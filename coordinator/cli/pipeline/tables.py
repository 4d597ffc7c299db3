"""``groupkeeper pipeline run`` and ``report``: tables and reports from the event log, with Spark.

Spark is imported only when one of these commands runs. Gold is the layer of tables from which the
reports are made.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupkeeper.coordinator.cli.failing import BUSY, FAILED, NOTHING_MATCHED, USAGE, fail
from groupkeeper.coordinator.cli.pipeline.data_ends import sampled
from groupkeeper.coordinator.cli.pipeline.landing import KEEP_DAYS, landing_of
from groupkeeper.coordinator.cli.pipeline.options import (
    TABLES_OR_OUT,
    BoundsOption,
    ClientConfigOption,
    ConfOption,
    JvmCacheOption,
    KeepVersionsOption,
    MasterOption,
    MemoryOption,
    OneGroupOption,
    ReportsDirOption,
    RunRetentionOption,
    SinceOption,
    UntilOption,
    as_settings,
    days_of_log,
    days_problem,
    first_and_last,
    literal,
)
from groupkeeper.coordinator.cli.pipeline.spark import (
    archive_in,
    failures_told,
    keep_classes,
    start_spark,
)
from groupkeeper.coordinator.cli.store_place import PasswordFileOption, StorePlace, store_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from groupkeeper.pipeline.reports.report import Scope


class ReportName(StrEnum):
    """The reports that ``groupkeeper pipeline report`` can write."""

    INCIDENTS = "incidents"
    GROUPS = "groups"
    LAG = "lag"
    PARTITIONS = "partitions"
    REBALANCES = "rebalances"
    AUDIT = "audit"
    TENANTS = "tenants"


_LOG_DIR = "groupkeeper-log"
_OUT = "groupkeeper-tables"


def run_command(  # noqa: PLR0913  the options of a command
    log_dir: Annotated[
        str | None,
        typer.Option(
            "--log-dir",
            metavar="DIR",
            callback=literal,
            help="The directory of the event log's files. Without --store it is the daemon's "
            "log.dir, and the default is groupkeeper-log. With --store the command writes the "
            "files there itself, and the default is <out>/log.",
        ),
    ] = None,
    store: Annotated[
        StorePlace | None,
        typer.Option(
            "--store",
            metavar="FILE|URL",
            parser=store_place,
            help="Read the events from this store, if its daemon writes no files of its event log: "
            "the URL of a store in PostgreSQL or Kafka, or a SQLite file. The command first writes "
            "the new events into files in --log-dir.",
        ),
    ] = None,
    password_file: PasswordFileOption = None,
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
    jvm_cache: JvmCacheOption = None,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Repeat the run every minute.")
    ] = False,
    accept_gap: Annotated[
        list[datetime] | None,
        typer.Option(
            "--accept-gap",
            metavar="DAY",
            formats=["%Y-%m-%d"],
            help="Publish this day, and the days after it, although events of this day are "
            "missing. Repeatable.",
        ),
    ] = None,
    days: Annotated[
        str | None,
        typer.Option(
            "--days",
            metavar="A..B",
            callback=days_problem,
            help="Compute these days, and all later days, again from bronze (the table of all "
            "events), although nothing changed: 2026-11-21..2026-11-25, or one day.",
        ),
    ] = None,
    keep_versions_hours: KeepVersionsOption = 24,
    retention_days: RunRetentionOption = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="HOST:PORT",
            help="A broker of the cluster that stores the messages. The command first asks it for "
            "the end of each partition, as `sample-ends` does. Lag in the tables is then the "
            "distance to this end.",
        ),
    ] = None,
    client_config: ClientConfigOption = None,
) -> None:
    """Update the tables with the events since the last run, and publish the days that changed.

    Reads the files that the daemon has written into its log.dir, or with --store the events of a
    store. Then merges small files of tables, and removes the days that are older than
    --retention-days. With --store, it also deletes its own old files in --log-dir.

    If events of a day are missing, neither this day nor a later one is published, and the exit code
    is 1. The exit code is also 1 if a file is damaged, or if no broker of --data answers. It is 5
    if another job writes these tables. Ctrl-C and SIGTERM stop the command.
    """
    store = None if store is None else store.with_password_file(password_file)
    log_days, of_layers = days_of_log(retention_days)
    if log_days is not None and store is None:
        fail("--retention-days log is for the files that --store writes", USAGE)
    log_days = KEEP_DAYS if log_days is None else log_days
    is_here = is_of_this_machine(master)
    landing = landing_of(store, log_dir, out, say, is_here=is_here, keep_days=log_days)
    log_dir = str(landing.directory) if landing else log_dir or _LOG_DIR
    if landing is None and is_nowhere(log_dir, master):
        fail(f"{log_dir} does not exist", FAILED)
    if data is not None and continuous:
        fail("--continuous takes no --data: run `sample-ends --every 60` beside it", USAGE)
    archive = archive_in(jvm_cache)
    accepted = [moment.date() for moment in accept_gap or ()]
    with the_only_writer(out):
        from groupkeeper.pipeline.tables.last_run import bytes_to_read, last_run, says, sight
        from groupkeeper.pipeline.tables.retention import parse_retention

        if landing is not None:
            landing.land()
        is_sampled = sampled(data, log_dir, client_config)
        last = last_run(out)
        kept_days = parse_retention(of_layers)
        all_days = kept_days if landing is None else {**kept_days, "log": log_days}
        saw = sight(log_dir, accepted, all_days) if is_here and not continuous else None
        now_ms = int(time.time() * 1000)
        nothing_new = says(last, saw, out, keep_versions_hours, now_ms)
        is_due = landing is not None and landing.has_old_files()
        if nothing_new is not None and days is None and not (is_due and nothing_new.is_sound):
            _say_again(nothing_new.lines, is_sound=nothing_new.is_sound and is_sampled)
            return
        input_bytes = bytes_to_read(last, saw, out)
        spark = start_spark("pipeline", master, memory, input_bytes, as_settings(conf), archive)
        from groupkeeper.pipeline.run import run

        with failures_told():
            whole = run(
                spark,
                log_dir,
                out,
                continuous=continuous,
                accept_gaps=accepted,
                again=first_and_last(days) if days else None,
                keep_versions_hours=keep_versions_hours,
                retention_days=kept_days,
                saw=saw,
                before_each=None if landing is None else landing.land_again,
                after_good=None if landing is None else landing.delete_old_files,
                say=say,
            )
    keep_classes(archive)
    if not (whole and is_sampled) or (landing is not None and landing.has_failed):
        raise typer.Exit(FAILED)


def report_command(  # noqa: PLR0913  the options of a command
    names: Annotated[
        list[ReportName] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="incidents, groups, lag, partitions, rebalances, audit, tenants. Default: all.",
        ),
    ] = None,
    tables: Annotated[str, TABLES_OR_OUT] = _OUT,
    to: ReportsDirOption = None,
    group: OneGroupOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    bounds: BoundsOption = None,
    master: MasterOption = None,
    memory: MemoryOption = "2g",
    conf: ConfOption = None,
    jvm_cache: JvmCacheOption = None,
) -> None:
    """Write reports from the tables: HTML pages, and the same as Parquet, CSV and JSON.

    Exits 4 if there is nothing to report.
    """
    folder = reports_folder(tables, to, master)
    archive, input_bytes = archive_in(jvm_cache), input_bytes_of(tables, master)
    spark = start_spark("report", master, memory, input_bytes, as_settings(conf), archive)
    days = since.date() if since else None, until.date() if until else None
    scope = scope_of(spark, tables, days, group, bounds)
    from groupkeeper.pipeline.reports.jobs import REPORTS, write_reports
    from groupkeeper.pipeline.reports.report import NoTables

    try:
        with failures_told():
            written = write_reports(scope, names or list(REPORTS), folder, say)
    except NoTables as error:
        fail(str(error), NOTHING_MATCHED)
    keep_classes(archive)
    for path in written:
        print(path)
    if not written:
        fail(f"there is nothing to report; the pages in {folder} say why", NOTHING_MATCHED)


def reports_folder(tables: str, to: Path | None, master: str | None) -> Path:
    """Return the folder for the files of reports: ``to``, or a folder in the tables' folder. Exit
    if ``to`` is None and the tables are not on this machine, or if there are no tables.
    """
    if to is None and "://" in tables:
        fail("--to is needed: the reports are written to a folder of this machine", USAGE)
    if is_nowhere(tables, master):
        fail(
            f"{tables} does not exist: is that the --out of `groupkeeper pipeline run`?",
            NOTHING_MATCHED,
        )
    return to if to is not None else Path(tables) / "reports"


def input_bytes_of(tables: str, master: str | None) -> int | None:
    """Return about how many bytes a report reads: the size of the gold tables. Return None if they
    are not on this machine.
    """
    from groupkeeper.pipeline.tables.last_run import bytes_below

    return bytes_below(f"{tables}/gold") if is_of_this_machine(master) else None


def scope_of(
    spark: SparkSession,
    tables: str,
    days: tuple[date | None, date | None],
    group: str | None,
    bounds: Path | None,
) -> Scope:
    """Return the part of the tables that the options of a report name. Exit if the file of bounds
    cannot be used.
    """
    from groupkeeper.pipeline.reports.bounds import BadBounds, read_bounds
    from groupkeeper.pipeline.reports.report import Scope
    from groupkeeper.pipeline.tables.lake import Lake

    try:
        return Scope(spark, Lake(tables), *days, group, read_bounds(bounds))
    except BadBounds as error:
        fail(str(error), USAGE)


@contextmanager
def the_only_writer(tables: str) -> Iterator[None]:
    """Hold the lock of the tables inside the block. Exit with BUSY if another process has it, and
    with FAILED if the folder cannot be written.
    """
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
    """Return True if a folder does not exist. Return False if it exists, or if it may be elsewhere
    than on this machine: only Spark can look there.
    """
    from groupkeeper.pipeline.tables.lake_lock import local_folder

    path = local_folder(folder) if is_of_this_machine(master) else None
    return path is not None and not path.exists()


def is_of_this_machine(master: str | None) -> bool:
    """Return True if Spark, too, reads a path without a scheme as a path of this machine."""
    return (master or "local").startswith("local") and "HADOOP_CONF_DIR" not in os.environ


def _say_again(lines: Sequence[str], *, is_sound: bool) -> None:
    """Print the lines of the last run again, because nothing is new. Exit with FAILED if
    ``is_sound`` is False.
    """
    for line in lines:
        say(line)
    if not is_sound:
        raise typer.Exit(FAILED)


def say(what: str) -> None:
    """Print progress to standard error; standard output is for results."""
    typer.echo(f"  {what}", err=True)
