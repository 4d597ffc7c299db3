"""``groupkeeper pipeline restore``: restore a group's committed offsets of an earlier moment.

Long because it has every option of the command with its help.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from groupkeeper.coordinator.cli.failing import FAILED, NOTHING_MATCHED, USAGE, fail
from groupkeeper.coordinator.cli.group import Output, OutputOption
from groupkeeper.coordinator.cli.pipeline import options
from groupkeeper.coordinator.cli.pipeline.inputs import (
    file_name,
    now_ms,
    parse_moment,
    read_properties,
)
from groupkeeper.coordinator.cli.pipeline.plan_run import (
    Again,
    carry_out,
    opened_plan,
    refuse_with_plan,
)
from groupkeeper.coordinator.cli.pipeline.plan_view import moment, write_plan
from groupkeeper.coordinator.cli.pipeline.spark import failures_told, start_spark
from groupkeeper.coordinator.cli.pipeline.tables import is_nowhere

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from groupkeeper.pipeline.restore.cluster import Cluster, ClusterEndpoint
    from groupkeeper.pipeline.restore.plan import Partition, Plan
    from groupkeeper.pipeline.restore.restore import IncompleteHistory, Standing
    from groupkeeper.storage.event_log.segments import Segment

NO_DATA: Final = "none"
"""``--data none``: no cluster holds the records, so nothing is clamped."""

SPARK_MEMORY: Final = "1g"

PLANS: Final = "groupkeeper-plan"
"""The client id for reads; writes use the plan's client id."""


def restore_command(  # noqa: PLR0913  the options of a command
    group: Annotated[str | None, typer.Option("--group", help="The group to restore.")] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="TIME",
            help="The moment to restore: 2026-11-21T20:15:00Z (no zone: UTC), or 15m for a "
            "quarter of an hour ago (s, m, h, d).",
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            metavar="FILE",
            help="The daemon's SQLite file, which is up to date. Add --log-dir if its segments "
            "were moved.",
        ),
    ] = None,
    log: Annotated[Path | None, options.LOG_DIR] = None,
    tables: Annotated[str | None, options.TABLES] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Only this topic; repeatable.")
    ] = None,
    server: options.ServerOption = None,
    data: options.DataOption = None,
    plan: options.PlanOption = None,
    undo: options.UndoOption = False,
    apply: options.ApplyOption = False,
    accept_gaps: Annotated[
        bool,
        typer.Option("--accept-gaps", help="Plan even if events of the group may be missing."),
    ] = False,
    out: options.PlanOutOption = None,
    output: OutputOption = Output.TABLE,
    client_config: options.ClientConfigOption = None,
    master: options.MasterOption = None,
    timeout: options.TimeoutOption = 30.0,
) -> None:
    """Restore a group's committed offsets as they were at an earlier moment.

    Writes a plan and prints it. --apply carries it out, now or later with --plan FILE. The group
    must be empty, and the history up to the moment complete. --plan FILE --undo --apply undoes it.
    Exits 1 if it was refused.
    """
    from groupkeeper.pipeline.restore.cluster import ClusterEndpoint

    properties = read_properties(client_config)
    if plan is not None:
        refuse_with_plan(
            {
                "--group": group,
                "--as-of": as_of,
                "--store": store,
                "--log-dir": log,
                "--tables": tables,
                "--topic": topic,
                "--data": data,
                "--accept-gaps": accept_gaps,
                "--out": out,
            }
        )
        made, path = opened_plan(plan, undo), plan
        target = ClusterEndpoint(server or made.content.server, properties, timeout)
        carry_out(made, target, Again(path, server, client_config), apply, output)
        return
    if undo:
        fail("--undo undoes an applied plan: name it with --plan FILE", USAGE)
    if group is None or as_of is None or server is None:
        fail("name --group, --as-of and --server, or an existing plan with --plan FILE", USAGE)
    if tables is not None and (store is not None or log is not None):
        fail(
            "--tables names a history, and so do --store and --log-dir: leave out one or the other",
            USAGE,
        )
    if store is None and log is None and tables is None:
        fail("name the history: --store FILE, --log-dir DIR or --tables DIR", USAGE)
    _require_history(store, log)
    if tables is not None and is_nowhere(tables, master):
        fail(
            f"{tables} does not exist: is that the --out of `groupkeeper pipeline run`?",
            NOTHING_MATCHED,
        )
    places = (store, log, tables)
    history = _History(group, parse_moment(as_of, now_ms()), places, topic or [], accept_gaps)
    target = ClusterEndpoint(server, properties, timeout)
    made = _planned(history, target, data, master)
    path = out or Path(f"restore-{file_name(group)}-{made.id}.json")
    write_plan(made, path)
    carry_out(made, target, Again(path, server, client_config), apply, output)


def _require_history(store: Path | None, log: Path | None) -> None:
    """Exit if a place has no history, before the slow start of Spark."""
    from groupkeeper.storage.event_log.reader import last_seq
    from groupkeeper.storage.event_log.segments import segment_names
    from groupkeeper.storage.open import rows_of

    with _reading(store or log):
        if store is not None:
            last_seq(rows_of(store))
        elif log is not None and not segment_names(log):
            fail(f"{log} holds no sealed segment: is it the daemon's log.dir?", NOTHING_MATCHED)


@contextmanager
def _reading(place: object) -> Iterator[None]:
    """Exit with one line if the history in a place cannot be read."""
    from groupkeeper.storage.base import StorageError, StoreRefused
    from groupkeeper.storage.event_log.segments import SegmentError

    try:
        yield
    except StoreRefused as error:
        fail(f"{error}. --store names the daemon's SQLite file", FAILED)
    except SegmentError as error:
        fail(
            f"{error}. Replace the file with a good copy. If there is none, move the file "
            "away and add --accept-gaps to plan without its events",
            FAILED,
        )
    except (OSError, StorageError) as error:
        fail(f"{place} cannot be read: {error}", FAILED)


class _History(NamedTuple):
    """The wanted offsets, and the place of their history."""

    group: str
    as_of_ms: int
    places: tuple[Path | None, Path | None, str | None]
    """The store, the folder of segments, the tables."""
    topics: list[str]
    accepts_gaps: bool
    """The user accepts a plan without the missing events."""

    def names(self, partition: Partition) -> bool:
        """Return True if the topic of a partition is wanted."""
        return not self.topics or partition.topic in self.topics

    def __str__(self) -> str:
        return " and ".join(str(each) for each in self.places if each is not None)


def _found(history: _History, master: str | None) -> Standing:
    """Read the history with Spark; exit with one line if that fails."""
    from groupkeeper.pipeline.restore.restore import IncompleteHistory, RestoreError, group_as_of

    spark = start_spark("restore", master, SPARK_MEMORY)
    typer.echo("groupkeeper: reading the history", err=True)
    scratch_directory = TemporaryDirectory(prefix="groupkeeper-")
    with scratch_directory as scratch, failures_told(), _reading(history):
        try:
            events = _events(history, spark, Path(scratch))
            found = group_as_of(events, history.group, history.as_of_ms, history.topics)
        except IncompleteHistory as error:
            fail(str(error), FAILED)
        except RestoreError as error:
            fail(str(error), NOTHING_MATCHED)
    unknown = [each for each in sorted(found.unknown) if history.names(each)]
    if unknown:
        names = ", ".join(f"{each.topic}-{each.partition}" for each in unknown)
        typer.echo(
            f"groupkeeper: the offsets of {names} at that moment are unknown, since Kafka's "
            "compaction may have removed them before the import: unchanged",
            err=True,
        )
    if history.places[0] is None and found.last_ts_ms < history.as_of_ms:
        typer.echo(
            f"groupkeeper: the history ends at {moment(found.last_ts_ms)}, before the requested "
            "moment; later events are unknown here (are they sealed yet? --store FILE reads "
            "unsealed events)",
            err=True,
        )
    return found


def _events(history: _History, spark: SparkSession, scratch: Path) -> DataFrame:
    """Read the events, and check that none is missing. Raises RestoreError."""
    from groupkeeper.pipeline.restore import restore

    events: DataFrame
    store, log, tables = history.places
    if store is not None:
        return _events_of_store(store, history, spark, scratch)
    if log is not None:
        wrong = wrong_segments(log)
        events = restore.events_of_log(spark, log, {each.file: wrong[each] for each in wrong})
        # a segment that begins after the moment is not needed
        before = [each for each in wrong if each.first_ts_ms <= history.as_of_ms]
        coverage = restore.coverage_of_log(log, {each.file: wrong[each] for each in before})
    else:
        assert tables is not None  # one of the three is named
        events = restore.events_of_lake(spark, tables)
        coverage = restore.coverage_of_lake(spark, tables)
    try:
        restore.require_whole(events, coverage, history.as_of_ms, history)
    except restore.IncompleteHistory as error:
        _accept(error, history)
    return events


def wrong_segments(log: Path) -> dict[Segment, str]:
    """Return the segments that do not match the manifest, each with its problem.

    A segment that the manifest does not list must match its name.
    """
    from groupkeeper.pipeline.log.segment_files import ABSENT, lost_problem
    from groupkeeper.storage.event_log.manifest import listed_and_found
    from groupkeeper.storage.event_log.segments import file_problem

    manifest = listed_and_found(log)
    found = {each: lost_problem(each.damaged) for each in manifest.damaged.values()}
    for segment in manifest.segments.values():
        is_there = (log / segment.file).exists()
        problem = file_problem if segment.sha256 else _problem_of_content
        found[segment] = problem(log, segment) if is_there else ABSENT
    return {segment: problem for segment, problem in found.items() if problem}


def _problem_of_content(log: Path, segment: Segment) -> str:
    """Read a whole segment that the manifest does not list; return its problem, or ""."""
    from groupkeeper.storage.event_log.segments import SegmentError, describe

    try:
        describe(log, segment.name)
    except SegmentError as error:
        return f"is not in the manifest, and {str(error).removeprefix(f'{log / segment.file}: ')}"
    return ""


def _accept(error: IncompleteHistory, history: _History) -> None:
    """Continue without the missing events and report it if the user accepts that; else raise."""
    if not history.accepts_gaps:
        raise error
    typer.echo(f"groupkeeper: {error.what}; planned without them (--accept-gaps)", err=True)


def _events_of_store(
    store: Path, history: _History, spark: SparkSession, scratch: Path
) -> DataFrame:
    """Read sealed and unsealed events as one stream. Raises RestoreError."""
    from groupkeeper.coordinator.cli.pipeline.store_history import copy_group, gaps_before
    from groupkeeper.pipeline.log.coverage import missing_text
    from groupkeeper.pipeline.restore.restore import IncompleteHistory, events_of_log
    from groupkeeper.storage.open import rows_of

    log_dir, open_rows = history.places[1], rows_of(store)
    gaps = copy_group(open_rows, log_dir, history.group, scratch)
    missing = gaps_before(open_rows, log_dir, gaps, history.as_of_ms) if gaps else []
    if missing:
        texts = [missing_text(*each) for each in missing]
        _accept(IncompleteHistory(texts, history), history)
    if not any(scratch.iterdir()):
        fail(f"{store} has no event of group {history.group!r}", NOTHING_MATCHED)
    events: DataFrame = events_of_log(spark, scratch)
    return events


def _planned(
    history: _History, target: ClusterEndpoint, data: str | None, master: str | None
) -> Plan:
    from groupkeeper.pipeline.restore.apply import Purpose, make_plan
    from groupkeeper.pipeline.restore.cluster import ClusterError
    from groupkeeper.pipeline.restore.plan import PlanKind

    try:
        with ExitStack() as stack:
            # checks that they answer before the slow start of Spark
            cluster = stack.enter_context(target.open(PLANS))
            records: Cluster | None = cluster
            if data == NO_DATA:
                records = None
            elif data is not None and data != target.address:
                records = stack.enter_context(target._replace(address=data).open(PLANS))
            found = _found(history, master)
            purpose = Purpose(
                PlanKind.RESTORE,
                f"log {found.store} in {history}, up to {moment(found.last_ts_ms)}",
                now_ms(),
                history.as_of_ms,
            )
            wanted = {history.group: found.offsets}

            def removes(partition: Partition) -> bool:
                return history.names(partition) and partition not in found.unknown

            plan = make_plan(cluster, wanted, records, purpose, removes=removes)
    except ClusterError as error:
        fail(str(error), FAILED)
    touched = {each.topic for group in plan.content.groups for each in group.changes}
    for topic in sorted(set(history.topics) - touched - {each.topic for each in found.unknown}):
        none = f"{history.group!r} has no offset of topic {topic!r}, neither at that moment nor now"
        typer.echo(f"groupkeeper: {none}: is the name right?", err=True)
    return plan
