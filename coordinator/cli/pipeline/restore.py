"""``groupkeeper pipeline restore``: restore a group's committed offsets of an earlier moment.

A segment is a file of events of the event log.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from groupkeeper.coordinator.cli.failing import NOTHING_MATCHED, USAGE, fail
from groupkeeper.coordinator.cli.group import Output, OutputOption
from groupkeeper.coordinator.cli.pipeline import options
from groupkeeper.coordinator.cli.pipeline.restoring import (
    History,
    RestoreOptions,
    accept,
    restore,
    standing_in_store,
    wrong_segments,
)
from groupkeeper.coordinator.cli.pipeline.spark import failures_told, start_spark
from groupkeeper.coordinator.cli.pipeline.tables import is_nowhere
from groupkeeper.coordinator.cli.store_place import PasswordFileOption, StorePlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from groupkeeper.pipeline.log.coverage import Coverage
    from groupkeeper.pipeline.restore.standing import Standing

SPARK_MEMORY: Final = "1g"


def restore_command(  # noqa: PLR0913  the options of a command
    group: options.RestoredGroupOption = None,
    as_of: options.AsOfOption = None,
    store: options.StoreOption = None,
    password_file: PasswordFileOption = None,
    log: Annotated[Path | None, options.LOG_DIR] = None,
    tables: Annotated[str | None, options.TABLES] = None,
    topic: options.TopicOption = None,
    server: options.ServerOption = None,
    data: options.DataOption = None,
    plan: options.PlanOption = None,
    undo: options.UndoOption = False,
    apply: options.ApplyOption = False,
    accept_gaps: options.AcceptGapsOption = False,
    out: options.PlanOutOption = None,
    output: OutputOption = Output.TABLE,
    client_config: options.ClientConfigOption = None,
    master: options.MasterOption = None,
    timeout: options.TimeoutOption = 30.0,
) -> None:
    """Restore a group's committed offsets as they were at an earlier moment.

    Reads the history of the group from the tables (--tables), the daemon's store (--store) or the
    files of its event log (--log-dir). Prints the changes as a plan, and writes the plan to a file.
    Only --apply changes offsets: with the options of a new plan, or later with --plan FILE. `--plan
    FILE --undo --apply` undoes a plan that was applied.

    The group must have no members. All its events up to the moment must be there, unless
    --accept-gaps. Exits 1 if the plan cannot be applied, 4 if the history has nothing about the
    group.
    """
    if plan is None and not undo and None not in (group, as_of, server):
        _require_one_place(store, log, tables, master)
    store = None if store is None else store.with_password_file(password_file)
    asked = RestoreOptions(
        *(group, as_of, store, log, tables, topic or [], server, data, plan, undo, apply),
        *(accept_gaps, out, output, client_config, timeout),
    )
    restore(asked, lambda history: _found(history, master))


def _require_one_place(
    store: StorePlace | None, log: Path | None, tables: str | None, master: str | None
) -> None:
    """Exit if the options name no history, or if --tables is used with --store or --log-dir. Exit
    as well if the tables do not exist.
    """
    if tables is not None and (store is not None or log is not None):
        fail(
            "--tables names a history, and so do --store and --log-dir: leave out one or the other",
            USAGE,
        )
    if store is None and log is None and tables is None:
        fail("name the history: --store FILE, --log-dir DIR or --tables DIR", USAGE)
    if tables is not None and is_nowhere(tables, master):
        fail(
            f"{tables} does not exist: is that the --out of `groupkeeper pipeline run`?",
            NOTHING_MATCHED,
        )


def _found(history: History, master: str | None) -> Standing:
    """Return the offsets of the group at the moment. The history in a store is read in this
    process, and any other history with Spark.
    """
    store = history.places[0]
    if store is not None:
        typer.echo("groupkeeper: reading the history", err=True)
        return standing_in_store(store, history)
    from groupkeeper.pipeline.restore.from_day import group_from_day
    from groupkeeper.pipeline.restore.restore import group_as_of

    spark = start_spark("restore", master, SPARK_MEMORY)
    typer.echo("groupkeeper: reading the history", err=True)
    wanted = (history.group, history.as_of_ms, history.topics)
    with failures_told():
        tables = history.places[2]
        found = None if tables is None else group_from_day(spark, tables, *wanted)
        if found is not None:
            return found
        events, coverage, lacks_events = _events(history, spark)
        chains = coverage.chains()
        return group_as_of(events, *wanted, lacks_events=lacks_events, chains=chains)


def _events(history: History, spark: SparkSession) -> tuple[DataFrame, Coverage, bool]:
    """Return the events, the facts about missing events (``Coverage``), and True if events from
    before the moment are missing.

    Raises IncompleteHistory if such events are missing and the user does not accept this, and
    RestoreError if there is no segment.
    """
    from groupkeeper.pipeline.restore import restore as jobs
    from groupkeeper.pipeline.restore.sealed import coverage_of_log
    from groupkeeper.pipeline.restore.standing import IncompleteHistory

    events: DataFrame
    _, log, tables = history.places
    if log is not None:
        wrong = wrong_segments(log)
        events = jobs.events_of_log(spark, log, {each.file: wrong[each] for each in wrong})
        # a segment that begins after the moment is not needed
        before = [each for each in wrong if each.first_ts_ms <= history.as_of_ms]
        coverage = coverage_of_log(log, {each.file: wrong[each] for each in before})
    else:
        assert tables is not None  # one of the three is named
        events = jobs.events_of_lake(spark, tables)
        coverage = jobs.coverage_of_lake(spark, tables)
    try:
        jobs.require_whole(events, coverage, history.as_of_ms, history)
    except IncompleteHistory as error:
        accept(error, history)
        return events, coverage, True
    return events, coverage, False
